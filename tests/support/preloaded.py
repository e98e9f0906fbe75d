"""A `python` that starts in milliseconds, because torch, fairseq and Transformers are already imported.

`python()` starts a server, which imports `PACKAGES`, and returns a program to start instead of
`sys.executable`. `PROGRAM [-P] -m MODULE ...` and `PROGRAM [-P] -c CODE ...` are executed in a fork of the
server with the caller's arguments, environment, working folder and standard streams, and end with the exit
code or signal of the fork. All other arguments start the real interpreter. Processes that a command starts
with `sys.executable` are forks, too. The workers of pytest-xdist share the server of their controller.

Variables that libraries read when they are imported (OMP_NUM_THREADS) have the value of the first call.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

PACKAGES = (
    "torch.utils.tensorboard",
    "fairseq.model_parallel.megatron_trainer",
    "fairseq.options",
    "fairseq.tasks",
    "pandas",
    "scipy.stats",
    "sentencepiece",
    "transformers.trainer",
    "transformers.models.roberta.modeling_roberta",
    "transformers.models.bert.modeling_bert",
    "peft",
    "sklearn.feature_extraction.text",
    "sklearn.model_selection",
    "sklearn.pipeline",
)
SHARED = "PRELOADED_PYTHON"
"""The variable with the program that the workers of pytest-xdist share."""
REAL = sys.executable
"""The interpreter itself, also where `sys.executable` is replaced by `python()`."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@functools.cache
def python() -> str:
    """The path of the program; its server ends with this process, or with the controller of this worker."""
    if SHARED in os.environ:
        return os.environ[SHARED]
    import atexit
    import shlex
    import shutil
    import subprocess
    import tempfile

    folder = tempfile.mkdtemp(prefix="preloaded-")  # not in pytest's folder: the path of a socket is short
    place, program = os.path.join(folder, "socket"), os.path.join(folder, "python")
    words = shlex.join([sys.executable, "-I", "-S", __file__, "call", sys.executable, place, program])
    with open(program, "w", encoding="utf-8") as stream:
        stream.write(f'#!/bin/sh\nexec {words} "$@"\n')
    os.chmod(program, 0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    server = subprocess.Popen(
        [sys.executable, "-P", __file__, "serve", place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(_stop, server)
    if server.stdout.readline() != b"ready\n":
        raise RuntimeError(f"the server ended: {sys.executable} -P {__file__} serve {place}")
    return program


def _stop(server: Any) -> None:
    """End the server: it exits when its standard input ends, unless a fork of this process holds it open."""
    import subprocess

    server.stdin.close()
    try:
        server.wait(timeout=5)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def call(interpreter: str, place: str, program: str, *words: str) -> None:
    """Execute a command in a fork of the server and end like it."""
    if _parse(words) is None:
        os.execv(interpreter, [interpreter, *words])
    request = {"words": words, "cwd": os.getcwd(), "environ": dict(os.environ), "program": program}
    message = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        socket.send_fds(connection, [len(message).to_bytes(8)], [0, 1, 2])
        connection.sendall(message)
        child = int.from_bytes(_receive(connection, 8))
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, frame: os.kill(child, number))
        code = int.from_bytes(_receive(connection, 8), signed=True)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        parts.append(connection.recv(size))
        if not parts[-1]:
            raise RuntimeError("the server ended")
        size -= len(parts[-1])
    return b"".join(parts)


def serve(place: str) -> dict[str, Any]:
    """Import `PACKAGES`, and fork for each caller; returns the request in each fork."""
    import gc
    import logging

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        print("ready", flush=True)  # callers wait until everything is imported
        _import()
        logging.getLogger().handlers.clear()  # set by fairseq's speech modules
        logging.getLogger().setLevel(logging.WARNING)
        gc.freeze()  # the forks' garbage collection would copy the memory of all these objects
        while True:
            if sys.stdin in select.select([listener, sys.stdin], [], [])[0]:
                os._exit(0)  # the process that started this one has ended
            connection, _ = listener.accept()
            if os.fork() == 0:
                break
            connection.close()
            _reap()
    return _handle(connection)


def _import() -> None:
    """Import `PACKAGES`, and parse a command line of fairseq: its defaults, a second, are then parsed."""
    import importlib

    for name in PACKAGES:
        importlib.import_module(name)
    sys.path.insert(0, os.path.dirname(__file__))
    importlib.import_module("composing").install()
    del sys.path[0]
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    stock = "sentence_prediction"
    words = ["data", "--task", stock, "--criterion", stock, "--arch", "roberta"]
    convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    with contextlib.suppress(ImportError):  # since version 5: what the first loading of a model compiles
        importlib.import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("bert")


def _reap() -> None:
    """Remove the handlers that have ended from the process table."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _handle(connection: socket.socket) -> dict[str, Any]:
    """Fork and wait for the command, and kill it if the caller is killed."""
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    request = json.loads(_receive(connection, int.from_bytes(size)))
    child = os.fork()
    if child == 0:
        connection.close()
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
            os.close(stream)
        return request
    for stream in streams:
        os.close(stream)
    with contextlib.suppress(BrokenPipeError):  # the caller was killed, which `select` finds
        connection.sendall(child.to_bytes(8))
    ended = os.pidfd_open(child)
    if ended not in select.select([ended, connection], [], [])[0]:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError):  # the caller was killed
        connection.sendall(code.to_bytes(8, signed=True))
    os._exit(0)


def execute(request: dict[str, Any]) -> None:
    """Execute a request in this process, as a new interpreter would."""
    import runpy
    import types

    safe_path, kind, code, rest = _parse(request["words"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    folders = [] if safe_path else [request["cwd"] if kind == "-m" else ""]
    folders += filter(None, request["environ"].get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = folders
    sys.executable = request["program"]
    sys.argv = [kind, *rest]
    if kind == "-m":
        runpy.run_module(code, run_name="__main__", alter_sys=True)
    else:
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))


def _parse(words: Sequence[str]) -> tuple[bool, str, str, list[str]] | None:
    """Whether there is -P; -m or -c; its value; the arguments. None for other words."""
    safe_path = list(words[:1]) == ["-P"]
    words = list(words)[safe_path:]
    if len(words) < 2 or words[0] not in ("-m", "-c"):
        return None
    return safe_path, words[0], words[1], words[2:]


if __name__ == "__main__":
    if sys.argv[1] == "call":
        call(*sys.argv[2:])
    else:
        execute(serve(*sys.argv[2:]))
