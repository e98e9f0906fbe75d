"""Fake sbatch, squeue and scancel, which run the tasks of a job array as processes on this machine.

The state of the cluster is a folder. For each task it contains JOB_INDEX with "JOB INDEX STATE NAME REASON"
and JOB_INDEX.pid with a process id. `sbatch-calls` contains the options of each call of sbatch,
`squeue-calls` one character for each call of squeue. Tests create these files to change the behavior:

    hold           pending tasks do not start
    requeue        tasks that fail return to the queue when this file is deleted
    sbatch-error   sbatch fails with this text
    squeue-error   squeue fails with this text
    stop           the cluster starts no more tasks and ends
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

STATE = Path(os.environ.get("FAKE_SLURM", ""))


def install(folder):
    """Write the commands to folder/bin; the environment variable FAKE_SLURM names the state folder."""
    (folder / "bin").mkdir()
    for name in ("sbatch", "squeue", "scancel"):
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" {name} "$@"\n')
        program.chmod(0o755)


def write(task, state, name, reason="None"):
    write_in(STATE, task, state, name, reason)


def write_in(folder, task, state, name, reason):
    job, index = task.split("_")
    temporary = folder / f"{task}.new"
    temporary.write_text(f"{job} {index} {state} {name} {reason}\n")
    temporary.replace(folder / task)


def sbatch(words):
    with open(STATE / "sbatch-calls", "a", encoding="utf-8") as stream:
        print(json.dumps(words), file=stream)
    if (STATE / "sbatch-error").exists():
        sys.exit((STATE / "sbatch-error").read_text())
    options = dict(word.removeprefix("--").partition("=")[::2] for word in words)
    job = str(17 + len(list(STATE.glob("*.script"))))
    script = STATE / f"{job}.script"
    script.write_text(sys.stdin.read())
    last, _, throttle = re.fullmatch(r"0-(\d+)(%(\d+))?", options["array"]).groups()
    tasks = [f"{job}_{index}" for index in range(int(last) + 1)]
    for task in tasks:
        write(task, "PENDING", options["job-name"], "Resources")
    print(job, flush=True)
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        schedule(tasks, script, options, int(throttle or len(tasks)))


def schedule(tasks, script, options, throttle):
    waiting, running, requeued = list(tasks), {}, []
    while (waiting or running or requeued) and not (STATE / "stop").exists():
        requeue = (STATE / "requeue").exists()
        if requeued and not requeue:
            waiting, requeued = waiting + requeued, []
        while waiting and len(running) < throttle and not (STATE / "hold").exists():
            task = waiting.pop(0)
            if "CANCELLED" not in (STATE / task).read_text():
                running[task] = start(task, script, options)
        for task, process in list(running.items()):
            if (code := process.poll()) is not None:
                cancelled = "COMPLETING" in (STATE / task).read_text()
                state = "CANCELLED" if cancelled else "FAILED" if code else "COMPLETED"
                write(task, state, options["job-name"])
                del running[task]
                if requeue and state == "FAILED":
                    requeued.append(task)
        time.sleep(0.02)


def start(task, script, options):
    job, index = task.split("_")
    patterns = {"A": job, "a": index, "j": job, "%": "%"}
    output = re.sub("%(.)", lambda match: patterns[match[1]], options["output"])
    with open(output, "ab") as stream:
        process = subprocess.Popen(
            ["sh", str(script)],
            cwd=options["chdir"],
            env=os.environ | {"SLURM_ARRAY_TASK_ID": index, "SLURM_ARRAY_JOB_ID": job},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
    (STATE / f"{task}.pid").write_text(str(process.pid))
    write(task, "RUNNING", options["job-name"])
    return process


def squeue(words):
    with open(STATE / "squeue-calls", "a", encoding="utf-8") as stream:
        stream.write(".")
    if (STATE / "squeue-error").exists():
        sys.exit((STATE / "squeue-error").read_text())
    (names,) = (word.removeprefix("--name=").split(",") for word in words if word.startswith("--name="))
    for path in sorted(STATE.glob("*_*")):
        if path.suffix == "" and (line := path.read_text()).split()[3] in names:
            print(line, end="")


def scancel(words):
    (task,) = words
    _, _, state, name, *_ = (STATE / task).read_text().split()
    write(task, "COMPLETING" if state == "RUNNING" else "CANCELLED", name)
    if state == "RUNNING":
        os.kill(int((STATE / f"{task}.pid").read_text()), signal.SIGTERM)


if __name__ == "__main__":
    {"sbatch": sbatch, "squeue": squeue, "scancel": scancel}[sys.argv[1]](sys.argv[2:])
