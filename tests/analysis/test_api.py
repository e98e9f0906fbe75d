"""`from roberta_small.analysis import ...`: public names, and the modules that they import."""

import json
import subprocess
import sys

import pytest

from roberta_small import analysis
from roberta_small.analysis.read import long_table

HEAVY = ("torch", "fairseq", "matplotlib", "scipy", "tensorflow", "sklearn", "transformers")
IMPORTED = "import json, sys; from roberta_small.analysis import {}; print(json.dumps(sorted(sys.modules)))"


def test_every_public_name_is_there():
    assert sorted(analysis.MODULES) == analysis.__all__ == dir(analysis)
    for name in analysis.__all__:
        assert getattr(analysis, name).__module__ == analysis.MODULES[name]
    assert analysis.load_runs is long_table.load_runs


def test_an_unknown_name_is_the_usual_error():
    with pytest.raises(ImportError, match="cannot import name 'load_rums'"):
        from roberta_small.analysis import load_rums  # noqa: F401


@pytest.mark.parametrize("names", ["load_runs", ", ".join(analysis.__all__)])
def test_reading_imports_no_trainer_and_no_matplotlib(names):
    output = subprocess.run(
        [sys.executable, "-c", IMPORTED.format(names)], check=True, capture_output=True, text=True
    ).stdout
    modules = json.loads(output)
    assert "pandas" in modules
    assert not [module for module in modules if module.split(".")[0] in HEAVY]
