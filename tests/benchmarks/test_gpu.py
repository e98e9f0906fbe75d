"""The checks for a machine with a GPU, run to their end on a CPU with small sizes."""

import json
import os
import subprocess
import sys

import pytest
from fairseq.data import Dictionary

from benchmarks.gpu import checks, data
from roberta_small.common.files import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("data")
    dictionary = Dictionary()
    for number in range(300):
        dictionary.add_symbol(f"token{number}")
    dictionary.save(str(made / "dict.txt"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["data", str(made / "dict.txt"), str(made), "--train", "32"])
        data.main()
    return made


@pytest.mark.long
@pytest.mark.parametrize(("name", "count"), [("updates", 6), ("timing", 3)])
def test_a_check_writes_its_rows(folder, tmp_path, name, count):
    assert checks.main([name, str(folder), "--device", "cpu", "--tiny", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / f"{name}.json").read_text())
    assert len(rows) == count
    assert all(row.get("ok", True) for row in rows)


@pytest.mark.long
def test_the_script_writes_a_summary(tmp_path):
    variables = os.environ | {"DEVICE": "cpu", "PYTHON": sys.executable, "OUT": str(tmp_path)}
    script = ROOT / "benchmarks" / "gpu" / "check.sh"
    done = subprocess.run([script, "updates"], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = [line.split() for line in (tmp_path / "summary.txt").read_text().splitlines()]
    assert [(words[0], words[-1]) for words in summary] == [("data", "ok"), ("updates", "ok")]
    assert "ok  " in done.stdout
