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
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from roberta_small.common.cli import nearest, positive
from roberta_small.common.data_folder import (
    REPORT,
    Report,
    check_replaceable,
    finished,
    request,
    write_report,
)
from roberta_small.common.errors import UserError, count, enumerate_some
from roberta_small.common.files import atomic_folder, atomic_open, atomic_write
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, SINGLE_LABEL, LabelKind
from roberta_small.preprocess import audit, label_cells, soft_labels
from roberta_small.preprocess.binarize import Split, write_data
from roberta_small.preprocess.corpus import HELD_OUT, CorpusOptions, prepare_corpus
from roberta_small.preprocess.corpus import summary as describe_corpus
from roberta_small.preprocess.label_cells import LabelOptions
from roberta_small.preprocess.labels import HIDDEN, check_line_counts, checked_label, merged, quoted
from roberta_small.preprocess.options import (
    DEFAULT_PART,
    NO_TEST,
    TRAIN,
    add_columns,
    add_destination,
    add_dialect,
    add_reading,
    add_soft_labels,
    add_splits,
    add_tokenizer,
)
from roberta_small.preprocess.readers import TABLE, hub, read_records, reader_name, suffixes_of, tables
from roberta_small.preprocess.readers.dialect import Dialect, dialect_of
from roberta_small.preprocess.readers.lines import read_text_lines
from roberta_small.preprocess.readers.records import DEFAULT as LINES
from roberta_small.preprocess.readers.records import Record
from roberta_small.preprocess.readers.tables import Columns
from roberta_small.preprocess.soft_labels import SoftLabel
from roberta_small.preprocess.split import grouped_split, part_of
from roberta_small.preprocess.tokenization.choice import FOLDER, MODEL, choose, locate
from roberta_small.preprocess.tokenization.vocabulary import SIZE as VOCABULARY_SIZE

SPLIT_REPORT = "split.json"
TEXT = "text"
SPLITS = ("train", "valid", "test")
SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "valid": "valid",
    "validation": "valid",
    "val": "valid",
    "dev": "valid",
    "test": "test",
    "testing": "test",
}
"""What files call a split -> its name here."""
SIZE = re.compile(r"[0-9]*\.?[0-9]+")
CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
"""Control characters that no text contains."""
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


@dataclass(frozen=True)
class Row:
    """One example and where it comes from."""

    source: str
    record: Record


@dataclass(frozen=True, kw_only=True)
class Options:
    """What decides the content of a data folder."""

    train: tuple[str, ...]
    """Files, or data sets."""
    valid: str = DEFAULT_PART
    """A file, or how much of the training files."""
    test: str = DEFAULT_PART
    columns: Columns = field(default_factory=Columns)
    dialect: Dialect = field(default_factory=Dialect)
    merge_labels: bool = False
    """Whether labels that look alike are one class."""
    labels: LabelOptions = field(default_factory=LabelOptions)
    """How the cells of labels are read."""
    reader: str | None = None
    seed: int = 1
    tokenizer: str = TRAIN
    dictionary: str | None = None
    vocabulary_size: int | None = None
    """Of a tokenizer or dictionary that is made of the training text; None: it depends on the text."""
    normalize_apostrophes: bool = False
    soft_labels: str | None = None
    """A file of texts with class probabilities, for the training set."""

    def files(self) -> list[str]:
        """The files that are read."""
        sources = [*self.train, *(part for part in (self.valid, self.test) if is_source(part))]
        beside = [path for source in sources for path in companions(source, self.reader).values()]
        soft = [] if self.soft_labels is None else [self.soft_labels]
        return [source for source in (*sources, *beside, *soft) if not hub.is_dataset(source)]

    def request(self) -> Report:
        """The options and the checksums of the files behind them."""
        found = None if self.tokenizer == TRAIN else locate(self.tokenizer, self.dictionary)
        options = {
            "train": list(self.train),
            "valid": self.valid,
            "test": self.test,
            "columns": self.columns.named(),
            **self.columns.others(),
            **({"labels": self.labels.given()} if self.labels.given() else {}),
            **({"dialect": self.dialect.given()} if self.dialect.given() else {}),
            **({"merge_labels": True} if self.merge_labels else {}),
            "reader": self.reader,
            "seed": self.seed,
            "tokenizer": self.tokenizer,
            "sentencepiece_model": f"{FOLDER}/{MODEL}" if found is None or found.model else None,
            **({"vocabulary_size": self.vocabulary_size} if self.vocabulary_size else {}),
            "normalize_apostrophes": self.normalize_apostrophes,
            **({"soft_labels": self.soft_labels} if self.soft_labels is not None else {}),
        }
        return request(options, [*self.files(), *(found.files if found else [])])


@dataclass
class Examples:
    """The examples by split, and the rows without text or label."""

    splits: dict[str, list[Row]]
    columns: Columns
    kind: LabelKind = KINDS[SINGLE_LABEL]
    """Of the labels. The label of each record is then a line of `label_cells`."""
    left_out: list[tuple[Row, str]] = field(default_factory=list)
    """With the reason."""
    warnings: list[str] = field(default_factory=list)
    """About the classes."""
    merged: dict[str, str] = field(default_factory=dict)
    """Label in the file -> the class that it was merged into."""
    soft: list[SoftLabel] = field(default_factory=list)
    """Further training examples, with class probabilities."""

    def soft_rows(self) -> list[Row]:
        """The examples with soft labels."""
        return [Row(label.source, label.record) for label in self.soft]

    def all_rows(self) -> dict[str, list[Row]]:
        """The examples by split; those with soft labels are the last ones of train."""
        return self.splits | {"train": [*self.splits["train"], *self.soft_rows()]}


def prepare(options: Options, destdir: str, *, workers: int = 1, overwrite: bool = False) -> Report:
    """Write the data folder in one step and return its report; prints what is read, then does the work.

    A folder that contains the same result is left unchanged, and its description is printed again. Raises
    `UserError` for input that is malformed, missing or no classification task, and then writes nothing.
    """
    _check_files(options)
    wanted = options.request()
    destination = Path(destdir)
    if (report := finished(destination, REPORT, wanted)) is not None:
        _print_lines(report.get("description", []))
        return report
    check_replaceable(destination, REPORT, overwrite=overwrite)
    examples = read_examples(options)
    description = describe(examples, options)
    _print_lines(description)
    with atomic_folder(destination) as folder:
        _write_text(examples, folder)
        return _write_rest(examples, options, folder, wanted | {"description": description}, workers)


def _check_files(options: Options) -> None:
    """Raise `UserError` unless every source is a file."""
    if options.soft_labels is not None:
        soft_labels.check_file(options.soft_labels)
    if options.valid == NO_TEST:
        raise UserError(f"--valid {NO_TEST}: training needs a validation set, which selects the checkpoint")
    parts = [(f"--{name} ", getattr(options, name)) for name in ("valid", "test")]
    for flag, path in [*(("", source) for source in options.train), *parts]:
        if Path(path).is_file() or hub.is_dataset(path) or (flag and not is_source(path)):
            continue
        if Path(path).is_dir():
            raise UserError(f"{flag}{path}: is a folder; specify a file")
        remedy = "use a file, a number of examples or a fraction such as 0.1" if flag else "check the path"
        raise UserError(f"{flag}{path}: no such file; {remedy}")
    seen: dict[tuple[int, int], str] = {}
    for flag, path in [*(("", source) for source in options.train), *parts]:
        if Path(path).is_file():
            identity = Path(path).stat()
            other = seen.setdefault((identity.st_dev, identity.st_ino), f"{flag}{path}")
            if other != f"{flag}{path}" or (not flag and options.train.count(path) > 1):
                raise UserError(f"{flag}{path}: the same file as {other}; each split needs its own examples")


def read_examples(options: Options) -> Examples:
    """Read, check and split the examples; raises `UserError` as `prepare` does."""
    columns = options.columns
    rows: dict[str, list[Row]] = {name: [] for name in SPLITS}
    left_out, warnings = [], []
    for source in options.train:
        found, columns, notes = _read(source, options, columns)
        warnings += notes
        for row in found:
            name = _split_of(row, columns)
            if name in rows:
                rows[name].append(row)
            else:
                left_out.append((row, name))
    for name, part in (("valid", options.valid), ("test", options.test)):
        if is_source(part):
            if rows[name]:
                raise UserError(
                    f"--{name} {part}: {rows[name][0].source} contains a {name} split already; "
                    f"remove --{name}"
                )
            rows[name], columns, notes = _read(part, options, columns)
            warnings += notes
    if options.test == NO_TEST:
        left_out += [(row, f"test split (--test {NO_TEST})") for row in rows.pop("test")]
    examples = Examples(rows, columns, left_out=left_out, warnings=warnings)
    _leave_out_incomplete(examples)
    _leave_out_hidden(examples)
    where = ", ".join(options.train)
    if not any(examples.splits.values()):
        named = "".join(f", {role} '{column}'" for role, column in columns.named().items())
        raise UserError(f"{where}{named}: no row with text and label; choose other columns or another file")
    where += f", column '{columns.label}'" if columns.label and not columns.more_labels else ""
    _parse_labels(examples, options, where)
    if options.merge_labels:
        _merge_labels(examples)
    labels = [label_of(row) for part in examples.splits.values() for row in part]
    examples.warnings += label_cells.check(labels, examples.kind, options.labels, where)
    examples.warnings += _control_characters(examples)
    _set_aside(examples, options)
    _check_splits(examples, options)
    if options.soft_labels is not None:
        _add_soft_labels(examples, options.soft_labels)
    return examples


def _parse_labels(examples: Examples, options: Options, where: str) -> None:
    """Decide the kind of labels, and replace the cell of each example by its line (`label_cells`).

    Raises `UserError` for labels of another kind than --task, and for options that do not apply to the kind.
    """
    given = options.labels
    if examples.columns.more_labels and given.kind not in (None, KINDS[MULTI_LABEL]):
        raise UserError(
            f"{label_cells.TASK} {given.task}: --label-column names {len(examples.columns.labels)} columns, "
            "which is multi-label data; name one column"
        )
    if examples.columns.more_labels and given.separator is not None:
        raise UserError(
            f"{label_cells.SEPARATOR} {given.separator}: --label-column names several columns, each for one "
            "label; omit the separator, or name one column"
        )
    cells = [label_of(row) for rows in examples.splits.values() for row in rows]
    examples.kind = kind = label_cells.decide(cells, given, where)
    if options.merge_labels and not kind.has_classes:
        raise UserError(f"--merge-labels: the labels of {where} are numbers; omit the option")
    if options.soft_labels is not None:
        kind.require_exclusive(soft_labels.FLAG, where)
    if not kind.exclusive:
        for name, rows in examples.splits.items():
            found = [label_cells.Cell(label_of(row), row.source, row.record.line) for row in rows]
            lines = [label_cells.parse(cell, kind, given) for cell in found]
            examples.splits[name] = list(map(_with_label, rows, lines))


def _with_label(row: Row, label: str) -> Row:
    return replace(row, record=replace(row.record, label=label))


def _merge_labels(examples: Examples) -> None:
    """Give examples whose labels look alike the same label, and list the labels that change."""
    kind = examples.kind
    rows = [row for part in examples.splits.values() for row in part]
    chosen = merged([label for row in rows for label in label_cells.classes_in(label_of(row), kind)])

    def renamed(row: Row) -> Row:
        names = label_cells.classes_in(label_of(row), kind)
        if not any(name in chosen for name in names):
            return row
        new = [chosen.get(name, name) for name in names]
        return _with_label(row, new[0] if kind.exclusive else label_cells.as_line(new))

    for name, part in examples.splits.items():
        examples.splits[name] = list(map(renamed, part))
    examples.merged = chosen


def _add_soft_labels(examples: Examples, path: str) -> None:
    """Read the texts with soft labels; those of the valid and test sets are moved to `left_out`.

    Raises `UserError` if none is left.
    """
    labels, empty = soft_labels.read(path, examples.columns)
    examples.warnings += tables.detect(path)[1]
    train = examples.splits["train"]
    if examples.columns.pair is None and any(row.record.pair is not None for row in train):
        raise UserError(
            f"{soft_labels.FLAG} {path}: not for sentence pairs of a reader without columns; write the pairs "
            "as a table, and use --pair-column"
        )
    classes = set(map(label_of, train))
    soft_labels.check_classes(labels, classes)
    if missing := sorted(classes.difference(*(label.probabilities for label in labels))):
        examples.warnings.append(
            f"{path} has no probability of {quoted(missing)}: its texts teach that they are not of that class"
        )
    held_out = {
        _key(row.record): name for name, rows in examples.splits.items() if name != "train" for row in rows
    }
    examples.left_out += [(Row(path, record), "no text") for record in empty]
    for label in labels:
        name = held_out.get(_key(label.record))
        if name is None:
            examples.soft.append(label)
        else:
            examples.left_out.append((Row(path, label.record), f"text with a soft label that is in {name}"))
    if not examples.soft:
        raise UserError(
            f"{soft_labels.FLAG} {path}: no text for training ({len(labels)} in valid or test, {len(empty)} "
            "without text); predict other texts"
        )


def _key(record: Record) -> str:
    """Equal for texts that are the same (`preprocess.audit`)."""
    return audit.normalized(_joined(record)) or _joined(record)


def _read(source: str, options: Options, columns: Columns) -> tuple[list[Row], Columns, list[str]]:
    """The rows of a file or data set, its columns, and warnings.

    A table's columns are then those of the next one.
    """
    if hub.is_dataset(source):
        if given := options.dialect.flags():
            raise UserError(f"{given[0]}: does not apply to {source}; omit the option")
        table = tables.cleaned(hub.read_dataset(source), source)
        columns = _labelled_columns(table, columns, source)
        if columns.split is None:
            columns = replace(columns, split=hub.SPLIT)
        return [Row(source, record) for record in tables.records(table, columns, source)], columns, []
    if reader_name(source, options.reader) == TABLE:
        dialect, notes = tables.detect(source, options.dialect)
        table = tables.read_table(source, dialect)
        columns = _labelled_columns(table, columns, source)
        rows = [Row(source, record) for record in tables.records(table, columns, source)]
        return rows, columns, [*notes, *_unused_split(table, columns)]
    if given := [*(f"--{role}-column" for role in columns.named()), *options.dialect.flags()]:
        raise UserError(f"{given[0]}: {source} is not a table; omit the option or use a table (.csv, .jsonl)")
    rows = [Row(source, record) for record in read_records(source, options.reader)]
    if rows and all(row.record.label is None for row in rows):
        rows = _with_companions(rows, source, options.reader)
    return rows, columns, []


def companions(source: str, reader: str | None = None) -> dict[str, str]:
    """The files beside a file of one text per line: `label` (NAME.label) and `pair` (NAME.input1)."""
    if hub.is_dataset(source) or not Path(source).is_file() or reader_name(source, reader) != LINES:
        return {}
    path, found = Path(source), {}
    stems = [path.name[: match.start()] for match in re.finditer(r"\.", path.name)]
    for stem in reversed(stems):  # train.review.spm: train.review.label, or else train.label
        if path.with_name(f"{stem}.label").is_file():
            found["label"] = str(path.with_name(f"{stem}.label"))
            break
    pair = path.with_suffix(".input1")
    return found | ({"pair": str(pair)} if path.suffix == ".input0" and pair.is_file() else {})


def _with_companions(rows: list[Row], source: str, reader: str | None) -> list[Row]:
    """The rows of a file of one text per line with the labels, and second texts, of the files beside it.

    Raises `UserError` if there are no labels, or another number of lines.
    """
    found = companions(source, reader)
    if "label" not in found:
        raise UserError(
            f"{source}: read as {reader_name(source, reader)}, a format without labels; write them to "
            f"{Path(source).with_suffix('.label').name}, one per line, or use a table with a column of "
            f"labels ({', '.join(suffixes_of(TABLE))})"
        )
    lines = {kind: list(read_text_lines(path)) for kind, path in found.items()}
    for kind, path in found.items():
        check_line_counts(source, len(rows), path, len(lines[kind]))
    pairs = lines.get("pair", [None] * len(rows))
    return [
        replace(row, record=replace(row.record, label=label, pair=pair))
        for row, label, pair in zip(rows, lines["label"], pairs, strict=True)
    ]


def _labelled_columns(table: pd.DataFrame, given: Columns, source: str) -> Columns:
    """The columns of a table; raises `UserError` where one is ambiguous or there is no label."""
    names = enumerate_some([f"'{name}'" for name in table.columns], 12)
    remedy = (
        "give the column of the labels with --label-column; if the file has no labels, train on another one "
        f"with --test {NO_TEST}, then predict this one"
    )
    if given.label is not None and given.label not in table.columns:
        hint = nearest(given.label, list(table.columns))
        raise UserError(f"{source}: no label column '{given.label}' among {names}{hint}; {remedy}")
    columns = tables.choose_columns(table.columns, given, source)
    if columns.label is None:
        raise UserError(f"{source}: no label column found among {names}; {remedy}")
    return columns


def _split_of(row: Row, columns: Columns) -> str:
    """The split that the file assigns a row to, else the reason to leave it out.

    All rows of a file without splits are for training. Data sets of the hub may have further splits.
    """
    if columns.split is None:
        return "train"
    if row.record.split is None:
        return "no split"
    name = SPLIT_NAMES.get(row.record.split.casefold())
    if name is None and hub.is_dataset(row.source):
        return f"split '{row.record.split}'"
    if name is None:
        raise UserError(
            f"{row.source}, line {row.record.line}: split '{row.record.split}' is not one of "
            f"{', '.join(SPLIT_NAMES)}; rename it"
        )
    return name


def _leave_out_incomplete(examples: Examples) -> None:
    """Move rows without text or label to `left_out`."""
    for name, rows in examples.splits.items():
        paired = any(row.record.pair is not None for row in rows)
        kept = []
        for row in rows:
            if reason := _missing(row.record, paired=paired):
                examples.left_out.append((row, reason))
            else:
                checked_label(row.record.label or "", row.source, row.record.line)
                kept.append(row)
        examples.splits[name] = kept


def _leave_out_hidden(examples: Examples) -> None:
    """Move the rows of a split whose labels are all hidden to `left_out`, and warn about it."""
    for name, rows in examples.splits.items():
        others = [row for part in examples.splits.values() for row in part if part is not rows]
        if rows and others and all(label_of(row) == HIDDEN for row in rows):
            examples.left_out += [(row, "hidden label") for row in rows]
            examples.splits[name] = []
            examples.warnings.append(
                f"the labels of the {name} split are hidden ({HIDDEN}): its rows are not used, and another "
                f"{name} split is taken from the training examples"
            )


def _unused_split(table: pd.DataFrame, columns: Columns) -> list[str]:
    """A warning about a column of splits that is not used."""
    if columns.split is not None:
        return []
    for name in table.columns:
        if name in columns.named().values():
            continue
        found = Counter(str(value).casefold() for value in table[name] if value)
        if len(found) > 1 and found.keys() <= SPLIT_NAMES.keys():
            shown = ", ".join(f"{number} {split}" for split, number in found.items())
            return [f"column '{name}' names splits ({shown}), but is not used: add --split-column {name}"]
    return []


def _control_characters(examples: Examples) -> list[str]:
    """A warning about characters that a file in Windows-1252 has after a conversion as Latin-1."""
    rows = [row for part in examples.splits.values() for row in part if CONTROL.search(_joined(row.record))]
    if not rows:
        return []
    first = rows[0]
    match = CONTROL.search(_joined(first.record))
    assert match is not None
    return [
        f"{count(len(rows), 'text')} with control characters such as {match[0]!a} ({first.source}, line "
        f"{first.record.line}); if the file was converted from Latin-1, convert the original from "
        "Windows-1252: iconv -f cp1252 -t utf-8"
    ]


def _missing(record: Record, *, paired: bool) -> str | None:
    if not record.text.strip():
        return "no text"
    if paired and not (record.pair or "").strip():
        return "no second text"
    return None if (record.label or "").strip() else "no label"


def _set_aside(examples: Examples, options: Options) -> None:
    """Split validation and test examples from the training ones where there are none."""
    rows = examples.splits["train"]
    parts = {"valid": options.valid, "test": options.test}
    wanted = {
        name: part
        for name, part in parts.items()
        if is_size(part) and name in examples.splits and not examples.splits[name]
    }
    if not rows:
        raise UserError(f"{options.train[0]}: no row with text and label for training")
    sizes = {name: part_of(part, len(rows), f"--{name}") for name, part in wanted.items()}
    if sum(sizes.values()) >= len(rows):
        raise UserError(
            f"--valid and --test: use {sum(sizes.values())} of {len(rows)} rows; leave rows for training"
        )
    keys = [_key(row.record) for row in rows]
    strata = label_cells.strata([label_of(row) for row in rows], examples.kind)
    indices = grouped_split(strata, keys, sizes, options.seed)
    for name, chosen in indices.items():
        examples.splits[name] = [rows[index] for index in chosen]


def _check_splits(examples: Examples, options: Options) -> None:
    """Raise `UserError` for an empty split, and for a class without training examples."""
    known = set(_classes(examples, examples.splits["train"]))
    for name, rows in examples.splits.items():
        if not rows:
            raise UserError(
                f"{', '.join(options.train)}: too few different texts for a {name} split; add texts, or "
                f"pass --{name} FILE"
            )
        for row in rows:
            for label in _classes(examples, [row]):
                if label not in known:
                    raise UserError(
                        f"{row.source}, line {row.record.line}: label '{label}' of the {name} split is "
                        f"unknown; the training data contain only {quoted(sorted(known))}"
                    )


def _classes(examples: Examples, rows: Sequence[Row]) -> list[str]:
    """The classes of all rows; a class occurs once for each row that has it. Empty for regression."""
    return [label for row in rows for label in label_cells.classes_in(label_of(row), examples.kind)]


def describe(examples: Examples, options: Options) -> list[str]:
    """What was read, and what is suspicious about it."""
    lines = []
    further = {"text": examples.columns.more_text, "label": examples.columns.more_labels}
    for role, column in examples.columns.named().items():
        given = getattr(options.columns, role) is not None
        more = further.get(role, ())
        lines.append(
            f"{role}: column{'s' if more else ''} {' and '.join(map(repr, (column, *more)))}"
            f"{'' if given else ' (guessed; choose with --' + role + '-column)'}"
        )
    if not examples.kind.exclusive:
        source = "" if options.labels.kind else f" (detected; choose with {label_cells.TASK})"
        lines.append(f"labels: {examples.kind.task}{source}")
    for name in sorted(set(examples.merged.values())):
        others = sorted(label for label, chosen in examples.merged.items() if chosen == name)
        lines.append(f"label {quoted([name])}: also written {quoted(others)}")
    for name, rows in examples.splits.items():
        lines.append(f"{name}: {count(len(rows), 'example')}; {_shares(rows, examples.kind)}")
    if examples.soft:
        lines.append(_describe_soft_labels(examples))
    for reason in sorted({reason for _, reason in examples.left_out}):
        places = [f"{row.source}:{row.record.line}" for row, why in examples.left_out if why == reason]
        lines.append(
            f"left out, {reason}: {count(len(places), 'row')} ({enumerate_some(places, MOST_SHOWN)})"
        )
    lines += [
        f"warning: {warning}" for warning in [*examples.warnings, *_absent(examples), *_repeated(examples)]
    ]
    return lines


def _describe_soft_labels(examples: Examples) -> str:
    rows = examples.soft_rows()
    known, repeated = {_key(row.record) for row in examples.splits["train"]}, 0
    for row in rows:
        repeated += _key(row.record) in known
        known.add(_key(row.record))
    number, shares = count(len(rows), "further training example"), _shares(rows, examples.kind)
    line = f"soft labels: {number}; most probable class: {shares}"
    repeat = "repeats" if repeated == 1 else "repeat"
    return line + (f"; {repeated:,} of them {repeat} a text of train" if repeated else "")


def _shares(rows: Sequence[Row], kind: LabelKind) -> str:
    return label_cells.describe([label_of(row) for row in rows], kind)


def _absent(examples: Examples) -> list[str]:
    """Classes that a split has no example of."""
    known = set(_classes(examples, examples.splits["train"]))
    missing = {name: sorted(known - set(_classes(examples, rows))) for name, rows in examples.splits.items()}
    return [f"{name} has no example of {quoted(labels)}" for name, labels in missing.items() if labels]


def _repeated(examples: Examples) -> list[str]:
    """Texts that occur in several splits, and texts with several labels."""
    texts = {name: [_joined(row.record) for row in rows] for name, rows in examples.splits.items()}
    found = audit.duplicates(texts, audit.normalized)
    lines = [
        f"{count(len(found[name][other]), 'example')} of {name} also in {other} (normalized)"
        for other, name in combinations(texts, 2)
        if found[name][other]
    ]
    if within := len(found["train"]["train"]):
        repeat = "repeats" if within == 1 else "repeat"
        lines.append(f"{count(within, 'training example')} {repeat} the text of an earlier one (normalized)")
    labels: dict[str, set[str]] = {}
    for rows in examples.splits.values():
        for row in rows:
            labels.setdefault(audit.exact(_joined(row.record)), set()).add(label_of(row))
    if conflicting := sum(len(names) > 1 for names in labels.values()):
        lines.append(f"{count(conflicting, 'text')} with more than one label")
    return lines


def label_of(row: Row) -> str:
    """The label of an example: its words with one space between them."""
    return " ".join((row.record.label or "").split())


def _joined(record: Record) -> str:
    return record.text if record.pair is None else f"{record.text}\t{record.pair}"


def is_size(part: str) -> bool:
    """Whether `--valid` or `--test` is a number of examples or a fraction, not a file."""
    return SIZE.fullmatch(part) is not None


def is_source(part: str) -> bool:
    """Whether `--valid` or `--test` names a file or data set: it is neither a size nor `none`."""
    return not is_size(part) and part != NO_TEST


def _write_text(examples: Examples, folder: Path) -> None:
    """The splits as line files."""
    for name, rows in examples.all_rows().items():
        columns = {"input0": [row.record.text for row in rows], "label": [label_of(row) for row in rows]}
        if any(row.record.pair is not None for row in rows):
            columns["input1"] = [row.record.pair or "" for row in rows]
        for kind, lines in columns.items():
            with atomic_open(folder / TEXT / f"{name}.{kind}") as stream:
                stream.writelines(f"{line}\n" for line in lines)


def _write_rest(examples: Examples, options: Options, folder: Path, wanted: Report, workers: int) -> Report:
    """Tokenizer, binary data, audit and reports of the text files in `folder`."""
    inputs = ["input0", "input1"] if (folder / TEXT / "train.input1").exists() else ["input0"]
    tokenizer = choose(
        options.tokenizer,
        options.dictionary,
        [folder / TEXT / f"train.{name}" for name in inputs],
        size=options.vocabulary_size,
        normalize_apostrophes=options.normalize_apostrophes,
        workers=workers,
    )
    splits = [
        Split(
            name,
            {kind: [str(folder / TEXT / f"{name}.{kind}")] for kind in inputs},
            str(folder / TEXT / f"{name}.label"),
        )
        for name in examples.splits
    ]
    counts, found = write_data(folder, splits, tokenizer.encoder, workers=workers, kind=examples.kind)
    if examples.soft:
        hard = [label_of(row) for row in examples.splits["train"]]
        soft_labels.write(folder, found["labels"], hard, examples.soft)
    tokenizer.save(folder / FOLDER)
    _write_json(folder / "audit.json", _audit(splits, tokenizer.encoder, folder, workers))
    _write_json(folder / SPLIT_REPORT, _places(examples))
    extra = {"splits": counts, **found, "tokenizer": tokenizer.describe()}
    return write_report(folder, REPORT, wanted | extra)


def _audit(splits: Sequence[Split], encoder: Any, folder: Path, workers: int) -> dict[str, Any]:
    """The audit of the text files, with paths inside the data folder."""
    texts = {
        split.name: audit.read_examples(
            [path for paths in split.texts.values() for path in paths], split.label
        )
        for split in splits
        if split.label is not None
    }
    report = audit.audit(texts, encoder, workers=workers)
    for part in report["splits"].values():
        part["sha256"] = {
            Path(path).relative_to(folder).as_posix(): digest for path, digest in part["sha256"].items()
        }
    return report


def _places(examples: Examples) -> dict[str, Any]:
    """The content of split.json: [file, line] of every example, in the order of the text files."""
    return {
        "columns": examples.columns.named(),
        "more_text": list(examples.columns.more_text),
        **({"more_labels": list(more)} if (more := examples.columns.more_labels) else {}),
        "examples": {
            name: [[row.source, row.record.line] for row in rows]
            for name, rows in examples.all_rows().items()
        },
        "left_out": [[row.source, row.record.line, reason] for row, reason in examples.left_out],
    }


def _write_json(path: Path, content: Any) -> None:
    atomic_write(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        print(line, flush=True)


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
    add_reading(parser)
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
    add_destination(parser, "DIR")
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
    _print_lines([*summary(report, Path(args.out)), f"next: {command}"])


def _run_corpus(args: argparse.Namespace) -> None:
    """`prepare --corpus`; raises `UserError` for an option of labelled text."""
    labelled = {
        "FILE": args.files, "--test": args.test, "--seed": args.seed, "--reader": args.reader,
        soft_labels.FLAG: args.soft_labels, label_cells.TASK: args.task,
        label_cells.SEPARATOR: args.label_separator, "--merge-labels": args.merge_labels,
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
    _print_lines([*describe_corpus(report), f"written to {args.out}"])


def options_of(args: argparse.Namespace, train: Sequence[str], seed: int | None, **others: Any) -> Options:
    """The values of the options of the preparation; what is not given has its default.

    `others` are further fields of `Options`.
    """
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
