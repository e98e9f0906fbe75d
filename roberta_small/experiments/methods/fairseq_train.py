"""fairseq-train, started in less time: python -m roberta_small.experiments.methods.fairseq_train."""

from roberta_small.common.startup import import_of_fairseq

# A module of its own, which imports nothing of the planning of runs: every run starts with this import.
with import_of_fairseq():
    from fairseq_cli.train import cli_main

if __name__ == "__main__":
    cli_main()
