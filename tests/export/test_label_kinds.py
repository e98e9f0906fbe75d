"""Multi-label classifiers and regressions in Transformers, back in fairseq and as ONNX graphs."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from transformers import AutoTokenizer, pipeline

from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION, Labels
from roberta_small.common.predictions import ValuePrediction
from roberta_small.common.run import THRESHOLDS, read_thresholds
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.graph import Metadata
from roberta_small.eval.model import open_model
from roberta_small.export.__main__ import main
from roberta_small.export.onnx import open_classifier, table
from roberta_small.export.transformers.folder import load_pretrained
from roberta_small.export.transformers.to_fairseq import convert_back
from roberta_small.export.transformers.to_transformers import convert
from tests.support.exported_runs import PAD
from tests.support.tiny_runs import make_labelled_run

TEXTS = ["un livre magnifique", "déçu et long", "livre banal " * 30, ""]


@pytest.fixture(scope="module", params=[MULTI_LABEL, REGRESSION])
def exported(request, tmp_path_factory):
    """(kind, run, folder of Transformers)."""
    root = tmp_path_factory.mktemp(request.param)
    _, run = make_labelled_run(root, request.param, "--encoder-layers", "1")  # the exporter takes seconds
    convert(run, root / "folder")
    return request.param, run, root / "folder"


def outputs(path, texts=TEXTS):
    return SentenceClassifier.from_run(path).probabilities(texts)


def test_a_pipeline_computes_the_same_outputs(exported):
    """Without arguments: Transformers reads the activation from `problem_type`."""
    kind, run, folder = exported
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    model = load_pretrained(folder).model
    assert model.config.problem_type == kind  # with the same loss: fairseq_plugin/tasks/test_criterion.py
    assert model.config.num_labels == open_model(run).labels.size
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer)
    found = classify(TEXTS[:2], top_k=None, truncation=True)
    wanted = SentenceClassifier.from_run(run).predict(TEXTS[:2])
    card = (folder / "README.md").read_text()
    if kind == MULTI_LABEL:
        for ours, theirs in zip(wanted, found, strict=True):
            scores = {one["label"]: one["score"] for one in theirs}
            assert scores == pytest.approx(ours.probabilities, abs=1e-5)
        assert json.loads((folder / THRESHOLDS).read_text()) == read_thresholds(run)
        assert THRESHOLDS in card
        return
    assert open_model(run).labels.scaling.mean > 1  # the numbers are those of predict, not standardized
    values = [one["score"] for (one,) in found]
    assert values == pytest.approx([one.predicted for one in wanted], abs=1e-5)


def test_back_in_fairseq_it_predicts_the_same(exported, tmp_path):
    _, run, folder = exported
    convert_back(folder, tmp_path / "back/model.pt")
    ours, theirs = open_model(tmp_path / "back").labels, open_model(run).labels
    assert replace(ours, scaling=theirs.scaling) == theirs
    assert outputs(tmp_path / "back") == pytest.approx(outputs(run), abs=1e-6)


def test_the_graph_is_made_of_a_network_with_the_same_outputs(exported):
    """Its metadata contain what the logits mean."""
    _, run, _ = exported
    classifier = open_classifier(run)
    wanted = open_model(run)
    assert classifier.model.labels == wanted.labels
    rows = wanted.examples("test").rows
    with torch.no_grad():
        batches = [torch.from_numpy(row)[None] for row in rows]
        logits_NK = torch.cat([classifier(ids_1L, (ids_1L != PAD).long()) for ids_1L in batches]).numpy()
    assert logits_NK == pytest.approx(wanted.network.logits(rows), abs=1e-5)
    metadata = classifier.metadata()
    text = metadata.to_text() | {"classes": json.dumps(classifier.model.classes)}
    assert Metadata.from_text(text, run) == metadata


@pytest.mark.long  # the exporter takes seconds
@pytest.mark.parametrize("exported", [REGRESSION], indirect=True)
def test_a_graph_with_one_output_predicts_the_same(exported, tmp_path, capsys):
    _, run, _ = exported
    out = tmp_path / "graph.onnx"
    assert main(["onnx", str(run), "--out", str(out)]) == 0
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert "pearson" in table[0]
    ours, theirs = (float(line.split("|")[3]) for line in table[2:])
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert open_model(out).labels == open_model(run).labels
    assert outputs(out) == pytest.approx(outputs(run), abs=1e-4)
    assert all(isinstance(one, ValuePrediction) for one in SentenceClassifier.from_run(out).predict(TEXTS))


def test_forms_of_several_labels_are_compared_by_their_metric():
    rng = np.random.default_rng(1)
    labels = Labels(KINDS[MULTI_LABEL], ("a", "b", "c"), thresholds=(0.3, 0.5, 0.6))
    targets_NK = rng.random((40, 3)) < 0.4
    logits_NK = (targets_NK + rng.normal(size=(40, 3))).astype(np.float32)
    other_NK = logits_NK + rng.normal(size=(40, 3)).astype(np.float32)
    lines = table({"torch, fp32": logits_NK, "int8": other_NK}, targets_NK, labels).splitlines()[2:]
    for line, one in zip(lines, (logits_NK, other_NK), strict=True):
        f1 = f1_score(targets_NK, labels.assigned(labels.outputs(one)), average="micro")
        assert f"{f1:.4f}" in line
        assert f"{np.abs(one - logits_NK).max():.1e}" in line
