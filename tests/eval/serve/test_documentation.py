"""The commands and the example of docs/how-to/serve.md, on a server that the page's first command starts."""

import contextlib
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.signals import restore_defaults
from tests.support.tiny_runs import make_run

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "serve.md"
CURL = shutil.which("curl")


def blocks(language):
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(trained, tmp_path):
    """The runs of the tutorial."""
    for seed in (1, 2):
        make_run(trained.data, tmp_path / f"demo/runs/fairseq/random/seed{seed}", seed=seed)
    return tmp_path


@pytest.mark.skipif(CURL is None, reason="no curl")
@pytest.mark.usefixtures("fast_processes")
def test_the_commands_of_the_page(folder):
    pytest.importorskip("captum")
    start, requests = blocks("")
    program, *words = shlex.split(start)
    assert program == "roberta-small"
    command = [sys.executable, "-m", "roberta_small", *words, "--port", "0"]
    with (
        subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, text=True, preexec_fn=restore_defaults
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)  # after a failure, it would serve for ever
        address = re.search(r"http://\S+", process.stdout.readline())[0]
        lines = [line.replace("http://127.0.0.1:8000/", address) for line in requests.splitlines()]
        found = [json.loads(subprocess.check_output(f"{line} -s --fail", shell=True)) for line in lines]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    one, several, explained, version, health = found
    assert one["model"] == version["default"] == "ensemble"
    assert len(several["predictions"]) == 2
    assert health == {"status": "ok"}
    (example,) = map(json.loads, blocks("json"))
    assert example["model"] == explained["model"]
    (shown,), (real,) = example["predictions"], explained["predictions"]
    assert list(shown) == list(real)
    assert [word for word, _ in shown["words"]] == [word for word, _ in real["words"]]
