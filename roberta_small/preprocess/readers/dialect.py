"""How a text file is written: its encoding, and for delimited files the delimiter and the header.

The encoding is UTF-8, or UTF-16 with a byte order mark; another one is detected by the library chardet, or
named with `--encoding`.
"""

from __future__ import annotations

import argparse
import codecs
import re
from dataclasses import dataclass

from roberta_small.common.errors import UserError
from roberta_small.common.optional import needed_by
from roberta_small.preprocess.readers.lines import read_bytes

UTF_8, UTF_16, UTF_32 = "utf-8", "utf-16", "utf-32"
MARKED_UTF_8 = "utf-8-sig"
"""UTF-8 with a byte order mark, as spreadsheets write it."""
MARKS = {
    codecs.BOM_UTF8: MARKED_UTF_8,
    codecs.BOM_UTF32_LE: UTF_32,  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: UTF_32,
    codecs.BOM_UTF16_LE: UTF_16,
    codecs.BOM_UTF16_BE: UTF_16,
}
BYTE_ORDER_MARK = "\ufeff"
MOST_NUL = 0.25
"""Of the characters of a file: with more it is UTF-16."""
CERTAIN = (UTF_8, MARKED_UTF_8, UTF_16, UTF_32)
"""Encodings that a file shows by its bytes or its mark."""
NOT_ASCII = re.compile(r"[^\x00-\x7f]")
INVALID = "\ufffd"
"""What Python decodes invalid bytes to."""
DETECTION_BYTES = 1 << 18
SPECIFY = "specify the encoding with --encoding, in Western Europe usually --encoding cp1252"
FLAGS = {"encoding": "--encoding", "delimiter": "--delimiter", "header": "--no-header"}
"""Field of `Dialect` -> the option that sets it."""


@dataclass(frozen=True)
class Dialect:
    """How a file is written; None for what is detected."""

    encoding: str | None = None
    """As Python's `codecs` names it."""
    delimiter: str | None = None
    """One character."""
    header: bool = True
    """Whether the first row has the names of the columns; otherwise they are 1, 2, ..."""

    def given(self) -> dict[str, str | bool]:
        """The fields that differ from what is detected by default."""
        return {name: value for name, value in vars(self).items() if value != getattr(Dialect, name)}

    def flags(self) -> list[str]:
        """The options that set them."""
        return [FLAGS[name] for name in self.given()]


def encoding_of(path: str) -> str:
    """The encoding of a text file; raises `UserError` with the line if it cannot be determined."""
    data = read_bytes(path)
    for mark, name in MARKS.items():
        if data.startswith(mark):
            return name
    try:
        text = data.decode(UTF_8)
        if text.count("\0") <= MOST_NUL * len(text):
            return UTF_8
        place = path
    except UnicodeDecodeError as error:
        place = f"{path}, line {_line(data, error.start)}"
        lenient = data.decode(UTF_8, "replace")
        if len(NOT_ASCII.findall(lenient)) > 2 * lenient.count(INVALID):
            raise UserError(
                f"{place}: bytes that are not UTF-8, in a file that otherwise is; correct the line"
            ) from None
        # The library reads only the beginning of a text, which may be ASCII.
        if b"\0" not in data:  # as in UTF-16, whose lines cannot be split so
            data = b"\n".join(line for line in data.split(b"\n") if not line.isascii())
    with needed_by(f"{place}: not UTF-8; {SPECIFY}; detecting it"):
        import chardet
    found = chardet.detect(data[:DETECTION_BYTES])["encoding"]
    if found is None or codecs.lookup(found).name in ("ascii", UTF_8):
        raise UserError(f"{place}: neither UTF-8 nor text in an encoding that can be detected; {SPECIFY}")
    return codecs.lookup(found).name


def dialect_of(options: argparse.Namespace) -> Dialect:
    """The values of the options of `add_dialect`; raises `UserError` for wrong ones."""
    encoding, delimiter = options.encoding, options.delimiter
    if encoding is not None:
        try:
            "a".encode(encoding)  # fails for a codec that is not of text
            encoding = codecs.lookup(encoding).name
        except (LookupError, UnicodeError, ValueError):
            reason = "unknown; use a name such as utf-8, cp1252 or utf-16"
            raise UserError(f"--encoding {encoding}: {reason}") from None
    if delimiter is not None:
        delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
        if len(delimiter) != 1 or delimiter in '\n\r"\0':
            raise UserError(f"--delimiter {delimiter!r}: use one character, such as ';', or '\\t' for a tab")
    return Dialect(encoding, delimiter, not options.no_header)


def decoded(path: str, encoding: str) -> str:
    """The text of a file, `\\n` its only line end, without byte order marks; `UserError` with the line."""
    data = read_bytes(path)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        place = f"{path}, line {_line(data, error.start)}"
        raise UserError(f"{place}: not {encoding.upper()}; {SPECIFY}") from None
    return text.replace(BYTE_ORDER_MARK, "").replace("\r\n", "\n")


def _line(data: bytes, position: int) -> int:
    """The number of the line with the byte at a position."""
    return data.count(b"\n", 0, position) + 1
