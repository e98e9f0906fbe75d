"""Shards, recorded checksums, and test lines that also occur in train."""

import json
import re
from pathlib import Path

import pytest

from roberta_small.common.data_folder import (
    read_overlap,
    recorded_checksums,
    require_recorded,
    shard_name,
    shards_of,
)
from roberta_small.common.errors import UserError
from roberta_small.preprocess import audit

CLS_BOOKS_AUDIT = Path(__file__).parents[2] / "results" / "cls-books" / "audit.json"


def test_shards_are_ordered_by_number(tmp_path):
    for number in range(12):
        (tmp_path / shard_name(number)).mkdir()
    (tmp_path / "shard12").write_text("a file")
    (tmp_path / "shards").mkdir()
    assert [folder.name for folder in shards_of(tmp_path)] == [f"shard{number}" for number in range(12)]
    assert shards_of(tmp_path / "shard0") == [tmp_path / "shard0"]


def test_error_for_a_missing_shard_names_it(tmp_path):
    for number in (0, 2):
        (tmp_path / shard_name(number)).mkdir()
    with pytest.raises(UserError, match=r"shard1.*shard2"):
        shards_of(tmp_path)


def test_recorded_checksums(tmp_path):
    assert recorded_checksums(tmp_path) == {}
    (tmp_path / "preprocess.json").write_text(json.dumps({"files": {"dict.txt": "ab"}}))
    assert recorded_checksums(tmp_path) == {"dict.txt": "ab"}
    require_recorded(tmp_path / "dict.txt", "ab", "ab", tmp_path)
    require_recorded(tmp_path / "other", "ab", None, tmp_path)
    with pytest.raises(UserError, match=r"dict\.txt: .*preprocess\.json .*ab"):
        require_recorded(tmp_path / "dict.txt", "ac", "ab", tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"files": []}', "[" * 100_000])
def test_malformed_report_is_an_error(tmp_path, content):
    (tmp_path / "preprocess.json").write_text(content)
    with pytest.raises(UserError, match=r"preprocess\.json: "):
        recorded_checksums(tmp_path)


def audit_of_test(size, lines):
    return json.dumps(
        {"splits": {"test": {"lines": size}}, "duplicates": {"exact": {"test": {"train": lines}}}}
    )


def test_overlap_is_read_from_the_audit_of_preprocess(tmp_path):
    for name, texts in (
        ("train", ["un livre", "un roman", "Un conte"]),
        ("test", ["autre", "un roman", "un  conte!"]),
    ):
        (tmp_path / f"{name}.input0").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        (tmp_path / f"{name}.label").write_text("1\n0\n1\n")
    splits = {
        name: audit.read_examples([str(tmp_path / f"{name}.input0")], str(tmp_path / f"{name}.label"))
        for name in ("train", "test")
    }
    (tmp_path / "audit.json").write_text(json.dumps(audit.audit(splits, None)))
    exact = read_overlap(tmp_path / "audit.json")
    assert (exact.size, exact.lines) == (3, {1})
    assert read_overlap(tmp_path / "audit.json", notion="normalized").lines == {1, 2}
    with pytest.raises(UserError, match=r"audit\.json: .*valid and train"):
        read_overlap(tmp_path / "audit.json", "valid")


def test_overlap_of_cls_books():
    overlap = read_overlap(CLS_BOOKS_AUDIT)
    assert (overlap.size, len(overlap.lines)) == (2000, 52)


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        ("{", ", line 1: "),
        pytest.param("[" * 100_000, ": ", id="deep"),
        (audit_of_test(0, []), r"test .*\b0 lines"),
        (audit_of_test(-5, []), "test .*-5 lines"),
        (audit_of_test(3, [1, -1]), "line -1 of test.* 3 lines"),
        ("[]", "test and train"),
        ('{"splits": {}}', "test and train"),
        (json.dumps({"splits": {"test": {"lines": 3}}, "duplicates": {"exact": {"test": {"train": [3]}}}}),
         "line 3 of test.* 3 lines"),
        (json.dumps({"splits": {"test": {"lines": 3}}, "duplicates": {"exact": {"test": {"train": ["1"]}}}}),
         "test .*train"),
    ],
)  # fmt: skip
def test_file_that_is_no_valid_audit_is_an_error(tmp_path, content, fact):
    path = tmp_path / "audit.json"
    path.write_text(content)
    with pytest.raises(UserError) as error:
        read_overlap(path)
    assert re.match(f"{path}.*{fact}", str(error.value))
