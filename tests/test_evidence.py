"""The committed evidence of long test runs belongs to the present code of those tests."""

import json
from pathlib import Path

import evidence
import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("marker", evidence.SOURCES)
def test_the_tests_have_not_changed_since_they_were_run(marker):
    found = json.loads((ROOT / f"results/faults/{marker}.json").read_text(encoding="utf-8"))
    assert found["code"] == evidence.digest(marker), f"run make test-{marker} again"
    assert found["tests_passed"] > 0


def test_only_code_counts(tmp_path, monkeypatch):
    path = tmp_path / "test_x.py"
    monkeypatch.setitem(evidence.SOURCES, "x", [path])
    digests = []
    for text in (
        'def f():\n    """A."""\n    return 1\n',
        "def f():\n    # why\n\n    return  1\n",
        "def f():\n    return 2\n",
    ):
        path.write_text(text)
        digests.append(evidence.digest("x"))
    assert digests[0] == digests[1] != digests[2]


def test_the_file_has_figures_and_the_number_of_tests(tmp_path):
    evidence.write(tmp_path / "new/slurm.json", "slurm", 3, 121.0, {"kills": 5})
    found = json.loads((tmp_path / "new/slurm.json").read_text())
    assert (found["tests_passed"], found["minutes"], found["figures"]) == (3, 2, {"kills": 5})
    assert found["code"] == evidence.digest("slurm")
