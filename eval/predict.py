"""Classify raw text: from the command line, a file or standard input, one text a line.

Text is read and answered in blocks, so that memory stays bounded; every line gets one answer, in the order
of the lines, an empty one too. A checkpoint for pairs takes the two sentences of a line parted by a tab.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tqdm import tqdm

from common.errors import UserError
from common.files import atomic_open
from preprocess.readers.lines import BLOCK_BYTES, Block, read_blocks

from .options import add_checkpoint_files, add_engine
from .output import FORMATS, Answer, open_writer

if TYPE_CHECKING:
    from .classifier import SentenceClassifier, Text

STDIN = "standard input"
EXAMPLES = """examples:
  python -m eval predict --checkpoint runs/fairseq/pretrained/seed1 "Un livre captivant."
  python -m eval predict --checkpoint runs/fairseq/pretrained/seed1 --input reviews.txt --output a.jsonl
  zcat reviews.gz | python -m eval predict --checkpoint runs/fairseq/pretrained/seed1 --format csv > a.csv
  python -m eval predict --checkpoint checkpoint_best.pt --dict dict.txt --sentencepiece-model s.model < a.txt
  python -m eval predict --checkpoint runs/fairseq/pretrained/seed1 --explain --html why.html "Un livre raté."
"""


@dataclass(frozen=True)
class Lines:
    """Some consecutive lines of the input."""

    lines: list[str]
    first: int
    """Number of the first, counted from 1."""
    where: str
    """What an error calls a line, such as "reviews.txt, line"."""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `predict`."""
    parser = subparsers.add_parser(
        "predict",
        help="classes and probabilities for raw text",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("text", nargs="*", metavar="TEXT", help="texts to classify (default: read --input)")
    parser.add_argument("--checkpoint", required=True, metavar="C", help="a checkpoint, or a run's folder")
    parser.add_argument(
        "--input", metavar="FILE", help=f"one text a line, plain, .gz or .xz (default: {STDIN})"
    )
    parser.add_argument("--output", metavar="FILE", help="appears whole (default: standard output)")
    parser.add_argument(
        "--format", choices=FORMATS, help="text is for reading (default: jsonl, with --explain text)"
    )
    parser.add_argument("--with-text", action="store_true", help="repeat each text beside its answer")
    parser.add_argument(
        "--explain", action="store_true",
        help="mark the words that drove the decision (integrated gradients); jsonl has their scores",
    )  # fmt: skip
    parser.add_argument("--html", metavar="FILE", help="with --explain: a page with the words in colour")
    add_checkpoint_files(parser)
    parser.add_argument(
        "--data", metavar="DATA", help="binarized folder of the run: dictionary, classes, SentencePiece model"
    )
    parser.add_argument("--sentencepiece-model", metavar="MODEL", help="that the data were made with")
    add_engine(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """The command: load, then answer block by block."""
    _check(args)
    from .classifier import SentenceClassifier

    classifier = SentenceClassifier.from_run(
        args.checkpoint,
        data=args.data,
        dictionary=args.dict,
        sentencepiece_model=args.sentencepiece_model,
        device=args.device,
        precision=args.precision,
        max_tokens=args.max_tokens,
    )
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(atomic_open(args.output)) if args.output else sys.stdout
        kind = args.format or ("text" if args.explain else "jsonl")
        writers = [open_writer(kind, output, classifier.classes, with_text=args.with_text)]
        if args.html:
            from .explain import Page

            writers.append(stack.enter_context(Page(args.html, classifier.classes)))
        # Not into answers that are read on the same terminal.
        hidden = True if output.isatty() else None
        bar = stack.enter_context(tqdm(desc="predict", unit=" texts", leave=False, disable=hidden))
        for block in read_input(args.text, args.input):
            for answer in _answers(classifier, block, explain=args.explain):
                for writer in writers:
                    writer.write(answer)
                bar.update()
            output.flush()


def read_input(texts: Sequence[str], path: str | None) -> Iterator[Lines]:
    """The lines to classify, in blocks; raises `UserError` where one is not UTF-8."""
    if texts:
        yield Lines(list(texts), 1, "TEXT")
        return
    name = path or STDIN
    for block in _standard_input() if path is None else read_blocks(path):
        yield Lines(block.lines(), block.first_line, f"{name}, line")


def _standard_input() -> Iterator[Block]:
    """Blocks as soon as their lines come: who types or pipes slowly is answered at once."""
    first_line = 1
    while data := sys.stdin.buffer.read1(BLOCK_BYTES):
        if not data.endswith(b"\n"):
            data += sys.stdin.buffer.readline()
        yield Block(STDIN, first_line, data, len(data))
        first_line += data.count(b"\n")


def _answers(classifier: SentenceClassifier, block: Lines, *, explain: bool) -> Iterator[Answer]:
    texts: list[Text] = [tuple(line.split("\t")) for line in block.lines] if classifier.pairs else block.lines
    rows = classifier.encode(texts, first=block.first, where=block.where)
    if explain:
        from .explain import explain_all

        explained = explain_all(classifier, texts, rows)
    from .network import probabilities

    answers_NK = probabilities(classifier.network.logits(rows))
    for number, (line, row_K) in enumerate(zip(block.lines, answers_NK.tolist(), strict=True)):
        words = next(explained) if explain else None
        named = dict(zip(classifier.classes, row_K, strict=True))
        yield Answer(block.first - 1 + number, line, named, words)


def _check(args: argparse.Namespace) -> None:
    """Raise `UserError` for flags that contradict each other."""
    if args.text and args.input:
        raise UserError("TEXT and --input: give the texts in one way")
    if args.html and not args.explain:
        raise UserError("--html shows what --explain finds: add --explain")
    if args.explain and args.format in ("csv", "tsv"):
        raise UserError(f"--explain: a {args.format} has no place for words; take --format jsonl or text")
