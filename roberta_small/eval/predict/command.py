"""The command `predict`: options, and the loop over the blocks of the input."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from roberta_small.common.errors import UserError, count
from roberta_small.common.files import atomic_open
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL
from roberta_small.common.predictions import from_outputs
from roberta_small.common.run import BEST_CHECKPOINT
from roberta_small.common.run import WEIGHTS as WEIGHT_FILES
from roberta_small.eval.classifier import Ensemble, SentenceClassifier, describe
from roberta_small.eval.options import add_checkpoint_files, add_computation, add_texts, overrides
from roberta_small.eval.origin import GRAPH, find_best
from roberta_small.eval.precision import print_precisions
from roberta_small.eval.predict.inputs import Block, open_input
from roberta_small.eval.predict.output import (
    BINARY,
    DELIMITERS,
    FORMATS,
    WITHOUT_SUFFIX,
    Layout,
    TextPrediction,
    avoid_columns,
    choose_format,
    open_writer,
)
from roberta_small.eval.texts import return_free_memory
from roberta_small.preprocess.options import add_dialect, add_text_columns
from roberta_small.preprocess.readers.dialect import UTF_8, Dialect, dialect_of
from roberta_small.preprocess.readers.records import format_suffix
from roberta_small.preprocess.readers.tables import Columns

DESCRIPTION = """Classify raw text from the command line, a file or standard input.

A file with the suffix of a table, such as .csv, .jsonl or .parquet (also compressed), is read as a table: the
output has its rows and columns, followed by prediction and probabilities. Any other file has one text per
line, and each line gets one prediction, in input order; empty lines too. Empty texts, and texts with more
unknown tokens than known ones, are noted in the output.

Sentence pairs are two columns of a table, two sentences with a tab between them on a line, or two arguments.

Lines are processed in blocks, so memory stays bounded; a table is read whole.
"""
EXAMPLES = """examples:
  roberta-small predict --checkpoint runs/fairseq/pretrained/seed1 "Un livre captivant."
  roberta-small predict --checkpoint runs/fairseq/pretrained/seed1 --input reviews.csv --out predicted.csv
  roberta-small predict --checkpoint runs/fairseq/pretrained --ensemble "Un livre captivant."
  roberta-small predict --checkpoint classifier.onnx --input reviews.csv --out predicted.csv
  zcat reviews.gz | roberta-small predict --checkpoint runs/fairseq/pretrained/seed1 --format csv > a.csv
  roberta-small predict --checkpoint checkpoint_best.pt --dict dict.txt --sentencepiece-model s.model < a.txt
  roberta-small predict --checkpoint runs/fairseq/pretrained/seed1 --explain --html why.html "Un livre raté."
"""
WEIGHTS = (".pt", ".safetensors", GRAPH)
LEVELS = ("", "*/", "*/*/", "*/*/*/")
"""Where run folders are in a folder: OUT/<arm>/<init>/seed<N>/."""
NOTED = {
    "empty": "empty",
    "unknown tokens": "with mostly unknown tokens",
    "truncated": "truncated, the longer sentence first",
}
"""Kind of a note -> how it is counted."""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `predict`."""
    parser = subparsers.add_parser(
        "predict", help="classify raw text", description=DESCRIPTION, examples=EXAMPLES
    )
    parser.add_argument(
        "--checkpoint",
        required=True,
        nargs="+",
        action="extend",
        metavar="PATH",
        help="checkpoint, run folder, .onnx file of `roberta-small export onnx`, or a folder with runs, of "
        "which the best on valid predicts; with --ensemble several checkpoints, or a folder with runs",
    )
    parser.add_argument(
        "--ensemble",
        action="store_true",
        help="predict with the mean of the probabilities of several checkpoints; adds their standard "
        "deviation as std. All words directly after --checkpoint are then paths; write TEXT before it or "
        "after another option",
    )
    add_texts(parser, "text", tables="; or a table, such as .csv or .jsonl")
    add_text_columns(parser)
    add_dialect(parser)
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="output format; 'text' is human-readable, 'glue' is a submission file of GLUE (default: by the "
        "suffix of --out, else jsonl; with --explain: text)",
    )
    parser.add_argument(
        "--with-text", action="store_true", help="include the texts in the output (a table has them anyway)"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="score each word's contribution to the prediction (integrated gradients)",
    )
    parser.add_argument(
        "--html", metavar="FILE", help="with --explain: also write an HTML page with colored words"
    )
    add_checkpoint_files(parser)
    add_computation(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Read a table, load the model, then predict block by block."""
    paths, words = _separate_texts(args.checkpoint, args.text, ensemble=args.ensemble)
    kind = _check_options(args, next((path for path in paths if path.endswith(GRAPH)), paths[0]))
    texts = open_input(words, args.input, Columns.of(args), dialect_of(args))
    model = _load(paths, ensemble=args.ensemble, **overrides(args))
    first = model.members[0] if isinstance(model, Ensemble) else model
    texts.check(pairs=model.pairs, trained=Columns(**first.model.columns))
    if args.explain:
        model.labels.kind.require_exclusive("--explain", paths[0])
    layout = Layout(
        model.classes,
        table=texts.columns,
        with_text=args.with_text,
        with_std=args.ensemble,
        several=model.labels.kind is KINDS[MULTI_LABEL],
        formats=texts.formats,
    )
    renamed = {} if kind in WITHOUT_SUFFIX else avoid_columns(layout, kind)
    for old, new in renamed.items():
        print(
            f"warning: {args.input} has a column '{old}'; the field of the prediction is '{new}'",
            file=sys.stderr,
        )
    layout = replace(layout, renamed=renamed)
    notes: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        same = Dialect()
        if kind in DELIMITERS and args.input and format_suffix(args.input) == f".{kind}":
            same = texts.dialect
        if kind in DELIMITERS and texts.decimal_comma:
            layout = replace(layout, decimal=",")
            print(f"{args.input}: decimal comma, also of the predictions", file=sys.stderr)
        output = stack.enter_context(open_output(args.out, kind, same)) if args.out else sys.stdout
        writers = [stack.enter_context(open_writer(kind, output, layout, same.delimiter))]
        if args.html:
            from roberta_small.eval.predict.explain import explanation_page

            writers.append(stack.enter_context(explanation_page(args.html, model.classes)))
        # On a terminal, the bar would appear between the predictions.
        hidden = True if output.isatty() else None
        bar = tqdm(desc="predict", unit=" texts", total=texts.count, leave=False, disable=hidden)
        stack.enter_context(bar)
        for block in texts.blocks(pairs=model.pairs):
            for prediction in _predictions(model, block, explain=args.explain):
                for write in writers:
                    write(prediction)
                notes[prediction.note.partition(":")[0]] += 1
                bar.update()
            output.flush()
            return_free_memory()
    if found := [f"{number:,} {NOTED[note]}" for note, number in notes.items() if note]:
        print(f"note: of {count(notes.total(), 'text')}, {' and '.join(found)}", file=sys.stderr)


@contextlib.contextmanager
def open_output(path: str, kind: str, dialect: Dialect) -> Iterator[IO]:
    """The output file, in the encoding of an input of the same format; the errors of a codec name both."""
    encoding = dialect.encoding or UTF_8
    try:
        with atomic_open(path, "wb" if kind in BINARY else "w", encoding=encoding) as stream:
            yield stream
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        raise UserError(
            f"--out {path}: {encoding}, the encoding of the input, has no {character!r}; choose another "
            "format, such as .jsonl"
        ) from None


def _load(paths: Sequence[str], *, ensemble: bool, **options: Any) -> SentenceClassifier | Ensemble:
    """The classifier or ensemble; prints the precision and the members on standard error."""
    if ensemble:
        together = Ensemble.from_runs(paths, **options)
        describe(together)
        print_precisions(member.model.precision for member in together.members)
        return together
    path = paths[0]
    classifier = SentenceClassifier.from_run(path if path.endswith(GRAPH) else find_best(path), **options)
    print_precisions([classifier.model.precision])
    return classifier


def _predictions(
    model: SentenceClassifier | Ensemble, block: Block, *, explain: bool
) -> Iterator[TextPrediction]:
    found = model.classify(block.texts, first=block.first, where=block.where)
    explained = None
    if explain and not isinstance(model, Ensemble):
        from roberta_small.eval.predict.explain import explain_texts

        explained = explain_texts(model, block.texts, found.encoded.rows)
    for prediction in from_outputs(model.labels, found.probabilities):
        number = prediction.index
        text = block.texts[number]
        std = None
        if found.std is not None:  # of each class of multi-label data
            values = found.std[number]
            std = dict(zip(model.classes, values.tolist(), strict=True)) if values.ndim else float(values)
        yield TextPrediction(
            index=block.first - 1 + number,
            text=text if isinstance(text, str) else "\t".join(text),
            found=prediction,
            words=None if explained is None else next(explained),
            std=std,
            note=found.encoded.notes[number],
            cells=None if block.rows is None else block.rows[number],
        )


def _separate_texts(paths: list[str], texts: list[str], *, ensemble: bool) -> tuple[list[str], list[str]]:
    """The paths and the texts: words after the first path are texts, but paths with --ensemble.

    Raises `UserError` for a text that is a checkpoint: the user gave several, for example with `seed*`.
    """
    if ensemble:
        return paths, texts
    if paths[1:] and texts:
        raise UserError("TEXT: before and after --checkpoint; write all texts in one place")
    texts = texts or paths[1:]
    files = (BEST_CHECKPOINT, *WEIGHT_FILES)
    for word in texts:
        # Unlike those of Path, these are False for a text that is too long for a path.
        is_run = os.path.isdir(word) and any(
            any(Path(word).glob(f"{below}{name}")) for below in LEVELS for name in files
        )
        if is_run or (os.path.isfile(word) and word.endswith(WEIGHTS)):
            raise UserError(
                f"{word}: a checkpoint, but --checkpoint takes one; predict with the ensemble of several "
                "with --ensemble"
            )
    return paths[:1], texts


def _check_options(args: argparse.Namespace, path: str) -> str:
    """The output format; raises `UserError` for options that exclude each other or do not apply to `path`."""
    if path.endswith(GRAPH) and (args.ensemble or args.explain):
        raise UserError(
            f"{'--ensemble' if args.ensemble else '--explain'}: not with an ONNX file; use the folder of the "
            f"run instead of {path}"
        )
    if args.html and not args.explain:
        raise UserError("--html: only with --explain")
    if args.explain and args.ensemble:
        raise UserError("--explain: not with --ensemble; explain the prediction of one checkpoint")
    if args.out and args.input and os.path.exists(args.out) and os.path.samefile(args.out, args.input):
        raise UserError(f"--out {args.out}: the same file as --input; choose another name")
    kind = choose_format(args.format, args.out, default="text" if args.explain else "jsonl")
    if args.explain and kind not in ("jsonl", "text"):
        given = f"--format {kind}" if args.format else f"--out {args.out}"
        raise UserError(f"--explain: not with {given}; use --format jsonl or text")
    return kind
