"""The contenders of a tool in the precisions that the device computes fast, and a check that tools agree."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.fairseq_commands import SAME_VARIABLES, tuned
from benchmarks.measure import Contender, execute, say, timed
from benchmarks.settings import Settings
from roberta_small.common.errors import UserError

TOLERANCES = {"fp32": 1e-4, "bf16": 5e-2}
"""Precision -> largest difference from the first tool in fp32, relative to the length of the vector."""
Command = Callable[[str], tuple[str, ...]]
"""Precision -> the command of a contender."""


def of_tool(name: str, command: Command, settings: Settings) -> list[Contender]:
    """A tool in each precision, which `name` has a place for, and the fastest with our variables."""
    found = [Contender(name.format(precision), command(precision)) for precision in precisions(settings)]
    name, words = f"{found[-1].name}{SAME_VARIABLES}", found[-1].command
    return [*found, Contender(name, words, tuned(settings), quick=True)]


def ours(command: Command, settings: Settings) -> list[Contender]:
    """This project with its default precision and, where that is bf16, in fp32."""
    found = [Contender("ours", command("auto"), tuned(settings), ours=True, quick=True)]
    if "bf16" in precisions(settings):
        found.append(Contender("ours, fp32", command("fp32"), tuned(settings), ours=True))
    return found


@functools.cache
def precisions(settings: Settings) -> tuple[str, ...]:
    """fp32, and bf16 unless the device emulates it, which would take minutes."""
    found = execute(Contender("bf16", timed(measure_bf16), tuned(settings)), settings, "bf16")
    if not found["fast"]:
        say(f"bf16 is left out ({found['reason']})")
    return ("fp32", "bf16") if found["fast"] else ("fp32",)


def measure_bf16() -> dict[str, Any]:
    """Whether bf16 is fast, and why."""
    from roberta_small.eval.network import find_device
    from roberta_small.fairseq_plugin.training.precision import bf16_is_fast

    fast, reason = bf16_is_fast(find_device("auto"))
    return {"fast": fast, "reason": reason}


def agreement(
    commands: Mapping[str, Command], settings: Settings, output: Callable[[str, dict[str, Any]], Any]
) -> dict[str, float]:
    """The largest difference between the outputs (N, C) of tools, which run once, in each precision.

    `output` takes them from the name and the record of a tool. Raises `UserError` for a difference above
    `TOLERANCES`.
    """
    found: dict[str, float] = {}
    outputs_NC = []
    for precision in precisions(settings):
        for tool, command in commands.items():
            record = execute(Contender(tool, command(precision)), settings, f"check {tool} {precision}")
            outputs_NC.append(np.array(output(tool, record)))
            errors_N = np.linalg.norm(outputs_NC[-1] - outputs_NC[0], axis=1)
            difference = float(max(errors_N / np.linalg.norm(outputs_NC[0], axis=1)))
            if not difference <= TOLERANCES[precision]:
                raise UserError(
                    f"{tool} in {precision} differs by {difference:.1e} from {next(iter(commands))}"
                )
            found[precision] = max(difference, found.get(precision, 0.0))
    return found
