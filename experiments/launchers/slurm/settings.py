"""Settings of train.sh --launcher slurm."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from roberta_small.common.cli import SettingsParser, integer, split_words
from roberta_small.common.errors import UserError

LAUNCHERS = ("local", "slurm")
FLAGS = ("partition", "time", "memory", "cpus", "gpus", "throttle", "slurm")
"""Options that require --launcher slurm."""
RESERVED = (
    *("--array", "-a", "--chdir", "-D", "--job-name", "-J", "--output", "-o", "--error", "-e", "--open-mode"),
    *("--parsable", "--test-only", "--wait", "-W", "--wrap"),
)
"""Options of sbatch that the launcher sets, because it identifies tasks and their output by them."""


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """The resources of a task of the job array; each task trains one run."""

    partition: str | None = None
    time: str | None = None
    memory: str | None = None
    cpus: int = 1
    """Threads of a run."""
    gpus: int = 0
    """0 or 1."""
    throttle: int | None = None
    """Maximum number of tasks that run at the same time; None for no limit."""
    extra: tuple[str, ...] = ()
    """Other options of sbatch."""
    wait: bool = True
    """Whether the command waits until the tasks have ended."""


def add_flags(parser: SettingsParser) -> None:
    """Add the options; environment variables other than RS_LAUNCHER apply only with --launcher slurm."""
    parser.add_setting(
        "launcher", "local", "where runs are trained: local, or slurm (a job array with one task per run)"
    )
    for name, explanation in (
        ("partition", "partition of the tasks (default: the cluster's)"),
        ("time", "time limit per run, in sbatch's format, for example 2:00:00 (default: the cluster's)"),
        ("memory", "memory per run, in sbatch's format, for example 4G (default: the cluster's)"),
        ("cpus", "threads per run (default: 1)"),
        ("gpus", "GPUs per run, 0 or 1 (default: 0); --device auto is cuda with 1, cpu with 0"),
        ("throttle", "maximum number of tasks at the same time (default: no limit)"),
        ("slurm", 'other options of sbatch, for example "--account=lab --constraint=a100"'),
    ):
        parser.add_setting(name, None, explanation, only_with=("launcher", "slurm"))
    parser.add_argument(
        "--no-wait", action="store_true", help="do not wait for the tasks after submitting them"
    )


def join_slurm_value(argv: Sequence[str]) -> list[str]:
    """Replace `--slurm WORD` by `--slurm=WORD`; argparse rejects a separate word that begins with `-`."""
    words = list(argv)
    cut = words.index("--") if "--" in words else len(words)
    for index in reversed(range(cut - 1)):
        if words[index] == "--slurm":
            words[index : index + 2] = [f"--slurm={words[index + 1]}"]
    return words


def parse(options: argparse.Namespace) -> Slurm | None:
    """The SLURM settings, None for the local launcher; raises `UserError` for an invalid option."""
    if options.launcher not in LAUNCHERS:
        raise UserError(f"--launcher {options.launcher!r}: choose from {', '.join(LAUNCHERS)}")
    if options.launcher == "local":
        _check_local(options)
        return None
    if options.jobs != "auto":
        raise UserError(f"--jobs {options.jobs} requires --launcher local; use --throttle with SLURM")
    gpus = integer("--gpus", options.gpus or "0", minimum=0)
    if gpus > 1:
        raise UserError(
            f"--gpus {gpus}: not supported, because fairseq multiplies the batch size by the number of "
            "GPUs; use --gpus 1"
        )
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


def _check_local(options: argparse.Namespace) -> None:
    """Raise `UserError` for an option that requires --launcher slurm."""
    for name in FLAGS:
        if (value := getattr(options, name)) is not None:
            raise UserError(f"--{name} {value} requires --launcher slurm; add it, or remove --{name}")
    if options.no_wait:
        raise UserError("--no-wait requires --launcher slurm; add it, or remove --no-wait")


def _extra(words: list[str]) -> tuple[str, ...]:
    if words and not words[0].startswith("-"):
        raise UserError(f"--slurm: {words[0]!r} is not an option of sbatch; write --option=value")
    for word in words:
        if _is_reserved(flag := word.partition("=")[0]):
            raise UserError(f"--slurm: {flag} is set by train.sh; remove it")
    return tuple(words)


def _is_reserved(flag: str) -> bool:
    """Whether sbatch reads `flag` as one of `RESERVED`: `--arr` means `--array`, `-a1-5` means `-a 1-5`."""
    if flag.startswith("--"):
        return any(reserved.startswith(flag) for reserved in RESERVED)
    return flag[:2] in RESERVED
