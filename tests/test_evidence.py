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
