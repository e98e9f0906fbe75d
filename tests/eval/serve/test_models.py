"""Which classifiers are served, and which of them are an ensemble."""

import asyncio
import contextlib
import shutil

import numpy as np
import pytest

from roberta_small.common import manifest
from roberta_small.common.run import TFIDF
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.__main__ import build_parser
from roberta_small.eval.serve import load
from roberta_small.eval.serve.models import ENSEMBLE, Models
from roberta_small.eval.tfidf import WORDS, Tfidf
from tests.support.tiny_runs import write_manifest


@pytest.fixture
def runs(trained, sweep, tmp_path):
    """A folder with two runs of fairseq and one of TF-IDF."""
    shutil.copytree(sweep, tmp_path / "runs")
    words, one = ["livre", "roman"], np.ones(1)
    folder = tmp_path / "runs/tfidf/none/seed0"
    folder.mkdir(parents=True)
    weights = np.array([[1.0, -1.0]])
    Tfidf(words, np.ones(2), weights, one, ["neg", "pos"], (1, 1), False, WORDS).write(folder / TFIDF)
    write_manifest(folder, trained.data, seed=0)
    return tmp_path / "runs"


@contextlib.contextmanager
def served(*paths):
    args = build_parser().parse_args(["serve", *map(str, paths), "--device", "cpu"])
    with contextlib.closing(Models(load(args.runs, args), max_tokens=99, max_waiting=9)) as models:
        yield models


def test_all_runs_of_a_folder_are_served_and_the_networks_are_an_ensemble(runs, capsys):
    with served(runs) as models:
        members = models.infos[ENSEMBLE].members
        (tfidf,) = set(models.infos) - {ENSEMBLE, *members}
        (found,) = asyncio.run(models.predict(tfidf, ["livre"], explain=False))
        (mean,) = asyncio.run(models.predict(models.default, ["livre"], explain=False))
    assert len(members) == 2
    assert tfidf.endswith("seed0")
    assert "2 checkpoints" in capsys.readouterr().err
    (wanted,) = SentenceClassifier.from_run(runs / "tfidf/none/seed0").predict(["livre"])
    assert found.probabilities == pytest.approx(wanted.probabilities)
    assert list(mean.members) == members
    assert set(models.unexplained) >= {ENSEMBLE, tfidf}


def test_a_network_and_tfidf_are_no_ensemble(runs, capsys):
    with served(runs / "fairseq/random/seed1", runs / "tfidf") as models:
        assert len(models.infos) == 2
        assert models.default is None
    assert "dictionaries" in capsys.readouterr().err


def test_of_several_methods_the_best_on_validation_is_the_default(runs):
    best = {"metric": "accuracy", "epoch": 1, "subset": "valid", "labels": "a"}
    for arm, seed, valid in (("fairseq", 1, 70.0), ("fairseq", 2, 90.0), ("tfidf", 0, 85.0)):
        (folder,) = runs.glob(f"{arm}/*/seed{seed}")
        names = {"arm": arm, "init": folder.parent.name, "seed": seed}
        content = manifest.read(folder) | names | {"best": best | {"scores": {"valid": valid}}}
        manifest.write(folder, content)
    with served(runs) as models:
        assert models.default == "tfidf/none/seed0"
    with served(runs / "fairseq") as models:
        assert models.default == ENSEMBLE
