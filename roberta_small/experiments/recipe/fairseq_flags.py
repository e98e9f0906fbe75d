"""Checks the flags of fairseq-train with fairseq's own parser, before a run is started.

Importing fairseq takes seconds, so the check runs in a separate process, and only if the user adds flags to a
recipe.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError
from roberta_small.common.hardware import CPU, GPU, usable_cores
from roberta_small.common.startup import import_of_fairseq

LM_WORKERS = 8
"""Processes that make batches of a language model for a GPU: 32 blocks of 256 tokens take one 7 ms."""


def check(words: Sequence[str]) -> None:
    """Raise `UserError` if fairseq-train with the plugin does not accept `words`.

    `words` are all flags of a run, including those of the recipe. The error suggests the nearest flag.
    """
    try:
        result = ask(f"{__name__}:main", list(words))
    except UserError:
        return  # fairseq itself cannot start; the log of the run shows the cause
    if result["problem"] is None:
        return
    unknown = [word for word in re.findall(r"--[\w-]+", result["problem"]) if word not in result["known"]]
    suggestion = nearest(unknown[0], result["known"]) if unknown else ""
    raise UserError(f"flags of the recipe or after --: fairseq-train: {result['problem']}{suggestion}")


def for_device(flags: Sequence[str], cpu: bool) -> tuple[str, ...]:
    """The flags of a run on a CPU or a GPU: recipes have sizes for a CPU; those of the user stay."""
    if cpu:
        return tuple(flags)
    of_gpu = {
        ("--batch-size-valid", str(CPU.valid_sentences)): str(GPU.valid_sentences),
        ("--max-tokens-valid", str(CPU.valid_tokens)): str(GPU.valid_tokens),
    }
    return tuple(of_gpu.get(pair, pair[1]) for pair in itertools.pairwise(["", *flags]))


def loading(flags: Sequence[str], cpu: bool) -> tuple[str, ...]:
    """Flags for the processes that make batches on a GPU, unless the user has chosen their number.

    fairseq has one. A batch of a classifier takes it longer to hand over than to make, and longer than an
    update of a small model should take: the trainer's process makes them while the GPU computes. A batch of a
    language model takes longer to make, so several processes make them.
    """
    words = list(flags)
    if cpu or "--num-workers" in words:
        return ()
    task = words[words.index("--task") + 1] if "--task" in words else ""
    count = 0 if task.startswith("sentence_") else min(LM_WORKERS, max(1, usable_cores() - 1))
    return ("--num-workers", str(count))


def ask(function: str, request: Any) -> Any:
    """Call `function` ("module:name") in a separate Python process and return its answer.

    The function reads the request from standard input and prints its answer on the last line, both as JSON.
    Raises `UserError` if the process ends without an answer.
    """
    module, _, name = function.partition(":")
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"from {module} import {name}; {name}()"],
        input=json.dumps(request),
        env=_environment(),
        capture_output=True,
        text=True,
    )
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UserError(f"fairseq cannot be started: {reason}; repair its installation") from None


@contextmanager
def parser_errors(error: Callable[[str], Exception]) -> Iterator[None]:
    """Let parsers of argparse raise `error(message)` instead of ending the process.

    Replaced on the class, because fairseq builds a second parser for the options of task and model.
    """

    def raise_error(parser: argparse.ArgumentParser, message: str) -> NoReturn:
        raise error(message)

    original = argparse.ArgumentParser.error
    argparse.ArgumentParser.error = raise_error  # type: ignore[method-assign, assignment]  # see above
    try:
        yield
    finally:
        argparse.ArgumentParser.error = original  # type: ignore[method-assign]  # see above


def _environment() -> dict[str, str]:
    return os.environ | {"CUDA_VISIBLE_DEVICES": ""}


class _ParserError(Exception):
    pass


def main() -> None:
    """Read words from standard input as JSON; print fairseq's error message (or null) and all known flags."""
    words = json.load(sys.stdin)
    warnings.simplefilter("ignore")
    with import_of_fairseq():
        from fairseq import options

    import roberta_small.fairseq_plugin  # noqa: F401  registers the plugin's flags

    known: set[str] = set()
    add = argparse._ActionsContainer._add_action

    def add_and_record(container: argparse._ActionsContainer, action: argparse.Action) -> argparse.Action:
        known.update(action.option_strings)
        return add(container, action)

    # Replaced on the class, as in `parser_errors`.
    argparse._ActionsContainer._add_action = add_and_record  # type: ignore[method-assign, assignment]
    problem = None
    try:
        with parser_errors(_ParserError):
            options.parse_args_and_arch(options.get_training_parser(), ["data", *words])
    except _ParserError as error:
        problem = str(error)
    print(json.dumps({"problem": problem, "known": sorted(known)}))
