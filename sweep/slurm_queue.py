"""What is asked of SLURM: to submit a job array (sbatch), and which of its tasks are where (squeue).

A task is known by the name of its job and its index in the array. The names are ours and unique, so that the
queue itself tells what has been submitted, also where a record of it was lost.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from common.errors import UserError

Task = tuple[str, int]
"""Name of the job, index in its array."""

ENDED = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
        *("PREEMPTED", "REVOKED", "TIMEOUT"),
    }
)
"""States that a task does not leave by itself. Of COMPLETING it does: a requeued task passes it."""
FIELDS = "%F %K %T %j %r"  # number of the job, index, state, name, why it waits


@dataclass(frozen=True)
class Entry:
    """A task as the queue has it."""

    job: str
    """The number that SLURM gave the job, and the index: `17_3`."""
    state: str
    reason: str = ""
    """Why it waits."""

    @property
    def ended(self) -> bool:
        """Whether it has left the queue for good."""
        return self.state in ENDED


def require_commands() -> None:
    """Raise `UserError` where SLURM's commands are not on the path."""
    for name in ("sbatch", "squeue"):
        if shutil.which(name) is None:
            raise UserError(
                f"--launcher slurm: no {name} on the path; start on a machine of the cluster that has it, "
                "or take --launcher local"
            )


def submit(options: Sequence[str], script: str) -> str:
    """Submit a batch script; the job's number. Raises `UserError` with what sbatch says."""
    answer = _run(["sbatch", "--parsable", *options], script)
    number = answer.strip().partition(";")[0]  # a name of the cluster may follow
    if not number.isdigit():
        raise UserError(f"sbatch answered {answer.strip()!r}, not the number of a job; check --slurm")
    return number


def entries(names: Collection[str]) -> dict[Task, Entry]:
    """The tasks of jobs with these names: all that are in the queue, and those that left it minutes ago.

    Raises `UserError` where squeue does not answer.
    """
    if not names:
        return {}
    answer = _run(
        [
            *("squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}"),
            *(f"--name={','.join(sorted(names))}", f"--format={FIELDS}"),
        ]
    )
    found = {}
    for line in answer.splitlines():
        number, index, state, name, *reason = line.split(maxsplit=4)
        if index.isdigit() and name in names:
            found[name, int(index)] = Entry(f"{number}_{index}", state, "".join(reason).strip())
    return found


def _run(words: Sequence[str], text: str = "") -> str:
    """What a command of SLURM prints; raises `UserError` with its complaint."""
    # SQUEUE_STATES and the like are a user's habits at the prompt; here they would hide tasks.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}
    done = subprocess.run(
        words, input=text, env=environ, capture_output=True, encoding="utf-8", errors="surrogateescape"
    )
    if done.returncode:
        raise UserError(f"{words[0]} says: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
