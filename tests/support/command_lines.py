"""Parse documented command lines with the real parsers, without running anything.

`argparse.ArgumentParser.parse_args` is replaced by one that parses as usual and then stops. Run as
a program, this module reads command lines from standard input and prints one JSON object a line: `error`,
null where the line is accepted.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # for benchmarks

from roberta_small.common.cli import Parser  # noqa: E402

SCRIPT = "roberta-small"
SCRIPTS = {"./train.sh": "train", "./pretrain.sh": "pretrain"}
MODULES = (
    "common",
    "preprocess",
    "fairseq_plugin",
    "experiments",
    "eval",
    "export",
    "analysis",
    "benchmarks",
)


class ParsedError(BaseException):
    """A command line was accepted; the parser that did so."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


@contextlib.contextmanager
def stopping(*, parse: bool) -> Iterator[None]:
    """Let parsers raise `ParsedError` once they have parsed, or with `parse` False before.

    Parsers without --help only look ahead (which method?) and work as usual.
    """
    base = argparse.ArgumentParser
    parse_args, parse_known_args = base.parse_args, base.parse_known_args
    inner = 0

    def stop(self: argparse.ArgumentParser, *args: object, **kwargs: object) -> object:
        nonlocal inner
        if self.add_help and not parse:
            raise ParsedError(self)
        inner += 1
        try:
            options = parse_args(self, *args, **kwargs)
        finally:
            inner -= 1
        if self.add_help:
            raise ParsedError(self)
        return options

    def stop_known(self: argparse.ArgumentParser, *args: object, **kwargs: object) -> object:
        nonlocal inner
        outermost = not inner and self.add_help and not isinstance(self, Parser)
        if outermost and not parse:
            raise ParsedError(self)
        inner += 1
        try:
            found = parse_known_args(self, *args, **kwargs)
        finally:
            inner -= 1
        if outermost:
            raise ParsedError(self)
        return found

    base.parse_args, base.parse_known_args = stop, stop_known
    try:
        yield
    finally:
        base.parse_args, base.parse_known_args = parse_args, parse_known_args


def main_of(module: str) -> Callable[[list[str]], int]:
    """The `main` of `python -m module`."""
    if module.partition(".")[0] in MODULES[:-1]:
        module = f"roberta_small.{module}"
    for name in (f"{module}.__main__", module):
        with contextlib.suppress(ModuleNotFoundError, AttributeError):
            return importlib.import_module(name).main
    raise ModuleNotFoundError(f"python -m {module} has no main()")


def words_of(line: str) -> tuple[str, list[str]] | None:
    """Module and arguments of one of our command lines; None for other programs."""
    words = shlex.split(line, comments=True)
    while words and "=" in words[0] and not words[0].startswith((".", "-")):
        words.pop(0)  # a variable for this command
    for index, word in enumerate(words):
        if word in (">", "|", "<", "2>"):
            words = words[:index]
            break
    if not words:
        return None
    if words[0] in SCRIPTS:
        return "experiments", [SCRIPTS[words[0]], *words[1:]]
    if words[0] == SCRIPT:
        return "roberta_small", words[1:]
    if words[:2] == ["python", "-m"] and words[2].split(".")[0] in MODULES:
        return words[2], words[3:]
    return None


def parse(module: str, words: list[str]) -> tuple[str | None, str]:
    """Why the words are refused, None where they are accepted; and what was printed on standard error."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()), stopping(parse=True):
        try:
            code = main_of(module)(words)
        except ParsedError:
            return None, printed.getvalue()
        except SystemExit as exit_:
            code = exit_.code
        except Exception as error:  # a command that does not exist or crashes is a finding, not the end
            return repr(error), printed.getvalue()
    return (None if code == 0 else f"exit code {code}: {printed.getvalue().strip()}"), printed.getvalue()


def parser_of(module: str, words: list[str]) -> argparse.ArgumentParser:
    """The parser that a command line reaches, whether or not it is complete."""
    with stopping(parse=False):
        try:
            code = main_of(module)(words)
        except ParsedError as parsed:
            parser = parsed.parser
        else:
            raise RuntimeError(f"{module} {shlex.join(words)} has no parser (exit code {code})")
    for word in words:  # the parser of a package has one for each command
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                parser = action.choices[word]
    return parser


def choices_of(words: list[str], module: str = "roberta_small") -> list[str]:
    """The commands below a command, or of a package."""
    with stopping(parse=False):
        try:
            main_of(module)(words)
        except ParsedError as parsed:
            for action in parsed.parser._actions:
                if isinstance(action, argparse._SubParsersAction):
                    return list(action.choices)
    return []


if __name__ == "__main__":
    for variable in [name for name in os.environ if name.startswith("RS_")]:
        del os.environ[variable]
    for line in sys.stdin.read().splitlines():
        found = words_of(line)
        if found is None:
            print(json.dumps({"line": line, "error": None}), flush=True)
            continue
        error, _ = parse(*found)
        print(json.dumps({"line": line, "error": error}), flush=True)
