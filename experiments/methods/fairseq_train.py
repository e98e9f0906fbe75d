"""fairseq-train as `python -m roberta_small.experiments.methods.fairseq_train`, which starts it in less time."""

from roberta_small.common.startup import import_of_fairseq

with import_of_fairseq():
    from fairseq_cli.train import cli_main

if __name__ == "__main__":
    cli_main()
