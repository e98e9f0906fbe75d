"""fairseq-train, started in less time: python -m roberta_small.experiments.methods.fairseq_train."""

from roberta_small.common.startup import import_of_fairseq

with import_of_fairseq():
    from fairseq_cli.train import cli_main

if __name__ == "__main__":
    cli_main()
