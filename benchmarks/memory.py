"""Memory of a process and all that it starts, while it runs."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError
from sweep import ROOT

POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Watched:
    """What a process took."""

    seconds: float
    peak_bytes: int
    """Proportional set size of all its processes together: what they share counts once, mapped files too."""


def watch(command: Sequence[str], log: Path) -> Watched:
    """Run a command to its end; raises `UserError` with its last line where it fails."""
    start, peak = time.perf_counter(), 0
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        ended = threading.Event()
        threading.Thread(target=lambda: (process.wait(), ended.set()), daemon=True).start()
        while not ended.wait(POLL_SECONDS):
            peak = max(peak, sum(map(proportional_bytes, group(process.pid))))
    seconds = time.perf_counter() - start
    if process.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise UserError(f"{' '.join(command[:5])} ...: {lines[-1] if lines else 'failed'} (see {log})")
    return Watched(seconds, peak)


def group(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.getsid(int(name)) == leader:
                    found.append(int(name))
            except ProcessLookupError:
                continue
    return found


def proportional_bytes(pid: int) -> int:
    """Memory of a process where a page that N processes share counts as 1/N; 0 where it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
