"""Command-line options that several commands share."""

from __future__ import annotations

import argparse
import os

from common.cli import positive


def add_suffixes(parser: argparse.ArgumentParser) -> None:
    """`--inputs` and `--label`: the names of a split's files are PREFIX.SUFFIX."""
    parser.add_argument(
        "--inputs",
        nargs="+",
        default=["input0"],
        metavar="SUFFIX",
        help="suffixes of the text files, two for sentence pairs (default: input0; for CLS-books: review)",
    )
    parser.add_argument(
        "--label", default="label", metavar="SUFFIX", help="suffix of the label file (default: label)"
    )


def add_reading(parser: argparse.ArgumentParser) -> None:
    """`--normalize-apostrophes` and `--workers`: how text is read and on how many cores."""
    parser.add_argument(
        "--normalize-apostrophes",
        action="store_true",
        help="read the apostrophes ’ and ʼ as '; use it for all text of a model, or for none",
    )
    parser.add_argument(
        "--workers",
        type=positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="threads (default: all cores)",
    )


def add_destination(parser: argparse.ArgumentParser, metavar: str) -> None:
    """`--out` (fairseq's `--destdir`) and `--overwrite`: the folder a command writes in one step."""
    parser.add_argument("--out", "--destdir", required=True, metavar=metavar, help="folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace a folder this command wrote")
