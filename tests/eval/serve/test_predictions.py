"""Predictions and explanations as JSON are those of the command `predict`, for each kind of labels."""

import json
import shutil

import pytest

from roberta_small.common.label_kinds import KINDS, REGRESSION, SINGLE_LABEL
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.__main__ import main
from tests.support.servers import get, post, serving
from tests.support.tiny_runs import BAD, GOOD, make_labelled_run, make_run, write_manifest

TEXTS = [f"un livre {GOOD}", "déçu et ravi", "", "汉字", f"un <b>livre</b> {BAD}"]
MEMBERS = ["fairseq/random/seed1", "fairseq/random/seed2"]


@pytest.fixture(scope="module", params=KINDS)
def served(request, trained, tmp_path_factory):
    """(kind, folder of two runs, their server)."""
    root, kind = tmp_path_factory.mktemp(request.param), request.param
    data, run = trained.data, trained.run
    if kind != SINGLE_LABEL:
        data, run = make_labelled_run(root, kind, updates=1)
    runs = root / "runs/fairseq/random"
    shutil.copytree(run, runs / "seed1")
    make_run(data, runs / "seed2", *KINDS[kind].flags, seed=2)
    write_manifest(runs / "seed2", data, seed=2)
    classifiers = [SentenceClassifier.from_run(runs / f"seed{n}", device="cpu") for n in (1, 2)]
    with serving(*classifiers) as found:
        yield kind, root / "runs", found


def predict(capsys, *words):
    """The JSON lines of the command, or its error."""
    capsys.readouterr()
    code = main(["predict", "--device", "cpu", "--format", "jsonl", *words])
    output, error = capsys.readouterr()
    return error if code else [json.loads(line) for line in output.splitlines()]


def assert_same(found, wanted):
    assert leaves(found) == pytest.approx(leaves(wanted), abs=1e-5)


def leaves(found):
    """The names and values in JSON."""
    items = [list(item) for item in found.items()] if isinstance(found, dict) else found
    return [leaf for item in items for leaf in leaves(item)] if isinstance(items, list) else [items]


@pytest.mark.parametrize("model", [MEMBERS[0], "ensemble", None])
def test_predictions_are_those_of_the_command(served, model, capsys):
    kind, runs, server = served
    version = get(server, "/version")
    assert version["default"] == "ensemble"
    assert [one["name"] for one in version["models"]] == ["ensemble", *MEMBERS]
    assert version["models"][0]["members"] == MEMBERS
    for info in version["models"]:
        assert (info["kind"], len(info["classes"])) == (kind, {SINGLE_LABEL: 2, REGRESSION: 0}.get(kind, 3))
        assert (info["thresholds"] is None) == (kind in (REGRESSION, SINGLE_LABEL))
    status, answer = post(server, texts=TEXTS, **({"model": model} if model else {}))
    assert (status, answer["model"]) == (200, model or "ensemble")
    path, *options = [runs / model] if model == MEMBERS[0] else [runs, "--ensemble"]
    lines = predict(capsys, *TEXTS, *options, "--checkpoint", str(path))
    own = [post(server, texts=TEXTS, model=name)[1]["predictions"] for name in MEMBERS]
    for number, (found, line) in enumerate(zip(answer["predictions"], lines, strict=True)):
        members = found.pop("members", None)
        assert members is None if model == MEMBERS[0] else list(members) == MEMBERS
        for name, predictions in zip(members or (), own, strict=False):
            alone = predictions[number]
            assert_same(members[name], alone["label" if kind == REGRESSION else "probabilities"])
        assert line.pop("index") == number
        assert_same({key: found[key] for key in found if not key.startswith("tokens")}, line)


def test_explanations_are_those_of_the_command(served, capsys):
    pytest.importorskip("captum")
    kind, runs, server = served
    status, answer = post(server, texts=TEXTS, model=MEMBERS[0], explain=True)
    wanted = predict(capsys, "--explain", *TEXTS, "--checkpoint", str(runs / MEMBERS[0]))
    if kind == SINGLE_LABEL:
        assert status == 200
        for found, line in zip(answer["predictions"], wanted, strict=True):
            assert_same(found["words"], line["words"])
    else:
        assert status == 422
        assert kind in answer["error"]
        assert kind in wanted
        assert "--explain" in wanted
    status, answer = post(server, text="un livre", explain=True)
    assert status == 422
    assert all(name in answer["error"] for name in MEMBERS)
