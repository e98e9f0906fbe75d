"""Shards, recorded checksums, and test lines that also occur in train."""

import json
import re
from pathlib import Path

import pytest

from roberta_small.common.data_folder import (
    HEADER_BYTES,
    Header,
    check_replaceable,
    finished,
    is_index,
    read_header,
    read_overlap,
    recorded_checksums,
    request,
    require_recorded,
    shard_name,
    shards_of,
    write_report,
)
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_folder
from roberta_small.preprocess import audit
from tests.support.data_folders import write_split


def test_shards_are_ordered_by_number(tmp_path):
    for number in range(12):
        (tmp_path / shard_name(number)).mkdir()
    (tmp_path / "shard12").write_text("a file")
    (tmp_path / "shards").mkdir()
    assert [folder.name for folder in shards_of(tmp_path)] == [f"shard{number}" for number in range(12)]
    assert shards_of(tmp_path / "shard0") == [tmp_path / "shard0"]
    (tmp_path / "shard1").rmdir()
    with pytest.raises(UserError, match=r"shard1 .*shard2 "):
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
    texts = {"train": ["un livre", "un roman", "Un conte"], "test": ["autre", "un roman", "un  conte!"]}
    keys = {name: [audit.normalized(text) for text in own] for name, own in texts.items()}
    found = {"exact": audit.duplicates(texts), "normalized": audit.duplicates(keys)}
    content = {"splits": {name: {"lines": 3} for name in texts}, "duplicates": found}
    (tmp_path / "audit.json").write_text(json.dumps(content))
    exact = read_overlap(tmp_path / "audit.json")
    assert (exact.size, exact.lines) == (3, {1})
    assert read_overlap(tmp_path / "audit.json", notion="normalized").lines == {1, 2}
    with pytest.raises(UserError, match=r"audit\.json: .*valid and train"):
        read_overlap(tmp_path / "audit.json", "valid")


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
        (audit_of_test(3, [3]), "line 3 of test.* 3 lines"),
        (audit_of_test(3, ["1"]), "test .*train"),
    ],
)
def test_file_that_is_no_valid_audit_is_an_error(tmp_path, content, fact):
    path = tmp_path / "audit.json"
    path.write_text(content)
    with pytest.raises(UserError) as error:
        read_overlap(path)
    assert re.match(f"{path}.*{fact}", str(error.value))


@pytest.fixture
def index(tmp_path):
    """The index of three sentences, written by fairseq."""
    write_split(tmp_path, "train", [[4, 5], [6], [7, 8, 9]])
    return tmp_path / "train.idx"


def test_header_equals_that_of_fairseq(index):
    header = read_header(index)
    assert header == Header(code=8, sentences=3)
    assert header.pack() == index.read_bytes()[:HEADER_BYTES]
    assert is_index(index)


def test_a_corrupt_index(index):
    content = index.read_bytes()
    for header in (content[:10], b"X" + content[1:], b""):
        index.write_bytes(header)
        assert read_header(index) is None
        assert not is_index(index)
    for body in (content[:-1], content[:-8] + bytes(8)):
        index.write_bytes(body)
        assert not is_index(index)


def test_error_leaves_the_old_folder_and_no_trace(tmp_path):
    old = tmp_path / "out"
    old.mkdir()
    (old / "file").write_text("old")

    def fail_half_way():
        with atomic_folder(old) as folder:
            (folder / "file").write_text("new")
            raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        fail_half_way()
    assert (old / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [old]


def test_a_mistake_is_told_of_the_folder_to_be(tmp_path):
    with pytest.raises(UserError) as caught, atomic_folder(tmp_path / "out") as folder:
        raise UserError(f"{folder / 'dict.txt'}: cannot be written; the text is {tmp_path / 'train'}")
    said = f"{tmp_path / 'out' / 'dict.txt'}: cannot be written; the text is {tmp_path / 'train'}"
    assert str(caught.value) == said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out/../out", ".", "sub/.."])
def test_a_path_with_dots(tmp_path, monkeypatch, name):
    out = tmp_path / "deep" / "out"
    (out / "sub").mkdir(parents=True)
    monkeypatch.chdir(out if name != "out/../out" else out.parent)
    with atomic_folder(Path(name)) as folder:
        (folder / "new").write_text("new")
    assert [path.name for path in out.iterdir()] == ["new"]
    assert list(out.parent.iterdir()) == [out]


def test_new_folder_takes_the_place_of_the_old(tmp_path):
    old = tmp_path / "deep" / "out"
    for text in ("first", "second"):
        with atomic_folder(old) as folder:
            (folder / text).write_text(text)
        assert [path.name for path in old.iterdir()] == [text]
    assert list(old.parent.iterdir()) == [old]


def test_finished_needs_the_same_request_and_intact_files(tmp_path):
    source = tmp_path / "source"
    source.write_text("a")
    wanted = request({"size": 1}, [str(source)])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("x")
    report = write_report(tmp_path / "out", "report.json", wanted)
    assert finished(tmp_path / "out", "report.json", wanted) == report
    assert finished(tmp_path / "out", "report.json", request({"size": 2}, [str(source)])) is None
    source.write_text("b")
    assert finished(tmp_path / "out", "report.json", request({"size": 1}, [str(source)])) is None
    (tmp_path / "out" / "file").write_text("y")
    assert finished(tmp_path / "out", "report.json", wanted) is None
    assert finished(tmp_path / "absent", "report.json", wanted) is None


def test_what_may_be_replaced(tmp_path):
    check_replaceable(tmp_path / "absent", "report.json", overwrite=False)
    (tmp_path / "out").mkdir()
    check_replaceable(tmp_path / "out", "report.json", overwrite=False)
    (tmp_path / "out" / "thesis.tex").touch()
    with pytest.raises(UserError, match=rf"{tmp_path / 'out'}: .*report\.json.*--out"):
        check_replaceable(tmp_path / "out", "report.json", overwrite=True)
    (tmp_path / "out" / "report.json").touch()
    with pytest.raises(UserError, match="--overwrite"):
        check_replaceable(tmp_path / "out", "report.json", overwrite=False)
    check_replaceable(tmp_path / "out", "report.json", overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=rf"{tmp_path / 'file'}: .*--out"):
        check_replaceable(tmp_path / "file", "report.json", overwrite=True)
