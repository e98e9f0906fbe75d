"""The registry of readers: each reader turns one file of a format into records (text, pair, label).

A reader is a function of a path that yields `Record`s in file order. It is chosen by the file's suffix,
not counting that of compression (`COMPRESSED`), or by its name. How to add one: docs/extending.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from roberta_small.common.errors import UserError

DEFAULT = "lines"
"""The reader of files whose suffix no reader claims."""
TABLE = "table"
"""The reader of tables (`preprocess.readers.tables`), whose columns the command line names."""
COMPRESSED = (".gz", ".xz", ".bz2")
DATASET = "datasets:"
"""Prefix of the names of data sets of the Hugging Face hub: datasets:NAME, datasets:NAME:CONFIGURATION."""


@dataclass(frozen=True)
class Record:
    """One example of a raw file."""

    text: str
    """Without line breaks."""
    line: int
    """Where the example begins in its file, counted from 1; for messages."""
    pair: str | None = None
    """The second text of a sentence pair."""
    label: str | None = None
    """The class name; None where the format has no labels."""
    split: str | None = None
    """The split that the file assigns the example to, as it is written there."""


Reader = Callable[[str], Iterator[Record]]
"""`reader(path)`; raises `UserError` with file and line for malformed content."""

_readers: dict[str, Reader] = {}
_by_suffix: dict[str, str] = {}


def register(name: str, reader: Reader, suffixes: tuple[str, ...] = ()) -> None:
    """Add a reader under `name` for files with one of `suffixes` (".csv"), in lower case.

    Raises `ValueError` where the name or a suffix is taken.
    """
    if name in _readers:
        raise ValueError(f"reader {name!r} is registered already")
    claim(name, suffixes)
    _readers[name] = reader


def claim(name: str, suffixes: tuple[str, ...]) -> None:
    """Choose the reader `name` for files with one of `suffixes`; raises `ValueError` where one is taken."""
    if taken := [suffix for suffix in suffixes if suffix in _by_suffix]:
        raise ValueError(f"reader {name!r}: {taken[0]!r} is registered already")
    _by_suffix.update(dict.fromkeys(suffixes, name))


def suffixes_of(name: str) -> list[str]:
    """The suffixes of the files that the reader `name` reads, in order of registration."""
    return [suffix for suffix, reader in _by_suffix.items() if reader == name]


def reader_name(path: str, name: str | None = None) -> str:
    """The reader of `path`: `name` where given, else by suffix. Raises `UserError` for an unknown name."""
    if name is not None:
        if name not in _readers:
            raise UserError(f"--reader {name}: unknown; the readers are {', '.join(sorted(_readers))}")
        return name
    return _by_suffix.get(format_suffix(path), DEFAULT)


def is_dataset(source: str) -> bool:
    """Whether a source is a data set's name rather than a file."""
    return source.startswith(DATASET)


def format_suffix(path: str) -> str:
    """The suffix that decides the format, in lower case; a compression suffix does not count."""
    file = Path(path)
    return (Path(file.stem).suffix if file.suffix in COMPRESSED else file.suffix).lower()


def read_records(path: str, name: str | None = None) -> Iterator[Record]:
    """The records of a file in file order; raises `UserError` as the reader does."""
    return _readers[reader_name(path, name)](path)
