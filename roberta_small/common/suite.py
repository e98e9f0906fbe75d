"""A suite: several data sets with the same methods, in one folder of runs.

    OUT/<data set>/<arm>/<init>/seed<N>/     the runs of each data set; below them as in `common.run`

On the command line, a data set is NAME=PATH. NAME is that of its folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from roberta_small.common import manifest
from roberta_small.common.errors import UserError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
NOT_IN_NAMES = re.compile(r"[/\\:]")
"""Characters before "=" with which a word is a path and not NAME=PATH."""
RUNS = f"*/*/seed*/{manifest.NAME}"
"""The manifests of the runs of one data set, below its folder."""


def folder_name(flag: str, text: str) -> str:
    """The text if it can be the name of a folder; raises `UserError` that names the flag otherwise."""
    if not NAME.fullmatch(text):
        raise UserError(
            f"{flag} {text!r}: cannot be the name of a folder; use only letters, digits, '_', '-' and '.'"
        )
    return text


def is_named(word: str) -> bool:
    """Whether a word is NAME=PATH. An existing file or folder is not, nor is a path such as `runs/lr=1`."""
    name, equals, _ = word.partition("=")
    return bool(equals) and not NOT_IN_NAMES.search(name) and not os.path.exists(word)


def split_named(flag: str, words: Sequence[str]) -> dict[str, str]:
    """NAME -> PATH for words that are all NAME=PATH.

    Raises `UserError` that names the flag for a name that cannot be that of a folder, for an empty path, and
    for a name or a path that occurs twice.
    """
    found: dict[str, str] = {}
    for word in words:
        name, _, path = word.partition("=")
        folder_name(flag, name)
        if not path:
            raise UserError(f"{flag} {word!r}: no path after '='; write NAME=PATH")
        if name in found:
            raise UserError(f"{flag}: two data sets are named '{name}'; choose different names")
        for other, known in found.items():
            if os.path.realpath(known) == os.path.realpath(path):
                raise UserError(f"{flag}: {other} and {name} are the same, {path}; correct one of the paths")
        found[name] = path
    return found


def data_sets(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """The folders of the data sets of a suite by name, in alphabetical order; empty if there is none."""
    folder = Path(folder)
    found = sorted({path.parents[3] for path in folder.glob(f"*/{RUNS}")})
    return {path.name: path for path in found}


def has_runs(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder contains runs of its own, as the folder of one data set does."""
    return any(Path(folder).glob(RUNS))
