"""The command-line convention of all commands (described in docs/reference/command-line.md).

`Parser` adds two things to argparse: the error for an unknown option shows the usage of its subcommand and
suggests the nearest option, and usage errors are raised as `UsageError`. `SettingsParser` also reads options
from environment variables. A parser first imports the modules named in RS_PLUGINS (`load_extensions`).
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import importlib.util
import math
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from roberta_small.common.errors import UsageError, UserError

PREFIX = "RS_"
"""Prefix of all environment variables that are settings."""
DEVICES = ("auto", "cpu", "cuda")
"""The values of --device."""
EXTENSIONS = "RS_PLUGINS"
"""Environment variable with the user's modules that register readers, encoders, metrics or methods: names of
modules, or paths of Python files, separated by commas."""


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` with the conventions of this project; its subparsers are of the same class.

    Options cannot be abbreviated. Description and examples keep their line breaks.
    """

    def __init__(self, *args: Any, examples: str | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        kwargs.setdefault("allow_abbrev", False)
        if examples is not None:
            kwargs["epilog"] = examples
        # Before any option is added: the choices of some come from registries.
        load_extensions()
        super().__init__(*args, **kwargs)
        self.hints: dict[str, str] = {}
        """Options of other programs -> what to write instead, for the error message."""
        self._unknown: list[str] = []
        """Long options of the command line that this parser does not have, for the error message."""

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with the usage of this parser."""
        hint = next((f"; {self.hints[word]}" for word in self._unknown if word in self.hints), "")
        if not hint:
            known = [option for option in self._option_string_actions if option.startswith("--")]
            hint = next(filter(None, (nearest(word, known) for word in self._unknown)), "")
        if self._unknown and not message.startswith("unrecognized"):
            message = f"{message}; unrecognized: {' '.join(self._unknown)}"
        raise UsageError(f"{message}{hint} (see {self.prog} --help)", usage=self.format_usage())

    # argparse declares one overload for each class of namespace; this project uses argparse.Namespace only.
    def parse_known_args(  # type: ignore[override]
        self, args: Iterable[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As in argparse, but unknown arguments are an error of this (sub)parser and are never returned."""
        words = list(sys.argv[1:] if args is None else args)
        if self._subparsers is None:  # otherwise they may be options of a subcommand
            end = words.index("--") if "--" in words else len(words)
            options = [word.partition("=")[0] for word in words[:end] if word.startswith("--")]
            self._unknown = [option for option in options if option not in self._option_string_actions]
        parsed, unknown = super().parse_known_args(
            words, argparse.Namespace() if namespace is None else namespace
        )
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def has(self, option: str) -> bool:
        """Whether the parser has an option."""
        return option in self._option_string_actions


class SettingsParser(Parser):
    """A parser whose options can also be set by environment variables; an option overrides its variable.

    Words after `--` are not parsed; `parse_settings` returns them as `passthrough`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settings: dict[str, str | None] = {}

    def add_setting(self, name: str, default: str | None, explanation: str, **kwargs: Any) -> None:
        """Add the option `--NAME` and its environment variable RS_NAME.

        A value is a string, or a list of strings from an option with `nargs="+"`; `split_words` accepts both.
        """
        default_text = f"; default: {default}" if default is not None else ""
        self.add_argument(
            f"--{name}",
            metavar=name.upper(),
            help=f"{explanation} [{_variable(name)}{default_text}]".replace("%", "%%"),
            **kwargs,
        )
        self._settings[name] = default

    def parse_settings(self, argv: Sequence[str], environ: Mapping[str, str]) -> argparse.Namespace:
        """Parse the words before `--`; options not given come from the environment or have their default."""
        words = list(argv)
        cut = words.index("--") if "--" in words else len(words)
        options = self.parse_args(words[:cut])
        for name, default in self._settings.items():
            destination = name.replace("-", "_")
            if getattr(options, destination) is None:
                setattr(options, destination, environ.get(_variable(name)) or default)
        options.passthrough = tuple(words[cut + 1 :])
        return options

    def require(self, options: argparse.Namespace, *names: str) -> None:
        """Raise `UsageError` if one of the settings has no value."""
        for name in names:
            if getattr(options, name) is None:
                self.error(f"--{name} (or the variable {_variable(name)}) is required")


def _variable(name: str) -> str:
    """The environment variable of a setting: RS_DATA for "data"."""
    return PREFIX + name.upper().replace("-", "_")


class Collect(argparse.Action):
    """Collect the values of a list option that may be repeated: `--grid a=1 --grid b=2`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:  # noqa: D102
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or []), *values])


class OneOrMore(argparse.Action):
    """The value of an option with `nargs="+"`: a string, or a list if there are several."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:  # noqa: D102
        setattr(namespace, self.dest, values if len(values) > 1 else values[0])


def flags_of(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The words of a command line by flag: `{"--lr": ("--lr", "1e-4"), "--flag": ("--flag",)}`.

    `--lr=1e-4` equals `--lr 1e-4`. As in argparse, a later flag replaces an earlier one. Words before the
    first flag have the key "".
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
    """A suggestion to append to an error message, "; did you mean --lr?", or "" if no known word is near."""
    known = list(known)
    by_name = {name.lstrip("-"): name for name in known}  # the dashes of options would make all of them near
    near = difflib.get_close_matches(word.lstrip("-"), by_name, 1)
    near = near or difflib.get_close_matches(word.lstrip("-").partition("=")[0], by_name, 1)  # with its value
    return f"; did you mean {by_name[near[0]]}?" if near else ""


def positive(text: str) -> int:
    """Parse an integer of at least 1; raises `ArgumentTypeError`, or `ValueError` if it is not an integer."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def split_words(value: str | list[str]) -> list[str]:
    """The words of an environment variable (one string, quoted as in a shell) or of an option (a list)."""
    if isinstance(value, list):
        if len(value) > 1:
            return value
        value = value[0]
    try:
        return shlex.split(value)
    except ValueError as error:
        raise UserError(f"{value!r}: {error}; close the quotes") from None


def integer(flag: str, text: str, minimum: int, maximum: int | None = None) -> int:
    """Parse an integer within limits; raises `UserError` that names the flag."""
    limits = f"from {minimum}" + (f" to {maximum}" if maximum is not None else "")
    most = math.inf if maximum is None else maximum
    if not re.fullmatch(r"[0-9]+", text) or not minimum <= int(text) <= most:
        raise UserError(f"{flag} {text!r}: not an integer {limits}")
    return int(text)


def fraction(text: str) -> float:
    """Parse a number in [0, 1); raises `ArgumentTypeError` or `ValueError`."""
    number = float(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 0 and below 1")
    return number


def positive_number(text: str) -> float:
    """Parse a finite number above 0; raises `ArgumentTypeError` for other text."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (0 < number < math.inf):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number


def load_extensions() -> None:
    """Import every module of RS_PLUGINS that is not imported yet.

    Every command does so, as do fairseq's commands with the plugin, and the process of each run.
    A module that fits only some commands can check what is installed: the commands of `analysis` run without
    fairseq. Raises `UserError` for one that does not exist or cannot be imported.
    """
    for name in filter(None, map(str.strip, os.environ.get(EXTENSIONS, "").split(","))):
        path = Path(name)
        is_file = path.suffix == ".py"
        if is_file and not path.is_file():
            raise UserError(f"{EXTENSIONS}: {name}: no such file; correct the path or unset the variable")
        if (path.stem if is_file else name) in sys.modules:
            continue
        try:
            if is_file:
                spec = importlib.util.spec_from_file_location(path.stem, path)
                assert spec is not None
                assert spec.loader is not None  # the suffix is .py
                module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
            else:
                importlib.import_module(name)
        except Exception as error:  # any statement of the module can fail
            sys.modules.pop(path.stem if is_file else name, None)
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"{EXTENSIONS}: {name} cannot be imported ({reason}); correct it") from error
