"""Files are complete or absent after every kind of failure; invalid UTF-8 and JSON name file and line."""

import errno
import functools
import hashlib
import json
import os
import threading

import pytest

from roberta_small.common import files
from roberta_small.common.errors import UserError
from roberta_small.common.files import (
    CHUNK_BYTES,
    atomic_open,
    atomic_write,
    json_line,
    read_json,
    read_lines,
    sha256,
)


@pytest.fixture
def old(tmp_path):
    """An existing file."""
    path = tmp_path / "table.md"
    path.write_text("old")
    return path


@pytest.fixture
def full_disk(monkeypatch):
    """Write every new file to /dev/full, a device without space."""
    full = functools.partial(open, "/dev/full")
    monkeypatch.setattr(files, "open", lambda path, mode, **how: full("w", **how), raising=False)


def test_json_line_is_one_line_for_every_reader():
    record = {"é": "a\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r\nb"}
    line = json_line(record)
    assert len(line.splitlines()) == 1
    assert line.endswith("\n")
    assert "é" in line
    assert json.loads(line) == record


def is_only_file(path, content):
    """Whether `path` has this content and its folder no other file."""
    return path.read_bytes() == content and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", ["é\nœ\n", b"\xff\x00\r\n"], ids=["text", "bytes"])
def test_file_is_written_and_replaced(tmp_path, content):
    path = tmp_path / "deep" / "file"
    written = content.encode() if isinstance(content, str) else content
    for _ in range(2):
        atomic_write(path, content)
        assert is_only_file(path, written)


def test_content_appears_at_the_end_of_the_block(old):
    with atomic_open(old) as stream:
        stream.write("new")
        stream.flush()
        assert old.read_text() == "old"
    assert is_only_file(old, b"new")


def fail_while_writing(path, error):
    with atomic_open(path) as stream:
        stream.write("half")
        raise error


BROKEN_PIPE = BrokenPipeError(errno.EPIPE, "Broken pipe")  # no error of the file


@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt(), BROKEN_PIPE])
def test_error_leaves_the_old_file_unchanged(old, error):
    with pytest.raises(type(error)):
        fail_while_writing(old, error)
    assert is_only_file(old, b"old")


@pytest.mark.parametrize("size", [10, 10 * CHUNK_BYTES], ids=["when closing", "while writing"])
def test_full_disk_names_the_file_and_keeps_the_old_one(old, full_disk, size):
    with pytest.raises(UserError) as caught:
        atomic_write(old, "x" * size)
    assert str(caught.value).startswith(f"{old}: ")
    assert os.strerror(errno.ENOSPC) in str(caught.value)
    assert is_only_file(old, b"old")


def test_error_of_another_file_keeps_its_path(old, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"source\.txt"), atomic_open(old) as stream:
        stream.write((tmp_path / "source.txt").read_text())
    assert is_only_file(old, b"old")


def test_existing_folder_of_that_name_is_an_error(tmp_path):
    (tmp_path / "report").mkdir()
    with pytest.raises(UserError, match=rf"^{tmp_path / 'report'}: .*folder"):
        atomic_write(tmp_path / "report", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1])
def test_sha256_equals_hashlib(tmp_path, size):
    (tmp_path / "file").write_bytes(b"x" * size)
    assert sha256(tmp_path / "file") == hashlib.sha256(b"x" * size).hexdigest()


def test_only_newlines_end_lines(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("un\u2028deux\x85\r\n\ntrois".encode())
    assert list(read_lines(path)) == ["un\u2028deux\x85\r", "", "trois"]


def test_error_for_invalid_utf8_names_line_and_byte(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("un\ndeux\nagréable\n".encode("latin-1"))
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["un", "deux"]
    with pytest.raises(UserError, match=rf"^{path}, line 3: byte 4 .*UTF-8.*iconv"):
        next(lines)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{\n[", ", line 2: .*correct it$"),
        pytest.param("[" * 100_000, ": .*correct it$", id="deep"),
        pytest.param("9" * 10_000, ": .*correct it$", id="long"),
        ('"\udcff"', ", line 1: byte 2 .*UTF-8"),
    ],
)
def test_error_for_invalid_json_names_file_line_and_remedy(tmp_path, text, place):
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=f"^{path}{place}"):
        read_json(path, "correct it")
    path.write_text('{"a": [1]}')
    assert read_json(path, "correct it") == {"a": [1]}


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_mode_follows_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        atomic_write(tmp_path / "file", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_second_process_waits_for_the_lock(tmp_path, kind, capsys):
    path = tmp_path / "lock"
    if kind == "folder":
        path.mkdir()
    order = []

    def second():
        with files.exclusive(path, "waiting here"):
            order.append("second")

    with files.exclusive(path, "not printed"):
        other = threading.Thread(target=second)
        other.start()
        other.join(timeout=0.2)
        order.append("first")
    other.join(timeout=10)
    assert order == ["first", "second"]
    assert capsys.readouterr().err == "waiting here\n"
