"""`predict`: every kind of input gives the same predictions; output formats and errors."""

import csv
import gzip
import io
import json
import re
import sys
from datetime import datetime, time, timedelta

import numpy as np
import openpyxl
import pandas as pd
import pytest
from pyarrow import parquet as pq

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.__main__ import main
from roberta_small.eval.predict.command import open_output
from roberta_small.eval.predict.inputs import read_input
from roberta_small.preprocess.readers import lines
from roberta_small.preprocess.readers.dialect import Dialect
from roberta_small.preprocess.readers.tables import cell_text, load, read_table


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
    monkeypatch.setattr(lines, "BLOCK_BYTES", 64)
    assert len(list(read_input([], str(path)))) > 5
    for _, parts, _ in (predict("--input", path), predict(stdin=path.read_bytes())):
        a, b = ([json.loads(line) for line in text.splitlines()] for text in (whole, parts))
        assert [x["index"] for x in a] == [x["index"] for x in b] == list(range(33))
        for x, y in zip(a, b, strict=True):
            assert x["probabilities"] == pytest.approx(y["probabilities"], abs=1e-6)


def test_text_format_and_empty_input(predict):
    _, out, _ = predict("--format", "text", "un livre")
    label, p, text = out.rstrip("\n").split("  ")
    assert label in ("neg", "pos")
    assert 0.5 <= float(p) <= 1
    assert text == "un livre"
    _, out, _ = predict("--format", "text", *BREAKS, "")
    assert len(out.splitlines()) == len(BREAKS) + 1
    assert out.endswith("(empty)\n")
    assert predict(stdin=b"")[:2] == (0, "")


def test_error_names_option_or_file(trained, predict, tmp_path):
    path = tmp_path / "latin1.txt"
    path.write_bytes("un livre\nun été\n".encode("latin1"))
    code, _, error = predict("--input", path, "--out", tmp_path / "out")
    (message,) = [line for line in error.splitlines() if not line.startswith("precision: ")]
    assert code == 1
    assert re.search(r"latin1\.txt, line 2: byte 4 .*UTF-8", message)
    assert not (tmp_path / "out").exists()
    assert "standard input, line 1: byte 1" in predict(stdin=b"\xff\n")[2]
    assert "TEXT and --input" in predict("a", "--input", path)[2]
    assert re.search("--html: .*--explain", predict("a", "--html", "x.html")[2])
    assert re.search("--explain: .*--format csv", predict("a", "--explain", "--format", "csv")[2])
    assert "absent.txt: " in predict("--input", "absent.txt")[2]
    assert f"--out {path}: " in predict("--input", path, "--out", path)[2]
    assert f"{tmp_path / 'absent'}: " in predict("a", run=tmp_path / "absent")[2]


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ('id,text,label\n1,"un livre",pos\n', [".csv", "--input"]),
        ("review\tstars\nun livre\t1\n", [".tsv", "--input"]),
        ('{"text": "un livre"}\n{"text": "deux"}\n', [".jsonl", "--input"]),
    ],
)
def test_a_table_on_standard_input_is_refused(predict, tmp_path, content, facts):
    code, out, error = predict(stdin=content.encode())
    assert (code, out) == (1, "")
    assert all(fact in error for fact in ["standard input", *facts])
    (tmp_path / "a.txt").write_text(content)
    assert predict("--input", tmp_path / "a.txt")[0] == 1


@pytest.mark.parametrize(
    "content", ["un livre, un texte\n", "text\n", "{un livre}\n", "Le titre, le texte et la note: bien\n"]
)
def test_lines_that_resemble_tables_are_texts(predict, content):
    code, out, _ = predict(stdin=content.encode())
    assert (code, len(out.splitlines())) == (0, 1)


def test_a_suffix_of_no_format_is_refused(predict, tmp_path):
    for name in ("a.ods", "a.json", "a.html"):
        code, _, error = predict("un livre", "--out", tmp_path / name)
        assert code == 1
        assert all(fact in error for fact in (name, ".csv", "--format"))
        assert predict("un livre", "--out", tmp_path / name, "--format", "jsonl")[0] == 0


def test_what_is_no_list_of_texts_is_a_type_error(trained):
    classifier = SentenceClassifier.from_run(trained.run)
    for wrong in ("un livre", {"text": "un livre"}, pd.DataFrame({"text": ["un livre"]})):
        with pytest.raises(TypeError, match="list of texts"):
            classifier.predict(wrong)
    assert len(classifier.predict(pd.Series(["un livre", "deux"]))) == 2


def test_pairs_are_two_arguments_or_separated_by_a_tab(pairs, predict):
    pair = SentenceClassifier.from_run(pairs.run).predict([("un livre", "une histoire")])[0]
    for texts in (["un livre\tune histoire"], ["un livre", "une histoire"]):
        _, out, _ = predict(*texts, run=pairs.run)
        assert json.loads(out)["probabilities"] == pytest.approx(pair.probabilities, abs=1e-6)
    _, out, _ = predict("a\tb", "un livre\tune histoire", "c\td", run=pairs.run)
    assert json.loads(out.splitlines()[1])["probabilities"] == pytest.approx(pair.probabilities, abs=1e-6)
    for texts in (["a", "b", "c", "d"], ["a\tb", "c"], ["a"], ["a\tb\tc", "d\te\tf"]):
        code, out, error = predict(*texts, run=pairs.run)
        assert (code, out) == (1, "")
        assert "--input" in error
    code, _, error = predict(stdin=b"a\tb\nalone\n", run=pairs.run)
    assert code == 1
    assert "standard input, line 2: " in error


def test_a_pair_that_is_too_long_is_noted_and_keeps_both_sentences(pairs, predict):
    """32 positions: `<s>`, 14 tokens, `</s></s>`, 14 tokens, `</s>`."""
    classifier = SentenceClassifier.from_run(pairs.run)
    (row,) = classifier.encode([("livre " * 50, "histoire " * 50)])
    assert (len(row), row.tolist().count(2), row.tolist()[15:17]) == (32, 3, [2, 2])
    _, out, error = predict("livre " * 50, "histoire " * 50, run=pairs.run)
    assert json.loads(out)["note"].startswith("truncated: 32 of ")
    assert "1 truncated" in error


ROWS = [
    {"id": 7, "review": "un livre magnifique", "label": "pos", "tags": ["a", "b"]},
    {"id": 8, "review": "", "label": None, "tags": []},
    {"id": None, "review": "un\nlivre banal", "label": "neg", "tags": ["c"]},
    {"id": None, "review": None, "label": None, "tags": None},
    {"id": 9, "review": "漢字 漢字 un", "label": "neg", "tags": ["d"]},
]


def write_rows(path):
    frame = pd.DataFrame(ROWS).astype({"id": "Int64"})
    if path.suffix in (".csv", ".tsv"):
        frame = frame.assign(tags=frame.tags.map(json.dumps))
        frame.to_csv(path, index=False, sep=",\t"[path.suffix == ".tsv"])
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(ROWS))
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return path


def read_back(path):
    """The rows of an output file: input cells, prediction, p(neg), p(pos), note; missing cells are None."""
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return [
            {key: value for key, value in row.items() if key != "probabilities"}
            | {f"p({name})": p for name, p in row["probabilities"].items()}
            | {"note": row.get("note", "")}
            for row in rows
        ]
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".xlsx":
        table = pd.read_excel(path, keep_default_na=False, dtype=object)
        return table.replace("", None).assign(note=table["note"]).to_dict("records")
    with open(path, newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, dialect="excel-tab" if path.suffix == ".tsv" else "excel"))
    return [row | {key: float(row[key]) for key in ("p(neg)", "p(pos)")} for row in rows]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("a.csv", "b.csv"), ("a.tsv", "b.jsonl"), ("a.json", "b.parquet"), ("a.jsonl", "b.tsv"),
        ("a.parquet", "b.jsonl"), ("a.csv", "b.xlsx"),
    ],
)  # fmt: skip
def test_tables_keep_their_rows_and_columns(trained, predict, tmp_path, source, target):
    path = write_rows(tmp_path / source)
    code, out, error = predict("--input", path, "--out", tmp_path / target)
    assert (code, out) == (0, "")
    assert f"{path}: " in error  # the guessed column
    assert "'review'" in error
    rows = read_back(tmp_path / target)
    texts = [(row["review"] or "").replace("\n", " ") for row in ROWS]
    expected = SentenceClassifier.from_run(trained.run).predict(texts)
    stored = source.endswith(("json", "jsonl", "parquet")) and target.endswith(("jsonl", "parquet"))
    for row, original, prediction in zip(rows, ROWS, expected, strict=True):
        assert list(row)[:5] == ["id", "review", "label", "tags", "prediction"]
        if stored:
            assert {key: row[key] for key in original} == original
        else:
            assert (row["id"] or "", row["review"] or "") == (
                "" if original["id"] is None else str(original["id"]),
                original["review"] or "",
            )
        assert row["prediction"] == prediction.predicted
        for name, p in prediction.probabilities.items():
            assert row[f"p({name})"] == pytest.approx(p, abs=1e-6)
    notes = [row["note"] for row in rows]
    assert [notes[i] for i in (0, 1, 2, 3)] == ["", "empty", "", "empty"]
    assert re.fullmatch(r"unknown tokens: \d+ %", notes[4])
    assert re.findall(r"\d+", error.splitlines()[-1]) == ["5", "2", "1"]


def test_the_output_is_written_as_the_input(predict, tmp_path):
    for encoding in ("cp1252", "utf-8-sig", "utf-16"):
        source, target = tmp_path / "a.csv", tmp_path / "b.csv"
        source.write_bytes(
            'avis;note\nUn été « raté », non;1\nTrès beau, je l’ai aimé;2\n"a;b";2\n'.encode(encoding)
        )
        code, _, error = predict("--input", source, "--out", target)
        assert code == 0
        assert (f"{source}: not UTF-8, read as cp1252, for example 'été'" in error) == (encoding == "cp1252")
        assert target.read_bytes().startswith("avis;note;prediction;".encode(encoding))
        rows = list(csv.reader(io.StringIO(target.read_bytes().decode(encoding)), delimiter=";"))
        assert [row[:2] for row in rows[1:]] == [
            ["Un été « raté », non", "1"],
            ["Très beau, je l’ai aimé", "2"],
            ["a;b", "2"],
        ]
        predict("--input", source, "--out", tmp_path / "b.tsv")
        assert (tmp_path / "b.tsv").read_text("utf-8").startswith("avis\tnote\tprediction\t")


def test_what_the_encoding_of_the_input_cannot_represent(trained, predict, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("text;id\nun été;1\n".encode("cp1252"))
    code, _, error = predict("--input", path, "--encoding", "ascii", "--out", tmp_path / "b.csv")
    assert code == 1
    assert "a.csv, line 2: not ASCII" in error
    target = str(
        tmp_path / "b.csv"
    )  # a class may have a name that the encoding of the texts cannot represent
    with (
        pytest.raises(UserError, match=r"--out .*b\.csv: cp1252.*'Ω'"),
        open_output(target, "csv", Dialect("cp1252")) as out,
    ):
        out.write("un été;p(Ωmega)\n")
    assert not (tmp_path / "b.csv").exists()


def test_lines_in_another_encoding(predict, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("un été\n".encode("cp1252"))
    _, out, _ = predict("--input", path, "--encoding", "cp1252", "--with-text")
    assert json.loads(out)["text"] == "un été"
    assert "--encoding utf-16" in predict("--input", path, "--encoding", "utf-16")[2]
    assert "--encoding: this input" in predict("un livre", "--encoding", "cp1252")[2]
    assert "--delimiter, --no-header: " in predict("--input", path, "--delimiter", ";", "--no-header")[2]


def test_a_text_of_a_workbook_is_never_a_formula(predict, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "=1+1\x01 _x0041_", "id": True}) + "\n")
    assert predict("--input", path, "--out", tmp_path / "b.xlsx")[0] == 0
    assert predict("--input", path, "--out", tmp_path / "c.jsonl")[0] == 0
    sheet = openpyxl.load_workbook(tmp_path / "b.xlsx").active
    assert [cell.value for cell in sheet[1]][:3] == ["text", "id", "prediction"]
    assert sheet["A2"].data_type == "s"
    assert load(str(tmp_path / "b.xlsx")).cells["text"].tolist() == ["=1+1  _x0041_"]


def test_types_number_formats_and_empty_rows_of_a_workbook(predict, tmp_path):
    book, late = openpyxl.Workbook(), datetime(1999, 5, 6, 7, 8)
    cells = {
        "text": [("un livre", "@"), (None, "General"), ("_x0041_ b", "General")],
        "on": [(datetime(2025, 1, 2), "DD/MM/YYYY"), (None, "General"), (late, "d mmm yy h:mm")],
        "at": [(time(9, 30), "h:mm"), (None, "General"), (timedelta(hours=30), "[h]:mm")],
        "paid": [(12.5, "0.00 €"), (None, "General"), (7, "0.00 $")],
        "ok": [(True, "General"), (None, "General"), (False, "General")],
    }  # fmt: skip
    for column, (name, values) in enumerate(cells.items(), start=1):
        book.active.cell(1, column, name)
        for row, (value, number_format) in enumerate(values, start=2):
            cell = book.active.cell(row, column, value)
            cell.number_format = number_format
    book.save(tmp_path / "a.xlsx")
    assert predict("--input", tmp_path / "a.xlsx", "--out", tmp_path / "b.xlsx")[0] == 0
    sheet = openpyxl.load_workbook(tmp_path / "b.xlsx").active
    for column, (name, values) in zip(sheet.iter_cols(max_col=5), cells.items(), strict=True):
        assert column[0].value == name
        found = [(cell.value, cell.number_format) for cell in column[1:]]
        # Escaped once more, so that programs show what the input shows: A b.
        assert found == [("A b" if value == "_x0041_ b" else value, name) for value, name in values]
    assert [sheet.cell(row, 6).value in ("neg", "pos") for row in (2, 3, 4)] == [True] * 3
    assert sheet.cell(3, 9).value == "empty"
    assert sheet.freeze_panes == "A2"
    assert sheet.column_dimensions["B"].width > sheet.column_dimensions["E"].width


def test_the_decimal_mark_of_the_output_is_that_of_the_input(predict, tmp_path):
    for cell, comma in (("3,5", True), ("3.5", False), ("1,234", False), ("un, deux", False)):
        (tmp_path / "a.csv").write_text(f'text;n\nun livre;"{cell}"\n')
        assert predict("--input", tmp_path / "a.csv", "--out", tmp_path / "b.csv")[0] == 0
        (row,) = csv.DictReader((tmp_path / "b.csv").open(), delimiter=";")
        assert ("," in row["p(neg)"], "." in row["p(neg)"]) == (comma, not comma)
        frame = pd.read_csv(tmp_path / "b.csv", sep=";", decimal="," if comma else ".")
        assert frame["p(neg)"][0] + frame["p(pos)"][0] == pytest.approx(1)


def test_the_columns_of_the_training_are_used(trained, copied_run, predict, tmp_path):
    record = {"columns": {"text": "title", "more_text": ["body"]}}
    manifest.write(copied_run, manifest.read(copied_run) | record)
    path = tmp_path / "a.csv"
    path.write_text("text,body,title\nbanal,un livre,magnifique\n")
    expected = SentenceClassifier.from_run(trained.run).predict(["magnifique un livre"])[0].probabilities
    code, out, error = predict("--input", path, run=copied_run)
    assert code == 0
    assert json.loads(out)["probabilities"] == pytest.approx(expected, abs=1e-6)
    assert "'title' and 'body'" in error
    assert predict("--input", path, "--text-column", "title", "body")[1] == out
    path.write_text("text,body\nbanal,un livre\n")
    code, _, error = predict("--input", path, run=copied_run)
    assert code == 1
    assert all(fact in error for fact in ("a.csv", "no column 'title'", "--text-column"))
    assert predict("--input", path, "--text-column", "body", run=copied_run)[0] == 0
    manifest.write(copied_run, manifest.read(copied_run) | {"columns": {"text": "title"}})
    code, _, error = predict("--input", path, run=copied_run)
    assert (code, "'title'" in error, "'text'" in error) == (1, False, True)


def test_what_a_workbook_cannot_represent_is_text(predict, tmp_path):
    moment = pd.Timestamp("2026-01-02 03:04", tz="Europe/Paris")
    frame = pd.DataFrame(
        {"text": ["a\ufffe" + "b" * 40_000], "id": [12345678901234567], "x": [np.inf], "at": [moment]}
    )
    frame.to_parquet(tmp_path / "a.parquet")
    code, _, error = predict(
        "--input", tmp_path / "a.parquet", "--text-column", "text", "--out", tmp_path / "b.xlsx"
    )
    assert code == 0
    assert "1 cell" in error
    row = [cell.value for cell in openpyxl.load_workbook(tmp_path / "b.xlsx").active[2]]
    assert row[1:4] == ["12345678901234567", "inf", str(moment)]
    assert len(row[0]) == 32_767


def test_json_lines_are_always_utf_8(predict, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text": "Un été très beau, raté"}\n'.encode("utf-8-sig"))
    assert predict("--input", path, "--out", tmp_path / "b.jsonl")[0] == 0
    assert json.loads((tmp_path / "b.jsonl").read_text("utf-8"))["text"] == "Un été très beau, raté"


def test_blocks_of_a_table(predict, tmp_path, monkeypatch):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(
        gzip.compress(("text\n" + "".join(f'"un livre {i}"\n\n""\n' for i in range(9))).encode())
    )
    _, whole, _ = predict("--input", path)
    monkeypatch.setattr("roberta_small.eval.predict.inputs.BLOCK_ROWS", 4)
    monkeypatch.setattr("roberta_small.eval.predict.output.PARQUET_ROWS", 3)
    _, parts, _ = predict("--input", path)
    predict("--input", path, "--out", tmp_path / "a.parquet")
    a, b = ([json.loads(line) for line in text.splitlines()] for text in (whole, parts))
    texts = [f"un livre {i // 2}" if i % 2 == 0 else "" for i in range(18)]
    assert [row["text"] for row in a] == [row["text"] for row in b] == texts
    assert pq.read_table(tmp_path / "a.parquet").column("text").to_pylist() == texts
    for x, y in zip(a, b, strict=True):
        assert x["probabilities"] == pytest.approx(y["probabilities"], abs=1e-6)


def test_output_fields_that_the_table_has_already_get_a_number(predict, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,note,prediction,p(neg),prediction_2\nun livre,5,x,y,z\n", encoding="utf-8")
    _, out, error = predict("--input", path, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert [row[name] for name in ("note", "prediction", "p(neg)", "prediction_2")] == ["5", "x", "y", "z"]
    assert row["prediction_3"] in ("neg", "pos")
    assert float(row["p(neg)_2"]) + float(row["p(pos)"]) == pytest.approx(1)
    assert row["note_2"] == ""
    assert error.count("warning: ") == 3
    _, out, _ = predict("--input", path)
    row = json.loads(out)
    assert (row["prediction"], row["prediction_3"] in ("neg", "pos")) == ("x", True)


def test_pairs_are_two_columns(pairs, predict, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"sentence1": "un livre", "sentence2": "une histoire"}\n')
    _, out, _ = predict("--input", path, run=pairs.run)
    pair = SentenceClassifier.from_run(pairs.run).predict([("un livre", "une histoire")])[0]
    assert json.loads(out)["probabilities"] == pytest.approx(pair.probabilities, abs=1e-6)
    swapped = ["--text-column", "sentence2", "--pair-column", "sentence1"]
    _, out, _ = predict("--input", path, *swapped, run=pairs.run)
    pair = SentenceClassifier.from_run(pairs.run).predict([("une histoire", "un livre")])[0]
    assert json.loads(out)["probabilities"] == pytest.approx(pair.probabilities, abs=1e-6)
    code, _, error = predict("--input", path, "--text-column", "sentence1", run=pairs.run)
    assert (code, "--pair-column" in error) == (1, True)
    code, _, error = predict("--input", path)
    assert (code, "--text-column" in error) == (1, True)


def test_errors_of_tables_name_file_and_option(predict, tmp_path):
    for name, content, words, facts in [
        ("a.csv", "a,b\n1,2\n", [], ["--text-column"]),
        ("a.csv", "text,b\n1,2\n", ["--text-column", "c"], ["'c'", "--text-column"]),
        ("a.csv", "text,review\n1,2\n", [], ["'text'", "'review'", "--text-column"]),
        ("a.jsonl", '{"text": "\\ud800"}\n', [], ["line 1", "'text'"]),
        ("a.jsonl", '{"text": "a", "b": ["\\ud800"]}\n', [], ["line 1", "'b'"]),
        ("a.txt", "a\n", ["--text-column", "text"], ["--text-column"]),
        ("a.xml", "<a/>", [], ["a.xml"]),
    ]:
        (tmp_path / name).write_text(content)
        code, out, error = predict("--input", tmp_path / name, "--out", tmp_path / "out.csv", *words)
        assert (code, out) == (1, "")
        message = error.splitlines()[-1]
        assert all(fact in message for fact in [str(tmp_path / name), *facts]), message
        assert not (tmp_path / "out.csv").exists()


def test_format_follows_the_suffix_of_the_output(predict, tmp_path):
    for name, start in (("a.csv", "index,label,"), ("a.tsv", "index\tlabel\t"), ("a.txt", "{")):
        predict("un livre", "--out", tmp_path / name)
        assert (tmp_path / name).read_text("utf-8").startswith(start)
    predict("un livre", "--out", tmp_path / "a.parquet", "--with-text")
    assert pq.read_table(tmp_path / "a.parquet").column("text").to_pylist() == ["un livre"]
    for words in (["--out", tmp_path / "a.csv.gz"], ["--format", "parquet"]):
        assert predict("un livre", *words)[0] == 1


BREAKS = ["a\rb", "a\x0bb\x0cc", "a\x1cb\x1dc\x1ed", "a\x85b", "a\u2028b\u2029c", "\r", 'a\r"b', "a\nb"]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_texts_with_line_breaks_are_read_back(predict, tmp_path, kind):
    source, target = tmp_path / "a.jsonl", tmp_path / f"b.{kind}"
    source.write_text("".join(json.dumps({"text": text, "n": i}) + "\n" for i, text in enumerate(BREAKS)))
    for words in (["--input", source], ["--with-text", *BREAKS]):
        assert predict(*words, "--out", target)[0] == 0
        ours = read_table(str(target))
        assert ours["text"].tolist() == [cell_text(text) for text in BREAKS]
        if kind == "jsonl":
            assert [json.loads(line)["text"] for line in target.read_text("utf-8").splitlines()] == BREAKS
            assert pd.read_json(target, lines=True)["text"].tolist() == BREAKS
        elif kind == "parquet":
            assert pd.read_parquet(target)["text"].tolist() == BREAKS
        else:
            separator = ",\t"[kind == "tsv"]
            frame = pd.read_csv(target, sep=separator, keep_default_na=False)
            assert frame["text"].tolist() == BREAKS
            with open(target, newline="", encoding="utf-8") as stream:
                assert [row["text"] for row in csv.DictReader(stream, delimiter=separator)] == BREAKS


def call(capsys, *words):
    code = main(["predict", *map(str, words)])
    return code, *capsys.readouterr()


def test_ensemble_is_the_mean_of_its_members(trained, sweep, capsys):
    runs = sorted(sweep.glob("fairseq/random/*"))
    texts = trained.texts[:5]
    each = np.array([SentenceClassifier.from_run(run).probabilities(texts) for run in runs])
    for paths in ([sweep], runs):
        code, out, error = call(capsys, *texts, "--checkpoint", *paths, "--ensemble")
        assert code == 0
        assert "fairseq/random (2)" in error
        rows = [json.loads(line) for line in out.splitlines()]
        for n, row in enumerate(rows):
            assert list(row["probabilities"].values()) == pytest.approx(each[:, n].mean(axis=0), abs=1e-6)
            k = ["neg", "pos"].index(row["label"])
            assert row["std"] == pytest.approx(each[:, n, k].std(ddof=1), abs=1e-6)
    _, out, _ = call(capsys, "--checkpoint", sweep, "--format", "csv", "--ensemble", *texts)
    assert [float(row["std"]) for row in csv.DictReader(io.StringIO(out))] == [row["std"] for row in rows]


def test_several_checkpoints_need_the_option(sweep, capsys):
    runs = sorted(sweep.glob("fairseq/random/*"))
    for words in ([*runs], [sweep], [runs[0], sweep / "fairseq"], [runs[0], runs[1] / "checkpoint_best.pt"]):
        code, out, error = call(capsys, "--checkpoint", *words)
        assert (code, out) == (1, "")
        assert "--ensemble" in error
    code, _, error = call(capsys, "un livre", "--checkpoint", runs[0], "--ensemble")
    assert (code, "--ensemble: " in error) == (1, True)
    code, _, error = call(capsys, "--checkpoint", *runs, "un livre", "--ensemble")
    assert (code, "un livre: " in error) == (1, True)
    words = ["--checkpoint", *runs, "--ensemble", "--explain", "un livre"]
    code, _, error = call(capsys, *words)
    assert (code, "--explain: " in error) == (1, True)
    code, _, error = call(capsys, "un livre", "--checkpoint", runs[0], "une histoire")
    assert code == 1


def test_texts_follow_the_checkpoint_or_precede_it(trained, capsys):
    outputs = [
        call(capsys, "--checkpoint", trained.run, "un livre", "x" * 5000)[1],
        call(capsys, "un livre", "x" * 5000, "--checkpoint", trained.run)[1],
        call(capsys, "--checkpoint", trained.run, "--format", "jsonl", "un livre", "x" * 5000)[1],
    ]
    assert outputs[0] == outputs[1] == outputs[2]
    assert len(outputs[0].splitlines()) == 2
