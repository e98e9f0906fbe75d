"""One command-line convention for all commands (docs/reference/command-line.md describes it).

`Parser` is argparse's with three additions: an unknown option is answered by the usage of the subcommand at
fault and the nearest real option; a usage error is a `UsageError`, so that it is reported like every other
mistake; and `deprecated` keeps an old spelling working for a release. `SettingsParser` also reads
options from environment variables.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
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
        self._unknown: list[str] = []
        """Long options of the command line that this parser does not have."""

    def deprecated(self, old: str, new: str) -> None:
        """Accept the option `old` as another spelling of `new`, with a line on standard error."""
        self._renamed[old] = new

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with the usage of this parser."""
        hint = self._did_you_mean(self._unknown)
        if self._unknown and not message.startswith("unrecognized"):
            message = f"{message}; unrecognized: {' '.join(self._unknown)}"
        raise UsageError(f"{message}{hint} (see {self.prog} --help)", usage=self.format_usage())

    def parse_known_args(
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse's, but nothing is left over: whatever is unknown is an error of this very parser."""
        words = list(sys.argv[1:] if args is None else args)
        words = self._today(words)
        if self._subparsers is None:  # else the options may be those of a subcommand
            self._unknown = [word for word in self._options(words) if word not in self._option_string_actions]
        namespace, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
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

    @staticmethod
    def _options(words: Sequence[str]) -> list[str]:
        """The long options before `--`, without their values."""
        end = words.index("--") if "--" in words else len(words)
        return [word.partition("=")[0] for word in words[:end] if word.startswith("--")]

    def _did_you_mean(self, unknown: Sequence[str]) -> str:
        known = [option for option in self._option_string_actions if option.startswith("--")]
        suggestions = (nearest(word, known) for word in unknown if word.startswith("-"))
        return next(filter(None, suggestions), "")


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


class SettingsParser(Parser):
    """A parser whose options may also be set by environment variables; the option wins.

    Words after `--` are not parsed; `parse_settings` returns them as `passthrough`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settings: dict[str, tuple[str | None, tuple[str, str] | None]] = {}

    def add_setting(
        self,
        name: str,
        default: str | None,
        explanation: str,
        *,
        only_with: tuple[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add the option `--NAME` with the variable RS_NAME.

        Values are strings, or lists of strings with `nargs="+"` on the command line; `split_words` accepts
        both. `only_with=("launcher", "slurm")`: the variable and the default count only if the option
        `--launcher` has the value `slurm`.
        """
        shown = PREFIX + name.upper().replace("-", "_")
        default_text = f"; default: {default}" if default is not None else ""
        self.add_argument(
            f"--{name}",
            metavar=name.upper(),
            help=f"{explanation} [{shown}{default_text}]".replace("%", "%%"),
            **kwargs,
        )
        self._settings[name] = default, only_with

    def parse_settings(self, argv: Sequence[str], environ: Mapping[str, str]) -> argparse.Namespace:
        """Parse the words before `--`; other options come from the environment, else they have defaults."""
        words = list(argv)
        cut = words.index("--") if "--" in words else len(words)
        options = self.parse_args(words[:cut])
        for name, (default, only_with) in self._settings.items():
            destination = name.replace("-", "_")
            applies = only_with is None or getattr(options, only_with[0]) == only_with[1]
            if getattr(options, destination) is None and applies:
                setattr(options, destination, variable(name, environ) or default)
        options.passthrough = tuple(words[cut + 1 :])
        return options

    def require(self, options: argparse.Namespace, *names: str) -> None:
        """Raise `UsageError` for a setting that has no value."""
        for name in names:
            if getattr(options, name) is None:
                self.error(f"--{name} (or {PREFIX}{name.upper()}=) is missing")


class Collect(argparse.Action):
    """The words of a list option that may be repeated: `--grid a=1 --grid b=2`."""

    def __call__(  # noqa: D102
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or []), *values])


def flags_of(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The words of a command line by flag: `{"--lr": ("--lr", "1e-4"), "--flag": ("--flag",)}`.

    `--lr=1e-4` is the same as `--lr 1e-4`. As in argparse, a later flag replaces an earlier one. Words before
    the first flag are under the key "".
    """
    groups: dict[str, tuple[str, ...]] = {}
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            groups[flag] = (flag, value) if equals else (flag,)
        else:
            groups[flag] = (*groups.get(flag, ()), word)
    return groups


def nearest(word: str, known: Iterable[str]) -> str:
    """`"; did you mean --lr?"` for the known option nearest to `word`; "" where none is near."""
    near = difflib.get_close_matches(word.partition("=")[0], list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


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
