"""Numbers in the documentation: computed from committed files, and checked.

    python docs/check_numbers.py            list stale numbers, and those that are neither computed nor given
    python docs/check_numbers.py --write    write the computed numbers and tables

`docs/numbers.toml` lists the numbers in the text, `docs/tables.toml` the tables that are generated between
`<!-- table: NAME -->` and `<!-- end -->`; `docs/expressions.py` computes both. Every number with decimals,
with thousands or with a unit must be in one of them; code, link targets, dates and versions are not checked.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from docs.expressions import ROOT, compute
from roberta_small.common.cli import Parser
from roberta_small.common.errors import report_errors
from roberta_small.common.files import atomic_write

NUMBERS, TABLES = ROOT / "docs" / "numbers.toml", ROOT / "docs" / "tables.toml"
TABLE = re.compile(r"(?<=<!-- table: )(?P<name>[\w-]+) -->\n(?P<rows>.*?)(?=<!-- end -->)", re.DOTALL)
UNCHECKED = re.compile(
    r"^```.*?^```|`[^`\n]*`|<!--.*?-->|\]\([^)\s]*\)|\b\d{4}-\d\d-\d\d\b|\b\d+\.\d+\.\d+\b|\b95 %",
    re.DOTALL | re.MULTILINE,
)
"""Fenced and inline code, comments, link targets, dates, versions, and the level of all intervals."""
UNITS = (
    r"%|points?\b|times\b|percent|bits?\b|ms\b|s\b|min(?:utes?)?\b|hours?\b|[KMG]i?B\b|tokens?\b|reviews?\b"
)
NUMBER = re.compile(
    rf"(?<![\w.,])[-+−]?(?:\d+(?:,\d{{3}})*\.\d+|\d{{1,3}}(?:,\d{{3}})+|\d+(?=(?:\s+|-)?(?:{UNITS})))"
)
"""A number with decimals, with thousands, or with a unit."""
PLAIN = r"[-+−]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]\d+)?"
VALUE = rf"((?:p\s[=<]\s)?{PLAIN}(?:\s+±\s+{PLAIN})?(?:\s+\[{PLAIN},\s+{PLAIN}\])?)"
"""What an expression computes: `5`, `66.07 ± 2.72`, `+1.07 [-1.51, +3.64]`, `p < 0.001`."""


def documents() -> list[Path]:
    """README, ARCHITECTURE, docs/ (without the generated command reference), results and model card."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "command-line.md"]
    folders = [
        path for name in ("results", "roberta_small/pretrained") for path in (ROOT / name).rglob("README.md")
    ]
    return [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(pages), *sorted(folders)]


class Page(NamedTuple):
    """A page with its computed numbers, and what is wrong with it."""

    text: str
    stale: list[str]
    """Numbers and tables that differ from the committed files; `text` has the computed ones."""
    faults: list[str]
    """Numbers without an entry, and entries without a number."""


def review(
    text: str, numbers: Mapping[str, str | list[str]], tables: Mapping[str, Mapping[str, str]]
) -> Page:
    """Check a page with its entries in the two files; raises `UserError` like `compute`."""
    stale: list[str] = []
    in_page = [match["name"] for match in TABLE.finditer(text)]
    faults = [f"table {name}: no such entry" for name in in_page if name not in tables]
    faults += [f"table {name}: not exactly once in the page" for name in tables if in_page.count(name) != 1]
    templates = {name: _expanded(definition) for name, definition in tables.items()}

    def computed(match: re.Match[str]) -> str:
        if (name := match["name"]) not in templates:
            return match[0]
        rows = re.sub(r"\{(.+?)\}", lambda cell: compute(cell[1]), templates[name])
        if rows != match["rows"]:
            stale.append(f"table {name}")
        return f"{name} -->\n{rows}"

    text = TABLE.sub(computed, text)
    prose, given = TABLE.sub(_blank, text), [phrase for phrase in numbers if "{}" not in phrase]
    edits: list[tuple[tuple[int, int], str]] = []
    for phrase in (phrase for phrase in numbers if "{}" in phrase):
        found = list(_pattern(phrase).finditer(prose))
        if len(found) != 1:
            faults.append(f"'{phrase}' occurs {len(found)} times")
            continue
        expressions = numbers[phrase]
        for group, expression in enumerate([expressions] if isinstance(expressions, str) else expressions, 1):
            old, new = found[0][group], compute(expression)
            edits.append((found[0].span(group), new))
            if " ".join(old.split()) != new:
                stale.append(f"{old} -> {new}  ({phrase})")
    for (low, high), new in sorted(edits, reverse=True):
        text = text[:low] + new + text[high:]
        prose = prose[:low] + " " * (high - low) + prose[high:]

    literal = "\n".join(re.sub(r"\{.+?\}", " ", template) for template in templates.values())
    rest = UNCHECKED.sub(_blank, f"{prose}\n{literal}")
    spans = {phrase: [match.span() for match in _pattern(phrase).finditer(rest)] for phrase in given}
    used = set()
    for match in NUMBER.finditer(rest):
        around = [
            p for p in given if any(low <= match.start() and match.end() <= high for low, high in spans[p])
        ]
        used.update(around)
        if not around:
            line = rest.count("\n", 0, match.start()) + 1
            faults.append(f"line {line}: {match[0]} is not in {NUMBERS.name}")
    faults += [f"'{phrase}' is not used" for phrase in given if phrase not in used]
    return Page(text, stale, faults)


def _expanded(table: Mapping[str, str]) -> str:
    """The rows of a table; `{row a; b}` is replaced by `row` with a for $1 and b for $2."""

    def expand(match: re.Match[str]) -> str:
        arguments = [argument.strip() for argument in match["arguments"].split(";")]
        return re.sub(r"\$(\d)", lambda place: arguments[int(place[1]) - 1], table[match["name"]])

    names = "|".join(re.escape(name) for name in table if name != "table") or "(?!)"
    return re.sub(rf"\{{(?P<name>{names}) (?P<arguments>[^{{}}]*)\}}", expand, table["table"])


def _pattern(phrase: str) -> re.Pattern[str]:
    """A regular expression for a phrase that lines may break anywhere; {} are numbers."""
    words = (VALUE.join(map(re.escape, word.split("{}"))) for word in phrase.split())
    text = r"\s+".join(words)
    return re.compile(rf"(?<![\d.,]){text}(?!\d|[.,]\d)" if "{}" in phrase else text)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def reviewed(path: Path) -> Page:
    """`review` of a document with its entries."""
    key = str(path.relative_to(ROOT))
    numbers, tables = (tomllib.loads(file.read_text(encoding="utf-8")) for file in (NUMBERS, TABLES))
    return review(path.read_text(encoding="utf-8"), numbers.get(key, {}), tables.get(key, {}))


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Check or write; 1 if a number is stale, or neither computed nor given."""
    parser = Parser(prog="python docs/check_numbers.py", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the computed numbers and tables")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="documents (default: all)")
    args = parser.parse_args(argv)
    left = 0
    for path in [file.resolve() for file in args.files] or documents():
        page = reviewed(path)
        for line in page.stale + page.faults:
            print(f"{path.relative_to(ROOT)}: {line}")
        if page.stale and args.write:
            atomic_write(path, page.text)
        left += len(page.faults) + (0 if args.write else len(page.stale))
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main())
