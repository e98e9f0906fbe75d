"""Command-line options that several commands share."""

from __future__ import annotations

import argparse

from roberta_small.common.cli import positive
from roberta_small.common.label_kinds import TASKS

DEFAULT_PART = "0.1"
"""Of `--valid` and `--test`: the fraction of the examples that is set aside."""
NO_TEST = "none"
"""The value of `--test` for data without labelled test examples."""
TRAIN = "train"
"""The value of `--tokenizer` for a new tokenizer, trained on the training text."""
Arguments = argparse.ArgumentParser | argparse._ArgumentGroup
"""What options are added to."""


def add_text_columns(parser: Arguments) -> None:
    """`--text-column` and `--pair-column`."""
    parser.add_argument(
        "--text-column",
        nargs="+",
        metavar="NAME",
        help="column of the text; several are joined with a space (default: guessed)",
    )
    parser.add_argument(
        "--pair-column",
        metavar="NAME",
        help="column of the second text of a sentence pair (default: guessed)",
    )


def add_columns(parser: Arguments) -> None:
    """`--text-column`, `--pair-column`, `--split-column`, and what says how labels are read."""
    add_text_columns(parser)
    parser.add_argument(
        "--label-column",
        nargs="+",
        metavar="NAME",
        help="column of the label; several: a column of 0 and 1 for each class of multi-label data "
        "(default: guessed)",
    )
    parser.add_argument(
        "--label-separator",
        metavar="TEXT",
        help="between the labels of a row, such as ; (multi-label data; lists in JSON and Parquet need none)",
    )
    parser.add_argument(
        "--task",
        choices=list(TASKS),
        help="kind of labels: one class per text, any number of classes, or a number (default: detected)",
    )
    parser.add_argument(
        "--split-column", metavar="NAME", help="column of the split of each row: train, valid or test"
    )
    parser.add_argument(
        "--merge-labels",
        action="store_const",
        const=True,
        help="labels that look alike (case, spaces, invisible characters, ...) are one class",
    )


def add_dialect(parser: Arguments) -> None:
    """The options of `readers.dialect.dialect_of`, which are None unless they are given."""
    for name, value, text in (
        ("encoding", "NAME", "encoding of the file, such as cp1252 (default: detected)"),
        ("delimiter", "CHARACTER", r"between the fields of CSV; \t for a tab (default: detected)"),
        ("sheet", "NAME", "sheet of a workbook (default: the only one with cells)"),
    ):
        parser.add_argument(f"--{name}", metavar=value, help=text)
    text = "row of a workbook, or line of CSV, with the names of the columns; those above are not read"
    parser.add_argument("--header-row", type=positive, metavar="N", help=f"{text} (default: the first one)")
    text = "the first row is an example; the columns are named 1, 2, ..."
    parser.add_argument("--no-header", action="store_const", const=True, help=text)


def add_splits(parser: Arguments, seed: str = "--seed") -> None:
    """`--valid`, `--test` and the option `seed`, which are None unless they are given."""
    for name in ("valid", "test"):
        without = f"; {NO_TEST}: no test set" if name == "test" else ""
        parser.add_argument(
            f"--{name}",
            metavar="FILE|N",
            help=f"{name} set: a file, or the number or fraction of examples to hold out{without} "
            f"(default: {DEFAULT_PART})",
        )
    parser.add_argument(seed, type=int, metavar="N", help="random seed of the split (default: 1)")


def add_soft_labels(parser: Arguments) -> None:
    """`--soft-labels`, None unless it is given."""
    parser.add_argument(
        "--soft-labels",
        metavar="FILE",
        help="file of predictions for further texts (roberta-small predict --with-text): training examples "
        "whose targets are the predicted probabilities; texts of the valid and test sets are left out",
    )


def add_tokenizer(parser: Arguments, default: str = TRAIN) -> None:
    """`--tokenizer` and `--dict`, which are None unless they are given; `default` is for the help."""
    parser.add_argument(
        "--tokenizer",
        metavar="TOKENIZER",
        help="SentencePiece model, folder or hub name of a Transformers tokenizer, folder with data or a "
        f"checkpoint and its tokenizer, '{TRAIN}' to train a new SentencePiece model; for the tokens in "
        f"--dict: 'words' or 'characters' (default: {default})",
    )
    parser.add_argument("--dict", metavar="DICT", help="fairseq dict.txt of the tokenizer")
