"""The downloaded archives, unpacked into the files that the other commands read.

Members are read as streams and written under our own names. FLUE (Le et al. 2020, "FlauBERT") becomes JSON
lines:

    cls-books, cls-dvd, cls-music   French reviews of Webis-CLS-10: train, test; text, label (1: positive)
    paws-x                          paraphrases, French part of PAWS-X (Yang et al. 2019): train, valid, test;
                                    sentence1, sentence2, label (1: paraphrase)
    xnli                            inference, French part of XNLI (Conneau et al. 2018): train, valid, test;
                                    premise, hypothesis, label

The training sentences of PAWS-X and XNLI are machine translations. Texts are those of the authors' files:
unlike FLUE's scripts, nothing is removed from them, and short pairs are kept. Pairs with an empty sentence or
the placeholder "NS" of PAWS-X are left out.
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
from roberta_small.preprocess.readers.webis import convert, parse_reviews

CLS_ARCHIVE = "cls-acl10-unprocessed.tar.gz"
CLS_MEMBER = "cls-acl10-unprocessed/fr/{category}/{split}.review"
CATEGORIES = ("books", "dvd", "music")
PAWSX_ARCHIVE = "x-final.tar.gz"
XNLI_TRAIN_ARCHIVE, XNLI_ARCHIVE = "XNLI-MT-1.0.zip", "XNLI-1.0.zip"
PLACEHOLDER = "NS"
"""A sentence of PAWS-X without translation."""
NLI = {name: name for name in ("entailment", "neutral", "contradiction")}
ALLOCINE_ARCHIVE = "data.tar.bz2"
ALLOCINE_MEMBERS = {
    f"data/{name}.jsonl": split for name, split in (("train", "train"), ("val", "valid"), ("test", "test"))
}
"""Member -> split. The authors' files have one JSON object per line, with `review` and `polarity` (0, 1)."""
Write = Callable[[IO[bytes], str, str], None]
"""`write(content, name, split)`."""
CORRUPT = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs in a table with tabs between columns, a heading and no quoting."""

    archive: str
    members: Mapping[str, str]
    """Member of the archive -> split."""
    columns: Mapping[str, str]
    """Name in our file -> column, for both sentences."""
    label: str
    labels: Mapping[str, str]
    """Label in the column -> label in our file."""
    only: Mapping[str, str] = field(default_factory=dict)
    """Column -> value of the rows to keep."""


PAIRS = {
    "paws-x": [
        Pairs(
            PAWSX_ARCHIVE,
            {
                "x-final/fr/translated_train.tsv": "train",
                "x-final/fr/dev_2k.tsv": "valid",
                "x-final/fr/test_2k.tsv": "test",
            },
            {"sentence1": "sentence1", "sentence2": "sentence2"},
            "label",
            {"0": "0", "1": "1"},
        )
    ],
    "xnli": [
        Pairs(
            XNLI_TRAIN_ARCHIVE,
            {"XNLI-MT-1.0/multinli/multinli.train.fr.tsv": "train"},
            {"premise": "premise", "hypothesis": "hypo"},
            "label",
            NLI | {"contradictory": "contradiction"},
        ),
        Pairs(
            XNLI_ARCHIVE,
            {"XNLI-1.0/xnli.dev.tsv": "valid", "XNLI-1.0/xnli.test.tsv": "test"},
            {"premise": "sentence1", "hypothesis": "sentence2"},
            "gold_label",
            NLI,
            only={"language": "fr"},
        ),
    ],
}
"""Folder -> its tables."""


def unpack(archive: Path, members: dict[str, str], write: Write) -> None:
    """Call `write(content, name, split)` for the `members` (name -> split) of a tar or zip archive.

    Members are read as streams and written under our own names: paths, links and permissions in the archive
    have no effect. Raises `UserError` where the archive is corrupt or a member is missing.
    """
    wanted = dict(members)
    try:
        (_unpack_zip if archive.suffix == ".zip" else _unpack_tar)(archive, wanted, write)
    except CORRUPT as error:
        raise UserError(f"{archive}: corrupt archive ({error}); delete it and fetch it again") from None
    if wanted:
        raise UserError(f"{archive}: no member {', '.join(wanted)}; this is another archive")


def _unpack_tar(archive: Path, wanted: dict[str, str], write: Write) -> None:
    """`unpack` of a tar archive; removes the members that it finds from `wanted`."""
    with tarfile.open(archive, "r|*") as tar:
        for member in tar:
            split = wanted.pop(member.name, None) if member.isfile() else None
            if split and (stream := tar.extractfile(member)):
                write(stream, member.name, split)
            if not wanted:
                return


def _unpack_zip(archive: Path, wanted: dict[str, str], write: Write) -> None:
    """`unpack` of a zip archive; removes the members that it finds from `wanted`."""
    with zipfile.ZipFile(archive) as content:
        for name in wanted.keys() & set(content.namelist()):
            try:
                stream = content.open(name)
            except RuntimeError as error:  # an encrypted member, or an unknown compression
                raise zipfile.BadZipFile(str(error)) from None
            with stream:
                write(stream, name, wanted.pop(name))


def unpack_books(archive: Path, destdir: Path) -> None:
    """Write `{train,test}.review` and `.label` from the French book reviews in the archive.

    Raises `UserError` as `unpack`.
    """

    def write(stream: IO[bytes], name: str, split: str) -> None:
        review, label = (destdir / f"{split}.{kind}" for kind in ("review", "label"))
        count = convert(stream, f"{archive}: {name}", review, label)
        print(f"{review}: {count} reviews")

    unpack(
        archive,
        {CLS_MEMBER.format(category="books", split=split): split for split in ("train", "test")},
        write,
    )


def unpack_allocine(archive: Path, destdir: Path) -> None:
    """Write `{train,valid,test}.jsonl`, unchanged. Raises `UserError` as `unpack`."""

    def write(stream: IO[bytes], name: str, split: str) -> None:
        path = destdir / f"{split}.jsonl"
        with atomic_open(path, "wb") as target:
            shutil.copyfileobj(stream, target)
        print(path)

    unpack(archive, ALLOCINE_MEMBERS, write)


def unpack_flue(destdir: Path) -> None:
    """Write `TASK/SPLIT.jsonl` below `destdir`, from the archives in it; raises `UserError` as `unpack`."""
    _unpack_reviews(destdir)
    for task, tables in PAIRS.items():
        for table in tables:

            def write(
                stream: IO[bytes], name: str, split: str, task: str = task, table: Pairs = table
            ) -> None:
                place = f"{destdir / table.archive}: {name}"
                write_json_lines(destdir / task / f"{split}.jsonl", read_pairs(stream, place, table), place)

            unpack(destdir / table.archive, dict(table.members), write)


def _unpack_reviews(destdir: Path) -> None:
    members = {
        CLS_MEMBER.format(category=category, split=split): f"cls-{category}/{split}.jsonl"
        for category in CATEGORIES
        for split in ("train", "test")
    }

    def write(stream: IO[bytes], name: str, path: str) -> None:
        place = f"{destdir / CLS_ARCHIVE}: {name}"
        rows = ({"text": record.text, "label": record.label} for record in parse_reviews(stream, place))
        write_json_lines(destdir / path, rows, place)

    unpack(destdir / CLS_ARCHIVE, members, write)


def read_pairs(stream: IO[bytes], place: str, table: Pairs) -> Iterator[dict[str, str] | None]:
    """The rows of a table, None for a row without one of the sentences; `place` is its name in messages.

    Raises `UserError` with the line for a missing column, a row with too few fields and an unknown label.
    """
    needed = [*table.columns.values(), table.label, *table.only]
    position: dict[str, int] = {}
    for number, line in enumerate(stream, start=1):
        try:
            cells = line.decode("utf-8").rstrip("\r\n").split("\t")
        except UnicodeDecodeError:
            raise UserError(f"{place}, line {number}: not UTF-8; fetch the archive again") from None
        if not position:
            position = {name.removeprefix("\ufeff"): index for index, name in enumerate(cells)}
            if missing := [name for name in needed if name not in position]:
                raise UserError(f"{place}, line 1: no column {', '.join(missing)}; this is another file")
            continue
        if len(cells) <= max(position[name] for name in needed):
            raise UserError(f"{place}, line {number}: {len(cells)} fields; fetch the archive again")
        if any(cells[position[name]] != value for name, value in table.only.items()):
            continue
        label = cells[position[table.label]].strip()
        if label not in table.labels:
            raise UserError(
                f"{place}, line {number}: label {label!r}, not one of {', '.join(table.labels)}; "
                "this is another file"
            )
        row = {name: cells[position[column]].strip() for name, column in table.columns.items()}
        missing_text = any(text in ("", PLACEHOLDER) for text in row.values())
        yield None if missing_text else row | {"label": table.labels[label]}


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
