import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from roberta_small.common.errors import UserError
from roberta_small.preprocess.__main__ import main
from roberta_small.preprocess.download.archives import (
    ALLOCINE_MEMBERS,
    CLS_ARCHIVE,
    CLS_MEMBER,
    unpack_books,
)
from roberta_small.preprocess.download.command import SOURCES
from tests.support.archives import write_tar
from tests.support.labelled_files import prepare

XML = "<items><item><rating>{}</rating><text>Avis {}</text></item></items>"


def books():
    return {
        CLS_MEMBER.format(category="books", split=split): XML.format(5, split).encode()
        for split in ("train", "test")
    }


def run(capsys, *arguments):
    code = main(["download", *map(str, arguments)])
    return code, capsys.readouterr()


def test_local_archive_to_text(tmp_path, capsys):
    local, out = tmp_path / "local", tmp_path / "out"
    local.mkdir()
    path = write_tar(
        local / CLS_ARCHIVE, {"cls-acl10-unprocessed/de/books/train.review": b"not xml", **books()}
    )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    code, printed = run(capsys, "cls-books", "--out", out, "--from", local, "--sha256", digest.upper())
    assert code == 0
    assert digest in printed.out
    assert (out / "train.review").read_text() == "Avis train\n"
    assert (out / "test.label").read_text() == "1\n"


def test_film_reviews_to_data(tmp_path, capsys, monkeypatch, expect):
    monkeypatch.chdir(tmp_path)
    texts = [f"Film {i} {'bon' if i % 2 else 'nul'}." for i in range(40)]
    rows = [{"film-url": "x", "review": text, "polarity": i % 2} for i, text in enumerate(texts)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    members = {"data/allocine_dataset.pickle": b"x"}
    for name in ALLOCINE_MEMBERS:
        members[name] = text.replace("Film", name.removeprefix("data/")).encode()
    write_tar("data.tar.bz2", members, "w:bz2")
    expect("allocine", tmp_path)
    code, _ = run(capsys, "allocine", "--out", "films", "--from", ".")
    assert code == 0
    prepare("films/train.jsonl", "--valid", "films/valid.jsonl", "--test", "films/test.jsonl")
    assert Path("data/text/valid.label").read_text() == "0\n1\n" * 20
    assert Path("data/text/valid.input0").read_text().startswith("val.jsonl 0 nul.\n")


def test_published_digest_is_checked(tmp_path, capsys):
    write_tar(tmp_path / CLS_ARCHIVE, books())
    code, printed = run(capsys, "cls-books", "--out", tmp_path / "out", "--from", tmp_path)
    assert code == 1
    assert SOURCES["cls-books"][0].files[CLS_ARCHIVE].value in printed.err
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bloom", "--sha256", "0" * 64), r"--sha256: .*bloom.*\b5\b"),
        (("flue", "--sha256", "0" * 64), r"--sha256: .*flue.*\b4\b"),
        (("xlmr", "--sha256", "abc"), r"--sha256 abc: .*\b64\b"),
        (("xlmr", "--from", "nowhere"), r"nowhere/.*--from"),
    ],
)
def test_bad_options(tmp_path, capsys, arguments, message):
    code, printed = run(capsys, *arguments, "--out", tmp_path)
    assert code == 1
    assert re.search(message, printed.err)


def test_hostile_members_never_reach_the_disk(tmp_path):
    write_tar(tmp_path / CLS_ARCHIVE, {"../../evil": b"x", "/evil": b"x", **books()})
    unpack_books(tmp_path)
    found = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {CLS_ARCHIVE, "test.label", "test.review", "train.label", "train.review"}


def test_damaged_archives(tmp_path):
    whole = write_tar(tmp_path / CLS_ARCHIVE, books()).read_bytes()
    for content in (
        whole[: len(whole) // 2],
        b"<html></html>" * 100,
        gzip.compress(b"x" * 5000),
        whole[:60] + bytes(20) + whole[80:],
    ):
        (tmp_path / CLS_ARCHIVE).write_bytes(content)
        with pytest.raises(UserError, match="archive"):
            unpack_books(tmp_path)


def test_archive_without_the_split_or_reviews(tmp_path):
    members = books() | {CLS_MEMBER.format(category="books", split="train"): b"<items></items>"}
    write_tar(tmp_path / CLS_ARCHIVE, members)
    with pytest.raises(UserError, match=r"train\.review: contains no reviews"):
        unpack_books(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [CLS_ARCHIVE]
    members = books()
    del members[CLS_MEMBER.format(category="books", split="test")]
    write_tar(tmp_path / CLS_ARCHIVE, members)
    with pytest.raises(UserError, match=r"test\.review"):
        unpack_books(tmp_path)
