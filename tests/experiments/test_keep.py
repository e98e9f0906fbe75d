"""A run folder alone classifies text as it does with its data folder."""

import shutil

import pytest

from roberta_small.eval import SentenceClassifier
from roberta_small.eval.model import open_model
from roberta_small.experiments.inputs.keep import keep_inputs
from roberta_small.preprocess.__main__ import main as preprocess
from tests.support import tiny_tokenizers
from tests.support.labelled_files import texts, write_csv
from tests.support.tiny_runs import make_data, make_run

TEXTS = ["un livre magnifique", "l’ennui de l’été", ""]


@pytest.mark.parametrize("normalize", [False, True])
def test_a_moved_run_whose_data_are_gone(tmp_path, monkeypatch, normalize):
    data = make_data(tmp_path / "here", normalize_apostrophes=normalize)
    make_run(data, tmp_path / "here/run")
    keep_inputs(data, tmp_path / "here/run")
    wanted = SentenceClassifier.from_run(tmp_path / "here/run").predict(TEXTS)
    shutil.move(tmp_path / "here/run", tmp_path / "moved")
    shutil.rmtree(tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    model = open_model("moved")
    assert model.normalize_apostrophes is normalize
    assert not model.pairs
    assert SentenceClassifier.from_run("moved").predict(TEXTS) == wanted


def test_pairs_are_still_pairs(tmp_path):
    data = make_data(tmp_path / "here", pairs=True)
    make_run(data, tmp_path / "run")
    keep_inputs(data, tmp_path / "run")
    shutil.rmtree(tmp_path / "here")
    assert open_model(tmp_path / "run").pairs


def test_a_transformers_tokenizer_is_kept(tmp_path):
    folder = tiny_tokenizers.FAMILIES["camembert"](tmp_path / "camembert")
    path = write_csv(tmp_path / "reviews.csv", [(text, i % 2) for i, text in enumerate(texts())])
    assert preprocess(["prepare", path, "--tokenizer", str(folder), "--out", str(tmp_path / "data")]) == 0
    keep_inputs(tmp_path / "data", tmp_path / "run")
    kept = {path.relative_to(tmp_path / "run").as_posix() for path in (tmp_path / "run").rglob("*.*")}
    assert {"inputs/input0/dict.txt", "inputs/label/dict.txt", "inputs/preprocess.json"} <= kept
    assert "inputs/tokenizer/tokenizer_config.json" in kept
    assert not [name for name in kept if name.endswith((".bin", ".idx"))]
