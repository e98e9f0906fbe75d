"""A real SLURM of two nodes on this machine, and its accidents."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from roberta_small.common.files import ROOT

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
SCRIPT = ROOT / "tests/support/slurm_cluster.sh"
SBIN = f"/usr/sbin:{os.environ['PATH']}"
INSTALLED = all(shutil.which(name, path=SBIN) for name in PROGRAMS)


@contextlib.contextmanager
def running():
    """The cluster's folder while it is up; `environment` reaches it."""
    path = tempfile.mkdtemp(prefix="slurm-", dir="/tmp")
    environ = os.environ | {"PATH": SBIN}
    try:
        subprocess.run([SCRIPT, "up", path], env=environ, check=True, timeout=60)
        yield Path(path)
    finally:
        subprocess.run([SCRIPT, "down", path], env=environ, check=False, timeout=60)
        shutil.rmtree(path, ignore_errors=True)


def environment(folder):
    return {"PATH": SBIN, "SLURM_CONF": str(folder / "slurm.conf")}


def text(path):
    return path.read_text() if path.exists() else ""


def until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def say(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def first_task(field, state="RUNNING"):
    """Of the first run's task: `%F_%K` its number, `%N` its node."""
    lines = say("squeue", "--noheader", "--array", f"--states={state}", f"--format=%K {field}").splitlines()
    return next((line.split()[1] for line in lines if line.split()[0] == "0"), None)


def start_again_at_once(task):
    """SLURM leaves a requeued task alone for two minutes."""
    until(lambda: first_task("%F_%K", "PENDING"))
    # slurmd refuses a task in the second of its end ("already killed, do not launch"); it counts as failed.
    say("scontrol", "update", f"JobId={task}", "StartTime=now+2")


def kill_processes_of(node, folder):
    """What slurmd of a node has started, without a word: first those who would tell of it."""
    tasks, stewards = [], []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environ = (path / "environ").read_bytes()
            if f"SLURMD_NODENAME={node}\0".encode() in environ and str(folder).encode() in environ:
                tasks.append(int(path.name))
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if Path(f"/proc/{parent}/comm").read_text().startswith("slurmstepd"):
                    stewards.append(parent)
    for pid in dict.fromkeys([*stewards, *tasks]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_slurmd(node, folder):
    os.kill(int((folder / f"{node}.pid").read_text()), signal.SIGKILL)


def start_slurmd(node, folder):
    subprocess.run([SCRIPT, "node", folder, node.removeprefix("n")], check=True)
