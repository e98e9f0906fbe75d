"""Settings of train.sh --launcher slurm."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from common.cli import SettingsParser, integer, split_words
from common.errors import UserError

LAUNCHERS = ("local", "slurm")
FLAGS = ("partition", "time", "memory", "cpus", "gpus", "throttle", "slurm")
"""Options that require --launcher slurm."""
OWNED = (
    *("--array", "-a", "--chdir", "-D", "--job-name", "-J", "--output", "-o", "--error", "-e", "--open-mode"),
    *("--parsable", "--test-only", "--wait", "-W", "--wrap"),
)
"""Options of sbatch that this launcher sets to identify tasks and their output."""


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """The resources of a task of the job array; a task is one run."""

    partition: str | None = None
    time: str | None = None
    memory: str | None = None
    cpus: int = 1
    """Threads of a run."""
    gpus: int = 0
    """0 or 1."""
    throttle: int | None = None
    """Tasks at a time; None for no limit."""
    extra: tuple[str, ...] = ()
    """Other options of sbatch."""
    wait: bool = True
    """Whether to wait for the tasks."""


def add_flags(parser: SettingsParser) -> None:
    """Add the options; variables other than RS_LAUNCHER apply only with SLURM."""
    parser.add_setting("launcher", "local", "local, or slurm: the runs are tasks of a job array")
    for name, explanation in (
        ("partition", "partition of the tasks (default: the cluster's)"),
        ("time", "limit of a run, in sbatch's format, for example 2:00:00 (default: the cluster's)"),
        ("memory", "memory of a run, in sbatch's format, for example 4G (default: the cluster's)"),
        ("cpus", "threads of a run (default: 1)"),
        ("gpus", "GPUs of a run, 0 or 1 (default: 0); --device auto is then cpu or cuda"),
        ("throttle", "tasks at a time (default: no limit)"),
        ("slurm", 'other options of sbatch, for example "--account=lab --constraint=a100"'),
    ):
        parser.add_setting(name, None, explanation, only_with=("launcher", "slurm"))
    parser.add_argument("--no-wait", action="store_true", help="submit and return")


def joined(argv: Sequence[str]) -> list[str]:
    """`--slurm WORD` as `--slurm=WORD`: argparse accepts values that begin with dashes only so."""
    words = list(argv)
    cut = words.index("--") if "--" in words else len(words)
    for index in reversed(range(cut - 1)):
        if words[index] == "--slurm":
            words[index : index + 2] = [f"--slurm={words[index + 1]}"]
    return words


def parse(options: argparse.Namespace) -> Slurm | None:
    """The SLURM settings of the options, None for the local launcher; raises `UserError` naming one."""
    if options.launcher not in LAUNCHERS:
        raise UserError(f"--launcher {options.launcher!r}: choose from {', '.join(LAUNCHERS)}")
    if options.launcher == "local":
        _refuse_without_slurm(options)
        return None
    if options.jobs != "auto":
        raise UserError(f"--jobs {options.jobs} is for --launcher local; use --throttle with slurm")
    gpus = integer("--gpus", options.gpus or "0", minimum=0)
    if gpus > 1:
        raise UserError(f"--gpus {gpus}: a run uses one GPU, because two would double its batch size; use 1")
    if gpus and options.device == "cpu":
        raise UserError("--gpus 1 contradicts --device cpu; remove one of them")
    return Slurm(
        partition=options.partition,
        time=options.time,
        memory=options.memory,
        cpus=integer("--cpus", options.cpus or "1", minimum=1),
        gpus=gpus,
        throttle=None if options.throttle is None else integer("--throttle", options.throttle, minimum=1),
        extra=_extra(split_words(options.slurm or "")),
        wait=not options.no_wait,
    )


def _refuse_without_slurm(options: argparse.Namespace) -> None:
    for name in FLAGS:
        if (value := getattr(options, name)) is not None:
            raise UserError(f"--{name} {value} is for --launcher slurm; add it, or remove --{name}")
    if options.no_wait:
        raise UserError("--no-wait is for --launcher slurm; add it, or remove --no-wait")


def _extra(words: list[str]) -> tuple[str, ...]:
    if words and not words[0].startswith("-"):
        raise UserError(f"--slurm: {words[0]!r} is not an option of sbatch; write --option=value")
    for word in words:
        if _is_owned(flag := word.partition("=")[0]):
            raise UserError(f"--slurm: {flag} is set by the sweep; remove it")
    return tuple(words)


def _is_owned(flag: str) -> bool:
    """Whether sbatch reads it as one of `OWNED`: `--arr` means `--array`, `-a1-5` means `-a 1-5`."""
    if flag.startswith("--"):
        return any(owned.startswith(flag) for owned in OWNED)
    return flag[:2] in OWNED
