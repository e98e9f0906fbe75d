"""Options that the commands share, so that they mean the same everywhere."""

from __future__ import annotations

import argparse

from common.cli import positive


def add_checkpoint_files(parser: argparse.ArgumentParser) -> None:
    """Where what belongs to a checkpoint lies, if not where the run recorded it."""
    group = parser.add_argument_group("files of the checkpoint (default: those that the run recorded)")
    group.add_argument("--dict", metavar="DICT", help="dict.txt of the text it was trained with")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """How the network computes."""
    group = parser.add_argument_group("computation")
    group.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute (%(default)s)"
    )
    group.add_argument(
        "--precision", choices=("auto", "fp32", "bf16"), help="of the matrix products (default: as trained)"
    )
    group.add_argument(
        "--max-tokens", type=positive, default=4096, metavar="N", help="of a batch (%(default)s)"
    )
