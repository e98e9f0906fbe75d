"""The committed evidence of long test runs is complete, and stale evidence is reported."""

import json
import warnings
from pathlib import Path

import pytest

from tests.support import evidence

ROOT = Path(__file__).parents[1]


class StaleEvidenceWarning(Warning):
    """The code of a long test run has changed since it was run; the documentation has its old figures."""


@pytest.mark.parametrize("marker", evidence.SOURCES)
def test_the_evidence_is_complete(marker):
    found = json.loads((ROOT / f"results/faults/{marker}.json").read_text(encoding="utf-8"))
    assert found["tests_passed"] > 0
    if found["code"] != evidence.digest(marker):
        message = f"results/faults/{marker}.json: run make test-{marker} again"
        warnings.warn(message, StaleEvidenceWarning, stacklevel=1)


def test_only_code_counts(tmp_path, monkeypatch):
    def digest(*files):
        paths = [tmp_path / name for name, _ in files]
        for path, (_, text) in zip(paths, files, strict=True):
            path.write_text(text)
        monkeypatch.setitem(evidence.SOURCES, "x", paths)
        return evidence.digest("x")

    first = digest(("a.py", 'import p.q\n\ndef f():\n    """A."""\n    return "p.q"\n'), ("b.py", "B = 1\n"))
    # Renamed, moved to another package, and commented.
    text = (
        'from roberta_small.p import (\n    q,\n)\ndef f():\n    # why\n\n    return  "roberta_small.p.q"\n'
    )
    assert digest(("c.py", text), ("a.py", "B = 1\n")) == first
    assert digest(("c.py", text), ("a.py", "B = 2\n")) != first
    (tmp_path / "a.py").unlink()
    assert evidence.digest("x") != first


def test_the_file_has_figures_and_the_number_of_tests(tmp_path):
    evidence.write(tmp_path / "new/slurm.json", "slurm", 3, 121.0, {"kills": 5})
    found = json.loads((tmp_path / "new/slurm.json").read_text())
    assert (found["tests_passed"], found["minutes"], found["figures"]) == (3, 2, {"kills": 5})
    assert found["code"] == evidence.digest("slurm")
