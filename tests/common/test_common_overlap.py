"""Which test lines stand in train, as the audit of preprocess has it."""

import json
from pathlib import Path

import pytest

from common.data_folder import read_overlap
from common.errors import UserError
from preprocess.__main__ import main as preprocess

REAL = Path(__file__).parents[2] / "results" / "cls-books" / "audit.json"


def audit(size, lines):
    return json.dumps(
        {"splits": {"test": {"lines": size}}, "duplicates": {"exact": {"test": {"train": lines}}}}
    )


def test_what_preprocess_writes(tmp_path):
    for name, texts in (
        ("train", ["un livre", "un roman", "Un conte"]),
        ("test", ["autre", "un roman", "un  conte!"]),
    ):
        (tmp_path / f"{name}.input0").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        (tmp_path / f"{name}.label").write_text("1\n0\n1\n")
    arguments = ["audit", "--trainpref", str(tmp_path / "train"), "--testpref", str(tmp_path / "test")]
    assert preprocess([*arguments, "--out", str(tmp_path / "audit.json")]) == 0
    exact = read_overlap(tmp_path / "audit.json")
    assert (exact.size, exact.lines) == (3, {1})
    assert read_overlap(tmp_path / "audit.json", notion="normalized").lines == {1, 2}
    with pytest.raises(UserError, match="not an audit of valid and train"):
        read_overlap(tmp_path / "audit.json", "valid")


def test_the_audit_of_the_real_reviews():
    overlap = read_overlap(REAL)
    assert (overlap.size, len(overlap.lines)) == (2000, 52)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "line 1: not JSON"),
        pytest.param("[" * 100_000, "nested too deeply", id="deep"),
        (audit(0, []), "test has 0 lines"),
        (audit(-5, []), "test has -5 lines"),
        (audit(3, [1, -1]), "names line -1 of test, which has 3 lines"),
        ("[]", "not an audit of test and train"),
        ('{"splits": {}}', "not an audit of test and train"),
        (json.dumps({"splits": {"test": {"lines": 3}}, "duplicates": {"exact": {"test": {"train": [3]}}}}),
         "names line 3 of test, which has 3 lines"),
        (json.dumps({"splits": {"test": {"lines": 3}}, "duplicates": {"exact": {"test": {"train": ["1"]}}}}),
         "are no line numbers"),
    ],
)  # fmt: skip
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "audit.json"
    path.write_text(content)
    with pytest.raises(UserError) as error:
        read_overlap(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)
