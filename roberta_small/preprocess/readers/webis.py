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


def read(path: str) -> Iterator[Record]:
    """The reader `webis`: the reviews of an XML file, plain or compressed. Errors as for `parse_reviews`."""
    with open_raw(path) as stream:
        yield from parse_reviews(stream, path)


def parse_reviews(stream: IO[bytes], name: str) -> Iterator[Record]:
    """The reviews of one XML file in file order; the label is "1" above three stars, else "0".

    Reviews of three stars and those without text are left out. Raises `UserError` with `name` and line where
    the XML is malformed, has a document type declaration, or an item has no rating.
    """
    done: list[tuple[int, dict[str, str]]] = []  # items with their first line, until they are given
    item: dict[str, str] | None = None
    line, field, parser = 0, "", expat.ParserCreate()

    def start(element: str, _: dict[str, str]) -> None:
        nonlocal item, line, field
        if element == "item":
            item, line = {}, parser.CurrentLineNumber
        elif item is not None and element in ("text", "rating"):
            field, item[element] = element, ""

    def characters(data: str) -> None:
        if item is not None and field:
            item[field] += data

    def end(element: str) -> None:
        nonlocal item, field
        if element == field:
            field = ""
        elif element == "item" and item is not None:
            done.append((line, item))
            item = None

    def doctype(*_: object) -> None:
        # Entity expansion and external entities need a declaration, and these files have none.
        raise UserError(
            f"{name}, line {parser.CurrentLineNumber}: contains a document type declaration, which is not "
            "allowed (entity attacks); download the file again"
        )

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = characters, doctype
    for data in chain(iter(lambda: stream.read(CHUNK_BYTES), b""), [b""]):
        try:
            parser.Parse(data, not data)
        except expat.ExpatError as error:
            raise UserError(
                f"{name}, line {error.lineno}, column {error.offset + 1}: {expat.ErrorString(error.code)}; "
                "the file is corrupt, download it again"
            ) from None
        for first_line, found in done:
            text = LINE_BREAK.sub(" ", found.get("text", "").strip())
            try:
                rating = float(found.get("rating", "none"))
            except ValueError:
                raise UserError(
                    f"{name}, line {first_line}: the item's rating is {found.get('rating', 'missing')!r}, "
                    "not a number of stars; download the file again"
                ) from None
            if text and rating != MIDDLE_RATING:
                yield Record(text, line=first_line, label=str(int(rating > MIDDLE_RATING)))
        done.clear()
