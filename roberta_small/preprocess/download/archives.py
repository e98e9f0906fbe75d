"""The downloaded archives, unpacked into the files that the other commands read.

FLUE (Le et al. 2020, "FlauBERT") and GLUE (Wang et al. 2019) become JSON lines, TASK/SPLIT.jsonl:

    cls-books, cls-dvd, cls-music   French reviews of Webis-CLS-10: text, label (1: positive)
    paws-x                          paraphrases, French part of PAWS-X (Yang et al. 2019): sentence1,
                                    sentence2, label (1: paraphrase)
    xnli                            inference, French part of XNLI (Conneau et al. 2018): premise,
                                    hypothesis, label
    CoLA, SST-2                              sentence, label
    MRPC, QQP, STS-B, MNLI, QNLI, RTE, WNLI  sentence1, sentence2, label

The training sentences of PAWS-X and XNLI are machine translations. Texts are those of the authors' files:
unlike FLUE's scripts, nothing is removed from them, and short pairs are kept. Pairs with an empty sentence or
the placeholder "NS" of PAWS-X are left out.

The labels of GLUE's test are hidden: its rows have an `index` instead, which `roberta-small predict --format
glue` writes beside the prediction. MNLI also has valid_mismatched and test_mismatched. Labels are those of a
submission: words for MNLI, QNLI and RTE, 0 or 1 for other classes, a number from 0 to 5 for STS-B. Rows of
train and valid with too few fields or without a sentence or label are left out.
"""

from __future__ import annotations

import gzip
import json
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_open
from roberta_small.preprocess.readers.webis import parse_reviews

CLS_ARCHIVE = "cls-acl10-unprocessed.tar.gz"
CLS_MEMBER = "cls-acl10-unprocessed/fr/{category}/{split}.review"
CATEGORIES = ("books", "dvd", "music")
PAWSX_ARCHIVE = "x-final.tar.gz"
XNLI_TRAIN_ARCHIVE, XNLI_ARCHIVE = "XNLI-MT-1.0.zip", "XNLI-1.0.zip"
ALLOCINE_ARCHIVE = "data.tar.bz2"
ALLOCINE_MEMBERS = {"data/train.jsonl": "train", "data/val.jsonl": "valid", "data/test.jsonl": "test"}
"""Member -> split. The authors' files have one JSON object per line, with `review` and `polarity` (0, 1)."""
MRPC_DEV, MRPC_TRAIN, MRPC_TEST = "mrpc_dev_ids.tsv", "msr_paraphrase_train.txt", "msr_paraphrase_test.txt"
MRPC_IDS = ("#1 ID", "#2 ID")
PLACEHOLDER = "NS"
"""A sentence of PAWS-X without translation."""
CORRUPT = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
Write = Callable[[IO[bytes], str, str], None]
"""`write(content, name, split)`."""
Row = dict[str, Any]
Names = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Labelled texts in tables with tabs between columns and no quoting."""

    folder: str
    """Of our files."""
    archive: str
    members: Mapping[str, str]
    """Member of the archive -> split."""
    texts: Mapping[str, str]
    """Name in our file -> column."""
    label: str
    labels: Names
    """Empty for numbers."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Label in the column -> that of our file."""
    only: tuple[str, str] | None = None
    """Column and value of the rows to keep."""
    glue: bool = False
    """The labels of test are hidden, and rows of other splits may have too few fields."""
    header: Names = ()
    """The columns of train and valid, if these files have no heading."""


def _glue(name: str, archive: str, columns: Names, label: str, labels: Names, header: Names = ()) -> Table:
    """A task of GLUE; its columns of texts become `sentence`, or `sentence1` and `sentence2`."""
    files = {"train": "train", "dev": "valid", "test": "test"}
    if name == "MNLI":
        files = {"train": "train", "dev_matched": "valid", "test_matched": "test"}
        files |= {"dev_mismatched": "valid_mismatched", "test_mismatched": "test_mismatched"}
    members = {f"{name}/{file}.tsv": split for file, split in files.items()}
    texts = dict(zip(("sentence",) if len(columns) == 1 else PAIR, columns, strict=True))
    return Table(name, archive, members, texts, label, labels, glue=True, header=header)


PAIR = ("sentence1", "sentence2")
BINARY = ("0", "1")
NLI = ("entailment", "neutral", "contradiction")
ENTAILMENT = ("entailment", "not_entailment")
FLUE = (
    Table(
        "paws-x", PAWSX_ARCHIVE,
        {
            "x-final/fr/translated_train.tsv": "train", "x-final/fr/dev_2k.tsv": "valid",
            "x-final/fr/test_2k.tsv": "test",
        },
        {name: name for name in PAIR}, "label", BINARY,
    ),
    Table(
        "xnli", XNLI_TRAIN_ARCHIVE, {"XNLI-MT-1.0/multinli/multinli.train.fr.tsv": "train"},
        {"premise": "premise", "hypothesis": "hypo"}, "label", NLI,
        renamed={"contradictory": "contradiction"},
    ),
    Table(
        "xnli", XNLI_ARCHIVE, {"XNLI-1.0/xnli.dev.tsv": "valid", "XNLI-1.0/xnli.test.tsv": "test"},
        {"premise": "sentence1", "hypothesis": "sentence2"}, "gold_label", NLI, only=("language", "fr"),
    ),
)  # fmt: skip
GLUE = (
    _glue("CoLA", "CoLA.zip", ("sentence",), "label", BINARY, ("source", "label", "mark", "sentence")),
    _glue("SST-2", "SST-2.zip", ("sentence",), "label", BINARY),
    _glue("STS-B", "STS-B.zip", PAIR, "score", ()),
    _glue("QQP", "QQP-clean.zip", ("question1", "question2"), "is_duplicate", BINARY),
    _glue("MNLI", "MNLI.zip", PAIR, "gold_label", NLI),
    _glue("QNLI", "QNLIv2.zip", ("question", "sentence"), "label", ENTAILMENT),
    _glue("RTE", "RTE.zip", PAIR, "label", ENTAILMENT),
    _glue("WNLI", "WNLI.zip", PAIR, "label", BINARY),
)
"""The tasks in archives."""
MRPC = _glue("MRPC", "", ("#1 String", "#2 String"), "Quality", BINARY)


def unpack(archive: Path, members: Mapping[str, str], write: Write) -> None:
    """Call `write(content, name, split)` for the `members` (name -> split) of a tar or zip archive.

    Members are written under our own names: paths, links and permissions in the archive have no effect.
    """
    wanted = dict(members)
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as content:
                for name in wanted.keys() & set(content.namelist()):
                    try:
                        stream = content.open(name)
                    except RuntimeError as error:  # an encrypted member, or an unknown compression
                        raise zipfile.BadZipFile(str(error)) from None
                    with stream:
                        write(stream, name, wanted.pop(name))
        else:
            with tarfile.open(archive, "r|*") as tar:
                for member in tar:
                    split = wanted.pop(member.name, None) if member.isfile() else None
                    if split and (found := tar.extractfile(member)):
                        write(found, member.name, split)
                    if not wanted:
                        break
    except CORRUPT as error:
        raise UserError(f"{archive}: corrupt archive ({error}); delete it and fetch it again") from None
    if wanted:
        raise UserError(f"{archive}: no member {', '.join(wanted)}; this is another archive")


def unpack_books(destdir: Path) -> None:
    """Write `{train,test}.review` and `.label` from the French book reviews; errors as for `unpack`."""
    archive = destdir / CLS_ARCHIVE
    members = {CLS_MEMBER.format(category="books", split=split): split for split in ("train", "test")}

    def write(stream: IO[bytes], name: str, split: str) -> None:
        place = f"{archive}: {name}"
        review, label = (destdir / f"{split}.{kind}" for kind in ("review", "label"))
        count = 0
        with atomic_open(review) as reviews, atomic_open(label) as labels:
            for record in parse_reviews(stream, place):
                reviews.write(f"{record.text}\n")
                labels.write(f"{record.label}\n")
                count += 1
            if count == 0:
                raise UserError(f"{place}: contains no reviews (<item> elements); download the file again")
        print(f"{review}: {count} reviews")

    unpack(archive, members, write)


def unpack_allocine(destdir: Path) -> None:
    """Write `{train,valid,test}.jsonl`, unchanged. Raises `UserError` as `unpack`."""

    def write(stream: IO[bytes], name: str, split: str) -> None:
        path = destdir / f"{split}.jsonl"
        with atomic_open(path, "wb") as target:
            shutil.copyfileobj(stream, target)
        print(path)

    unpack(destdir / ALLOCINE_ARCHIVE, ALLOCINE_MEMBERS, write)


def unpack_flue(destdir: Path) -> None:
    """Write `TASK/SPLIT.jsonl` below `destdir`, from the archives in it; raises `UserError` as `unpack`."""
    parts = [(category, split) for category in CATEGORIES for split in ("train", "test")]
    members = {CLS_MEMBER.format(category=c, split=s): f"cls-{c}/{s}.jsonl" for c, s in parts}

    def write(stream: IO[bytes], name: str, path: str) -> None:
        place = f"{destdir / CLS_ARCHIVE}: {name}"
        rows = ({"text": record.text, "label": record.label} for record in parse_reviews(stream, place))
        write_json_lines(destdir / path, rows, place)

    unpack(destdir / CLS_ARCHIVE, members, write)
    for table in FLUE:
        _unpack_table(destdir, table)


def unpack_glue(destdir: Path) -> None:
    """Write `TASK/SPLIT.jsonl` below `destdir`, from the files in it; raises `UserError` as `unpack`."""
    for table in GLUE:
        _unpack_table(destdir, table)
    with (destdir / MRPC_DEV).open("rb") as stream:
        dev = {tuple(cells[:2]) for _, cells in _lines(stream, str(destdir / MRPC_DEV))}

    def is_dev(row: Row) -> bool:
        return tuple(row.get(name, "") for name in MRPC_IDS) in dev

    for split in ("train", "valid", "test"):
        path = destdir / (MRPC_TEST if split == "test" else MRPC_TRAIN)
        keep = is_dev if split == "valid" else lambda row: not is_dev(row)
        with path.open("rb") as stream:
            rows = examples(stream, str(path), MRPC, hidden=split == "test", keep=keep)
            write_json_lines(destdir / MRPC.folder / f"{split}.jsonl", rows, str(path))


def _unpack_table(destdir: Path, table: Table) -> None:
    def write(stream: IO[bytes], name: str, split: str) -> None:
        place = f"{destdir / table.archive}: {name}"
        rows = examples(stream, place, table, hidden=table.glue and split.startswith("test"))
        write_json_lines(destdir / table.folder / f"{split}.jsonl", rows, place)

    unpack(destdir / table.archive, table.members, write)


def examples(
    stream: IO[bytes],
    place: str,
    table: Table,
    *,
    hidden: bool = False,
    keep: Callable[[Row], bool] = lambda row: True,
) -> Iterator[Row | None]:
    """The examples of a table, None for a row that is left out; errors name `place` and the line.

    `hidden`: the rows have no label and get an index. `keep` chooses among the others.
    """
    columns = () if hidden else table.header
    needed = [*table.texts.values(), *([] if hidden else [table.label])]
    needed += [table.only[0]] if table.only else []
    for number, cells in _lines(stream, place):
        if not columns:
            columns = tuple(cells)
            if missing := [name for name in needed if name not in columns]:
                raise UserError(
                    f"{place}, line {number}: no column {', '.join(missing)}; this is another file"
                )
            continue
        row = dict(zip(columns, cells, strict=False))
        if any(name not in row for name in needed) and (hidden or not table.glue):
            raise UserError(f"{place}, line {number}: {len(cells)} fields; fetch the archive again")
        if table.only and row[table.only[0]] != table.only[1]:
            continue
        texts = {name: row.get(column, "").strip() for name, column in table.texts.items()}
        if hidden:
            yield {"index": number - 2, **texts}
            continue
        label = row.get(table.label, "").strip()
        if table.glue and (len(cells) < len(columns) or not label or not all(texts.values())):
            yield None
            continue
        if not keep(row):
            continue
        label = table.renamed.get(label, label)
        if table.labels and label not in table.labels:
            raise UserError(
                f"{place}, line {number}: label {label!r}, not one of {', '.join(table.labels)}; "
                "this is another file"
            )
        try:
            found = label if table.labels else float(label)
        except ValueError:
            raise UserError(f"{place}, line {number}: label {label!r} is not a number") from None
        without = not table.glue and any(text in ("", PLACEHOLDER) for text in texts.values())
        yield None if without else {**texts, "label": found}


def _lines(stream: IO[bytes], place: str) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of each line."""
    for number, line in enumerate(stream, start=1):
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n").split("\t")
        except UnicodeDecodeError:
            raise UserError(f"{place}, line {number}: not UTF-8; fetch the archive again") from None


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any] | None], place: str) -> None:
    """Write the rows that are not None and print their number; raises `UserError` if there is none."""
    kept = left_out = 0
    with atomic_open(path) as stream:
        for row in rows:
            if row is None:
                left_out += 1
                continue
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            kept += 1
        if not kept:
            raise UserError(f"{place}: contains no examples; fetch the archive again")
    more = f"; left out, without a sentence: {left_out:,}" if left_out else ""
    print(f"{path}: {kept:,} examples{more}")
