"""Classify raw text from the command line, a file or standard input: one text per line.

Each line gets one prediction, in input order; empty lines too. Text is processed in blocks, so memory stays
bounded. For sentence pairs, a line contains both sentences, separated by a tab.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tqdm import tqdm

from common.errors import UserError
from common.files import atomic_open

from .options import Lines, add_checkpoint_files, add_computation, add_max_tokens, add_texts, read_input
from .output import FORMATS, TextPrediction, open_writer

if TYPE_CHECKING:
    from .classifier import SentenceClassifier, Text

EXAMPLES = """examples:
  python -m eval predict --checkpoint runs/fairseq/pretrained/seed1 "Un livre captivant."
  python -m eval predict --checkpoint runs/fairseq/pretrained/seed1 --input reviews.txt --out a.jsonl
  zcat reviews.gz | python -m eval predict --checkpoint runs/fairseq/pretrained/seed1 --format csv > a.csv
  python -m eval predict --checkpoint checkpoint_best.pt --dict dict.txt --sentencepiece-model s.model < a.txt
  python -m eval predict --checkpoint runs/fairseq/pretrained/seed1 --explain --html why.html "Un livre raté."
"""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `predict`."""
    parser = subparsers.add_parser(
        "predict",
        help="classes and probabilities of raw text",
        description=__doc__,
        examples=EXAMPLES,
    )
    parser.add_argument("--checkpoint", required=True, metavar="PATH", help="checkpoint or run folder")
    add_texts(parser, "text")
    parser.add_argument(
        "--format", choices=FORMATS, help="text is for reading (default: jsonl; with --explain: text)"
    )
    parser.add_argument("--with-text", action="store_true", help="include the texts in the output")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="score each word's contribution to the prediction (integrated gradients)",
    )
    parser.add_argument("--html", metavar="FILE", help="with --explain: a page with the words in color")
    add_checkpoint_files(parser, tokenizer=True)
    add_max_tokens(add_computation(parser))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Load the model, then predict block by block."""
    _check_options(args)
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
        output = stack.enter_context(atomic_open(args.out)) if args.out else sys.stdout
        kind = args.format or ("text" if args.explain else "jsonl")
        writers = [open_writer(kind, output, classifier.classes, with_text=args.with_text)]
        if args.html:
            from .explain import ExplanationPage

            writers.append(stack.enter_context(ExplanationPage(args.html, classifier.classes)))
        # On a terminal, the bar would appear between the predictions.
        hidden = True if output.isatty() else None
        bar = stack.enter_context(tqdm(desc="predict", unit=" texts", leave=False, disable=hidden))
        for block in read_input(args.text, args.input):
            for prediction in _predictions(classifier, block, explain=args.explain):
                for writer in writers:
                    writer.write(prediction)
                bar.update()
            output.flush()


def _predictions(classifier: SentenceClassifier, block: Lines, *, explain: bool) -> Iterator[TextPrediction]:
    texts: list[Text] = [tuple(line.split("\t")) for line in block.lines] if classifier.pairs else block.lines
    rows = classifier.encode(texts, first=block.first, where=block.where)
    if explain:
        from .explain import explain_texts

        explained = explain_texts(classifier, texts, rows)
    from .loading.network import probabilities

    p_NK = probabilities(classifier.network.logits(rows))
    for number, (line, row_K) in enumerate(zip(block.lines, p_NK.tolist(), strict=True)):
        words = next(explained) if explain else None
        named = dict(zip(classifier.classes, row_K, strict=True))
        yield TextPrediction(block.first - 1 + number, line, named, words)


def _check_options(args: argparse.Namespace) -> None:
    """Raise `UserError` for options that exclude each other."""
    if args.text and args.input:
        raise UserError("TEXT and --input: give only one of them")
    if args.html and not args.explain:
        raise UserError("--html: only with --explain")
    if args.explain and args.format in ("csv", "tsv"):
        raise UserError(f"--explain: not with --format {args.format}; use --format jsonl or text")
