"""Find the data sets of a suite: in one folder or archive (`common.suite`), or as NAME=PATH each."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping

from roberta_small.analysis.read.long_table import GROUP
from roberta_small.common import archive
from roberta_small.common import suite as layout
from roberta_small.common.errors import UserError

logger = logging.getLogger(__name__)


def find_data_sets(words: Iterable[str]) -> dict[str, str]:
    """Name -> folder or archive of each data set, from NAME=PATH and from folders of suites.

    Raises `UserError` for a folder that is not that of a suite, for fewer than two data sets, and as
    `common.suite.split_named`.
    """
    found: dict[str, str] = {}
    for word in words:
        if layout.is_named(word):
            more = layout.split_named("RUNS", [word])
        else:
            more = {name: str(path) for name, path in _below(word).items()}
        for name in more:
            if name in found:
                raise UserError(f"{word}: another data set is named '{name}' too; write NAME=PATH")
            if name in GROUP:
                raise UserError(f"{word}: '{name}' is the name of a column; choose another: NAME=PATH")
        found |= more
    if len(found) < 2:
        raise UserError(
            f"{', '.join(found)}: a single data set; give several, or use `python -m analysis tables`"
        )
    layout.split_named("RUNS", [f"{name}={path}" for name, path in found.items()])
    return found


def _below(word: str) -> Mapping[str, os.PathLike[str]]:
    """The data sets below the folder of a suite."""
    folder = archive.opened(word)
    if not folder.is_dir():
        raise UserError(f"{word}: no such folder; give the folder of a suite or NAME=PATH")
    found = layout.data_sets(folder)
    if layout.has_runs(folder):
        if not found:
            raise UserError(f"{word}: contains the runs of one data set; write NAME={word}")
        logger.warning("%s: runs that are not below the folder of a data set are ignored", word)
    if not found:
        raise UserError(f"{word}: contains no <data set>/<method>/<init>/seed<N>/; write NAME=PATH for each")
    return found
