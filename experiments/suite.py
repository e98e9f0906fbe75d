"""`--data NAME=PATH NAME=PATH ...`: the same command for several data sets, whatever the method.

The runs of each data set are written to OUT/NAME (`common.suite`). Every data set is first checked with
--dry-run, which stops at what would stop its runs; then the data sets are trained one after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import sys
from collections.abc import Mapping
from pathlib import Path

from roberta_small.common.errors import UserError, count, message_of
from roberta_small.common.files import shown_path
from roberta_small.common.suite import is_named, split_named
from roberta_small.experiments.methods import Method

OPTIONS = ("data", "text")
"""The options that take data sets."""
Options = argparse.Namespace


def data_sets(options: Options) -> dict[str, Options]:
    """Name -> the options for this data set alone; empty for one data set without a name.

    Raises `UserError` for several data sets without names, for names as `common.suite.split_named`, and for
    a method that cannot train several.
    """
    given = {name: _words(value) for name in OPTIONS if (value := getattr(options, name, None)) is not None}
    named = {name: words for name, words in given.items() if len(words) > 1 or is_named(words[0])}
    if not named:
        return {}
    if len(given) > 1:
        raise UserError(f"{' and '.join(f'--{name}' for name in given)} are both given; pass one of them")
    ((option, words),) = named.items()
    for word in words:
        if not is_named(word):
            raise UserError(
                f"--{option}: '{word}' has no name, but there are {count(len(words), 'data set')}; write "
                "NAME=PATH for each"
            )
    if not (hasattr(options, "out") and hasattr(options, "dry_run")):
        raise UserError(
            f"--{option}: the method has no --out and --dry-run, so it cannot train several data sets; run "
            "one command for each"
        )
    _check_held_out(options)
    found = {}
    for name, path in split_named(f"--{option}", words).items():
        found[name] = copy.copy(options)
        vars(found[name]).update({option: path, "out": str(Path(options.out) / name)})
    return found


def train(method: Method, data_sets: Mapping[str, Options], out: Path) -> int:
    """Check all data sets, train their runs and print a summary; returns the exit code.

    With --dry-run, prints the plan of each. Raises `UserError` that names the data set before the first run
    starts; later, a data set that fails does not stop the others.
    """
    from roberta_small.experiments.report import table  # imports NumPy, which --help does not need

    dry_run = any(options.dry_run for options in data_sets.values())
    _check(method, data_sets, show=dry_run)
    if dry_run:
        return 0
    if any(_waits_for_cluster(options) for options in data_sets.values()):
        # All arrays are in the queue before the first one is waited for.
        _each(method, {name: _with(options, no_wait=True) for name, options in data_sets.items()})
    problems = _each(method, data_sets)
    rows = [
        [name, shown_path(Path(options.out)), "FAILED" if name in problems else _done(options)]
        for name, options in data_sets.items()
    ]
    print("\n" + table(["data set", "runs in", "status"], rows))
    for name, problem in problems.items():
        print(f"{name}: {problem}")
    print(f"\nNext, over all data sets:\n  roberta-small tables {shown_path(out)}", flush=True)
    return 1 if problems else 0


def _check(method: Method, data_sets: Mapping[str, Options], *, show: bool) -> None:
    """Check every data set with --dry-run; `show` prints its plan."""
    if not show:
        print(f"{count(len(data_sets), 'data set')}: all are checked before the first run", flush=True)
    inits: dict[str, tuple[str, ...]] = {}
    for name, options in data_sets.items():
        checked = _with(options, dry_run=True)
        if show:
            _print_heading(name, options)
        try:
            with contextlib.nullcontext() if show else contextlib.redirect_stdout(io.StringIO()):
                code = method.train(checked)
        except UserError as error:
            raise UserError(f"data set {name}: {error}") from None
        if code:
            raise UserError(f"data set {name}: the check failed with exit code {code}; run it alone")
        inits[name] = getattr(checked, "chosen_inits", ())
    first = next(iter(inits))
    for name, found in inits.items():
        if found != inits[first]:
            raise UserError(
                f"the initializations differ: {', '.join(inits[first])} for {first}, but {', '.join(found)} "
                f"for {name} (the shipped weights have the dictionary of only one of them); choose with "
                "--inits or --pretrained"
            )


def _each(method: Method, data_sets: Mapping[str, Options]) -> dict[str, str]:
    """Train the data sets one after the other; returns the problems by data set."""
    problems = {}
    for name, options in data_sets.items():
        _print_heading(name, options)
        try:
            code = method.train(options)
        except Exception as error:
            message = message_of(error)
            if message is None:
                raise
            print(f"{name}: {message}", file=sys.stderr, flush=True)
            problems[name] = message
            continue
        if code:
            problems[name] = f"exit code {code}; the cause is printed above"
    return problems


def _words(value: str | list[str]) -> list[str]:
    """The values of an option. A single one is split only if every part is NAME=PATH, as in RS_DATA."""
    if isinstance(value, list):
        return value
    if not is_named(value):
        return [value]
    parts = value.split()
    return parts if all(map(is_named, parts)) else [value]


def _with(options: Options, **changes: object) -> Options:
    changed = copy.copy(options)
    vars(changed).update(changes)
    return changed


def _waits_for_cluster(options: Options) -> bool:
    return getattr(options, "launcher", None) == "slurm" and not options.no_wait


def _done(options: Options) -> str:
    """The status of a data set without problems."""
    return "submitted" if getattr(options, "no_wait", False) else "finished"


def _check_held_out(options: Options) -> None:
    """Raise `UserError` if --valid or --test is a file, which cannot belong to several data sets."""
    from roberta_small.preprocess.dataset import is_size

    for name in ("valid", "test"):
        value = getattr(options, name, None)
        if value is not None and not is_size(value):
            raise UserError(
                f"--{name} {value}: a file belongs to one data set; prepare each data set with "
                "`python -m preprocess dataset`, and pass the folders"
            )


def _print_heading(name: str, options: Options) -> None:
    path = next(value for option in OPTIONS if (value := getattr(options, option, None)) is not None)
    print(f"\n== {name}: {path} ==\n", flush=True)
