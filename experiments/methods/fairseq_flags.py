"""Checks flags for fairseq-train with its own parser, before anything is started.

Importing fairseq takes seconds: the parser runs in a process of its own, and only where a user adds flags
to a recipe.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from common.cli import nearest
from common.errors import UserError

from .. import ROOT


def check(words: Sequence[str]) -> None:
    """Raise `UserError` where fairseq-train with the plugin's flags does not accept `words`.

    `words` are the flags of a run, recipe included. The error names the nearest flag.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from experiments.methods.fairseq_flags import main; main()"],
        input=json.dumps(list(words)),
        env=_environment(),
        capture_output=True,
        text=True,
    )
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return  # fairseq itself cannot start: the run's log shows why
    if answer["problem"] is None:
        return
    unknown = [word for word in re.findall(r"--[\w-]+", answer["problem"]) if word not in answer["known"]]
    suggestion = nearest(unknown[0], answer["known"]) if unknown else ""
    raise UserError(f"after --: fairseq-train: {answer['problem']}{suggestion}")


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}


class _ParserError(Exception):
    pass


def main() -> None:
    """Read words from standard input as JSON; print fairseq's complaint (or null) and all known flags."""
    words = json.load(sys.stdin)
    warnings.simplefilter("ignore")
    from fairseq import options

    import fairseq_plugin  # noqa: F401  adds its flags

    known: set[str] = set()

    def refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
        raise _ParserError(message)

    add = argparse._ActionsContainer._add_action

    def remember(container: argparse._ActionsContainer, action: argparse.Action) -> argparse.Action:
        known.update(action.option_strings)
        return add(container, action)

    argparse.ArgumentParser.error = refuse
    argparse._ActionsContainer._add_action = remember
    problem = None
    try:
        options.parse_args_and_arch(options.get_training_parser(), ["data", *words])
    except _ParserError as error:
        problem = str(error)
    print(json.dumps({"problem": problem, "known": sorted(known)}))
