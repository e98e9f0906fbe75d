"""Files are whole or absent, whatever happens while they are written; text that is not UTF-8 is named."""

import errno
import hashlib
import os
import stat
import tempfile

import pytest

from common import files
from common.errors import UserError
from common.files import CHUNK_BYTES, atomic_open, atomic_write, read_json, read_lines, sha256


@pytest.fixture
def old(tmp_path):
    """A file that is there already."""
    path = tmp_path / "table.md"
    path.write_text("old")
    return path


@pytest.fixture
def full_disk(monkeypatch):
    """Every new temporary file is on a device without room, the kernel's own /dev/full."""
    mkstemp = tempfile.mkstemp

    def full(**where):
        handle, name = mkstemp(**where)
        os.close(handle)
        return os.open("/dev/full", os.O_WRONLY), name

    monkeypatch.setattr(tempfile, "mkstemp", full)


def only(path, content):
    """`path` has this content and nothing else stands in its folder."""
    return path.read_bytes() == content and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", ["é\nœ\n", b"\xff\x00\r\n"], ids=["text", "bytes"])
def test_new_and_replaced(tmp_path, content):
    path = tmp_path / "deep" / "file"
    written = content.encode() if isinstance(content, str) else content
    for _ in range(2):
        atomic_write(path, content)
        assert only(path, written)


def test_nothing_is_seen_before_the_end(old):
    with atomic_open(old) as stream:
        stream.write("new")
        stream.flush()
        assert old.read_text() == "old"
    assert only(old, b"new")


def fail_half_way(path, error):
    with atomic_open(path) as stream:
        stream.write("half")
        raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_alone(old, error):
    with pytest.raises(error):
        fail_half_way(old, error)
    assert only(old, b"old")


def test_an_error_leaves_no_new_file(tmp_path):
    with pytest.raises(ValueError, match="half"):
        fail_half_way(tmp_path / "file", ValueError("half"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [10, 10 * CHUNK_BYTES], ids=["at the end", "on the way"])
def test_a_full_disk_is_named_and_loses_nothing(old, full_disk, size):
    with pytest.raises(UserError) as caught:
        atomic_write(old, "x" * size)
    assert str(caught.value).startswith(f"{old}: cannot be written")
    assert os.strerror(errno.ENOSPC) in str(caught.value)
    assert only(old, b"old")


def test_an_error_of_another_file_keeps_its_name(old, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"source\.txt"), atomic_open(old) as stream:
        stream.write((tmp_path / "source.txt").read_text())
    assert only(old, b"old")


def test_a_pipe_that_broke_meanwhile_is_not_the_file(old):
    with pytest.raises(BrokenPipeError):
        fail_half_way(old, BrokenPipeError(errno.EPIPE, "Broken pipe"))
    assert only(old, b"old")


def test_a_folder_in_the_way_is_named(tmp_path):
    (tmp_path / "report").mkdir()
    with pytest.raises(UserError, match=rf"{tmp_path / 'report'}: is a folder"):
        atomic_write(tmp_path / "report", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_rights_are_those_of_any_new_file(tmp_path, mask):
    before = os.umask(mask)
    try:
        atomic_write(tmp_path / "ours", "")
        (tmp_path / "any").touch()
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    rights = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "any")}
    assert rights == {0o666 & ~mask}


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1])
def test_sha256(tmp_path, size):
    (tmp_path / "file").write_bytes(b"x" * size)
    assert sha256(tmp_path / "file") == hashlib.sha256(b"x" * size).hexdigest()


def test_only_a_newline_ends_a_line(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("un\u2028deux\x85\r\n\ntrois".encode())
    assert list(read_lines(path)) == ["un\u2028deux\x85\r", "", "trois"]


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("un\ndeux\nagréable\n".encode("latin-1"))
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["un", "deux"]
    with pytest.raises(UserError, match=rf"{path}, line 3: byte 4 is not UTF-8; .* iconv"):
        next(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{\n[", "json, line 2: not JSON (Expecting property name enclosed in double quotes); mend it"),
        pytest.param(
            "[" * 100_000, "json: not JSON that can be read (nested too deeply); mend it", id="deep"
        ),
        pytest.param(
            "9" * 10_000, "json: not JSON that can be read (a number of too many digits); mend it", id="long"
        ),
        ('"\udcff"', "json, line 1: byte 2 is not UTF-8"),
    ],
)
def test_json_that_cannot_be_read_is_a_clear_error(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError) as error:
        read_json(path, "mend it")
    assert message in str(error.value)
    path.write_text('{"a": [1]}')
    assert read_json(path, "mend it") == {"a": [1]}


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_written_file_has_the_mode_of_the_umask_which_is_never_set(tmp_path, monkeypatch, mask):
    before = os.umask(mask)
    try:
        changed = []
        monkeypatch.setattr(os, "umask", changed.append)
        atomic_write(tmp_path / "file", "x")
        monkeypatch.undo()
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask
    assert changed == []


def test_without_proc_the_umask_is_that_at_import(tmp_path, monkeypatch):
    def no_proc(*args, **kwargs):
        raise FileNotFoundError

    monkeypatch.setattr(files, "open", no_proc, raising=False)
    monkeypatch.setattr(files, "_UMASK_AT_IMPORT", 0o027)
    atomic_write(tmp_path / "file", "x")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
