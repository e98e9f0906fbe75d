"""Files of labelled text -> examples in splits: what is read, left out, checked and held out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from roberta_small.common.cli import nearest
from roberta_small.common.data_folder import Report, request
from roberta_small.common.errors import UserError, count
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, SINGLE_LABEL, LabelKind
from roberta_small.preprocess import labels
from roberta_small.preprocess.audit import normalized
from roberta_small.preprocess.label_cells import SEPARATOR, TASK, LabelOptions, as_line, checked_label, read
from roberta_small.preprocess.labels import HIDDEN, check_line_counts, quoted
from roberta_small.preprocess.options import DEFAULT_PART, NO_TEST
from roberta_small.preprocess.readers import TABLE, read_records, reader_name, suffixes_of, tables
from roberta_small.preprocess.readers.binary import SPLIT, read_dataset
from roberta_small.preprocess.readers.dialect import Dialect
from roberta_small.preprocess.readers.lines import read_text_lines
from roberta_small.preprocess.readers.records import DEFAULT as LINES
from roberta_small.preprocess.readers.records import Record, is_dataset
from roberta_small.preprocess.readers.tables import Columns
from roberta_small.preprocess.split import grouped_split, part_of
from roberta_small.preprocess.tokenization.choice import TokenizerOptions

SPLITS = ("train", "valid", "test")
SPLIT_NAMES = {
    **{"train": "train", "training": "train"},
    **{"valid": "valid", "validation": "valid", "val": "valid", "dev": "valid"},
    **{"test": "test", "testing": "test"},
}
"""What files call a split -> its name here."""
SIZE = re.compile(r"[0-9]*\.?[0-9]+")
CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
"""Control characters that no text contains."""


def is_source(part: str) -> bool:
    """Whether `--valid` or `--test` names a file or data set: it is neither a size nor `none`."""
    return SIZE.fullmatch(part) is None and part != NO_TEST


def companions(source: str, reader: str | None = None) -> dict[str, str]:
    """The files beside a file of one text per line: `label` (NAME.label) and `pair` (NAME.input1)."""
    if is_dataset(source) or not Path(source).is_file() or reader_name(source, reader) != LINES:
        return {}
    path, found = Path(source), {}
    stems = [path.name[: match.start()] for match in re.finditer(r"\.", path.name)]
    for stem in reversed(stems):  # train.review.spm: train.review.label, or else train.label
        if path.with_name(f"{stem}.label").is_file():
            found["label"] = str(path.with_name(f"{stem}.label"))
            break
    pair = path.with_suffix(".input1")
    return found | ({"pair": str(pair)} if path.suffix == ".input0" and pair.is_file() else {})


@dataclass(frozen=True, kw_only=True)
class Options(TokenizerOptions):
    """What decides the content of a data folder; `UserError` for options that contradict each other."""

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
    soft_labels: str | None = None
    """A file of texts with class probabilities, for the training set."""

    def __post_init__(self) -> None:
        given = self.labels
        if self.columns.more_labels and given.kind not in (None, KINDS[MULTI_LABEL]):
            raise UserError(
                f"{TASK} {given.task}: --label-column names {len(self.columns.labels)} columns, "
                "which is multi-label data; name one column"
            )
        if self.columns.more_labels and given.separator is not None:
            raise UserError(
                f"{SEPARATOR} {given.separator}: --label-column names several columns, each for one "
                "label; omit the separator, or name one column"
            )

    def request(self) -> Report:
        """The options and the checksums of the files behind them."""
        sources = [*self.train, *(part for part in (self.valid, self.test) if is_source(part))]
        beside = [path for source in sources for path in companions(source, self.reader).values()]
        soft = {} if self.soft_labels is None else {"soft_labels": self.soft_labels}
        files = [source for source in (*sources, *beside, *soft.values()) if not is_dataset(source)]
        tokenizer, of_tokenizer = self.tokenizer_request()
        optional = {
            "labels": self.labels.given(),
            "dialect": self.dialect.given(),
            "merge_labels": self.merge_labels,
        }
        options = {
            "train": list(self.train),
            "valid": self.valid,
            "test": self.test,
            "columns": self.columns.named(),
            **self.columns.others(),
            **{name: value for name, value in optional.items() if value},
            "reader": self.reader,
            "seed": self.seed,
            **tokenizer,
            **soft,
        }
        return request(options, [*files, *of_tokenizer])

    def check_files(self) -> None:
        """Raise `UserError` unless every source is a file, and each another one."""
        if self.valid == NO_TEST:
            raise UserError(
                f"--valid {NO_TEST}: training needs a validation set, which selects the checkpoint"
            )
        parts = [(f"--{name} ", part) for name, part in (("valid", self.valid), ("test", self.test))]
        seen: dict[tuple[int, int], str] = {}
        for flag, path in [*(("", source) for source in self.train), *parts]:
            if is_dataset(path) or (flag and not is_source(path)):
                continue
            if Path(path).is_dir():
                raise UserError(f"{flag}{path}: is a folder; specify a file")
            if not Path(path).is_file():
                other = "use a file, a number of examples or a fraction such as 0.1"
                raise UserError(f"{flag}{path}: no such file; {other if flag else 'check the path'}")
            identity = Path(path).stat().st_dev, Path(path).stat().st_ino
            if identity in seen:
                raise UserError(
                    f"{flag}{path}: the same file as {seen[identity]}; each split needs its own examples"
                )
            seen[identity] = f"{flag}{path}"


@dataclass(frozen=True)
class Row:
    """One example and where it comes from."""

    source: str
    record: Record
    label: str = ""
    """The line of its label (`preprocess.labels`); that of its most probable class if there are several."""
    probabilities: Mapping[str, float] | None = None
    """Of its classes, with the sum 1, if it has a soft label."""

    @property
    def text(self) -> str:
        """The text; of a pair, both with a tab between them."""
        return self.record.text if self.record.pair is None else f"{self.record.text}\t{self.record.pair}"

    @cached_property
    def key(self) -> str:
        """Equal for texts that are the same (`preprocess.audit`)."""
        return normalized(self.text)


Splits = dict[str, list[Row]]
LeftOut = list[tuple[Row, str]]
"""Rows with the reason."""


@dataclass(frozen=True)
class Examples:
    """The examples by split, and the rows that are not used."""

    splits: Splits
    columns: Columns
    kind: LabelKind = KINDS[SINGLE_LABEL]
    reason: str = ""
    """Why the labels were read so, if they were guessed."""
    left_out: LeftOut = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """About files and classes."""
    merged: dict[str, str] = field(default_factory=dict)
    """Label in the file -> the class that it was merged into."""
    soft: list[Row] = field(default_factory=list)
    """Further training examples, with class probabilities."""

    def all_rows(self) -> Splits:
        """The examples by split; those with soft labels are the last ones of train."""
        return self.splits | {"train": [*self.splits["train"], *self.soft]}


def read_examples(options: Options) -> Examples:
    """Read, check and split the examples; raises `UserError` as `dataset.prepare` does."""
    splits, columns, left_out, warnings = _read_sources(options)
    splits, without, notes = _usable(splits)
    left_out, warnings = left_out + without, warnings + notes
    where = ", ".join(options.train)
    if not any(splits.values()):
        named = "".join(f", {role} '{column}'" for role, column in columns.named().items())
        doubts = "".join(f" ({warning})" for warning in warnings)
        raise UserError(
            f"{where}{named}: no row with text and label; choose other columns or another file{doubts}"
        )
    where += f", column '{columns.label}'" if columns.label and not columns.more_labels else ""

    cells = ((row.label, row.source, row.record.line) for rows in splits.values() for row in rows)
    several = LabelOptions(KINDS[MULTI_LABEL].task) if columns.more_labels else options.labels
    kind, lines_of, reason = read(cells, several, where)
    if options.merge_labels and not kind.has_classes:
        raise UserError(f"--merge-labels: the labels of {where} are numbers; omit the option")
    if options.soft_labels is not None:
        kind.require_exclusive("--soft-labels", where)

    merged: dict[str, str] = {}
    if options.merge_labels:
        lines = (lines_of[row.label] for rows in splits.values() for row in rows)
        merged = labels.merged(labels.class_counts(lines, kind))
        for cell, line in lines_of.items():
            names = [merged.get(one, one) for one in labels.classes_in(line, kind)]
            lines_of[cell] = names[0] if kind.exclusive else as_line(names)
    splits = {
        name: [replace(row, label=lines_of[row.label]) for row in rows] for name, rows in splits.items()
    }
    rows = [row for part in splits.values() for row in part]
    warnings += labels.check([row.label for row in rows], kind, options.labels, where)
    if odd := [(row, match) for row in rows if (match := CONTROL.search(row.text))]:
        first, match = odd[0]
        warnings.append(
            f"{count(len(odd), 'text')} with control characters such as {match[0]!a} ({first.source}, line "
            f"{first.record.line}); if the file was converted from Latin-1, convert the original from "
            "Windows-1252: iconv -f cp1252 -t utf-8"
        )
    splits = _held_out(splits, kind, options)
    known = labels.class_counts([row.label for row in splits["train"]], kind)
    for name, rows in splits.items():
        if not rows:
            raise UserError(
                f"{', '.join(options.train)}: too few different texts for a {name} split; add texts, or pass "
                f"--{name} FILE"
            )
        for row in rows:
            for label in labels.classes_in(row.label, kind):
                if label not in known:
                    alike = [one for one in known if labels.visible(one) == labels.visible(label)]
                    remedy = f"; {alike[0]!a} looks like it: add --merge-labels" if alike else ""
                    raise UserError(
                        f"{row.source}, line {row.record.line}: label {quoted([label])} of the {name} split "
                        f"is unknown; the training data contain only {quoted(sorted(known))}{remedy}"
                    )
    return Examples(splits, columns, kind, reason, left_out, warnings, merged)


def _read_sources(options: Options) -> tuple[Splits, Columns, LeftOut, list[str]]:
    """The rows of all files by split, the columns, rows of other splits, and warnings."""
    splits: Splits = {name: [] for name in SPLITS}
    columns, left_out, warnings = options.columns, [], []
    for source in options.train:
        rows, columns, notes = _read(source, options, columns)
        warnings += notes
        for row in rows:
            name, named = "train", row.record.split
            if columns.split is not None and named is not None:
                name = SPLIT_NAMES.get(named.casefold(), "")
            if columns.split is not None and named is None:
                left_out.append((row, "no split"))
            elif name in splits:
                splits[name].append(row)
            elif is_dataset(row.source):
                left_out.append((row, f"split '{named}'"))
            else:
                raise UserError(
                    f"{row.source}, line {row.record.line}: split '{named}' is not one of "
                    f"{', '.join(SPLIT_NAMES)}; rename it"
                )
    for name, part in (("valid", options.valid), ("test", options.test)):
        if is_source(part):
            if splits[name]:
                raise UserError(
                    f"--{name} {part}: {splits[name][0].source} contains a {name} split already; "
                    f"remove --{name}"
                )
            splits[name], columns, notes = _read(part, options, columns)
            warnings += notes
    if options.test == NO_TEST:
        left_out += [(row, f"test split (--test {NO_TEST})") for row in splits.pop("test")]
    return splits, columns, left_out, warnings


def _read(source: str, options: Options, given: Columns) -> tuple[list[Row], Columns, list[str]]:
    """The rows of a file or data set, its columns, and warnings.

    A table's columns are then those of the next one. Raises `UserError` where one is ambiguous or there is no
    label.
    """
    notes: list[str] = []
    if is_dataset(source):
        if flags := options.dialect.flags():
            raise UserError(f"{flags[0]}: does not apply to {source}; omit the option")
        table = tables.cleaned(read_dataset(source), source)
        given = given if given.split else replace(given, split=SPLIT)
    elif reader_name(source, options.reader) == TABLE:
        loaded = tables.load(source, options.dialect)
        notes, table = loaded.notes, loaded.text()
    else:
        if flags := [*(f"--{role}-column" for role in given.named()), *options.dialect.flags()]:
            raise UserError(
                f"{flags[0]}: {source} is not a table; omit the option or use a table (.csv, .jsonl)"
            )
        records = list(read_records(source, options.reader))
        if records and all(record.label is None for record in records):
            records = _with_companions(records, source, options.reader)
        return [Row(source, record) for record in records], given, []
    names = tables.listed(table.columns)
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
    if columns.split is None:
        notes += _unused_split(table, columns)
    if columns.more_labels:
        cells = table[list(columns.labels)].dropna(how="all").isna().sum()
        if empty := [f"'{name}' {number:,}" for name, number in cells.items() if number]:
            notes.append(
                f"empty cells are read as 0, without the label: {', '.join(empty)}; if they mean that it is "
                "not known, remove the rows"
            )
    return [Row(source, record) for record in tables.records(table, columns, source)], columns, notes


def _with_companions(records: list[Record], source: str, reader: str | None) -> list[Record]:
    """The records of a file of texts with the labels, and second texts, of the files beside it."""
    found = companions(source, reader)
    if "label" not in found:
        raise UserError(
            f"{source}: read as {reader_name(source, reader)}, a format without labels; write them to "
            f"{Path(source).with_suffix('.label').name}, one per line, or use a table with a column of "
            f"labels ({', '.join(suffixes_of(TABLE))})"
        )
    lines = {kind: list(read_text_lines(path)) for kind, path in found.items()}
    for kind, path in found.items():
        check_line_counts(source, len(records), path, len(lines[kind]))
    pairs = lines.get("pair", [None] * len(records))
    return [
        replace(record, label=label, pair=pair)
        for record, label, pair in zip(records, lines["label"], pairs, strict=True)
    ]


def _unused_split(table: pd.DataFrame, columns: Columns) -> list[str]:
    """A warning about a column of splits that is not used."""
    for name in table.columns:
        if name in columns.named().values():
            continue
        found = Counter(str(value).casefold() for value in table[name] if value)
        if len(found) > 1 and found.keys() <= SPLIT_NAMES.keys():
            shown = ", ".join(f"{number} {split}" for split, number in found.items())
            return [f"column '{name}' names splits ({shown}), but is not used: add --split-column {name}"]
    return []


def _usable(splits: Splits) -> tuple[Splits, LeftOut, list[str]]:
    """The rows with text and label, the others, and a warning about splits whose labels are all hidden."""
    complete: Splits = {name: [] for name in splits}
    left_out: LeftOut = []
    for name, rows in splits.items():
        paired = any(row.record.pair is not None for row in rows)
        for row in rows:
            record = row.record
            if not record.text.strip():
                left_out.append((row, "no text"))
            elif paired and not (record.pair or "").strip():
                left_out.append((row, "no second text"))
            elif not labels.INVISIBLE.sub("", record.label or "").strip():
                left_out.append((row, "no label"))
            else:
                label = checked_label(record.label or "", row.source, record.line)
                complete[name].append(replace(row, label=label))
    warnings = []
    for name, rows in complete.items():
        others = any(part for other, part in complete.items() if other != name)
        if rows and others and all(row.label == HIDDEN for row in rows):
            left_out += [(row, "hidden label") for row in rows]
            complete[name] = []
            warnings.append(
                f"the labels of the {name} split are hidden ({HIDDEN}): its rows are not used, and another "
                f"{name} split is taken from the training examples"
            )
    return complete, left_out, warnings


def _held_out(splits: Splits, kind: LabelKind, options: Options) -> Splits:
    """The splits, with validation and test examples taken from the training ones where there are none."""
    rows = splits["train"]
    if not rows:
        raise UserError(f"{options.train[0]}: no row with text and label for training")
    sizes = {
        name: part_of(part, len(rows), f"--{name}")
        for name, part in (("valid", options.valid), ("test", options.test))
        if SIZE.fullmatch(part) and name in splits and not splits[name]
    }
    if sum(sizes.values()) >= len(rows):
        raise UserError(
            f"--valid and --test: use {sum(sizes.values())} of {len(rows)} rows; leave rows for training"
        )
    strata = labels.strata([row.label for row in rows], kind)
    indices = grouped_split(strata, [row.key for row in rows], sizes, options.seed)
    return splits | {name: [rows[index] for index in chosen] for name, chosen in indices.items()}
