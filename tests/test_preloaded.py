"""`preloaded.python()` behaves like `sys.executable`."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support import preloaded

REPORT = """
import os, sys
print(sys.argv, os.getcwd(), os.environ["NAME"], sys.stdin.read(), "torch" in sys.modules)
print("problem", file=sys.stderr)
"""


def test_arguments_environment_folder_and_streams(tmp_path):
    for words in (["-c", REPORT], ["-P", "-c", REPORT], ["-m", "module"]):
        (tmp_path / "module.py").write_text(REPORT)
        done = subprocess.run(
            [preloaded.python(), *words, "é", "--flag"],
            cwd=tmp_path,
            env=os.environ | {"NAME": "value"},
            input="input",
            capture_output=True,
            text=True,
        )
        name = str(tmp_path / "module.py") if words[0] == "-m" else "-c"
        assert done.stdout == f"{[name, 'é', '--flag']} {tmp_path} value input True\n"
        assert (done.returncode, done.stderr) == (0, "problem\n")


@pytest.mark.parametrize(
    ("code", "returncode"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("raise ValueError", 1),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
    ],
)
def test_exit_codes_and_signals(code, returncode):
    assert (
        subprocess.run([preloaded.python(), "-c", code], stderr=subprocess.DEVNULL).returncode == returncode
    )


def test_other_words_start_the_real_interpreter():
    done = subprocess.run([preloaded.python(), "--version"], capture_output=True, text=True)
    assert done.stdout == f"Python {sys.version.split()[0]}\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_ends_with_its_caller(tmp_path, number):
    code = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(60)"
    caller = subprocess.Popen([preloaded.python(), "-c", code], stdout=subprocess.PIPE, text=True)
    child = int(caller.stdout.readline())
    caller.send_signal(number)
    assert caller.wait() == -number
    for _ in range(100):
        if not os.path.exists(f"/proc/{child}"):
            return
        time.sleep(0.05)
    raise AssertionError(f"process {child} is still running")
