"""The JSON API with multi-label models and regressions: the outputs of predict, and what is refused."""

import json
import shutil

import pytest

from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.__main__ import main
from tests.support.servers import get, post, serving
from tests.support.tiny_runs import GOOD, make_labelled_run, make_run, write_manifest

TEXTS = [f"un livre {GOOD}", "déçu et ravi", ""]


@pytest.fixture(scope="module", params=[MULTI_LABEL, REGRESSION])
def served(request, tmp_path_factory):
    """(kind, folder of two runs, their server)."""
    root = tmp_path_factory.mktemp(request.param)
    data, run = make_labelled_run(root, request.param, updates=1)
    runs = root / "runs/fairseq/random"
    shutil.copytree(run, runs / "seed1")
    make_run(data, runs / "seed2", *KINDS[request.param].flags, seed=2)
    write_manifest(runs / "seed2", data, seed=2)
    classifiers = [SentenceClassifier.from_run(runs / f"seed{n}", device="cpu") for n in (1, 2)]
    with serving(*classifiers) as found:
        yield request.param, root / "runs", found


@pytest.mark.parametrize("model", ["fairseq/random/seed1", "ensemble"])
def test_outputs_are_those_of_the_command(served, model, capsys):
    kind, runs, server = served
    (info,) = [one for one in get(server, "/version")["models"] if one["name"] == model]
    assert (info["kind"], len(info["classes"])) == (kind, 0 if kind == REGRESSION else 3)
    assert (info["thresholds"] is None) == (kind == REGRESSION)
    status, answer = post(server, texts=TEXTS, model=model)
    assert status == 200
    capsys.readouterr()
    command = ["predict", "--device", "cpu", *TEXTS]
    path = runs if model == "ensemble" else runs / model
    command += ["--ensemble"] if model == "ensemble" else []
    assert main([*command, "--checkpoint", str(path)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for found, line in zip(answer["predictions"], lines, strict=True):
        if kind == REGRESSION:
            assert found["label"] == pytest.approx(line["label"], abs=1e-5)
            assert "probabilities" not in found
        else:
            assert found["label"] == line["label"]
            assert found["probabilities"] == pytest.approx(line["probabilities"], abs=1e-6)
        if model == "ensemble":
            assert found["std"] == pytest.approx(line["std"], abs=1e-5)
            assert set(found["members"]) == {"fairseq/random/seed1", "fairseq/random/seed2"}


def test_an_explanation_is_refused(served, capsys):
    kind, runs, server = served
    status, answer = post(server, text=TEXTS[0], model="fairseq/random/seed1", explain=True)
    assert status == 422
    assert kind in answer["error"]
    checkpoint = str(runs / "fairseq/random/seed1")
    assert main(["predict", "--explain", "--checkpoint", checkpoint, TEXTS[0]]) == 1
    error = capsys.readouterr().err
    assert kind in error
    assert "--explain" in error
