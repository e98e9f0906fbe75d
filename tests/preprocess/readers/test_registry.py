import json
from pathlib import Path

import pandas as pd
import pytest

from roberta_small.common.errors import UserError
from roberta_small.preprocess.__main__ import main
from roberta_small.preprocess.readers import (
    Record,
    read_records,
    reader_name,
    records,
    register,
    register_table,
    suffixes_of,
    tables,
)
from roberta_small.preprocess.readers.lines import read_text_lines
from tests.support.labelled_files import tokenizer


def read_toy(path):
    """LABEL:TEXT or LABEL:TEXT|PAIR a line."""
    for number, line in enumerate(read_text_lines(path), start=1):
        label, _, text = line.partition(":")
        text, bar, pair = text.partition("|")
        yield Record(text, line=number, label=label, pair=pair if bar else None)


@pytest.fixture
def toy(monkeypatch):
    """A reader registered from outside the package, for this test only."""
    monkeypatch.setattr(records, "_readers", dict(records._readers))
    monkeypatch.setattr(records, "_by_suffix", dict(records._by_suffix))
    register("toy", read_toy, suffixes=(".toy",))


@pytest.fixture
def toy_table(monkeypatch, toy):
    """A table format registered from outside the package: `a=1;b=2` a line."""
    monkeypatch.setattr(tables, "_formats", dict(tables._formats))

    def load(path):
        rows = [dict(cell.split("=") for cell in line.split(";")) for line in read_text_lines(path)]
        return pd.DataFrame(rows, dtype=object)

    register_table(load, suffixes=(".cells",))


def prepare(*arguments):
    words = ["--tokenizer", tokenizer(), "--out", "out", "--valid", "2"]
    return main(["prepare", *arguments, *words])


def test_chosen_by_suffix_or_name(toy):
    chosen = {path: reader_name(path) for path in ("a.toy", "b.TOY.gz", "c.xml.xz", "d.review", "e", "f.gz")}
    assert list(chosen.values()) == ["toy", "toy", "webis", "lines", "lines", "lines"]
    assert reader_name("a.txt", "toy") == "toy"
    with pytest.raises(UserError, match="--reader none"):
        reader_name("a.txt", "none")


@pytest.mark.parametrize(("name", "suffixes"), [("toy", ()), ("other", (".toy",))])
def test_name_and_suffix_are_taken_once(toy, name, suffixes):
    with pytest.raises(ValueError, match="toy"):
        register(name, read_toy, suffixes)


def test_toy_format_is_prepared_with_its_own_labels(toy, workdir):
    Path("all.toy").write_text("".join(f"{'ab'[i % 2]}:texte {i} du corpus\n" for i in range(8)))
    Path("test.toy").write_text("a:fin du texte\n")
    assert prepare("all.toy", "--test", "test.toy") == 0
    places = json.loads(Path("out/split.json").read_text())["examples"]
    for name in ("train", "valid"):
        texts, labels = (
            Path(f"out/text/{name}.{kind}").read_text().splitlines() for kind in ("input0", "label")
        )
        assert texts == [f"texte {line - 1} du corpus" for _, line in places[name]]
        assert labels == ["ab"[(line - 1) % 2] for _, line in places[name]]
    assert Path("out/text/test.label").read_text() == "a\n"


def test_pairs_of_one_file(toy, workdir):
    Path("all.toy").write_text("".join(f"{'ab'[i % 2]}:un {i}|deux {i}\n" for i in range(8)))
    assert prepare("all.toy", "--test", "none") == 0
    first, second = (Path(f"out/text/train.input{i}").read_text() for i in (0, 1))
    assert second == first.replace("un", "deux")


def test_toy_table_has_the_options_of_columns(toy_table, workdir, capsys):
    assert ".cells" in suffixes_of("table")
    rows = [f"id={i};text=texte {i} {'plat' if i % 2 else 'beau'};stars={i % 2}\n" for i in range(40)]
    Path("all.cells").write_text("".join(rows))
    words = ["prepare", "all.cells", "--valid", "0.2", "--test", "0.2", "--out", "data"]
    words += ["--tokenizer", tokenizer()]
    assert main([*words, "--text-column", "nothing"]) == 1
    assert "all.cells: no column 'nothing'" in capsys.readouterr().err
    assert main(words) == 0
    assert len(Path("data/text/train.input0").read_text().splitlines()) == 24
    assert [record.line for record in read_records("all.cells")] == list(range(1, 41))
    with pytest.raises(UserError, match=r"a\.txt: .*\.cells"):
        next(read_records("a.txt", "table"))


def test_lines_have_their_labels_and_second_texts_beside_them(workdir):
    Path("train.input0").write_text("".join(f"un {i}\n" for i in range(8)))
    Path("train.input1").write_text("".join(f"deux {i}\n" for i in range(8)))
    Path("train.label").write_text("a\nb\n" * 4)
    assert prepare("train.input0", "--test", "none") == 0
    first, second = (Path(f"out/text/train.input{i}").read_text() for i in (0, 1))
    assert second == first.replace("un", "deux")
    numbers = [int(line.split()[1]) for line in first.splitlines()]
    assert Path("out/text/train.label").read_text().split() == ["ab"[number % 2] for number in numbers]
    content = json.loads(Path("out/preprocess.json").read_text())
    assert {"train.input0", "train.input1", "train.label"} < set(content["sha256"])


def test_another_number_of_labels_beside_the_text(workdir, capsys):
    Path("train.txt").write_text("un\ndeux\n")
    Path("train.label").write_text("a\n")
    assert prepare("train.txt") == 1
    error = capsys.readouterr().err
    assert "train.txt has 2 lines" in error
    assert "train.label" in error
