"""The flags of fairseq-train: checked by fairseq's own parser before a run starts, and those of the device.

Importing fairseq takes seconds, so flags are only checked if the user adds some to a recipe.
"""

from __future__ import annotations

import argparse
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError
from roberta_small.common.hardware import CPU, GPU, usable_cores

LM_WORKERS = 8
"""Processes that make batches of a language model for a GPU: 32 blocks of 256 tokens take one 7 ms."""


def check(words: Sequence[str]) -> None:
    """Raise `UserError`, with the nearest flag, if fairseq-train does not accept all `words` of a run."""
    try:
        from fairseq import options

        import roberta_small.fairseq_plugin  # noqa: F401  registers the plugin's flags
    except Exception:
        return  # fairseq itself cannot start; the log of the run shows the cause
    parser = options.get_training_parser()
    try:
        with parser_errors(UserError), warnings.catch_warnings(action="ignore"):
            options.parse_args_and_arch(parser, ["data", *words])
    except Exception as error:  # fairseq evaluates some values, such as "[0.1, 0.2]", as Python
        # The first parse has added the flags of task, model and criterion to the parser.
        known = sorted(parser._option_string_actions)
        unknown = [word for word in re.findall(r"--[\w-]+", str(error)) if word not in known]
        suggestion = nearest(unknown[0], known) if unknown else ""
        raise UserError(f"flags of the recipe or after --: fairseq-train: {error}{suggestion}") from None


def configuration(words: Sequence[str], prefix: str) -> Any:
    """fairseq's configuration of `words`, data and flags; errors are `UserError` and begin with `prefix`."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    with (
        parser_errors(lambda message: UserError(f"{prefix}: {message}")),
        warnings.catch_warnings(action="ignore"),  # fairseq's use of hydra is deprecated
    ):
        parser = options.get_training_parser()
        return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, list(words)))


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
