"""One command-line convention for all commands (docs/reference/command-line.md describes it).

`Parser` is argparse's with three additions: an unknown option is answered by the usage of the subcommand at
fault and the nearest real option; a usage error is a `UsageError`, so that it is reported like every other
mistake; and `deprecated` keeps an old spelling working for a release. `variable` reads a setting from the
environment.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from .errors import UsageError, UserError

PREFIX = "RS_"
"""Of every environment variable that is a setting."""

_warned: set[str] = set()


class Parser(argparse.ArgumentParser):
    """argparse's parser with the conventions of this project; subparsers are of this class too.

    Options are never abbreviated, and description and examples keep their line breaks.
    """

    def __init__(self, *args: Any, examples: str | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        kwargs.setdefault("allow_abbrev", False)
        if examples is not None:
            kwargs["epilog"] = examples
        super().__init__(*args, **kwargs)
        self._renamed: dict[str, str] = {}

    def deprecated(self, old: str, new: str) -> None:
        """Accept the option `old` as another spelling of `new`, with a line on standard error."""
        self._renamed[old] = new

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with the usage of this parser."""
        raise UsageError(f"{message} (see {self.prog} --help)", usage=self.format_usage())

    def parse_known_args(
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse's, but nothing is left over: whatever is unknown is an error of this very parser."""
        words = list(sys.argv[1:] if args is None else args)
        namespace, unknown = super().parse_known_args(self._today(words), namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._did_you_mean(unknown)}")
        return namespace, unknown

    def _today(self, words: list[str]) -> list[str]:
        """The words with today's spelling of every deprecated option before `--`."""
        end = words.index("--") if "--" in words else len(words)
        for index, word in enumerate(words[:end]):
            name, equals, value = word.partition("=")
            if name in self._renamed:
                deprecation(f"{name} is deprecated, use {self._renamed[name]}")
                words[index] = f"{self._renamed[name]}{equals}{value}"
        return words

    def _did_you_mean(self, unknown: Sequence[str]) -> str:
        known = [option for option in self._option_string_actions if option.startswith("--")]
        for word in unknown:
            if word.startswith("-") and (near := difflib.get_close_matches(word.partition("=")[0], known, 1)):
                return f"; did you mean {near[0]}?"
        return ""


def deprecation(message: str) -> None:
    """Print `message` on standard error, once in a process."""
    if message not in _warned:
        _warned.add(message)
        print(f"deprecated: {message}", file=sys.stderr)


def variable(name: str, environ: Mapping[str, str]) -> str | None:
    """The setting `name` ("data") from the environment: RS_DATA, or DATA with a deprecation line."""
    name = name.upper().replace("-", "_")
    if value := environ.get(PREFIX + name):
        return value
    if value := environ.get(name):
        deprecation(f"the variable {name} is deprecated, use {PREFIX}{name}")
        return value
    return None


def positive(text: str) -> int:
    """An integer of at least 1; raises `ArgumentTypeError`, or `ValueError` where it is no integer."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number



def split_words(value: str | list[str]) -> list[str]:
    """Words of a variable (one string, quoted as in a shell) or of a flag (already split)."""
    if isinstance(value, list):
        if len(value) > 1:
            return value
        value = value[0]
    try:
        return shlex.split(value)
    except ValueError as error:
        raise UserError(f"{value!r}: {error}; close the quotes") from None


def integer(flag: str, text: str, minimum: int, maximum: int | None = None) -> int:
    """A whole number between limits."""
    limits = f"from {minimum}" + (f" to {maximum}" if maximum is not None else "")
    if (
        not re.fullmatch(r"[0-9]+", text)
        or int(text) < minimum
        or (maximum is not None and int(text) > maximum)
    ):
        raise UserError(f"{flag} {text!r}: not a whole number {limits}")
    return int(text)


def fraction(text: str) -> float:
    """A number from 0 up to 1, 1 excluded."""
    number = float(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 up to 1 (excluded)")
    return number


def positive_number(text: str) -> float:
    """A finite number above 0."""
    number = float(text)
    if not (0 < number < math.inf):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number
