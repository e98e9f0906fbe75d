"""Raw text and labels -> the folder that `fairseq-train` reads, byte for byte as stock tools write it.

For a classifier (tasks `sentence_prediction`):   for pre-training (`--only-source`, task `masked_lm`):
    BIN/input0/dict.txt, train.bin, train.idx...      BIN/dict.txt, train.bin, train.idx...
    BIN/input1/... (sentence pairs)                   BIN/preprocess.json
    BIN/label/dict.txt, train.bin...
    BIN/preprocess.json

Text goes from SentencePiece ids to fairseq ids through a table; no text of pieces is written in between.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from common.files import atomic_write, sha256

from . import dictionary as fairseq_dictionary
from .dictionary import EOS, SPECIALS, Dictionary
from .encoder import Encoded, Encoder, map_text
from .folder import atomic_folder, check_replaceable
from .indexed import IndexedWriter
from .text import read_text_lines

REPORT = "preprocess.json"
EXAMPLES = """examples:
  python -m preprocess binarize --sentencepiece-model sentencepiece.bpe.model --srcdict dict.txt \\
      --trainpref split/train --validpref split/valid --testpref split/test --destdir data/books
  python -m preprocess binarize --sentencepiece-model sentencepiece.bpe.model --srcdict dict.txt \\
      --only-source --trainpref news.txt.xz novels.txt.xz --valid-every 100 --destdir data/corpus
"""


@dataclass(frozen=True)
class Split:
    """The files of one split (train, valid or test)."""

    name: str
    texts: dict[str, list[str]]
    """Folder inside BIN ("input0", "input1", or "." for running text) -> text files, read in order."""
    label: str | None


class HeldOut:
    """Sends every N-th document to the validation set; blank lines and file ends part documents."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.documents = 0
        self.after_blank = True
        self.path = ""

    def __call__(self, encoded: Encoded) -> NDArray[np.bool_]:
        """(lines,) whether a line is held out; a blank line goes with the document before it."""
        if encoded.block.path != self.path:
            self.path, self.after_blank = encoded.block.path, True
        blank = encoded.sizes == 1
        starts = ~blank & np.concatenate([[self.after_blank], blank[:-1]])
        number = self.documents + np.cumsum(starts)
        self.documents, self.after_blank = int(number[-1]), bool(blank[-1])
        return (number > 0) & (number % self.every == 0)


def binarize(
    splits: list[Split],
    destdir: str | os.PathLike[str],
    *,
    sentencepiece_model: str,
    srcdict: str,
    valid_every: int | None = None,
    normalize_apostrophes: bool = False,
    workers: int = 1,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write the binarized folder in one step and return its report (the content of `preprocess.json`).

    The first split must be the training set: its labels make the label dictionary. A folder that holds
    the very same result is left alone. Raises `UserError` for bad input, and then writes nothing.
    """
    request = _request(splits, sentencepiece_model, srcdict, valid_every, normalize_apostrophes)
    destination = Path(destdir)
    if (report := _finished(destination, request)) is not None:
        return report
    check_replaceable(destination, REPORT, overwrite=overwrite)
    encoder = Encoder(sentencepiece_model, srcdict, normalize_apostrophes=normalize_apostrophes)
    labels = _label_dictionary(splits[0].label) if splits[0].label else None

    with atomic_folder(destination) as folder:
        counts: dict[str, Any] = {}
        for split in splits:
            label_count = _write_labels(split, labels, splits[0].label, folder) if labels else None
            for name, paths in split.texts.items():
                written = _write_text(
                    encoder, paths, folder / name, split.name, workers, valid_every if split.name == "train" else None
                )
                for writer in written:
                    _check_count(writer, paths, split.label, label_count)
                    counts.setdefault(writer.prefix.name, {})[name] = _summary(writer)
        for name in splits[0].texts:
            atomic_write(folder / name / "dict.txt", encoder.dictionary.text())
        if labels:
            atomic_write(folder / "label" / "dict.txt", labels.text())
        report = request | {
            "splits": counts,
            "labels": _label_names(labels) if labels else None,
            "files": _digests(folder),
        }
        atomic_write(folder / REPORT, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    return report


def _write_text(
    encoder: Encoder, paths: list[str], folder: Path, split: str, workers: int, valid_every: int | None
) -> list[IndexedWriter]:
    """Encode the files into `split`, or into train and valid where documents are held out."""
    size = len(encoder.dictionary)
    encoded_blocks = map_text(encoder, paths, workers=workers, progress=f"binarize {split}")
    if valid_every is None:
        with IndexedWriter(folder / split, size) as writer:
            for encoded in encoded_blocks:
                writer.add(encoded.ids, encoded.sizes)
        return [writer]

    held_out = HeldOut(valid_every)
    with IndexedWriter(folder / "train", size) as train, IndexedWriter(folder / "valid", size) as valid:
        for encoded in encoded_blocks:
            lines = held_out(encoded)
            tokens = np.repeat(lines, encoded.sizes)
            train.add(encoded.ids[~tokens], encoded.sizes[~lines])
            valid.add(encoded.ids[tokens], encoded.sizes[lines])
    if held_out.documents < valid_every:
        raise UserError(
            f"{paths[0]}: {held_out.documents} documents (a blank line parts them), "
            f"too few for --valid-every {valid_every}; give a smaller number"
        )
    return [train, valid]


def _write_labels(split: Split, labels: Dictionary, train_path: str | None, folder: Path) -> int:
    """Write the labels of one split; returns how many there are."""
    assert split.label is not None
    ids = []
    for number, label in _read_labels(split.label):
        if label not in labels.index:
            raise UserError(
                f"{split.label}, line {number}: label '{label}' does not occur in {train_path}, "
                f"which has: {', '.join(_label_names(labels))}"
            )
        ids.append(labels.index[label])
    rows = np.column_stack([np.array(ids, dtype=np.int32), np.full(len(ids), EOS, dtype=np.int32)])
    with IndexedWriter(folder / "label" / split.name, len(labels)) as writer:
        writer.add(rows.ravel(), np.full(len(ids), 2))
    return len(ids)


def _label_dictionary(path: str) -> Dictionary:
    return fairseq_dictionary.build(label for _, label in _read_labels(path))


def _label_names(labels: Dictionary) -> list[str]:
    """The class names in id order, without fairseq's padding symbols."""
    return [name for name in labels.names() if labels.counts[labels.index[name]] > 0]


def _read_labels(path: str) -> Iterator[tuple[int, str]]:
    """(line number, label) of each line; raises `UserError` unless a line is one word."""
    for number, line in enumerate(read_text_lines(path), start=1):
        words = line.split()
        if len(words) != 1:
            found = f"'{line[:60]}' is {len(words)} words" if words else "no label"
            raise UserError(f"{path}, line {number}: {found}; write one word a line")
        if words[0] in SPECIALS:
            raise UserError(f"{path}, line {number}: fairseq keeps '{words[0]}' for itself; rename the label")
        yield number, words[0]


def _check_count(writer: IndexedWriter, paths: list[str], label_path: str | None, labels: int | None) -> None:
    if writer.sentences == 0:
        raise UserError(f"{paths[0]}: no text; give a file with one sentence a line")
    if labels is not None and writer.sentences != labels:
        raise UserError(
            f"{paths[0]} has {writer.sentences:,} lines but {label_path} has {labels:,}; "
            f"both need one line for each example"
        )


def _summary(writer: IndexedWriter) -> dict[str, Any]:
    return {
        "sentences": writer.sentences,
        "tokens": writer.tokens,
        "unknown": writer.unknown,
        "unknown_rate": round(writer.unknown / writer.tokens, 6),
    }


def _request(
    splits: list[Split], model: str, srcdict: str, valid_every: int | None, normalize_apostrophes: bool
) -> dict[str, Any]:
    """All that determines the result: options, and the checksum of every file read."""
    files = [path for split in splits for paths in split.texts.values() for path in paths]
    files += [split.label for split in splits if split.label]
    return {
        "options": {
            "splits": {split.name: {"texts": split.texts, "label": split.label} for split in splits},
            "sentencepiece_model": model,
            "srcdict": srcdict,
            "valid_every": valid_every,
            "normalize_apostrophes": normalize_apostrophes,
        },
        "sha256": {path: sha256(path) for path in [*files, model, srcdict]},
    }


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != REPORT)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def _finished(destination: Path, request: dict[str, Any]) -> dict[str, Any] | None:
    """The report of a folder that already holds what is asked for, each file intact; otherwise None."""
    try:
        report = json.loads((destination / REPORT).read_text(encoding="utf-8"))
        same = all(report[key] == request[key] for key in request)
        return report if same and report["files"] == _digests(destination) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `binarize`."""
    parser = subparsers.add_parser(
        "binarize",
        help="text and labels to fairseq's binary data",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sentencepiece-model", required=True, metavar="MODEL")
    parser.add_argument("--srcdict", required=True, metavar="DICT", help="fairseq dict.txt of pieces")
    for name in ("train", "valid", "test"):
        parser.add_argument(
            f"--{name}pref",
            nargs="+",
            required=name == "train",
            metavar="PREFIX",
            help=f"{name} set: PREFIX.input0 and PREFIX.label; with --only-source the text files themselves, "
            "plain, .xz or .gz, joined in this order",
        )
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
    parser.add_argument(
        "--only-source", action="store_true", help="running text without labels, for masked-LM pre-training"
    )
    parser.add_argument(
        "--valid-every",
        type=int,
        metavar="N",
        help="with --only-source: each N-th document of the training files becomes the validation set",
    )
    parser.add_argument(
        "--normalize-apostrophes", action="store_true", help="read ’ and ʼ as ' (then do so everywhere)"
    )
    parser.add_argument("--destdir", required=True, metavar="BIN")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="threads (default: all cores)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a folder this command wrote")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """The command: check the options, binarize, print one line a split."""
    report = binarize(
        _splits(args),
        args.destdir,
        sentencepiece_model=args.sentencepiece_model,
        srcdict=args.srcdict,
        valid_every=args.valid_every,
        normalize_apostrophes=args.normalize_apostrophes,
        workers=args.workers,
        overwrite=args.overwrite,
    )
    for split, inputs in report["splits"].items():
        for name, counts in inputs.items():
            place = split if name == "." else f"{name}/{split}"
            print(
                f"{place}: {counts['sentences']:,} sentences, {counts['tokens']:,} tokens, "
                f"{counts['unknown_rate']:.3%} unknown"
            )
    print(f"written to {args.destdir}")


def _splits(args: argparse.Namespace) -> list[Split]:
    """The files behind the options; raises `UserError` where options contradict one another."""
    prefixes = {"train": args.trainpref, "valid": args.validpref, "test": args.testpref}
    given = {name: paths for name, paths in prefixes.items() if paths}
    if args.workers < 1:
        raise UserError(f"--workers {args.workers}: give at least 1")
    if args.valid_every is not None and (not args.only_source or args.validpref or args.valid_every < 2):
        raise UserError(
            f"--valid-every {args.valid_every}: give 2 or more, with --only-source, and without --validpref"
        )
    if args.only_source:
        return [Split(name, {".": paths}, None) for name, paths in given.items()]
    if len(args.inputs) > 2:
        raise UserError("--inputs: give one suffix, or two for sentence pairs")
    for name, paths in given.items():
        if len(paths) > 1:
            raise UserError(f"--{name}pref: several prefixes are read with --only-source alone; join the files")
    return [
        Split(
            name,
            {f"input{i}": [f"{prefix}.{suffix}"] for i, suffix in enumerate(args.inputs)},
            f"{prefix}.{args.label}",
        )
        for name, (prefix,) in given.items()
    ]
