"""Lone surrogates, which no output can contain: from JSON, and from file names that are not UTF-8."""

import contextlib
import io
import json
import os

import pytest

from roberta_small.analysis import find_runs
from roberta_small.analysis.__main__ import main
from roberta_small.common import predictions
from roberta_small.common.errors import UserError
from roberta_small.common.files import escaped, parse_json
from tests.support.analysis.command_words import words_of
from tests.support.analysis.log_trees import write_export
from tests.support.analysis.run_trees import write_run

COMMANDS = ("runs", "tables", "compare", "accuracy", "figures", "report")
LONE = "\ud800"
ESCAPED = r"\ud800"
NAME = os.fsdecode(b"na\xefve")
"""The name of a folder; an init in it is written as `NAME_ESCAPED`."""
NAME_ESCAPED = r"na\udcefve"


def run_command(*words):
    """(exit code, standard error); as in Python, and unlike that of `capsys`, it escapes lone surrogates."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
    with contextlib.redirect_stderr(stream):
        code = main([str(word) for word in words])
    return code, stream.buffer.getvalue().decode()


@pytest.fixture
def with_manifests(tmp_path):
    """Two inits of two seeds in a folder that is not UTF-8, with surrogates in manifests and class names."""
    for init in "ab":
        for seed in (1, 2):
            valid, test = [50.0, 60.0 + seed], [51.0, 61.0 + seed]
            run = write_run(tmp_path / "utf-8", init, seed, valid, test, hardware={"gpu": LONE})
            path = run / "manifest.json"
            content = json.loads(path.read_text(encoding="utf-8")) | {"init": init + LONE, "recipe": LONE}
            path.write_text(json.dumps(content), encoding="utf-8")
            lines = [
                {"index": index, "gold": gold, "probabilities": {LONE: 0.25, "b": 0.75}}
                for index, gold in enumerate([LONE, "b", "b"])
            ]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (run / "predictions-test.jsonl").write_text(text, encoding="utf-8")
    (tmp_path / "utf-8").rename(tmp_path / NAME)
    return tmp_path / NAME


@pytest.fixture
def named_by_path(tmp_path):
    """The same without manifests, named by their folder."""
    for arm in "ab":
        for seed in (1, 2):
            valid, test = [50.0, 60.0 + seed], [51.0, 61.0 + seed]
            run = write_run(tmp_path / "utf-8", "init", seed, valid, test, arm=arm)
            (run / "manifest.json").unlink()
            write_export(run / "tensorboard" / os.fsdecode(b"run-.-tag-\xe9.csv"), [(1.0, 5, 2.0)])
    for arm in "ab":
        (tmp_path / "utf-8" / arm / "init").rename(tmp_path / "utf-8" / arm / NAME)
    return tmp_path / "utf-8"


@pytest.mark.parametrize(
    ("tree", "command"),
    [
        *(("with_manifests", command) for command in COMMANDS),
        *(("named_by_path", command) for command in ("runs", "tables", "report")),
    ],
)
def test_every_command_writes_escapes(tree, command, request, tmp_path, capsys):
    root = request.getfixturevalue(tree)
    groups = sorted({f"{run.arm}/{run.init}" for run in find_runs(root)})
    assert groups[0].endswith((ESCAPED, NAME_ESCAPED))
    out = tmp_path / os.fsdecode(b"\xe9") / ("report.html" if command == "report" else "")
    more = {"runs": [], "compare": ["--groups", *groups, "--out", str(out)]}
    more["report"] = ["--title", NAME, "--out", out]
    code, _ = run_command(*words_of(command, root, *more.get(command, ["--out", out])))
    assert code == 0
    text = capsys.readouterr().out  # its stream is strict, as that of a terminal
    written = [path.read_bytes() for path in out.rglob("*")] if out.is_dir() else []
    if command == "report":
        text = out.read_text(encoding="utf-8")
        assert f"<title>{NAME_ESCAPED}</title>" in text
        assert groups[0].rpartition("/")[2] in text
    assert r"\ud" in text or (command == "figures" and written)


@pytest.mark.parametrize("option", ["--metric", "--by", "--split", "--choose-on"])
def test_arguments_that_are_not_utf_8(with_manifests, option):
    code, err = run_command("tables", with_manifests, option, "x" + NAME)
    assert code == 1
    assert "x" + NAME_ESCAPED in err


def test_a_folder_of_other_runs_may_have_such_a_name(with_manifests, capsys):
    groups = [f"fairseq/a{ESCAPED}", f"{with_manifests}:fairseq/a{ESCAPED}"]
    assert run_command("compare", with_manifests, "--groups", *groups, "--format", "json")[0] == 0
    (row,) = json.loads(capsys.readouterr().out)["comparison"]["rows"]
    assert row["difference"] == 0
    assert NAME_ESCAPED in row["b"]


def test_json_is_escaped_in_keys_and_values_and_pairs_are_kept():
    text = r'{"\ud800": ["\udfff", {"a": "\ud83d\ude00"}], "b": 1}'
    assert parse_json(text, "x.json", "") == {ESCAPED: [r"\udfff", {"a": "😀"}], "b": 1}
    assert escaped("é😀") == "é😀"


def test_class_names_that_are_equal_when_escaped_are_an_error(tmp_path):
    path = tmp_path / "predictions-test.jsonl"
    line = {"index": 0, "gold": None, "probabilities": {LONE: 0.25, ESCAPED: 0.25, "b": 0.5}}
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 1"):
        predictions.read(path)
