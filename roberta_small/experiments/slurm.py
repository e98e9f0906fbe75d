"""`--slurm OPTIONS`: submits a command as a job array, one task for each run that is not finished.

A task is the same command, with `--max-runs 1` if it has several runs, so that it trains one and leaves the
others to the other tasks. What divides the runs are the locks of the run folders (`execute`), as on any other
machines that share a folder; nothing is read back from SLURM. A task that is preempted, requeued or submitted
again resumes.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from roberta_small.common.cli import split_words
from roberta_small.common.errors import UserError, count
from roberta_small.common.files import shown_path

TASK = "SLURM_ARRAY_TASK_ID"
"""The position of the run, among those of the command, that a task tries first."""
FOLDER = ".slurm"
"""The folder below OUT with the output of the tasks."""
RESERVED = (
    *("--array", "-a", "--chdir", "-D", "--output", "-o", "--error", "-e", "--open-mode"),
    *("--parsable", "--test-only", "--wrap"),
)
"""Options of sbatch that are set here."""


def parse(text: str | list[str] | None) -> tuple[str, ...] | None:
    """The options of sbatch in --slurm, or None; raises `UserError` for those that are set here."""
    if text is None:
        return None
    words = tuple(split_words(text)) if text else ()
    if words and not words[0].startswith("-"):
        raise UserError(f"--slurm: {words[0]!r} is not an option of sbatch; write --option=value")
    for word in words:
        flag = word.partition("=")[0]
        # To sbatch, `--arr` means `--array`, and `-a1-5` means `-a 1-5`.
        short = not flag.startswith("--")
        if flag[:2] in RESERVED if short else any(reserved.startswith(flag) for reserved in RESERVED):
            raise UserError(f"--slurm: {flag} is set by this command; remove it")
    if shutil.which("sbatch") is None:
        raise UserError("--slurm: sbatch is not on the PATH; run this command on a login node of the cluster")
    return words


def join_value(argv: Sequence[str]) -> list[str]:
    """Replace `--slurm WORD` by `--slurm=WORD`; argparse rejects a separate word that begins with `-`."""
    words = list(argv)
    cut = words.index("--") if "--" in words else len(words)
    for index in reversed(range(cut - 1)):
        if words[index] == "--slurm":
            words[index : index + 2] = [f"--slurm={words[index + 1]}"]
    return words


def submit(command: Sequence[str], options: Sequence[str], out: Path, runs: Sequence[int]) -> None:
    """Submit an array with tasks at the positions `runs`; raises `UserError` with the message of sbatch."""
    (out / FOLDER).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as stream:
        stream.write(script(command))
        stream.seek(0)
        process = subprocess.Popen(
            words(options, out, runs), stdin=stream, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    assert process.stdout is not None
    job = process.stdout.readline().strip().partition(";")[0]  # the name of the cluster may follow
    if job:
        print(
            f"Submitted {count(len(runs), 'run')} as job {job}; output of the tasks: "
            f"{shown_path(out.absolute() / FOLDER)}/{job}_*.out",
            flush=True,
        )
    errors = process.communicate()[1]
    if not job:
        raise UserError(f"sbatch: {errors.strip() or f'exit code {process.returncode}'}")


def words(options: Sequence[str], out: Path, runs: Sequence[int]) -> list[str]:
    """The call of sbatch; the user's options come last. Raises `UserError` for a path with a backslash."""
    folder = str(out.absolute() / FOLDER)
    if "\\" in folder:
        raise UserError(f"{folder}: SLURM cannot write to a path with a backslash; choose another --out")
    folder = folder.replace("%", "%%")  # in SLURM's file names, `%j` stands for the job id
    return [
        *("sbatch", "--parsable", "--job-name=roberta-small", f"--array={','.join(map(str, runs))}"),
        *("--nodes=1", "--ntasks=1"),
        # A run resumes from its last checkpoint, so a task may be preempted and requeued at any time.
        *("--requeue", "--open-mode=append", f"--output={folder}/%A_%a.out"),
        *options,
    ]


def task_words(argv: Sequence[str], *limits: str) -> list[str]:
    """The words of a task: those of the command without --slurm and --dry-run, and its limits."""
    words = join_value(argv)
    cut = words.index("--") if "--" in words else len(words)
    own = [word for word in words[:cut] if not word.startswith("--slurm=") and word != "--dry-run"]
    return [*own, *limits, *words[cut:]]


def script(command: Sequence[str]) -> str:
    """The batch script of a task. It uses `exec`, so that SLURM's signals are sent to Python directly."""
    return (
        "#!/bin/sh\n"
        "unset RS_SLURM\n"
        'export OMP_NUM_THREADS="${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}"\n'
        f"exec {shlex.join([sys.executable, '-P', '-m', 'roberta_small', *command])}\n"
    )
