"""Write the options of every command into docs/reference/command-line.md, below the text that is kept.

    python docs/make_command_line.py

Run it in the clone after changing an option; tests/test_readme.py fails where an option is missing there.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "command-line.md"
MARK = "<!-- everything below is written by docs/make_command_line.py -->\n"
MODULES = (
    "preprocess",
    "experiments",
    "eval",
    "analysis",
    "export",
    "fairseq_plugin",
    "roberta_small.fairseq_plugin.compat",
    "roberta_small.common.install_fairseq",
    "benchmarks",
)
"""Every program `python -m MODULE`, in the order of the page."""
HIDDEN = {"task"}
"""Commands that the project starts itself."""
SCRIPTS = {"python -m experiments train": "./train.sh", "python -m experiments pretrain": "./pretrain.sh"}

sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
import command_lines  # noqa: E402

import roberta_small.experiments.__main__ as experiments  # noqa: E402
from roberta_small.experiments import methods  # noqa: E402


def title_of(module: str, command: str) -> str:
    """How a user calls the command."""
    title = f"python -m {module} {command}".strip()
    for program, script in SCRIPTS.items():
        title = title.replace(program, script)
    return title


def commands_of(module: str) -> list[str]:
    """The commands of a program, read from its parser; one empty name for a program without commands."""
    if module == "experiments":
        return [word for name in experiments.COMMANDS if name not in HIDDEN for word in _with_methods(name)]
    for action in command_lines.parser_of(module, [])._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action.choices)
    return [""]


def _with_methods(command: str) -> list[str]:
    others = [name for name in methods.REGISTERED if name != methods.DEFAULT]
    return [command, *(f"train --method {name}" for name in others)] if command == "train" else [command]


def parser_of(module: str, command: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    parser = command_lines.parser_of(module, command.split())
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and command:
            if command not in action.choices:
                raise RuntimeError(f"python -m {module} has no command {command}")
            return action.choices[command]
    return parser


def options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Name and help of every argument that is shown."""
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
            continue
        if isinstance(action, argparse._SubParsersAction):
            for name, choice in zip(action.choices, action._choices_actions, strict=False):
                yield name, choice.help or ""
            continue
        if action.option_strings:
            name = ", ".join(action.option_strings)
            values = formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
        else:
            name, values = formatter._format_args(action, action.dest), ""
        text = " ".join(formatter._expand_help(action).split()) if action.help else ""
        yield f"{name} {values}".strip(), text


def cell(text: str) -> str:
    """Text inside a table of Markdown."""
    return text.replace("|", "\\|").replace("<", "\\<")


def section(module: str, command: str) -> str:
    """The section of one command: its first sentences and a table of its options."""
    parser = parser_of(module, command)
    title = title_of(module, command)
    first = " ".join((parser.description or "").partition("\n\n")[0].split())
    rows = [f"| `{name.replace('|', chr(92) + '|')}` | {cell(text)} |" for name, text in options(parser)]
    table = "\n".join(["| option | meaning |", "|---|---|", *rows]) if rows else "No options."
    return f"### {title}\n\n{first}\n\n{table}\n" if first else f"### {title}\n\n{table}\n"


def main() -> None:
    """Write the page."""
    os.environ["COLUMNS"] = "110"
    kept = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    parts = []
    for module in MODULES:
        parts += [section(module, command) for command in commands_of(module)]
    PAGE.write_text(kept + MARK + "\n" + "\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
