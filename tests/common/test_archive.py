"""Study archives: the same bytes from the same files, and nothing outside the folder from hostile ones."""

import io
import lzma
import tarfile

import pytest

from roberta_small.common import archive
from roberta_small.common.errors import UserError


@pytest.fixture
def folder(tmp_path):
    for name, content in {"a/manifest.json": "{}", "a/é.jsonl": "x" * 5000, "b/empty": ""}.items():
        path = tmp_path / "runs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path / "runs"


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_what_is_packed_is_extracted(folder, tmp_path):
    archive.write(folder, tmp_path / "s.tar.xz")
    opened = archive.opened(tmp_path / "s.tar.xz")
    assert contents(opened) == contents(folder)
    assert archive.opened(str(tmp_path / "s.tar.xz")) == opened
    assert archive.opened(folder) == folder
    with tarfile.open(tmp_path / "s.tar.xz") as tar:  # any program can read it
        assert sorted(tar.getnames()) == sorted(contents(folder))


def test_dates_and_permissions_do_not_change_the_bytes(folder, tmp_path):
    archive.write(folder, tmp_path / "1.tar.xz")
    (folder / "a/manifest.json").touch()
    (folder / "a/manifest.json").chmod(0o600)
    archive.write(folder, tmp_path / "2.tar.xz")
    assert (tmp_path / "1.tar.xz").read_bytes() == (tmp_path / "2.tar.xz").read_bytes()


def test_paths_are_shown_with_the_name_of_the_archive(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    archive.write(folder, "s.tar.xz")
    assert archive.shown(archive.opened("s.tar.xz") / "a") == "s.tar.xz/a"
    absolute = str(tmp_path / "s.tar.xz")
    assert archive.shown(archive.opened(absolute)) == absolute
    assert archive.shown(tmp_path / "other") == str(tmp_path / "other")


def test_an_archive_that_changed_is_extracted_again(folder, tmp_path):
    file = tmp_path / "s.tar.xz"
    archive.write(folder, file)
    archive.opened(file)
    (folder / "new").write_text("new")
    file.unlink()
    archive.write(folder, file)
    assert contents(archive.opened(file)) == contents(folder)


def pack(path, *members):
    with lzma.open(path, "wb") as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))


def member(name, content=b"", kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(content), target
    return info, content


@pytest.mark.parametrize(
    "members",
    [
        [member("../outside", b"x")],
        [member("/tmp/outside", b"x")],
        [member("a/../../outside", b"x")],
        [member("link", kind=tarfile.SYMTYPE, target="/etc/passwd")],
        [member("link", kind=tarfile.LNKTYPE, target="a")],
        [member("pipe", kind=tarfile.FIFOTYPE)],
        [member("device", kind=tarfile.CHRTYPE)],
        [member("a", b"x"), member("a", b"y")],
        [member("a", b"x"), member("a/b", b"y")],
        [],
    ],
)
def test_what_is_not_a_file_below_the_folder_is_refused(tmp_path, members):
    file = tmp_path / "inner" / "hostile.tar.xz"
    file.parent.mkdir()
    pack(file, *members)
    with pytest.raises(UserError, match=r"hostile\.tar\.xz"):
        archive.opened(file)
    assert [path.name for path in tmp_path.rglob("*")] == ["inner", "hostile.tar.xz"]


@pytest.mark.parametrize(("name", "limit"), [("MAX_BYTES", 10_000), ("MAX_FILES", 1)])
def test_what_is_too_large_is_refused_before_it_is_written(folder, tmp_path, monkeypatch, name, limit):
    pack(tmp_path / "s.tar.xz", member("a", b"0" * 9_000), member("b", b"0" * 9_000))
    monkeypatch.setattr(archive, name, limit)
    with pytest.raises(UserError, match=r"s\.tar\.xz"):
        archive.opened(tmp_path / "s.tar.xz")


def test_a_member_that_claims_an_impossible_size_is_refused(tmp_path):
    info = tarfile.TarInfo("a")
    info.size = 1 << 40
    with lzma.open(tmp_path / "s.tar.xz", "wb") as stream:
        stream.write(info.tobuf())
    with pytest.raises(UserError, match=r"s\.tar\.xz"):
        archive.opened(tmp_path / "s.tar.xz")


def test_a_damaged_archive_is_refused(folder, tmp_path):
    file = tmp_path / "s.tar.xz"
    archive.write(folder, file)
    content = file.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 0xFF
    for damaged in (b"", content[:-8], content[: len(content) // 2], bytes(flipped), b"no archive at all"):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=r"s\.tar\.xz"):
            archive.opened(file)
