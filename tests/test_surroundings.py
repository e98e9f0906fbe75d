"""A command with an empty home directory: nothing outside of the folders that it names, and no connection."""

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pandas as pd
import pytest

from tests.support.exported_runs import train_classifier
from tests.test_estimator import SIZES, examples

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r'inet_(addr\(|pton\(AF_INET6, )"(?!127\.|::1"|::ffff:127\.)')
"""In the output of strace: an address that is not of this machine."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train_classifier(tmp_path_factory.mktemp("trained"))[1]


def started(folder, *words):
    """A command that finds empty folders as HOME and TMPDIR, with strace if that works here."""
    for name in ("home", "temporary", "work"):
        (folder / name).mkdir()
    given = {"HOME": folder / "home", "TMPDIR": folder / "temporary", "PATH": os.environ["PATH"]}
    given |= {"PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    trace = ["strace", "-D", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg", "-o", str(folder / "trace")]
    if not shutil.which("strace") or subprocess.run([*trace, "true"], capture_output=True).returncode:
        trace = []
    command = [*trace, sys.executable, "-P", "-m", "roberta_small", *words]
    return subprocess.Popen(
        command, cwd=folder / "work", env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def check(folder, process):
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    left = [path for name in ("home", "temporary") for path in (folder / name).rglob("*")]
    # torch creates this folder when its compiler is imported.
    assert not [path for path in left if not re.fullmatch(r"torchinductor_\w+", path.name)]
    if (folder / "trace").exists():
        assert not [line for line in (folder / "trace").read_text().splitlines() if OUTSIDE.search(line)]


TRAIN = f"train --data reviews.csv --epochs 1 --layers 1 --seeds 1 --no-baselines -- {' '.join(SIZES)}"


@pytest.mark.long
@pytest.mark.parametrize(
    "words", ["predict --checkpoint RUN --explain un", "export onnx RUN --out a.onnx", TRAIN]
)
def test_a_command(tmp_path, run, words):
    texts, labels = examples()
    table = tmp_path / "reviews.csv"
    pd.DataFrame({"text": texts, "label": labels}).to_csv(table, index=False)
    words = words.replace("RUN", str(run)).replace("reviews.csv", str(table))
    check(tmp_path, started(tmp_path, *words.split()))
    assert {path.name for path in (tmp_path / "work").iterdir()} <= {"a.onnx", "data", "runs"}


@pytest.mark.long
def test_the_server(tmp_path, run):
    process = started(tmp_path, "serve", str(run), "--port", "0")
    try:
        url = process.stdout.readline().split()[0]
        body, headers = b'{"text": "un"}', {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}predict", body, headers)) as response:
            assert response.status == 200
    finally:
        process.send_signal(signal.SIGINT)
    check(tmp_path, process)
