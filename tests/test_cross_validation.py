"""results/ngrams/cross_validation.py on a few texts whose label is one word."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.tiny_runs import make_data

SCRIPT = Path(__file__).parents[1] / "results/ngrams/cross_validation.py"
METHODS = ["TF-IDF of words, logistic regression", "log-count ratios of subwords, logistic regression"]
METHODS += ["ngram_classifier", "unigrams"]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("cross_validation", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["cross_validation"] = module
    spec.loader.exec_module(module)
    return module


def test_every_method_learns_and_is_compared_with_the_first(script, tmp_path, monkeypatch):
    data, out = make_data(tmp_path / "texts"), tmp_path / "table.csv"
    words = [str(data), str(tmp_path / "texts"), "--folds", "2", "--repeats", "1", "--out", str(out)]
    more = ["--more", str(data), str(tmp_path / "texts")]
    monkeypatch.setattr("sys.argv", ["cross_validation.py", *words, *more, "--methods", *METHODS])
    script.main()
    table = pd.read_csv(out)
    assert table["method"].tolist() == METHODS
    assert (table["accuracy"] > 60).all()
    np.testing.assert_allclose(table["difference"], table["accuracy"] - table["accuracy"][0], atol=1e-3)


def test_the_standard_error_is_that_of_nadeau_and_bengio(script):
    differences = np.array([0.01, 0.03, -0.02, 0.02])
    # Training sets of three quarters: the ratio of test and training examples is 1/3.
    expected = np.sqrt((1 / 4 + 1 / 3) * np.var(differences, ddof=1))
    assert script.standard_error(differences, 4) == pytest.approx(expected)
