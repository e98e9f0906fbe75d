"""`prepare`: from files of labelled text to a complete data folder."""

import csv
import re
from collections import Counter

import openpyxl
import pytest

from roberta_small.common.label_kinds import KINDS, SINGLE_LABEL
from roberta_small.preprocess.audit import normalized
from roberta_small.preprocess.label_cells import LabelOptions, read
from roberta_small.preprocess.labels import check, merged
from tests.support.labelled_files import content, examples, lines, prepare, texts, write_csv, write_json_lines

IMDB = """---
configs:
- config_name: default
  data_files:
  - {split: train, path: train.csv}
  - {split: test, path: test.csv}
  - {split: unsupervised, path: unsupervised.csv}
---
"""


@pytest.fixture
def reviews(workdir):
    labels = ["very bad", "good"] * 40 + ["Neither nor"] * 20
    return write_csv("reviews.csv", zip(texts(100), labels, strict=True))


def test_the_folder_is_complete(reviews, workdir, capsys):
    prepare(reviews, "--tokenizer", "train")
    parts = {name: examples(name) for name in ("train", "valid", "test")}
    assert {name: len(part) for name, part in parts.items()} == {"train": 80, "valid": 10, "test": 10}
    for name in ("valid", "test"):
        assert Counter(label for _, label in parts[name]) == {"very bad": 4, "good": 4, "Neither nor": 2}
    with open(reviews, encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    places = content("split.json")["examples"]
    for name, part in parts.items():
        assert [tuple(rows[line - 1]) for _, line in places[name]] == part
    report = content("preprocess.json")
    assert report["labels"] == ["good", "very bad", "Neither nor"]
    assert {"audit.json", "tokenizer/sentencepiece.bpe.model", "input0/test.bin"} <= set(report["files"])
    said = capsys.readouterr().out
    assert "'text'" in said
    assert "'label'" in said


def test_the_same_command_is_done_at_once_and_another_asks(reviews, workdir, capsys):
    prepare(reviews)
    before = (workdir / "data/preprocess.json").stat().st_mtime_ns
    first = capsys.readouterr().out
    prepare(reviews)
    assert capsys.readouterr().out == first
    assert (workdir / "data/preprocess.json").stat().st_mtime_ns == before
    prepare(reviews, "--seed", "2", expect=1)
    assert "--overwrite" in capsys.readouterr().err
    first = examples("test")
    prepare(reviews, "--seed", "2", "--overwrite")
    assert examples("test") != first


def test_splits_that_are_given_are_kept(workdir):
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        rows = enumerate(texts(20, seed))
        pairs = [{"premise": text, "hypothesis": text[::-1], "label": i % 2} for i, text in rows]
        write_json_lines(f"{name}.jsonl", pairs)
    prepare("a.jsonl", "--valid", "b.jsonl", "--test", "c.jsonl")
    assert [text for text, _ in examples("test")] == texts(20, 3)
    assert lines("valid.input1") == [text[::-1] for text in texts(20, 2)]
    assert (workdir / "data/input1/train.bin").is_file()


def test_a_column_of_splits(workdir, capsys):
    splits = ["train"] * 40 + ["validation"] * 10 + ["Test"] * 9 + [""]
    rows = zip(texts(60), ["a", "b"] * 30, splits, strict=True)
    prepare(write_csv("a.csv", rows, ("text", "label", "part")))
    assert "--split-column part" in capsys.readouterr().out
    prepare("a.csv", "--split-column", "part", "--overwrite")
    assert "--split-column part" not in capsys.readouterr().out
    assert [len(examples(name)) for name in ("train", "valid", "test")] == [40, 10, 9]
    assert content("split.json")["left_out"] == [["a.csv", 61, "no split"]]
    rows = zip(texts(60), ["a", "b"] * 30, ["train"] * 59 + ["fold 2"], strict=True)
    path = write_csv("b.csv", rows, ("text", "label", "part"))
    prepare(path, "--split-column", "part", "--overwrite", expect=1)
    assert re.search("b.csv, line 61.*fold 2", capsys.readouterr().err)


def test_a_hugging_face_data_set(workdir):
    pytest.importorskip("datasets")
    (workdir / "imdb").mkdir()
    write_csv("imdb/train.csv", zip(texts(40), ["neg", "pos"] * 20, strict=True))
    write_csv("imdb/test.csv", zip(texts(10, 5), ["neg", "pos"] * 5, strict=True))
    write_csv("imdb/unsupervised.csv", zip(texts(10, 6), [""] * 10, strict=True))
    (workdir / "imdb/README.md").write_text(IMDB)
    prepare("datasets:imdb")
    assert [len(examples(name)) for name in ("train", "valid", "test")] == [36, 4, 10]
    left_out = content("split.json")["left_out"]
    assert {reason for _, _, reason in left_out} == {"split 'unsupervised'"}


def test_duplicates_stay_on_one_side(workdir):
    originals = texts(60)
    rows = [(text, "ab"[i % 2]) for i, text in enumerate(originals)]
    rows += [(f"  {text.upper()} !", "ab"[i % 2]) for i, text in enumerate(originals)]
    prepare(write_csv("a.csv", rows), "--valid", "0.2", "--test", "0.2")
    sides = [{normalized(text) for text, _ in examples(name)} for name in ("train", "valid", "test")]
    assert [len(examples(name)) for name in ("train", "valid", "test")] == [72, 24, 24]
    assert len(sides[0] | sides[1] | sides[2]) == sum(map(len, sides))


def test_a_split_with_hidden_labels_is_replaced(workdir, capsys):
    rows = [
        (text, i % 2 if i < 60 else -1, "train" if i < 60 else "test") for i, text in enumerate(texts(80))
    ]
    write_csv("a.csv", rows, header=("text", "label", "split"))
    prepare("a.csv", "--split-column", "split")
    out = capsys.readouterr().out
    assert "left out, hidden label: 20 rows" in out
    assert {label for part in ("train", "valid", "test") for _, label in examples(part)} == {"0", "1"}
    prepare("a.csv", "--overwrite")
    assert "'-1'" in capsys.readouterr().out


def doubts(labels):
    return check(labels, KINDS[SINGLE_LABEL], LabelOptions(), "a.csv")


@pytest.mark.parametrize(
    ("labels", "facts"),
    [
        (["1", "0", "1.0"] * 20, ["'1'", "'1.0'", "same number"]),
        (["pos", "neg", "NA"] * 20, ["'NA'", "missing"]),
        (["1", "0", "-1"] * 20, ["'-1'", "hidden"]),
        ([str(i) for i in range(200)] * 5, ["200"]),
    ],
)
def test_doubtful_labels_are_named(labels, facts):
    (warning,) = doubts(labels)
    assert all(fact in warning for fact in facts)


@pytest.mark.parametrize(
    "labels",
    [
        ["4,0", "3,5", "2,0"],  # decimal commas, not several labels
        ["-1", "0", "1.5"],
        ["agree", "disagree"],
        ["1", "2", "3", "4", "5"],
        [str(i) for i in range(20)],
        ["yes, but", "no"],
    ],
)
def test_labels_that_are_not_doubtful(labels):
    assert doubts(labels * 20) == []
    kind, lines, _ = read(((label, "a.csv", 2) for label in labels * 20), LabelOptions(), "a.csv")
    assert (kind, lines) == (KINDS[SINGLE_LABEL], dict(zip(labels, labels, strict=True)))


def test_one_file_for_two_splits_is_refused(workdir, capsys):
    write_csv("a.csv", [(text, i % 2) for i, text in enumerate(texts(40))])
    write_csv("b.csv", [(text, i % 2) for i, text in enumerate(texts(40, seed=3))])
    (workdir / "link.csv").symlink_to("b.csv")
    for words in (
        ["--valid", "a.csv"],
        ["--valid", "b.csv", "--test", "b.csv"],
        ["--valid", "b.csv", "--test", "link.csv"],
    ):
        prepare("a.csv", *words, expect=1)
        assert f"{words[-2]} {words[-1]}: the same file" in capsys.readouterr().err
    assert not (workdir / "data").exists()


def test_rows_without_text_or_label_are_listed_and_left_out(workdir, capsys):
    rows = [*zip(texts(40), ["a", "b"] * 20, strict=True), ("", "a"), ("  ", "b"), ("text", "")]
    prepare(write_csv("a.csv", rows))
    left_out = content("split.json")["left_out"]
    assert left_out == [["a.csv", 42, "no text"], ["a.csv", 43, "no text"], ["a.csv", 44, "no label"]]
    assert "a.csv:44" in capsys.readouterr().out


def test_what_is_suspicious_is_said(workdir, capsys):
    rows = [*zip(texts(60), ["good", "bad"] * 30, strict=True), ("odd", "single")]
    rows += [("twice", "good"), ("twice", "bad")]
    rows[3] = ("l\x92ennui", "bad")
    prepare(write_csv("a.csv", rows))
    said = capsys.readouterr().out
    assert "'single'" in said
    assert "1 text with more than one label" in said
    assert "a.csv, line 5" in said
    assert "cp1252" in said


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        (["a", "b", "a|b"] * 20, "a|b"),
        (["a, b", "b, c", "c, a"] * 20, "a, b"),
        ([f"word {i}" for i in range(60)], "--label-column"),
        (["a"] * 60, "'a'"),
    ],
)
def test_what_is_no_classification_is_refused(workdir, capsys, labels, named):
    prepare(write_csv("a.csv", zip(texts(60), labels, strict=True)), expect=1)
    error = capsys.readouterr().err
    assert "a.csv" in error
    assert named in error
    assert not (workdir / "data").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "FILE"),
        (("missing.csv",), "missing.csv"),
        (("reviews.csv", "--valid", "missing.csv"), "--valid missing.csv"),
        (("reviews.csv", "--valid", "10%"), "--valid 10%"),
        (("folder",), "folder: is a folder"),
        (("lines.txt",), "lines.txt"),
        (("no-label.csv",), "--label-column"),
        (("reviews.csv", "--label-column", "text"), "--label-column"),
        (("reviews.csv", "--valid", "0"), "--valid 0"),
        (("reviews.csv", "--valid", "60", "--test", "60"), "--test"),
        (("reviews.csv", "--text-column", "texte"), "text"),
        (("reviews.csv", "--tokenizer", "no.model"), "no.model"),
        (("reviews.csv", "--tokenizer", "train", "--dict", "dict.txt"), "--dict"),
    ],
)
def test_wrong_options_are_refused(reviews, workdir, capsys, words, named):
    (workdir / "folder").mkdir()
    write_csv("no-label.csv", zip(texts(20), "ab" * 10, strict=True), ("text", "verdict"))
    (workdir / "lines.txt").write_text("a\nb\n")
    prepare(*words, expect=1)
    assert named in capsys.readouterr().err
    assert not (workdir / "data").exists()


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([(text, label) for text, label in zip(texts(4), "abab", strict=True)], "--valid 0.1"),
        ([("the same", "ab"[i % 2]) for i in range(40)], "different texts"),
        ([(text, "") for text in texts(40)], "'label'"),
    ],
)
def test_what_cannot_be_split_is_refused(workdir, capsys, rows, named):
    prepare(write_csv("a.csv", rows), expect=1)
    assert named in capsys.readouterr().err
    assert not (workdir / "data").exists()


def test_labels_that_look_alike_are_merged_into_the_most_frequent(workdir, capsys):
    labels = [*["good"] * 30, *["Good"] * 20, *["GO OD\u200b"] * 10, *["bad"] * 40]
    prepare(write_csv("a.csv", zip(texts(100), labels, strict=True)), "--merge-labels")
    assert {label for name in ("train", "valid", "test") for _, label in examples(name)} == {"good", "bad"}
    out = capsys.readouterr().out
    assert all(fact in out for fact in ("label 'good': also written ", "'Good'", "'GO OD\\u200b'"))
    assert content("preprocess.json")["options"]["merge_labels"] is True


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\u2764", "\u2764\ufe0f"), ("tr\u00e8s", "tre\u0300s"), ("pos", "p\u043es"), ("a-b", "a\u2011b"),
        ("l'art", "l\u2019art"), ("\u0415\u0421", "EC"), ("ok", "o\u115fk"),
    ],
)  # fmt: skip
def test_labels_that_look_alike_are_named(one, other):
    (warning,) = doubts([one, other, "else"] * 20)
    assert all(ascii(fact)[1:-1] in warning for fact in (one, other, "--merge-labels"))
    assert merged({one: 2, other: 1, "else": 1}) == {other: one}


def test_the_proposal_to_merge_labels_that_look_alike_works(workdir, capsys):
    one, other = "pos", "p\u043es"
    path = write_csv("a.csv", zip(texts(60), [one, other, "else"] * 20, strict=True))
    prepare(path)
    said = capsys.readouterr().out
    assert all(ascii(fact)[1:-1] in said for fact in (one, other, "--merge-labels"))
    prepare(path, "--merge-labels")  # in the same --out
    assert set(content("preprocess.json")["labels"]) in ({one, "else"}, {other, "else"})
    prepare(path, expect=1)
    rows = [*zip(texts(40), [one, "else"] * 20, strict=True)]
    words = [write_csv("b.csv", rows), "--valid", write_csv("c.csv", [("new", other)]), "--test", "none"]
    prepare(*words, "--overwrite", expect=1)
    assert ascii(one)[1:-1] in (error := capsys.readouterr().err)
    assert "--merge-labels" in error
    prepare(*words, "--overwrite", "--merge-labels")


def test_overlap_of_parts_of_pairs_and_of_other_compositions(workdir, capsys):
    header = ("text_a", "text_b", "label")
    write_csv("a.csv", [(f"p été {i}", f"h {i}", "ab"[i % 2]) for i in range(20)], header)
    rows = [*((f"other {i}", f"h\u200b {i}") for i in range(5)), ("else", "p été 3")]  # in the other column
    rows.append(("P e\u0301te\u0301 0", "new 0"))
    write_csv("c.csv", [(*row, "ab"[i % 2]) for i, row in enumerate(rows)], header)
    write_csv("b.csv", [(f"p e\u0301te\u0301 {i}", f"new {i}", "ab"[i % 2]) for i in range(7)], header)
    prepare("a.csv", "--valid", "b.csv", "--test", "c.csv")
    found = [line for line in capsys.readouterr().out.splitlines() if "also in" in line]
    assert [re.sub(r"warning: | \(normalized.*", "", line) for line in found] == [
        "7 first and 0 second texts of valid also in train",
        "1 first and 6 second texts of test also in train",
        "1 example of test also in valid",
        "1 first and 2 second texts of test also in valid",
    ]


def test_joined_columns_and_another_dialect(workdir, capsys):
    rows = [f"{text}#fin {i}#{'bien' if i % 2 else 'raté'}" for i, text in enumerate(texts(40))]
    (workdir / "a.csv").write_bytes("\n".join(rows).encode("cp1252"))
    words = ("--delimiter", "#", "--no-header", "--text-column", "1", "2", "--label-column", "3")
    prepare("a.csv", *words, "--encoding", "cp1252")
    assert "text: columns '1' and '2'" in capsys.readouterr().out
    found = {example for name in ("train", "valid", "test") for example in examples(name)}
    assert found == {(" ".join(row.split("#")[:2]), row.split("#")[2]) for row in rows}
    report = content("preprocess.json")["options"]
    assert report["dialect"] == {"encoding": "cp1252", "delimiter": "#", "header": False}
    assert (report["columns"]["text"], report["more_text"]) == ("1", ["2"])
    prepare("--text-column", "1", "a.csv", expect=1)  # the file is taken for a column
    assert "before --text-column" in capsys.readouterr().err


def test_a_sheet_of_a_workbook(workdir, capsys):
    book = openpyxl.Workbook()
    for sheet, cell in ((book.active, "=A1"), (book.create_sheet("two"), "pos")):
        sheet.append(["Survey 2025"])
        sheet.append(["text", "label"])
        for i, text in enumerate(texts(40)):
            sheet.append([text, "neg" if i % 2 and cell == "pos" else cell])
    book.save("a.xlsx")
    prepare("a.xlsx", "--sheet", "two", "--header-row", "2")
    assert {label for name in ("train", "valid", "test") for _, label in examples(name)} == {"neg", "pos"}
    assert content("preprocess.json")["options"]["dialect"] == {"header_row": 2, "sheet": "two"}
    places = [line for rows in content("split.json")["examples"].values() for _, line in rows]
    assert sorted(places) == list(range(3, 43))
    for words, fact in (
        ([], "'Sheet', 'two'"),
        (["--sheet", "two"], "--header-row 2"),
        (["--sheet", "Sheet", "--header-row", "2"], "B3 (formula)"),
        (["--no-header", "--header-row", "2"], "--no-header"),
    ):
        prepare("a.xlsx", *words, "--overwrite", expect=1)
        assert fact in capsys.readouterr().err


def test_without_a_test_set(reviews, workdir, capsys):
    prepare(reviews, "--test", "none")
    report = content("preprocess.json")
    assert set(report["splits"]) == {"train", "valid"}
    assert not list((workdir / "data").rglob("test*"))
    assert len(examples("train")) + len(examples("valid")) == 100
    assert set(content("audit.json")["splits"]) == {"train", "valid"}


def test_without_a_test_set_the_test_rows_of_a_file_are_left_out(workdir, capsys):
    rows = [(text, i % 2, "test" if i % 10 == 0 else "train") for i, text in enumerate(texts(100))]
    write_csv("a.csv", rows, ("text", "label", "part"))
    prepare("a.csv", "--split-column", "part", "--test", "none")
    assert "test split (--test none): 10 rows" in capsys.readouterr().out
    assert len(examples("train")) + len(examples("valid")) == 90
    prepare("a.csv", "--valid", "none", expect=1)
    assert "--valid none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "flag"), [(["--encoding", "cp1252"], "--encoding"), (["--no-header"], "--no-header")]
)
def test_options_of_tables_for_other_input_are_refused(workdir, capsys, words, flag):
    (workdir / "a.txt").write_text("un livre\n")
    prepare("a.txt", *words, expect=1)
    assert f"{flag}: a.txt" in capsys.readouterr().err
    prepare("datasets:imdb", *words, expect=1)
    assert f"{flag}: " in capsys.readouterr().err


def test_a_test_file_without_labels_is_refused_with_the_remedy(reviews, workdir, capsys):
    (workdir / "b.csv").write_text("text,id\nun livre,1\n")
    prepare(reviews, "--test", "b.csv", expect=1)
    error = capsys.readouterr().err
    assert all(fact in error for fact in ("b.csv", "'label'", "'id'", "--test none"))
