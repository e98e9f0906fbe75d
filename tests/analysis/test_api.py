"""`from roberta_small.analysis import ...`: public names, and the modules that they import."""

import json
import subprocess
import sys
from pathlib import Path

from roberta_small import analysis
from roberta_small.analysis.read import long_table

HEAVY = ("torch", "fairseq", "matplotlib", "scipy", "tensorflow", "sklearn", "transformers")
IMPORTED = "import json, sys; from roberta_small.analysis import *; print(json.dumps(sorted(sys.modules)))"


def test_every_public_name_is_there():
    assert sorted(analysis.__all__) == dir(analysis)
    for name in analysis.__all__:
        assert getattr(analysis, name).__module__ == analysis.MODULES[name]
    assert analysis.load_runs is long_table.load_runs
    # `from roberta_small.analysis import NAME` would give a module of this name.
    assert not {path.stem for path in Path(analysis.__file__).parent.glob("*.py")} & set(analysis.__all__)


def test_reading_imports_no_trainer_and_no_matplotlib():
    words = [sys.executable, "-c", IMPORTED]
    modules = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    assert "pandas" in modules
    assert not [module for module in modules if module.split(".")[0] in HEAVY]
