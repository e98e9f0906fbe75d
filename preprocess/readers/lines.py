"""Reading raw text: UTF-8, plain or compressed, in blocks of whole lines so that memory stays bounded.

Only `\\n` ends a line, here and in all of `preprocess`: a review may hold U+2028, U+0085 or a lone `\\r`
(at which `fairseq-preprocess` would begin another sentence, so that labels no longer fit).
"""

from __future__ import annotations

import gzip
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from common.errors import UserError

BLOCK_BYTES = 1 << 20
DECOMPRESSORS = {".xz": lzma.open, ".gz": gzip.open}
DAMAGED = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)
APOSTROPHES = "\u2019\u02bc"  # right single quotation mark, modifier letter apostrophe


@dataclass(frozen=True)
class Block:
    """Some consecutive whole lines of one file, not yet decoded."""

    path: str
    first_line: int
    """Number of the first line, counted from 1."""
    data: bytes
    file_bytes: int
    """How many bytes on disk were read for it (fewer than `data` has, in a compressed file)."""

    def lines(self, *, normalize_apostrophes: bool = False) -> list[str]:
        """The decoded lines without their newline; raises `UserError` where they are not UTF-8."""
        try:
            text = self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            number = self.first_line + self.data.count(b"\n", 0, error.start)
            column = error.start - self.data.rfind(b"\n", 0, error.start)
            raise UserError(
                f"{self.path}, line {number}: byte {column} is not UTF-8; "
                f"convert the file, for example: iconv -f latin1 -t utf-8"
            ) from None
        if normalize_apostrophes:
            text = normalize(text)
        return text.removesuffix("\n").split("\n")


def normalize(line: str) -> str:
    """Write every apostrophe as `'`: corpora mix ’ (U+2019) and ʼ (U+02BC) with it; nothing else changes."""
    for apostrophe in APOSTROPHES:
        line = line.replace(apostrophe, "'")
    return line


def read_blocks(path: str) -> Iterator[Block]:
    """The lines of a text file (`.xz` and `.gz` are decompressed) in blocks of about BLOCK_BYTES bytes.

    Raises `UserError` for a damaged or truncated compressed file, `OSError` for one that cannot be opened.
    """
    first_line, position = 1, 0
    with open(path, "rb") as file:
        stream = _decompressed(file, path)
        while data := _read_lines(stream, path):
            yield Block(path, first_line, data, file.tell() - position)
            position = file.tell()
            first_line += data.count(b"\n")


def read_text_lines(path: str, *, normalize_apostrophes: bool = False) -> Iterator[str]:
    """The lines of a text file, plain or compressed, one at a time; errors as for `read_blocks`."""
    for block in read_blocks(path):
        yield from block.lines(normalize_apostrophes=normalize_apostrophes)


def disk_bytes(paths: Sequence[str]) -> int:
    """Total size of the files, for a progress bar."""
    return sum(os.path.getsize(path) for path in paths)


def _decompressed(file: IO[bytes], path: str) -> IO[bytes]:
    opener = DECOMPRESSORS.get(Path(path).suffix)
    return opener(file, "rb") if opener else file


def _read_lines(stream: IO[bytes], path: str) -> bytes:
    """About BLOCK_BYTES bytes and on to the end of the line."""
    try:
        data = stream.read(BLOCK_BYTES)
        return data if not data or data.endswith(b"\n") else data + stream.readline()
    except DAMAGED as error:
        raise UserError(
            f"{path}: damaged or truncated {Path(path).suffix} file ({error}); fetch or compress it again"
        ) from None
