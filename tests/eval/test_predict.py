"""`predict`: every kind of input gives the same predictions; output formats and errors."""

import csv
import gzip
import io
import json
import re
import sys

import pytest
from tiny_runs import make_data, make_run

import preprocess.readers.lines
from eval import SentenceClassifier
from eval.__main__ import main
from eval.options import read_input


@pytest.fixture
def predict(trained, capsys, monkeypatch):
    def call(*arguments, stdin=b"", run=trained.run):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["predict", "--checkpoint", str(run), *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


def test_every_kind_of_input_gives_the_same_predictions(trained, predict, tmp_path):
    content = "".join(f"{text}\n" for text in trained.texts).encode()
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content))
    _, from_stdin, _ = predict(stdin=content)
    _, from_file, _ = predict("--input", tmp_path / "a.txt")
    _, from_gzip, _ = predict("--input", tmp_path / "a.txt.gz")
    _, from_arguments, _ = predict(*trained.texts)
    code, nothing, _ = predict("--input", tmp_path / "a.txt", "--out", tmp_path / "out.jsonl")
    assert (code, nothing) == (0, "")
    written = (tmp_path / "out.jsonl").read_text("utf-8")
    assert from_stdin == from_file == from_gzip == from_arguments == written
    expected = SentenceClassifier.from_run(trained.run).predict(trained.texts)
    for line, prediction in zip(map(json.loads, written.splitlines()), expected, strict=True):
        assert line["index"] == prediction.index
        assert line["label"] == prediction.predicted
        assert line["probabilities"] == pytest.approx(prediction.probabilities, abs=1e-6)


def test_predictions_do_not_depend_on_the_block_size(trained, predict, tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("\n".join([*trained.texts, "", "un livre"]), encoding="utf-8")  # no newline at the end
    _, whole, _ = predict("--input", path)
    monkeypatch.setattr(preprocess.readers.lines, "BLOCK_BYTES", 64)
    monkeypatch.setattr("eval.options.BLOCK_BYTES", 64)
    assert len(list(read_input([], str(path)))) > 5
    for _, parts, _ in (predict("--input", path), predict(stdin=path.read_bytes())):
        a, b = ([json.loads(line) for line in text.splitlines()] for text in (whole, parts))
        assert [x["index"] for x in a] == [x["index"] for x in b] == list(range(33))
        for x, y in zip(a, b, strict=True):
            assert x["probabilities"] == pytest.approx(y["probabilities"], abs=1e-6)


@pytest.mark.parametrize(("kind", "dialect"), [("csv", "excel"), ("tsv", "excel-tab")])
def test_csv_and_tsv_columns(predict, kind, dialect):
    texts = ['un « livre », "long"', "", "a\tb"]
    _, out, _ = predict("--format", kind, "--with-text", *texts)
    rows = list(csv.DictReader(io.StringIO(out), dialect=dialect))
    assert [row["text"] for row in rows] == texts
    assert [row["index"] for row in rows] == ["0", "1", "2"]
    for row in rows:
        p = {"neg": float(row["p(neg)"]), "pos": float(row["p(pos)"])}
        assert row["label"] == max(p, key=p.get)
        assert sum(p.values()) == pytest.approx(1)


def test_text_format_and_empty_input(predict):
    _, out, _ = predict("--format", "text", "un livre")
    label, p, text = out.rstrip("\n").split("  ")
    assert label in ("neg", "pos")
    assert 0.5 <= float(p) <= 1
    assert text == "un livre"
    assert predict(stdin=b"")[:2] == (0, "")


def test_error_names_option_or_file(trained, predict, tmp_path):
    path = tmp_path / "latin1.txt"
    path.write_bytes("un livre\nun été\n".encode("latin1"))
    code, _, error = predict("--input", path, "--out", tmp_path / "out")
    assert (code, len(error.splitlines())) == (1, 1)
    assert re.search(r"latin1\.txt, line 2: byte 4 .*UTF-8", error)
    assert not (tmp_path / "out").exists()
    assert "standard input, line 1: byte 1" in predict(stdin=b"\xff\n")[2]
    assert "TEXT and --input" in predict("a", "--input", path)[2]
    assert re.search("--html: .*--explain", predict("a", "--html", "x.html")[2])
    assert re.search("--explain: .*--format csv", predict("a", "--explain", "--format", "csv")[2])
    assert "absent.txt: " in predict("--input", "absent.txt")[2]
    assert f"{tmp_path / 'absent'}: " in predict("a", run=tmp_path / "absent")[2]


def test_pairs_are_separated_by_a_tab(tmp_path, predict):
    make_run(make_data(tmp_path, pairs=True), tmp_path / "run")
    _, out, _ = predict("un livre\tune histoire", run=tmp_path / "run")
    pair = SentenceClassifier.from_run(tmp_path / "run").predict([("un livre", "une histoire")])[0]
    assert json.loads(out)["probabilities"] == pytest.approx(pair.probabilities, abs=1e-6)
    code, _, error = predict(stdin=b"a\tb\nalone\n", run=tmp_path / "run")
    assert code == 1
    assert "standard input, line 2: " in error
