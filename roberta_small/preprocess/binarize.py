"""Raw text and labels -> the folder that `fairseq-train` reads, byte for byte as stock tools write it.

For a classifier (tasks `sentence_prediction`):   for pre-training (`--only-source`, task `masked_lm`):
    BIN/input0/dict.txt, train.bin, train.idx...      BIN/dict.txt, train.bin, train.idx...
    BIN/input1/... (sentence pairs)                   BIN/preprocess.json
    BIN/label/dict.txt, train.bin...
    BIN/label/train.label (regression)
    BIN/preprocess.json

Text goes from SentencePiece ids to fairseq ids through a table; no tokenized text is written in between.
Text that is tokenized already, subword tokens separated by spaces, is read with `--tokenized`.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_small.common.cli import positive
from roberta_small.common.data_folder import (
    REPORT,
    Report,
    check_replaceable,
    finished,
    request,
    shard_name,
    write_report,
)
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_folder, atomic_write
from roberta_small.common.label_kinds import KINDS, SINGLE_LABEL, TASKS, LabelKind
from roberta_small.preprocess.indexed import IndexedWriter, distribute
from roberta_small.preprocess.label_files import write_labels
from roberta_small.preprocess.labels import check_line_counts
from roberta_small.preprocess.options import add_destination, add_reading, add_suffixes, input_suffixes
from roberta_small.preprocess.tokenization.encoder import Encoder, TextEncoder, TokenReader, map_text

MOST_SHARDS = 500
"""Two files each; a process may usually have 1,024 open."""
EXAMPLES = """examples:
  roberta-small binarize --sentencepiece-model sentencepiece.bpe.model --dict dict.txt \\
      --trainpref split/train --validpref split/valid --testpref split/test --out data/books
  roberta-small binarize --sentencepiece-model sentencepiece.bpe.model --dict dict.txt \\
      --only-source --trainpref news.txt.xz novels.txt.xz --valid-every 100 --out data/corpus
  roberta-small binarize --sentencepiece-model sentencepiece.bpe.model --dict dict.txt \\
      --only-source --trainpref crawl.*.txt.xz --valid-every 10000 --shards 64 --out data/crawl
  roberta-small binarize --tokenized --dict dict.txt --inputs review.spm --trainpref lm/train \\
      --validpref lm/valid --testpref lm/test --out data/lm
"""


@dataclass(frozen=True)
class Split:
    """The files of one split (train, valid or test)."""

    name: str
    texts: dict[str, list[str]]
    """Folder inside BIN ("input0", "input1", or "." for running text) -> text files, read in order."""
    label: str | None

    def files(self) -> list[str]:
        """All files of the split."""
        texts = [path for paths in self.texts.values() for path in paths]
        return texts if self.label is None else [*texts, self.label]


def binarize(
    splits: list[Split],
    destdir: str | os.PathLike[str],
    *,
    sentencepiece_model: str | None,
    srcdict: str,
    valid_every: int | None = None,
    shards: int = 1,
    normalize_apostrophes: bool = False,
    workers: int = 1,
    kind: LabelKind = KINDS[SINGLE_LABEL],
    overwrite: bool = False,
) -> Report:
    """Write the binarized folder in one step and return its report (the content of `preprocess.json`).

    The first split must be the training set: its labels make the label dictionary; running text of it is
    distributed among shards (`indexed.distribute`). Without a SentencePiece model (None) the text is
    tokenized already. A folder that contains the same result is left unchanged. Raises `UserError` for bad
    input, and then writes nothing.
    """
    options = {
        "splits": {split.name: {"texts": split.texts, "label": split.label} for split in splits},
        "sentencepiece_model": sentencepiece_model,
        "srcdict": srcdict,
        "valid_every": valid_every,
        **({"shards": shards} if shards > 1 else {}),
        "normalize_apostrophes": normalize_apostrophes,
        **({} if kind.exclusive else {"task": kind.task}),
    }
    files = [path for split in splits for path in split.files()]
    models = [] if sentencepiece_model is None else [sentencepiece_model]
    wanted = request(options, [*files, *models, srcdict])
    destination = Path(destdir)
    if (report := finished(destination, REPORT, wanted)) is not None:
        return report
    check_replaceable(destination, REPORT, overwrite=overwrite)

    encoder: TextEncoder
    if sentencepiece_model is None:
        encoder = TokenReader(srcdict, normalize_apostrophes=normalize_apostrophes)
    else:
        encoder = Encoder.from_files(
            sentencepiece_model, srcdict, normalize_apostrophes=normalize_apostrophes
        )
    with atomic_folder(destination) as folder:
        counts, labels = write_data(
            folder, splits, encoder, valid_every=valid_every, shards=shards, workers=workers, kind=kind
        )
        return write_report(folder, REPORT, wanted | {"splits": counts, **labels})


def write_data(
    folder: Path,
    splits: list[Split],
    encoder: TextEncoder,
    *,
    valid_every: int | None = None,
    shards: int = 1,
    workers: int = 1,
    kind: LabelKind = KINDS[SINGLE_LABEL],
) -> tuple[dict[str, Any], Report]:
    """Write binary data and dictionaries into `folder`.

    Returns sentences and tokens by split and place, and what a report records about the labels: under
    `labels` the class names in id order (None without labels), for other kinds than one class per text also
    `label_kind`, and for regression `label_scaling`. Raises `UserError` for malformed text and labels.
    """
    files = {split.name: split.label for split in splits if split.label is not None}
    found, label_counts = write_labels(files, folder / "label", kind) if files else ({"labels": None}, {})
    counts: dict[str, Any] = {}
    for split in splits:
        for name, paths in split.texts.items():
            written = _write_text(encoder, paths, folder, split, name, workers, valid_every, shards)
            for (part, place), writer in written.items():
                check_line_counts(paths[0], writer.sentences, split.label, label_counts.get(split.name))
                counts.setdefault(part, {})[place] = _counts(writer)
    for place in counts["train"]:
        atomic_write(folder / place / "dict.txt", encoder.dictionary.text())
    return counts, found


def _write_text(
    encoder: TextEncoder,
    paths: list[str],
    folder: Path,
    split: Split,
    name: str,
    workers: int,
    valid_every: int | None,
    shards: int,
) -> dict[tuple[str, str], IndexedWriter]:
    """Encode the files of one text of a split; the writers by split and place inside `folder`."""
    size = len(encoder.dictionary)
    blocks = map_text(encoder, paths, workers=workers, progress=f"binarize {split.name}")
    if split.name == "train" and name == ".":
        return distribute(blocks, folder, size, source=paths[0], valid_every=valid_every, shards=shards)
    place = name if name != "." or shards == 1 else shard_name(0)  # where fairseq looks for it
    with IndexedWriter(folder / place / split.name, size) as writer:
        for encoded in blocks:
            writer.add(encoded.ids, encoded.sizes)
    return {(split.name, place): writer}


def _counts(writer: IndexedWriter) -> dict[str, Any]:
    return {
        "sentences": writer.sentences,
        "tokens": writer.tokens,
        "unknown": writer.unknown,
        "unknown_rate": round(writer.unknown / writer.tokens, 6),
    }


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `binarize`."""
    parser = subparsers.add_parser(
        "binarize",
        help="convert text and labels to fairseq's binary data",
        description=__doc__,
        examples=EXAMPLES,
    )
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--sentencepiece-model", metavar="MODEL", help="SentencePiece model of the tokenizer")
    how.add_argument(
        "--tokenized",
        action="store_true",
        help="the text is already tokenized: subword tokens separated by spaces",
    )
    parser.add_argument(
        "--dict", "--srcdict", required=True, metavar="DICT", help="fairseq dict.txt of subword tokens"
    )
    for name in ("train", "valid", "test"):
        parser.add_argument(
            f"--{name}pref",
            nargs="+",
            required=name == "train",
            metavar="PREFIX",
            help=f"{name} set: PREFIX.input0 and PREFIX.label; with --only-source the text files themselves, "
            "plain, .gz, .xz or .bz2, joined in this order",
        )
    add_suffixes(parser)
    parser.add_argument(
        "--only-source", action="store_true", help="running text without labels, for pre-training"
    )
    parser.add_argument(
        "--valid-every",
        type=positive,
        metavar="N",
        help="with --only-source: use every N-th document of the training files for validation",
    )
    parser.add_argument(
        "--shards",
        type=positive,
        default=1,
        metavar="N",
        help="with --only-source: distribute the training documents over BIN/shard0, BIN/shard1, ..., which "
        "training opens one at a time; for text larger than memory",
    )
    parser.add_argument(
        "--task",
        choices=list(TASKS),
        default=KINDS[SINGLE_LABEL].task,
        help="what a line of the label files is: a class, a JSON array of classes, or a number (default: "
        "%(default)s)",
    )
    add_reading(parser)
    add_destination(parser, "BIN")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """The command: check the options, binarize, print one line per split."""
    report = binarize(
        _splits(args),
        args.out,
        sentencepiece_model=args.sentencepiece_model,
        srcdict=args.dict,
        valid_every=args.valid_every,
        shards=args.shards,
        normalize_apostrophes=args.normalize_apostrophes,
        workers=args.workers,
        kind=TASKS[args.task],
        overwrite=args.overwrite,
    )
    for split, inputs in report["splits"].items():
        for name, counts in inputs.items():
            place = split if name == "." else f"{name}/{split}"
            print(
                f"{place}: {counts['sentences']:,} sentences, {counts['tokens']:,} tokens, "
                f"{counts['unknown_rate']:.3%} unknown"
            )
    print(f"written to {args.out}")


def _splits(args: argparse.Namespace) -> list[Split]:
    """The files behind the options; raises `UserError` where options contradict one another."""
    prefixes = {"train": args.trainpref, "valid": args.validpref, "test": args.testpref}
    given = {name: paths for name, paths in prefixes.items() if paths}
    if args.valid_every is not None and (not args.only_source or args.validpref or args.valid_every < 2):
        raise UserError(
            f"--valid-every {args.valid_every}: use 2 or more, with --only-source and without --validpref"
        )
    if args.shards > MOST_SHARDS:
        raise UserError(
            f"--shards {args.shards}: at most {MOST_SHARDS}, because all shards are written at once"
        )
    if args.shards > 1 and not args.only_source:
        raise UserError(f"--shards {args.shards}: only with --only-source")
    if args.only_source:
        return [Split(name, {".": paths}, None) for name, paths in given.items()]
    for name, paths in given.items():
        if len(paths) > 1:
            raise UserError(
                f"--{name}pref: several prefixes are allowed only with --only-source; concatenate the files"
            )
    inputs = input_suffixes(args.inputs, [prefix for (prefix,) in given.values()])
    return [
        Split(
            name,
            {f"input{i}": [f"{prefix}.{suffix}"] for i, suffix in enumerate(inputs)},
            f"{prefix}.{args.label}",
        )
        for name, (prefix,) in given.items()
    ]
