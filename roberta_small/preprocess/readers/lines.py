"""Line files: UTF-8, one text per line, plain or compressed.

They are read in blocks of whole lines, so that memory stays bounded. Only `\\n` ends a line, here and in all
of `preprocess`: a review may contain U+2028, U+0085 or a lone `\\r`, at which `fairseq-preprocess` would
start another sentence, so that text and labels would no longer be parallel.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from roberta_small.common.errors import UserError
from roberta_small.preprocess.readers.records import Record

BLOCK_BYTES = 1 << 20
DECOMPRESSORS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open
}  # fmt: skip
MAGIC = {
    b"\x1f\x8b": ".gz",
    b"\xfd7zXZ\x00": ".xz",
    b"BZh": ".bz2",
    b"PK\x03\x04": ".zip",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"\xd0\xcf\x11\xe0": ".xls",
}
"""The first bytes of compressed files -> their suffix."""
DECOMPRESSION_ERRORS = (EOFError, lzma.LZMAError, zlib.error, OSError)
BINARY = (".parquet", ".xlsx")
"""Formats that may begin like a compressed file."""
APOSTROPHES = "\u2019\u02bc"  # right single quotation mark, modifier letter apostrophe


@dataclass(frozen=True)
class Block:
    """Some consecutive whole lines of one file, not yet decoded."""

    path: str
    first_line: int
    """Number of the first line, counted from 1."""
    data: bytes
    file_bytes: int
    """Bytes read from disk for this block; fewer than `len(data)` in a compressed file."""

    def lines(self, *, normalize_apostrophes: bool = False, encoding: str = "utf-8") -> list[str]:
        """The decoded lines without their newline; raises `UserError` where they are not in this encoding."""
        try:
            text = self.data.decode(encoding)
        except UnicodeDecodeError as error:
            number = self.first_line + self.data.count(b"\n", 0, error.start)
            column = error.start - self.data.rfind(b"\n", 0, error.start)
            raise UserError(
                f"{self.path}, line {number}: byte {column} is not {encoding.upper()}; "
                "convert the file from its encoding, in Western Europe usually Windows-1252: "
                "iconv -f cp1252 -t utf-8"
            ) from None
        if normalize_apostrophes:
            text = normalize(text)
        return text.removesuffix("\n").split("\n")


def normalize(line: str) -> str:
    """Replace the apostrophes ’ (U+2019) and ʼ (U+02BC) by `'`; nothing else changes."""
    for apostrophe in APOSTROPHES:
        line = line.replace(apostrophe, "'")
    return line


def read_blocks(path: str) -> Iterator[Block]:
    """The lines of a text file (decompressed: `.gz`, `.xz`, `.bz2`) in blocks of about BLOCK_BYTES bytes.

    Raises `UserError` for a corrupt or truncated compressed file, `OSError` for one that cannot be opened.
    """
    first_line, position = 1, 0
    with open(path, "rb") as file:
        stream = decompressed(file, path)
        while True:
            with _corruption_named(path):
                data = stream.read(BLOCK_BYTES)
                if data and not data.endswith(b"\n"):
                    data += stream.readline()
            if not data:
                return
            # A pipe, as in `--input <(command)`, has no position.
            end = file.tell() if file.seekable() else position + len(data)
            yield Block(path, first_line, data, end - position)
            position = end
            first_line += data.count(b"\n")


def read_text_lines(path: str, *, normalize_apostrophes: bool = False) -> Iterator[str]:
    """The lines of a text file, plain or compressed, one at a time; errors as for `read_blocks`."""
    for block in read_blocks(path):
        yield from block.lines(normalize_apostrophes=normalize_apostrophes)


def disk_bytes(paths: Sequence[str]) -> int:
    """Total size of the files, for a progress bar."""
    return sum(os.path.getsize(path) for path in paths)


def read(path: str) -> Iterator[Record]:
    """The reader `lines`: each line is a text; there are no labels. Errors as for `read_blocks`."""
    for number, line in enumerate(read_text_lines(path), start=1):
        yield Record(line, line=number)


@contextmanager
def open_raw(path: str) -> Iterator[IO[bytes]]:
    """The decompressed bytes of a file; `UserError` where a compressed file is corrupt or truncated."""
    with open(path, "rb") as file, _corruption_named(path):
        yield decompressed(file, path)


def read_bytes(path: str) -> bytes:
    """The whole decompressed content of a file; errors as for `open_raw`."""
    with open_raw(path) as stream:
        return stream.read()


def decompressed(file: IO[bytes], path: str) -> IO[bytes]:
    """The content of an open file, by the suffix of `path`; `UserError` for a wrong suffix."""
    opener = DECOMPRESSORS.get(Path(path).suffix)
    if opener:
        return opener(file)
    first = file.peek(8) if isinstance(file, io.BufferedReader) else b""
    for magic, suffix in MAGIC.items():
        if first.startswith(magic) and not path.lower().endswith(BINARY):
            other = "unpack it, or save a workbook as .xlsx"
            remedy = f"rename it to end with {suffix}" if suffix in DECOMPRESSORS else other
            raise UserError(f"{path}: not text but {suffix}; {remedy}")
    return file


@contextmanager
def _corruption_named(path: str) -> Iterator[None]:
    """Turn a decompressor's error into a `UserError` that names the file."""
    try:
        yield
    except DECOMPRESSION_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of gzip or bz2
            raise
        raise UserError(
            f"{path}: corrupt or truncated {Path(path).suffix} file ({error}); fetch or compress it again"
        ) from None
