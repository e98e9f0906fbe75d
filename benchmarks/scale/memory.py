"""Memory of a process and its children while it runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import reason, run_bounded
from roberta_small.common.errors import UserError

POLL_SECONDS = 0.25
DAY = 86_400.0


@dataclass(frozen=True)
class Watched:
    """Time and memory of a process."""

    seconds: float
    peak_bytes: int
    """Sum of the proportional set sizes of its processes: shared pages and mapped files count once."""


@dataclass
class Sampler:
    """Polls the memory of a session in a thread."""

    peak_bytes: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def start(self, session: int) -> None:
        """Start polling."""
        threading.Thread(target=self._poll, args=(session,), daemon=True).start()

    def stop(self) -> None:
        """Stop polling."""
        self._ended.set()

    def _poll(self, session: int) -> None:
        while not self._ended.wait(POLL_SECONDS):
            self.peak_bytes = max(self.peak_bytes, sum(map(proportional_bytes, processes(session))))


def watch(command: Sequence[str], log: Path, limit: float = DAY) -> Watched:
    """Run a command to its end; raises `UserError` with the error line of its log if it fails."""
    sampler = Sampler()
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("wb") as output:
            code, seconds, _ = run_bounded(command, os.environ, output, limit, sampler.start)
    finally:
        sampler.stop()
    if code != 0:
        raise UserError(f"{' '.join(command[:5])} ...: {reason(log)} (see {log})")
    return Watched(seconds, sampler.peak_bytes)


def processes(session: int) -> list[int]:
    """The processes of a session."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.getsid(int(name)) == session:
                    found.append(int(name))
            except ProcessLookupError:
                continue
    return found


def proportional_bytes(pid: int) -> int:
    """Memory of a process; a page shared by N processes counts as 1/N. 0 if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
