"""Write the options of every command into docs/reference/command-line.md, below the text that is kept.

    python docs/make_command_line.py

Run it in the clone after changing an option; tests/test_readme.py fails where an option is missing there.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator

from roberta_small.__main__ import GROUPS
from roberta_small.common.files import ROOT
from roberta_small.experiments import methods
from tests.support import command_lines

PAGE = ROOT / "docs" / "reference" / "command-line.md"
MARK = "<!-- everything below is written by docs/make_command_line.py -->\n"
SHARED = 2
"""Number of commands from which on an option with the same meaning is listed once for all."""
Row = tuple[str, str]
"""Name and help of an argument."""


def titles() -> list[str]:
    """Every command as a user calls it, in the order of the page."""
    found = []
    for name in (name for group in GROUPS.values() for name in group):
        if name == "export":
            found += [f"roberta-small export {one}" for one in command_lines.choices_of(["export"])]
        else:
            found.append(f"roberta-small {name}")
        if name == "train":
            others = (one for one in methods.REGISTERED if one != methods.DEFAULT)
            found += [f"roberta-small train --method {one}" for one in others]
    return [*found, "python -m benchmarks"]


def parser_of(title: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    found = command_lines.words_of(title)
    assert found is not None
    return command_lines.parser_of(*found)


def options(parser: argparse.ArgumentParser) -> Iterator[Row]:
    """Name and help of every argument that is shown."""
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
            continue
        if action.option_strings:
            name = ", ".join(action.option_strings)
            values = formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
        else:
            name, values = formatter._format_args(action, action.dest), ""
        text = " ".join(formatter._expand_help(action).split()) if action.help else ""
        yield f"{name} {values}".strip(), text


def table(rows: Iterable[tuple[str, ...]], heading: tuple[str, ...]) -> str:
    """A table of Markdown whose first column is code."""
    lines = [f"| {' | '.join(heading)} |", "|---" * len(heading) + "|"]
    for name, *texts in rows:
        cells = [f"`{name}`", *(text.replace("<", "\\<") for text in texts)]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Write the page."""
    os.environ["COLUMNS"] = "110"
    kept = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    rows = {title: list(options(parser_of(title))) for title in titles()}
    users: dict[Row, list[str]] = {}
    for title, own in rows.items():
        for row in own:
            users.setdefault(row, []).append(title.removeprefix("roberta-small "))
    shared = {row: names for row, names in users.items() if len(names) >= SHARED}
    listed = [(*row, ", ".join(names)) for row, names in shared.items()]
    parts = [f"## Shared options\n\n{table(listed, ('option', 'meaning', 'commands'))}\n\n## Commands\n"]
    for title, own in rows.items():
        level = "####" if "--method" in title else "###" if title.startswith("roberta-small") else "##"
        section = [f"{level} {title}"]
        if first := " ".join((parser_of(title).description or "").partition("\n\n")[0].split()):
            section.append(first)
        if alone := [row for row in own if row not in shared]:
            section.append(table(alone, ("option", "meaning")))
        names = [f"`{row[0].partition(' ')[0].rstrip(',')}`" for row in own if row in shared]
        if names:
            section.append(f"[Shared options](#shared-options): {', '.join(names)}")
        parts.append("\n\n".join(section) + "\n")
    PAGE.write_text(kept + MARK + "\n" + "\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
