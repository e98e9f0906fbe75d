"""A run folder alone classifies text as it does with its data folder."""

import json
import re
import shutil

import numpy as np
import pytest

from roberta_small.common import manifest
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.__main__ import main as evaluate
from roberta_small.eval.model import open_model
from roberta_small.experiments.inputs.files import classification_files, fingerprint_data
from roberta_small.experiments.inputs.keep import keep_inputs
from roberta_small.export import onnx
from roberta_small.export.__main__ import main as export
from roberta_small.preprocess.__main__ import main as preprocess
from roberta_small.preprocess.tokenization.choice import TokenizerOptions
from tests.support import tiny_tokenizers
from tests.support.labelled_files import texts, write_csv
from tests.support.tiny_runs import make_data, make_run

TEXTS = ["un livre magnifique", "l’ennui de l’été", ""]


@pytest.mark.parametrize("pairs", [False, True])
def test_a_moved_run_whose_data_are_gone(tmp_path, monkeypatch, pairs):
    data = make_data(tmp_path / "here", pairs=pairs, normalize_apostrophes=not pairs)
    make_run(data, tmp_path / "here/run")
    keep_inputs(data, tmp_path / "here/run")
    texts = [(text, "un roman") for text in TEXTS] if pairs else TEXTS
    wanted = SentenceClassifier.from_run(tmp_path / "here/run").predict(texts)
    shutil.move(tmp_path / "here/run", tmp_path / "moved")
    shutil.rmtree(tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    model = open_model("moved")
    assert (model.pairs, model.normalize_apostrophes) == (pairs, not pairs)
    assert SentenceClassifier.from_run("moved").predict(texts) == wanted


def test_a_transformers_tokenizer_is_kept(tmp_path):
    folder = tiny_tokenizers.FAMILIES["camembert"](tmp_path / "camembert")
    path = write_csv(tmp_path / "reviews.csv", [(text, i % 2) for i, text in enumerate(texts())])
    assert preprocess(["prepare", path, "--tokenizer", str(folder), "--out", str(tmp_path / "data")]) == 0
    keep_inputs(tmp_path / "data", tmp_path / "run")
    kept = {path.relative_to(tmp_path / "run").as_posix() for path in (tmp_path / "run").rglob("*.*")}
    assert {"inputs/input0/dict.txt", "inputs/label/dict.txt", "inputs/preprocess.json"} <= kept
    assert "inputs/tokenizer/tokenizer_config.json" in kept
    assert not [name for name in kept if name.endswith((".bin", ".idx"))]


def test_a_folder_of_the_same_name_nearby_is_not_that_of_the_run(tmp_path, monkeypatch, capsys):
    here, other = tmp_path / "here", tmp_path / "elsewhere"
    data = make_data(here, normalize_apostrophes=True)
    make_run(data, here / "runs/run")
    keep_inputs(data, here / "runs/run")
    digests = fingerprint_data(data, classification_files(data, ["test"]))["sha256"]
    content = manifest.read(here / "runs/run") | {"data": {"path": "data", "sha256": digests}}
    manifest.write(here / "runs/run", content)
    wanted = SentenceClassifier.from_run(here / "runs/run").predict(TEXTS)
    # Started from another directory, the examples are found above the run.
    monkeypatch.chdir(tmp_path)
    assert len(open_model("here/runs/run").examples("test").rows) == 31
    # Copied alone, beside data with the same dictionary, but with other examples and without normalization.
    shutil.copytree(here / "runs/run", other / "run")
    shutil.copytree(data, other / "data")
    shutil.copy(data / "label/valid.idx", other / "data/label/test.idx")
    report = json.loads((other / "data/preprocess.json").read_text())
    report["options"]["normalize_apostrophes"] = False
    (other / "data/preprocess.json").write_text(json.dumps(report))
    monkeypatch.chdir(other)
    assert open_model("run").normalize_apostrophes
    assert open_model("run", data="data").normalize_apostrophes
    assert SentenceClassifier.from_run("run").predict(TEXTS) == wanted
    assert TokenizerOptions(tokenizer="run").tokenizer_request()[0]["normalize_apostrophes"]
    for words in (["run"], ["run", "--errors", "page.html"]):
        assert evaluate(["evaluate", "--checkpoint", *words]) == 1
        assert re.search("data: .*--data", capsys.readouterr().err)
    assert evaluate(["evaluate", "--checkpoint", "run", "--data", str(data)]) == 0
    monkeypatch.setattr(
        onnx, "export", lambda classifier, rows, **_: ({onnx.TORCH: np.zeros((len(rows), 2))}, b"graph")
    )
    assert export(["onnx", "run", "--out", "model.onnx"]) == 0
    assert "--data" in capsys.readouterr().out  # to measure the accuracy
