"""fairseq-train as `python -m experiments.methods.fairseq_train`, which starts it in less time."""

from common.startup import rarely_used_by_fairseq

with rarely_used_by_fairseq():
    from fairseq_cli.train import cli_main

if __name__ == "__main__":
    cli_main()
