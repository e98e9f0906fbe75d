"""From files of labelled text to a data folder that `roberta-small train --data` trains on.

Reads CSV, TSV, JSON, JSON lines and Parquet (also compressed), any other registered format, and data sets
of the Hugging Face hub (datasets:NAME). A file of one text per line has its labels beside it: train.txt and
train.label, with the second texts of pairs in train.input1 beside train.input0. Several files are
concatenated. Columns with common names (text, review, label, class, ...) are detected.
--valid and --test take a file, or the number or fraction of examples to hold out: stratified by class, with
duplicates in one split, and determined by --seed.

Contents of DIR:
    input0/ input1/ label/ preprocess.json   fairseq's binary data (input1: sentence pairs)
    text/                                    the splits as text and labels, one example per line
    split.json                               file and line of every example, and the rows left out
    tokenizer/                               the tokenizer of the text
    audit.json                               duplicates, conflicting labels, lengths

The kind of labels is detected or given with --task: one class per text, any number of classes (lists, a
separator, or a column for each class), or a number (regression).

With --soft-labels, train has further examples, and label/train.soft.npy the targets of all of them.

With --corpus, FILEs are running text for `roberta-small pretrain`, one paragraph per line and an empty line
between documents: repeated paragraphs and those that share a sentence with a text of --protect are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from roberta_small.common.cli import positive
from roberta_small.common.data_folder import REPORT, Report, check_replaceable, finished, write_report
from roberta_small.common.errors import UserError, count, enumerate_some
from roberta_small.common.files import atomic_folder, atomic_open, atomic_write
from roberta_small.preprocess import audit, labels, soft_labels
from roberta_small.preprocess.binarize import Split, write_data
from roberta_small.preprocess.corpus import HELD_OUT, CorpusOptions, prepare_corpus
from roberta_small.preprocess.corpus import summary as describe_corpus
from roberta_small.preprocess.examples import Examples, Options, companions, is_source, read_examples
from roberta_small.preprocess.label_cells import SEPARATOR, TASK, LabelOptions
from roberta_small.preprocess.labels import quoted
from roberta_small.preprocess.options import (
    add_columns,
    add_dialect,
    add_soft_labels,
    add_splits,
    add_tokenizer,
)
from roberta_small.preprocess.readers.dialect import dialect_of
from roberta_small.preprocess.readers.tables import Columns
from roberta_small.preprocess.tokenization.choice import FOLDER, choose
from roberta_small.preprocess.tokenization.vocabulary import SIZE as VOCABULARY_SIZE

__all__ = ["TEXT", "Options", "companions", "is_source", "options_of", "prepare", "register", "summary"]

SPLIT_REPORT = "split.json"
TEXT = "text"
MOST_SHOWN = 5
UNKNOWN_FRACTION = 0.05
"""Of the tokens: with more, the tokenizer does not fit the text."""
EXAMPLES = """examples:
  roberta-small prepare reviews.csv --out data/mine
  roberta-small prepare reviews.csv --text-column body --label-column stars --valid 0.1 --test 0.1 \\
      --tokenizer camembert-base --out data/mine
  roberta-small prepare a.jsonl --valid b.jsonl --test c.jsonl --text-column premise \\
      --pair-column hypothesis --label-column label --out data/nli
  roberta-small prepare films.jsonl --label-column genres --out data/films
  roberta-small prepare films.csv --label-column genres --label-separator ";" --out data/films
  roberta-small prepare comments.csv --label-column toxic insult threat --out data/comments
  roberta-small prepare sts.csv --label-column score --task regression --out data/sts
  roberta-small prepare datasets:imdb --out data/imdb
  roberta-small prepare reviews.csv --soft-labels predicted.jsonl --out data/more
  roberta-small prepare reviews.tsv --tokenizer roberta_small_fr --out data/mine
  roberta-small prepare train.review --valid 200 --test test.review --out data/books
  roberta-small prepare --corpus news.txt.xz novels.txt.xz --protect data/mine/text/test.input0 \\
      --tokenizer sentencepiece.bpe.model --vocabulary-size 32000 --out data/corpus
"""


def prepare(options: Options, destdir: str, *, workers: int = 1, overwrite: bool = False) -> Report:
    """Write the data folder in one step and return its report; prints what is read, then does the work.

    A folder that contains the same result is left unchanged, and its description is printed again. Raises
    `UserError` for input that is malformed, missing or no classification task, and then writes nothing.
    """
    if options.soft_labels is not None:
        soft_labels.check_file(options.soft_labels)
    options.check_files()
    wanted = options.request()
    destination = Path(destdir)
    if (report := finished(destination, REPORT, wanted)) is not None:
        print(*report.get("description", []), sep="\n", flush=True)
        return report
    unmerged = {name: value for name, value in wanted["options"].items() if name != "merge_labels"}
    if not (options.merge_labels and finished(destination, REPORT, wanted | {"options": unmerged})):
        check_replaceable(destination, REPORT, overwrite=overwrite)  # unless a warning proposed the option
    examples = read_examples(options)
    if options.soft_labels is not None:
        examples = soft_labels.add(examples, options.soft_labels)
    description = describe(examples, options)
    print(*description, sep="\n", flush=True)
    with atomic_folder(destination) as folder:
        return _write(examples, options, folder, wanted | {"description": description}, workers)


def describe(examples: Examples, options: Options) -> list[str]:
    """What was read, and what is suspicious about it."""
    lines = []
    further = {"text": examples.columns.more_text, "label": examples.columns.more_labels}
    for role, column in examples.columns.named().items():
        more = further.get(role, ())
        guessed = "" if getattr(options.columns, role) else f" (guessed; choose with --{role}-column)"
        names = " and ".join(map(repr, (column, *more)))
        lines.append(f"{role}: column{'s' if more else ''} {names}{guessed}")
    if examples.reason or not examples.kind.exclusive:
        source = f" (detected: {examples.reason}; choose with {TASK})" if examples.reason else ""
        lines.append(f"labels: {examples.kind.task}{source}")
    for name in sorted(set(examples.merged.values())):
        others = sorted(label for label, chosen in examples.merged.items() if chosen == name)
        lines.append(f"label {quoted([name])}: also written {quoted(others)}")
    for name, rows in examples.splits.items():
        shares = labels.describe([row.label for row in rows], examples.kind)
        lines.append(f"{name}: {count(len(rows), 'example')}; {shares}")
    if examples.soft:
        new = {row.key for row in examples.soft} - {row.key for row in examples.splits["train"]}
        repeated = len(examples.soft) - len(new)
        shares = labels.describe([row.label for row in examples.soft], examples.kind)
        repeat = f"; {repeated:,} of them {'repeats' if repeated == 1 else 'repeat'} a text of train"
        lines.append(
            f"soft labels: {count(len(examples.soft), 'further training example')}; most probable class: "
            f"{shares}{repeat if repeated else ''}"
        )
    for reason in sorted({reason for _, reason in examples.left_out}):
        places = [f"{row.source}:{row.record.line}" for row, why in examples.left_out if why == reason]
        lines.append(
            f"left out, {reason}: {count(len(places), 'row')} ({enumerate_some(places, MOST_SHOWN)})"
        )
    return lines + [f"warning: {warning}" for warning in [*examples.warnings, *_doubts(examples)]]


def _doubts(examples: Examples) -> list[str]:
    """Classes that a split lacks, texts that occur in several splits, and texts with several labels."""
    splits, lines = examples.splits, []
    classes = {
        name: labels.class_counts([row.label for row in rows], examples.kind).keys()
        for name, rows in splits.items()
    }
    for name in splits:
        if absent := sorted(classes["train"] - classes[name]):
            lines.append(f"{name} has no example of {quoted(absent)}")
    found = audit.duplicates({name: [row.key for row in rows] for name, rows in splits.items()})
    alone: dict[str, dict[str, list[int]]] = {}
    if paired := any(row.record.pair for row in splits["train"]):
        halves = {
            name: [*(row.record.text for row in rows), *(row.record.pair for row in rows if row.record.pair)]
            for name, rows in splits.items()
        }
        alone = audit.duplicates({name: list(map(audit.normalized, one)) for name, one in halves.items()})
    for other, name in combinations(splits, 2):
        if repeated := found[name][other]:
            lines.append(f"{count(len(repeated), 'example')} of {name} also in {other} (normalized)")
        if paired and (repeated := alone[name][other]):
            first = sum(index < len(splits[name]) for index in repeated)
            lines.append(
                f"{first:,} first and {len(repeated) - first:,} second texts of {name} also in {other} "
                "(normalized), alone or in a pair"
            )
    if within := len(found["train"]["train"]):
        repeat = "repeats" if within == 1 else "repeat"
        lines.append(f"{count(within, 'training example')} {repeat} the text of an earlier one (normalized)")
    if conflicting := audit.conflicts(splits):
        lines.append(f"{count(len(conflicting), 'text')} with more than one label")
    return lines


def _write(examples: Examples, options: Options, folder: Path, wanted: Report, workers: int) -> Report:
    """The whole content of a data folder; its report is the last file."""
    splits: list[Split] = []
    all_rows = examples.all_rows()
    for name, rows in all_rows.items():
        columns = {"input0": [row.record.text for row in rows]}
        if any(row.record.pair is not None for row in rows):
            columns["input1"] = [row.record.pair or "" for row in rows]
        columns["label"] = [row.label for row in rows]
        for kind, lines in columns.items():
            with atomic_open(folder / TEXT / f"{name}.{kind}") as stream:
                stream.writelines(f"{line}\n" for line in lines)
        inputs = splits[0].texts if splits else [kind for kind in columns if kind != "label"]
        files = {kind: [str(folder / TEXT / f"{name}.{kind}")] for kind in inputs}
        splits.append(Split(name, files, str(folder / TEXT / f"{name}.label")))
    train = [Path(path) for paths in splits[0].texts.values() for path in paths]
    tokenizer = choose(options, train, workers=workers)
    counts, found = write_data(folder, splits, tokenizer.encoder, workers=workers, kind=examples.kind)
    if examples.soft:
        soft_labels.write(folder, found["labels"], examples)
    tokenizer.save(folder / FOLDER)
    places = {
        "columns": examples.columns.named(),
        "more_text": list(examples.columns.more_text),
        **({"more_labels": list(more)} if (more := examples.columns.more_labels) else {}),
        "examples": {
            name: [[row.source, row.record.line] for row in rows] for name, rows in all_rows.items()
        },
        "left_out": [[row.source, row.record.line, reason] for row, reason in examples.left_out],
    }
    audited = audit.audit(all_rows, splits, tokenizer.encoder, folder, workers=workers)
    for name, content in (("audit.json", audited), (SPLIT_REPORT, places)):
        atomic_write(folder / name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    extra = {"splits": counts, **found, "tokenizer": tokenizer.describe()}
    extra["columns"] = examples.columns.named() | examples.columns.others()
    return write_report(folder, REPORT, wanted | extra)


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `prepare`."""
    parser = subparsers.add_parser(
        "prepare",
        help="convert files of labelled text, or running text, to a data folder, in one step",
        description=__doc__,
        examples=EXAMPLES,
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="labelled text, or datasets:NAME")
    add_columns(parser)
    add_dialect(parser)
    parser.add_argument("--reader", metavar="NAME", help="format of the files (default: by suffix)")
    add_splits(parser)
    add_soft_labels(parser)
    add_tokenizer(parser)
    parser.add_argument(
        VOCABULARY_SIZE, type=positive, metavar="N",
        help="entries of a new tokenizer, or of the dictionary of a SentencePiece model, including four "
        "special symbols and <mask> (default: by the text; all)",
    )  # fmt: skip
    parser.add_argument(
        "--normalize-apostrophes", action="store_true",
        help="replace the apostrophes ’ and ʼ by '; use the same setting for all text of a model",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=positive, default=os.cpu_count() or 1, metavar="N",
        help="threads (default: all cores)",
    )  # fmt: skip
    corpus = parser.add_argument_group("running text for pre-training")
    corpus.add_argument(
        "--corpus", nargs="+", metavar="FILE",
        help="running text instead of labelled text; --valid is then a file, or the fraction of the "
        f"documents to hold out ({HELD_OUT})",
    )  # fmt: skip
    corpus.add_argument(
        "--protect", nargs="+", metavar="FILE", help="texts whose sentences must not occur in the result"
    )
    corpus.add_argument(
        "--shards", type=positive, metavar="N",
        help="distribute the documents over shard0, shard1, ..., which training opens one at a time; for "
        "text larger than memory (default: 1)",
    )  # fmt: skip
    parser.add_argument("--out", required=True, metavar="DIR", help="output folder")
    parser.add_argument(
        "--overwrite", action="store_true", help="overwrite an existing folder written by this command"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """The command: check the options, prepare, print what was written."""
    if args.corpus:
        _run_corpus(args)
        return
    for flag in ("protect", "shards"):
        if getattr(args, flag) is not None:
            raise UserError(f"--{flag}: for running text only; add --corpus FILE or omit it")
    if not args.files:
        hint = "; write it before --text-column NAME" if args.text_column else ""
        raise UserError(f"FILE is required: pass a file of labelled text, for example reviews.csv{hint}")
    options = options_of(
        args, args.files, args.seed, reader=args.reader, vocabulary_size=args.vocabulary_size,
        normalize_apostrophes=args.normalize_apostrophes,
    )  # fmt: skip
    report = prepare(options, args.out, workers=args.workers, overwrite=args.overwrite)
    command = shlex.join(["roberta-small", "train", "--data", args.out, "--out", "runs"])
    print(*summary(report, Path(args.out)), f"next: {command}", sep="\n", flush=True)


def _run_corpus(args: argparse.Namespace) -> None:
    """`prepare --corpus`; raises `UserError` for an option of labelled text."""
    labelled = {
        "FILE": args.files, "--test": args.test, "--seed": args.seed, "--reader": args.reader,
        soft_labels.FLAG: args.soft_labels, TASK: args.task,
        SEPARATOR: args.label_separator, "--merge-labels": args.merge_labels,
        **{f"--{role}-column": True for role in Columns.of(args).named()},
        **dict.fromkeys(dialect_of(args).flags(), True),
    }  # fmt: skip
    if given := [flag for flag, value in labelled.items() if value not in (None, [])]:
        raise UserError(f"{given[0]}: for labelled text, not with --corpus; omit it")
    chosen = {
        "valid": args.valid, "protect": args.protect and tuple(args.protect), "shards": args.shards,
        "tokenizer": args.tokenizer, "dictionary": args.dict, "vocabulary_size": args.vocabulary_size,
    }  # fmt: skip
    options = CorpusOptions(
        texts=tuple(args.corpus),
        normalize_apostrophes=args.normalize_apostrophes,
        **{name: value for name, value in chosen.items() if value is not None},
    )
    report = prepare_corpus(options, args.out, workers=args.workers, overwrite=args.overwrite)
    print(*describe_corpus(report), f"written to {args.out}", sep="\n", flush=True)


def options_of(args: argparse.Namespace, train: Sequence[str], seed: int | None, **others: Any) -> Options:
    """What to prepare; options that are not given have their defaults. `others` are further fields."""
    given = {"valid": args.valid, "test": args.test, "seed": seed, "tokenizer": args.tokenizer}
    return Options(
        train=tuple(train),
        columns=Columns.of(args),
        dialect=dialect_of(args),
        merge_labels=bool(args.merge_labels),
        labels=LabelOptions(args.task, args.label_separator),
        dictionary=args.dict,
        soft_labels=args.soft_labels,
        **{name: value for name, value in given.items() if value is not None},
        **others,
    )


def summary(report: Report, folder: Path) -> list[str]:
    """Tokenizer and tokens of a data folder, and where it is."""
    tokenizer = report["tokenizer"]
    lines = [f"tokenizer: {tokenizer['kind']}, {tokenizer['vocabulary']:,} vocabulary entries ({FOLDER}/)"]
    content = json.loads((folder / "audit.json").read_text(encoding="utf-8"))["splits"]["train"]
    lengths = content["lengths"]
    lines.append(
        f"train: {content['tokens']:,} tokens, {content['unknown_rate']:.2%} unknown; length "
        f"{lengths['mean']:.0f} on average, {lengths['truncated_share']:.1%} longer than "
        f"{lengths['max_positions']} tokens"
    )
    if content["unknown_rate"] > UNKNOWN_FRACTION:
        lines.append(
            f"warning: {content['unknown_rate']:.2%} unknown tokens; the tokenizer may be for "
            "another language"
        )
    return [*lines, f"written to {folder}"]
