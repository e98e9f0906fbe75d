"""The page of errors: its content, and its controls in a browser if there is one."""

import argparse
import json
import re
import shutil

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from roberta_small.common import predictions
from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from roberta_small.common.label_kinds import KIND, MULTI_LABEL
from roberta_small.common.predictions import Prediction
from roberta_small.eval.__main__ import main
from roberta_small.eval.evaluate.command import error_texts
from roberta_small.eval.evaluate.error_analysis import accuracy_by_length, page_data, render
from roberta_small.eval.origin import DataFolder, RunCheckpoint
from tests.support.analysis import chromium

TEXTS = ["un livre", "</script><b>gras</b> & beau", "trois mots ici", "quatre mots sont ici"]


def page_content(*runs, texts=TEXTS):
    """Of the probabilities of "pos" by each run."""
    p_RNK = np.array([[[1 - p, p] for p in run] for run in runs])
    names, labels = [f"seed{n + 1}" for n in range(len(runs))], np.array([1, 0, 1, 0])
    places = [f"reviews.csv, line {7 * n}" for n in range(1, 5)]
    return page_data(names, ["neg", "pos"], p_RNK, labels, np.arange(4), texts, places, "test")


RUNS = [(0.9, 0.8, 0.3, 0.4), (0.7, 0.9, 0.9, 0.1)]


def test_content_of_the_page():
    content = page_content(*RUNS)
    assert content["classes"] == ["neg", "pos"]
    assert [row["label"] for row in content["rows"]] == [1, 0, 1, 0]
    assert [row["wrong"] for row in content["rows"]] == [False, True, False, False]  # of the mean
    assert content["rows"][1]["runs"] == [[1, 0.8], [1, 0.9]]
    assert content["rows"][2]["runs"] == [[0, 0.7], [1, 0.9]]
    assert content["rows"][2]["mean"] == [1, 0.6]
    assert content["confusions"] == []
    assert [row["place"] for row in content["rows"]] == [f"reviews.csv, line {n}" for n in (7, 14, 21, 28)]


def test_many_classes_have_a_list_of_confusions_and_a_small_page():
    random, classes = np.random.default_rng(1), [f"class {k}" for k in range(200)]
    rows = random.dirichlet(np.ones(200), 300).round(6)
    labels = np.arange(300) % 200
    texts, places = ["un livre"] * 300, ["line 1"] * 300
    content = page_data(["seed1"], classes, rows[None], labels, np.arange(300), texts, places, "test")
    matrix = confusion_matrix(labels, rows.argmax(axis=1), labels=range(200))
    np.fill_diagonal(matrix, 0)
    assert [number for _, _, number in content["confusions"]] == np.sort(matrix.ravel())[::-1][:15].tolist()
    assert all(matrix[true, predicted] == number for true, predicted, number in content["confusions"])
    assert len(render(content)) < 100_000


def test_accuracy_by_length():
    words = np.array([1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144])
    correct = np.linspace(0, 1, 12)
    groups = accuracy_by_length(words, correct)
    assert sum(group["examples"] for group in groups) == 12
    for group in groups:
        inside = (words >= group["shortest"]) & (words <= group["longest"])
        assert inside.sum() == group["examples"]
        assert group["accuracy"] == pytest.approx(100 * correct[inside].mean(), abs=0.01)
        assert group["low"] <= group["accuracy"] <= group["high"]
    assert [group["shortest"] for group in groups] == sorted({group["shortest"] for group in groups})
    assert accuracy_by_length(np.array([4, 4]), np.array([1.0, 0.0]))[0]["accuracy"] == 50


def test_text_is_escaped_and_the_page_loads_nothing():
    page = render(page_content(*RUNS))
    inside = re.search(r"<script[^>]*application/json[^>]*>(.*?)</script>", page, re.S)[1]
    assert json.loads(inside)["rows"][1]["text"] == TEXTS[1]
    assert "http" not in page.replace("http-equiv", "")


def test_missing_texts_are_an_error():
    with pytest.raises(UserError, match=r"line 4 of test .* 2 "):
        page_content(*RUNS, texts=TEXTS[:2])


def test_evaluate_writes_the_page(trained, copied_run, tmp_path, capsys):
    page = tmp_path / "errors.html"
    command = ["evaluate", "--checkpoint", str(copied_run), "--from-predictions", "--errors", str(page)]
    labels = (trained.root / "test.label").read_text().split()
    predictions.write(
        copied_run / "predictions-test.jsonl",
        [Prediction(i, label, {"neg": 0.3, "pos": 0.7}) for i, label in enumerate(labels)],
    )
    assert main(command) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if str(page) in line)
    assert re.findall(r"\b\d+\b", line.rpartition(":")[2]) == ["31", str(labels.count("neg"))]
    assert all(json.dumps(text, ensure_ascii=False) in page.read_text("utf-8") for text in trained.texts[:3])


def test_groups_with_other_orders_of_classes_are_scored_and_shown_by_name(trained, tmp_path, capsys):
    words, page = ["evaluate", "--from-predictions", "--draws", "5", "--checkpoint"], tmp_path / "errors.html"
    labels, runs = (trained.root / "test.label").read_text().split(), tmp_path / "runs/fairseq"
    for run, names in (("random", ["neg", "pos"]), ("other", ["pos", "neg"]), ("more", ["neg", "so", "pos"])):
        shutil.copytree(trained.run, runs / run / "seed1", ignore=shutil.ignore_patterns("*.pt"))
        manifest = json.loads((path := runs / run / "seed1/manifest.json").read_text())
        path.write_text(json.dumps(manifest | {"init": run}))
        probabilities = {name: {"pos": 0.7, "neg": 0.3}.get(name, 0.0) for name in names}
        found = [Prediction(i, label, probabilities) for i, label in enumerate(labels)]
        predictions.write(path.with_name("predictions-test.jsonl"), found)
    assert main([*words, str(runs)]) == 0
    accuracy = f"{100 * labels.count('pos') / len(labels):.2f}"
    assert len(re.findall(rf"^\|.*seed1.*{accuracy}", capsys.readouterr().out, re.MULTILINE)) == 3
    assert main([*words, str(runs), "--errors", str(page)]) == 1
    assert "more/seed1" in capsys.readouterr().err
    shutil.rmtree(runs / "more")
    assert main([*words, str(runs), "--errors", str(page)]) == 0
    content = re.search(r"<script[^>]*application/json[^>]*>(.*?)</script>", page.read_text("utf-8"), re.S)[1]
    other, random = json.loads(content)["rows"][0]["runs"]
    assert other == random
    assert other[1] == 0.7


def test_the_page_leaves_out_the_examples_that_an_audit_excludes(trained, copied_run, tmp_path, capsys):
    audit, page = tmp_path / "audit.json", tmp_path / "errors.html"
    duplicates = {"exact": {"test": {"train": [0, 4, 30]}}}
    audit.write_text(json.dumps({"splits": {"test": {"lines": 31}}, "duplicates": duplicates}))
    command = ["evaluate", "--checkpoint", str(copied_run), "--errors", str(page)]
    assert main([*command, "--audit", str(audit)]) == 0
    assert "28 examples" in next(line for line in capsys.readouterr().out.splitlines() if str(page) in line)


def test_several_classes_per_example_are_an_error_before_the_prediction(tmp_path):
    (tmp_path / "preprocess.json").write_text(json.dumps({KIND: MULTI_LABEL}))
    run = RunCheckpoint(tmp_path / "a.pt", None, None)
    with pytest.raises(UserError, match="--errors"):
        error_texts(argparse.Namespace(data=str(tmp_path), split="test"), run)


def test_data_without_text_are_an_error_that_names_the_option(copied_run, tmp_path, capsys):
    page = tmp_path / "errors.html"
    (tmp_path / "data").mkdir()
    command = ["evaluate", "--checkpoint", str(copied_run), "--errors", str(page)]
    assert main([*command, "--data", str(tmp_path / "data")]) == 1
    message = capsys.readouterr().err
    assert all(fact in message for fact in ("test", "--errors", "--data"))
    assert not page.exists()


def test_data_of_the_text_can_be_given_with_prediction_files(trained, copied_run, tmp_path, capsys):
    page = tmp_path / "errors.html"
    command = ["evaluate", "--checkpoint", str(copied_run), "--from-predictions", "--errors", str(page)]
    assert main(["evaluate", "--checkpoint", str(copied_run), "--write-predictions"]) == 0
    text = tmp_path / "data/text/test.input0"
    text.parent.mkdir(parents=True)
    for lines, code in ((trained.texts, 0), (trained.texts[::-1], 1)):  # predictions are of the first ones
        text.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        report = {"files": {"text/test.input0": sha256(text)}}
        (tmp_path / "data/preprocess.json").write_text(json.dumps(report))
        places = [["mine.csv", 500 - line] for line in range(31)]
        (tmp_path / "data/split.json").write_text(json.dumps({"examples": {"test": places}}))
        page.unlink(missing_ok=True)
        assert main([*command, "--data", str(tmp_path / "data")]) == code
        assert page.exists() == (code == 0)
        if page.exists():
            content = json.loads(re.search('application/json">(.*?)</script>', page.read_text("utf-8"))[1])
            shown = [(row["place"], row["text"]) for row in content["rows"]]
            assert shown == [(f"mine.csv, line {500 - n}", text) for n, text in enumerate(trained.texts)]
    assert str(copied_run / "predictions-test.jsonl") in capsys.readouterr().err
    with pytest.raises(UserError, match="text of valid"):
        DataFolder.given(tmp_path / "data").columns("valid")
    text.write_text("changed\n")
    assert main([*command, "--data", str(tmp_path / "data")]) == 1
    assert "test.input0" in capsys.readouterr().err
    assert not page.exists()


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A function from the values of controls to the DOM of the page, in one browser."""
    if not chromium.BROWSER:
        pytest.skip("needs Chromium")
    path = tmp_path_factory.mktemp("page") / "errors.html"
    path.write_text(render(page_content(*RUNS)), encoding="utf-8")
    with chromium.browser() as page:

        def dom(**changes):
            page.open(f"file://{path}?{json.dumps(changes)}")  # another address, so that it is loaded again
            for name, value in changes.items():
                page.run(f"document.getElementById('{name}').value = '{value}'")
                page.run(f"document.getElementById('{name}').dispatchEvent(new Event('input'))")
            return page.run("document.documentElement.outerHTML")

        yield dom


def test_page_in_a_browser(shown):
    page = shown()
    articles = re.search(r"<main.*?</main>", page, re.S)[0]
    assert articles.count("<article>") == 1
    assert "&lt;/script&gt;&lt;b&gt;gras&lt;/b&gt; &amp; beau" in articles
    assert "85.0 %" in articles
    assert re.search(r"disagree on 1\b", page)


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"show": "all"}, [1, 2, 3, 4]),
        ({"show": "split"}, [3]),
        ({"show": "right"}, [3, 4, 1]),  # probabilities 0.6, 0.75, 0.8
        ({"show": "wrong", "run": "0"}, [2, 3]),
        ({"show": "all", "label": "0"}, [2, 4]),
        ({"show": "all", "predicted": "0"}, [4]),
        ({"show": "all", "search": "MOTS"}, [3, 4]),
    ],
    ids=str,
)
def test_controls_filter_and_sort(shown, changes, lines):
    page = shown(**changes)
    assert [int(n) / 7 for n in re.findall(r'class="note">reviews\.csv, line (\d+)', page)] == lines
    assert page.count("<mark>") == (2 if "search" in changes else 0)
