"""The method `transformers`: the runs of `train`, trained by the Transformers Trainer."""
