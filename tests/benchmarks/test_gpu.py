"""The checks for a machine with a GPU, run to their end on a CPU with small sizes."""

import json
import os
import subprocess
import sys

import pytest
from fairseq.data import Dictionary

from benchmarks.gpu import checks, data
from roberta_small.common.files import ROOT


@pytest.mark.long
def test_the_check_of_times_writes_its_rows(tmp_path, monkeypatch):
    made = tmp_path / "data"
    made.mkdir()
    dictionary = Dictionary()
    for number in range(300):
        dictionary.add_symbol(f"token{number}")
    dictionary.save(str(made / "dict.txt"))
    monkeypatch.setattr(sys, "argv", ["data", str(made / "dict.txt"), str(made), "--train", "32"])
    data.main()
    assert checks.main(["timing", str(made), "--device", "cpu", "--tiny", "--out", str(tmp_path)]) == 0
    assert len(json.loads((tmp_path / "timing.json").read_text())) == 3


@pytest.mark.long
def test_the_script_writes_a_summary(tmp_path):
    variables = os.environ | {"DEVICE": "cpu", "PYTHON": sys.executable, "OUT": str(tmp_path)}
    script = ROOT / "benchmarks" / "gpu" / "check.sh"
    done = subprocess.run([script, "updates"], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = [line.split() for line in (tmp_path / "summary.txt").read_text().splitlines()]
    assert [(words[0], words[-1]) for words in summary] == [("data", "ok"), ("updates", "ok")]
    assert "ok  " in done.stdout
    rows = json.loads((tmp_path / "updates.json").read_text())
    assert len(rows) == 6
    assert all(row.get("ok", True) for row in rows)
