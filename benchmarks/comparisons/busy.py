"""What this project keeps of its speed beside another process.

The other process computes all the time at a low priority (nice 10) in a session of its own. Linux divides the
cores between sessions first (autogroups), so the priority counts little: on two cores, three quarters of the
idle speed would be the fair share of work that can be divided at will. Rates are those of the second half of
the updates.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.comparisons import classify, finetune, masked_lm
from benchmarks.measure import Contender, execute, say
from benchmarks.settings import Settings
from roberta_small.common.cpu import THREADS

COMPETITOR = "import os, sys, time; os.nice(10); end = time.monotonic() + float(sys.argv[1])\n"
COMPETITOR += "while time.monotonic() < end: pass"
ONE_THREAD = dict.fromkeys(THREADS, "1")


def run(settings: Settings) -> dict[str, Any]:
    """Rates of training, pre-training and classification, alone and beside a process, and their ratio."""
    tuned = {
        "fine-tuning, updates": _ours(finetune.contenders(settings)),
        "pre-training, updates": _ours(masked_lm.contenders(settings)),
        "classification, passes": _ours(classify.contenders(settings)),
    }
    works = tuned | {
        f"{name}, one thread": replace(contender, environment={**contender.environment, **ONE_THREAD})
        for name, contender in tuned.items()
    }
    rates: dict[str, dict[str, list[float]]] = {name: {"alone": [], "beside": []} for name in works}
    for number in range(1, settings.rounds + 1):
        for name, contender in works.items():
            for state in ("alone", "beside"):
                with _competitor(settings) if state == "beside" else nullcontext():
                    log = settings.output / "logs" / "busy.txt"
                    seconds = execute(contender, settings, log)["seconds"]
                last = seconds[len(seconds) // 2 :]
                rates[name][state].append(len(last) / sum(last))
            last_rates = ", ".join(f"{state} {found[-1]:.3g}/s" for state, found in rates[name].items())
            say(f"busy, round {number}/{settings.rounds}: {name}: {last_rates}")
    medians = {
        name: {state: float(np.median(found)) for state, found in by.items()} for name, by in rates.items()
    }
    quantities = [
        {"quantity": f"{name}, {state}", "value": value, "unit": "1/s"}
        for name, by_state in medians.items()
        for state, value in by_state.items()
    ]
    quantities += [
        {
            "quantity": f"{name} beside a process, share of the speed alone",
            "value": 100 * medians[name]["beside"] / medians[name]["alone"],
            "unit": "%",
        }
        for name in tuned
    ]
    return {
        "name": "busy",
        "title": f"Beside a process that computes all the time, median of {settings.rounds} rounds",
        "rates": rates,
        "quantities": quantities,
    }


def _ours(contenders: list[Contender]) -> Contender:
    """The contender with this project's defaults."""
    return next(contender for contender in contenders if contender.name == "ours")


@contextmanager
def _competitor(settings: Settings) -> Iterator[None]:
    command = [sys.executable, "-c", COMPETITOR, str(settings.limit)]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield
    finally:
        process.kill()
        process.wait()
