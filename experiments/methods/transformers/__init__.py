"""The method `transformers`: the runs of train.sh, trained by the Transformers Trainer."""
