"""Webis-CLS-10 (Prettenhofer & Stein 2010, the "unprocessed" archive): XML reviews to lines of text.

The archive holds `cls-acl10-unprocessed/<language>/<category>/{train,test}.review`:

    <items>
      <item>
        <category>books</category> <rating>5.0</rating> <url>...</url>
        <text>The review itself.</text> <title>Of the book.</title> <summary>Of the review.</summary>
      </item>
      ...

Only `text` and `rating` are used. The text is kept as it is, double spaces and all, except that a
line break within it becomes one space: one review per line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import IO
from xml.parsers import expat

from roberta_small.common.errors import UserError
from roberta_small.common.files import CHUNK_BYTES
from roberta_small.preprocess.readers.lines import open_raw
from roberta_small.preprocess.readers.records import Record

MIDDLE_RATING = 3
"""Stars of a neutral review; the published splits have none."""

LINE_BREAK = re.compile(r"\r\n?|\n")


class _ItemParser:
    """Collects the fields `text` and `rating` of each `<item>` as the XML goes by.

    Document type declarations are refused: they are what entity expansion and external entities
    need, and these files have none.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.done: list[tuple[int, dict[str, str]]] = []
        self.item: dict[str, str] | None = None
        self.line = 0
        self.field: str | None = None
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.StartDoctypeDeclHandler = self.doctype

    def feed(self, data: bytes) -> list[tuple[int, dict[str, str]]]:
        """Parse a chunk, empty at the end; returns the items completed in it, each with its first line."""
        try:
            self.parser.Parse(data, not data)
        except expat.ExpatError as error:
            raise UserError(
                f"{self.name}, line {error.lineno}, column {error.offset + 1}: "
                f"{expat.ErrorString(error.code)}; the file is corrupt, download it again"
            ) from None
        done, self.done = self.done, []
        return done

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element opens."""
        if name == "item":
            self.item, self.line = {}, self.parser.CurrentLineNumber
        elif self.item is not None and name in ("text", "rating"):
            self.field = name
            self.item[name] = ""

    def characters(self, data: str) -> None:
        """Text, its entities already replaced."""
        if self.item is not None and self.field is not None:
            self.item[self.field] += data

    def end(self, name: str) -> None:
        """An element closes."""
        if name == self.field:
            self.field = None
        elif name == "item" and self.item is not None:
            self.done.append((self.line, self.item))
            self.item = None

    def doctype(self, *_: object) -> None:
        """A document type declaration: refused."""
        raise UserError(
            f"{self.name}, line {self.parser.CurrentLineNumber}: contains a document type "
            "declaration, which is not allowed (entity attacks); download the file again"
        )


def read(path: str) -> Iterator[Record]:
    """The reader `webis`: the reviews of an XML file, plain or compressed. Errors as for `parse_reviews`."""
    with open_raw(path) as stream:
        yield from parse_reviews(stream, path)


def parse_reviews(stream: IO[bytes], name: str) -> Iterator[Record]:
    """The reviews of one XML file in file order; the label is "1" above three stars, else "0".

    Reviews of three stars and those without text are left out. Raises `UserError` with `name` and line where
    the XML is malformed, has a document type declaration, or an item has no rating.
    """
    parser = _ItemParser(name)
    for data in chain(iter(lambda: stream.read(CHUNK_BYTES), b""), [b""]):
        for line, item in parser.feed(data):
            text = LINE_BREAK.sub(" ", item.get("text", "").strip())
            try:
                rating = float(item.get("rating", "none"))
            except ValueError:
                raise UserError(
                    f"{name}, line {line}: the item's rating is {item.get('rating', 'missing')!r}, "
                    "not a number of stars; download the file again"
                ) from None
            if text and rating != MIDDLE_RATING:
                yield Record(text, line=line, label=str(int(rating > MIDDLE_RATING)))
