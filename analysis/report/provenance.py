"""Provenance of runs from their manifests: recipe, data, versions, hardware, times and commands."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from roberta_small.analysis.read.runs import NO_MANIFEST, Run
from roberta_small.common import archive, manifest
from roberta_small.common.errors import count
from roberta_small.common.files import escaped

Manifest = manifest.Manifest


@dataclass(frozen=True)
class GroupFacts:
    """Facts of an arm and init as (name, value), and its commands as (run, command)."""

    name: str
    facts: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]


def group_facts(runs: Sequence[Run]) -> list[GroupFacts]:
    """The facts of each arm and init; runs without a manifest have only a status and their logs."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(f"{run.arm}/{run.init}", []).append(run)
    return [_facts(name, group) for name, group in groups.items()]


def _facts(name: str, runs: Sequence[Run]) -> GroupFacts:
    manifests = [manifest.read(run.path) or {} for run in runs]
    facts = {
        "seeds": ", ".join(str(run.seed) for run in runs),
        "status": _distinct([run.status for run in runs]),
        "logs": _logs([run for run in runs if run.status == NO_MANIFEST]),
        **{
            title: _distinct([describe(content) for content in manifests])
            for title, describe in FACTS.items()
        },
        "trained": _period(manifests),
        "time": _times(manifests),
    }
    commands = [
        (run.name, shlex.join(map(str, content["command"])))
        for run, content in zip(runs, manifests, strict=True)
        if content.get("command")
    ]
    return GroupFacts(name, tuple((key, value) for key, value in facts.items() if value), tuple(commands))


def _distinct(values: Sequence[str]) -> str:
    """The common value, or all values with their numbers of runs. Empty values are excluded."""
    counts = Counter(value for value in values if value)
    if len(counts) <= 1 and sum(counts.values()) == len(values):
        return next(iter(counts), "")
    return "; ".join(f"{value} ({count(number, 'run')})" for value, number in counts.items())


def _logs(runs: Sequence[Run]) -> str:
    """The common folder of the logs of these runs, and the source of their names."""
    if not runs:
        return ""
    folder = os.path.commonpath([run.place for run in runs])
    return f"{escaped(archive.shown(folder))} (named by the {_distinct([run.named_by for run in runs])})"


def _hardware(content: Manifest) -> str:
    hardware = _object(content, "hardware")
    parts = [hardware.get("gpu") or "no GPU" if "gpu" in hardware else None, hardware.get("cpu")]
    if hardware.get("cores"):
        parts.append(f"{hardware['cores']} cores, threads a run: {hardware.get('threads', '?')}")
    if isinstance(memory := hardware.get("memory_bytes"), int):
        parts.append(f"{memory / 2**30:.0f} GiB")
    return ", ".join(str(part) for part in parts if part)


def _versions(content: Manifest) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(_object(content, "packages").items()))


def _source(content: Manifest) -> str:
    commit = content.get("git_commit")
    return f"{str(commit)[:12]}{' with changes' if content.get('git_changed') else ''}" if commit else ""


def _data(content: Manifest) -> str:
    data = _object(content, "data")
    digest = _object(data, "sha256").get("input0/train.bin")
    return str(data.get("path") or "") + (f" (train.bin sha256 {str(digest)[:12]})" if digest else "")


def _checkpoint(content: Manifest) -> str:
    checkpoint = _object(content, "checkpoint")
    if "path" not in checkpoint:
        return "none: random weights" if "checkpoint" in content else ""
    return f"{checkpoint['path']} (sha256 {str(checkpoint.get('sha256'))[:12]})"


def _period(manifests: Sequence[Manifest]) -> str:
    """From the first start to the last end."""
    started = [str(content["started"]) for content in manifests if content.get("started")]
    ended = [str(content["ended"]) for content in manifests if content.get("ended")]
    if not started or not ended:
        return ""
    return f"{_minute(min(started))} to {_minute(max(ended))} UTC"


def _minute(moment: str) -> str:
    return moment.replace("T", " ")[:16]


def _times(manifests: Sequence[Manifest]) -> str:
    """The duration of each run."""
    seconds = [content.get("seconds") for content in manifests]
    known = [f"{value / 60:.1f}" for value in seconds if isinstance(value, int | float)]
    return f"{', '.join(known)} min" if known else ""


def _object(content: Manifest, key: str) -> dict[str, Any]:
    """The object under an optional key; empty if it is missing or not an object."""
    value = content.get(key)
    return value if isinstance(value, dict) else {}


FACTS: dict[str, Callable[[Manifest], str]] = {
    "recipe": lambda content: str(content.get("recipe") or ""),
    "data": _data,
    "starts from": _checkpoint,
    "precision": lambda content: str(content.get("precision") or ""),
    "hardware": _hardware,
    "versions": _versions,
    "commit": _source,
}
