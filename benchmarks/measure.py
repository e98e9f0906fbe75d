"""Run contenders in fresh processes, in rounds that alternate between them, and summarize their times.

A contender is a command. If the command contains `{result}`, the path of a JSON file is inserted there, and
the contender writes its own times to it: `seconds`, a list with an entry for each update or pass
(`benchmarks.timed` does so). Otherwise the time is the wall time of the process.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.settings import Settings
from roberta_small.common.errors import UserError
from roberta_small.common.files import ROOT, shown_path
from roberta_small.common.hardware import TUNING

RESULT = "{result}"
LIMIT_SECONDS = 3600.0
"""After which a process is stopped; BENCHMARK_SECONDS, set by `benchmarks/gpu/check.sh`, replaces it."""
GRACE_SECONDS = 15
"""Seconds between SIGTERM and SIGKILL: a sweep stops its trainers first."""


@dataclass(frozen=True)
class Contender:
    """One program for a task; the first contender of a comparison is the reference, unless it is ours."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the user's environment without the variables that `train.sh` sets for speed."""
    ours: bool = False
    quick: bool = False
    """Whether it is also compared with `--quick`: the fastest setting of a tool."""
    note: str = ""


def python(module: str, *arguments: object) -> tuple[str, ...]:
    """The command that runs a module of this project in a separate process."""
    return (sys.executable, "-m", module, *map(str, arguments))


def timed(function: Callable[..., dict[str, Any]], *arguments: object) -> tuple[str, ...]:
    """The command that calls a function with these words in a separate process; its result is the record."""
    return python("benchmarks.timed", RESULT, f"{function.__module__}:{function.__name__}", *arguments)


def compare(
    name: str,
    title: str,
    contenders: Sequence[Contender],
    settings: Settings,
    **about: Any,
) -> dict[str, Any]:
    """Run all contenders once per round; the comparison's result as a plain dict.

    `about` contains further entries of the result (the work, its limits). A contender that fails has a
    `problem` instead of times.
    """
    if settings.quick:
        contenders = [contender for contender in contenders if contender.quick] or contenders
    count = settings.rounds
    records: dict[str, list[dict[str, Any]]] = {contender.name: [] for contender in contenders}
    problems: dict[str, str] = {}
    for number in range(1, count + 1):
        for contender in contenders:
            if contender.name in problems:
                continue
            try:
                record = execute(contender, settings, f"{name} {contender.name}")
            except UserError as error:
                problems[contender.name] = str(error)
                say(f"{name}, round {number}/{count}: {contender.name}: {error}")
                continue
            records[contender.name].append(record)
            mean = float(np.mean(record["seconds"]))
            say(f"{name}, round {number}/{count}: {contender.name}: {mean:.4g} s")

    def shown(word: str) -> str:
        """Without the paths of this interpreter, the temporary files and this clone."""
        word = word.replace(sys.executable, "python").replace(str(settings.scratch), "SCRATCH")
        return word.replace(f"{ROOT}{os.sep}", "")

    rows = []
    for one in contenders:
        row: dict[str, Any] = {
            "contender": one.name,
            "ours": one.ours,
            "command": [shown(word) for word in one.command],
            "environment": {variable: shown(value) for variable, value in one.environment.items()},
            "note": one.note,
        }
        if one.name in problems:
            rows.append({**row, "problem": problems[one.name]})
        else:
            rows.append({**row, **summarize(records[one.name]), "rounds": records[one.name]})
    return {"name": name, "title": title, **about, "contenders": with_ratios(rows)}


def execute(contender: Contender, settings: Settings, title: str) -> dict[str, Any]:
    """Run a contender once: its own result, its wall seconds and its peak memory.

    The peak is the largest resident set among its processes (`ru_maxrss`), or the GPU memory that it
    reports. Raises `UserError` if it fails or takes longer than `LIMIT_SECONDS`. Its output goes to a file
    named after `title` in logs/.
    """
    limit = float(os.environ.get("BENCHMARK_SECONDS", LIMIT_SECONDS))
    result = settings.scratch / "result.json"
    result.unlink(missing_ok=True)
    command = [str(result) if word == RESULT else word for word in contender.command]
    plain = {name: value for name, value in os.environ.items() if name not in TUNING}
    visible = {"CUDA_VISIBLE_DEVICES": settings.machine.visible_gpu(0)}
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    log = settings.output / "logs" / f"{slug}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as output:
        environment = plain | visible | dict(contender.environment)
        code, wall, peak = run_bounded(command, environment, output, limit)
    if code is None:
        raise UserError(f"gave up after {limit:.0f} s (see {shown_path(log)})")
    if code == -signal.SIGKILL:
        raise UserError(f"killed, usually because memory was exhausted (see {shown_path(log)})")
    if code:
        raise UserError(f"ended with exit code {code}: {reason(log)} (see {shown_path(log)})")
    record = json.loads(result.read_text(encoding="utf-8")) if RESULT in contender.command else {}
    seconds = record.get("seconds", [wall])
    return {**record, "seconds": seconds, "wall": wall, "peak_bytes": record.pop("gpu_bytes", peak)}


def run_bounded(
    command: Sequence[str], environment: Mapping[str, str], output: Any, limit: float
) -> tuple[int | None, float, int]:
    """Exit code (None: stopped at the limit), wall seconds and peak bytes of a process.

    If this call is interrupted, for example by Ctrl-C, the process and its children are stopped.
    """
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # a group of its own, to be stopped as a whole
    )
    ended = os.pidfd_open(process.pid)  # readable once the process has ended

    def wait(seconds: float) -> bool:
        return bool(select.select([ended], [], [], seconds)[0])

    try:
        in_time = wait(limit)
    finally:
        if not wait(0):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            wait(GRACE_SECONDS)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what is left of the group
        os.close(ended)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    return process.returncode if in_time else None, seconds, usage.ru_maxrss * 1024


def summarize(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Times of a contender over its rounds.

    `median` is the median over rounds of each round's mean, because single times depend on the length of the
    sentences. The quartiles are those of all single times. If the records contain `tokens`, the tokens per
    second are the median over rounds too.
    """
    seconds = np.concatenate([record["seconds"] for record in records])
    first, third = np.percentile(seconds, (25, 75))
    summary = {
        "median": float(np.median([np.mean(record["seconds"]) for record in records])),
        "q1": float(first),
        "q3": float(third),
        "times": len(seconds),
        "wall": float(np.median([record["wall"] for record in records])),
        "peak_bytes": max(record["peak_bytes"] for record in records),
    }
    if all("tokens" in record for record in records):
        rates = [sum(record["tokens"]) / sum(record["seconds"]) for record in records]
        summary["tokens_per_second"] = float(np.median(rates))
    return summary


def with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add `ratio`, how many times faster than the first row (of others): first median / own median."""
    first = None if rows[0]["ours"] else rows[0].get("median")
    return [{**row, "ratio": first / row["median"]} if first and "median" in row else row for row in rows]


def say(line: str) -> None:
    """Print progress to standard error."""
    print(line, file=sys.stderr, flush=True)


def reason(log: Path) -> str:
    """The last line that reports an error, else the last line."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").split("\n")]
    said = [line for line in lines if line]
    errors = [line for line in said if re.match(r"[\w.]*[Ee]rror\b", line)]
    return (errors or said or ["no output"])[-1][:300]
