"""Corrupt lines and file names of CSV exports."""

import re

import pytest

from roberta_small.analysis.read.long_table import load_runs, values_of

NAME = "run-bert_1_valid-tag-accuracy.csv"


def write(folder, *lines, name=NAME, end="\r\n"):
    text = "".join(f"{line}\r\n" for line in ("Wall time,Step,Value", *lines))
    (folder / name).write_bytes(text.removesuffix("\r\n").encode() + end.encode())
    return folder / name


def read(folder):
    rows = values_of(load_runs(folder), "valid", "accuracy")
    return list(zip(rows["step"], rows["value"], strict=True))


@pytest.mark.parametrize(
    "line",
    ["1.5,1e30,2", f"1.5,{2**63},2", "1.5,inf,2", "1.5,7.5,2", "1.5,7", "x", '"[[,1,2', "1.5,7,2\udcff"],
)
def test_a_corrupt_line_is_skipped_with_a_warning(tmp_path, caplog, line):
    path = write(tmp_path, "1.5,25,50.0", "2.5,50,60.25")
    lines = path.read_bytes().splitlines(keepends=True)
    lines.insert(2, line.encode("utf-8", "surrogateescape") + b"\r\n")
    path.write_bytes(b"".join(lines))
    assert read(tmp_path) == [(25, 50.0), (50, 60.25)]
    assert re.search(rf"{re.escape(str(path))}.* line 3 \(1 in all\).* 2 valid records", caplog.text)


@pytest.mark.parametrize("line", ["2.5,50,60", "2.5,50,60.25", "2.5,50,nan"])
def test_a_complete_last_line_without_newline_is_used_with_a_warning(tmp_path, caplog, line):
    path = write(tmp_path, "1.5,25,50.0", line, end="")
    assert len(read(tmp_path)) == 2
    assert "newline" in caplog.text
    assert str(path) in caplog.text


@pytest.mark.parametrize("line", ["2.5,50,60.", "2.5,50,6e", "2.5,50,-", "2.5,50,", "2.5,5", "2"])
def test_a_truncated_last_line_is_skipped(tmp_path, caplog, line):
    write(tmp_path, "1.5,25,50.0", line, end="")
    assert read(tmp_path) == [(25, 50.0)]
    assert "newline" not in caplog.text


def test_a_second_download_has_the_name_of_the_first(tmp_path):
    write(tmp_path, "1.5,25,50.0", name=NAME.replace(".csv", " (1).csv"))
    write(tmp_path, "2.5,50,60.25", name=NAME.replace(".csv", " (12).csv"))
    assert read(tmp_path) == [(25, 50.0), (50, 60.25)]
    assert load_runs(tmp_path)["metric"].unique().tolist() == ["accuracy"]
