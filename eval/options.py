"""Options shared by the commands, and reading their input texts line by line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from roberta_small.common.cli import DEVICES, Parser, positive
from roberta_small.common.errors import UserError
from roberta_small.eval.batches import MAX_TOKENS
from roberta_small.preprocess.readers import reader_name
from roberta_small.preprocess.readers.lines import BLOCK_BYTES, Block, read_blocks
from roberta_small.preprocess.readers.records import DEFAULT as LINES

STDIN = "standard input"


@dataclass(frozen=True)
class Lines:
    """Consecutive lines of the input."""

    lines: list[str]
    first: int
    """Number of the first line, counted from 1."""
    where: str
    """Prefix of a line number in error messages: "reviews.txt, line"."""


def add_texts(parser: Parser, text: str, *, tables: str = "") -> None:
    """Add TEXT, --input and --out; `text` is the word for one text in the help, "text" or "prompt".

    `tables` is what the help says about tables as --input.
    """
    parser.add_argument("text", nargs="*", metavar="TEXT", help=f"{text}s (default: read --input)")
    parser.add_argument(
        "--input",
        metavar="FILE",
        help=f"one {text} per line: plain text, .gz or .xz{tables} (default: {STDIN})",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="output file (default: standard output); written only if the command succeeds",
    )


def add_checkpoint_files(parser: Parser, *, tokenizer: bool = False) -> None:
    """Add --data and --dict; with `tokenizer` also --sentencepiece-model."""
    group = parser.add_argument_group("data and tokenizer (default: as recorded by the run)")
    group.add_argument("--data", metavar="BIN", help="binarized data folder")
    group.add_argument("--dict", metavar="FILE", help="fairseq dictionary (dict.txt) of the training data")
    if tokenizer:
        group.add_argument(
            "--sentencepiece-model", metavar="FILE", help="SentencePiece model of the training data"
        )


def add_computation(parser: Parser) -> argparse._ArgumentGroup:
    """Add --device and --precision; returns their group, so that the caller can add the batch size."""
    group = parser.add_argument_group("computation")
    group.add_argument(
        "--device", choices=DEVICES, default="auto", help="device to compute on (default: %(default)s)"
    )
    group.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16"),
        help="precision of matrix products; use fp32 for figures to publish (default: auto, the one that "
        "training recorded, or fp32 if there is none)",
    )
    return group


def add_max_tokens(group: argparse._ArgumentGroup) -> None:
    """Add --max-tokens, the size of a classifier's batches."""
    group.add_argument(
        "--max-tokens",
        type=positive,
        default=MAX_TOKENS,
        metavar="N",
        help="tokens per batch, including padding (default: %(default)s)",
    )


def loading_options(args: argparse.Namespace) -> dict[str, Any]:
    """The values of `add_checkpoint_files` and `add_computation`, for `SentenceClassifier.from_run`."""
    return {
        "data": args.data,
        "dictionary": args.dict,
        "sentencepiece_model": args.sentencepiece_model,
        "device": args.device,
        "precision": args.precision,
    }


def read_input(texts: Sequence[str], path: str | None) -> Iterator[Lines]:
    """Yield the texts of the command line, the file or standard input in blocks.

    Raises `UserError` for a line that is not UTF-8, and for a file whose suffix is that of another format.
    """
    if path is not None and (kind := reader_name(path)) != LINES:
        raise UserError(
            f"{path}: a file of the format '{kind}', not of one text per line; use a plain text file"
        )
    if texts:
        yield Lines(list(texts), 1, "TEXT")
        return
    name = path or STDIN
    for block in _standard_input() if path is None else read_blocks(path):
        yield Lines(block.lines(), block.first_line, f"{name}, line")


def _standard_input() -> Iterator[Block]:
    """Yield the lines available so far as a block, so that slow or typed input is processed immediately."""
    first_line = 1
    while data := sys.stdin.buffer.read1(BLOCK_BYTES):
        if not data.endswith(b"\n"):
            data += sys.stdin.buffer.readline()
        yield Block(STDIN, first_line, data, len(data))
        first_line += data.count(b"\n")
