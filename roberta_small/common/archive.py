"""A study archive: manifests, scalars and predictions of runs in one compressed file, `NAME.tar.xz`.

    write    folder of runs -> archive; the same files give the same bytes
    opened   folder or archive -> folder; an archive is extracted to a temporary folder
    shown    a path in that temporary folder -> the path that the user knows, which error messages contain too

An archive from elsewhere is not trusted: only regular files with relative paths are accepted, and their
number and size are limited before anything is written.
"""

from __future__ import annotations

import io
import lzma
import os
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from roberta_small.common.errors import SHOWN_AS, UserError, shown_text
from roberta_small.common.files import atomic_open

SUFFIX = ".tar.xz"
MAX_FILES = 100_000
MAX_BYTES = 4 << 30
"""Limit of the extracted size."""
CHUNK_BYTES = 1 << 20

_folders: dict[tuple[str, int, int], tempfile.TemporaryDirectory] = {}
"""Path, modification time and size of an archive -> the folder with its files, which is removed at exit."""


def write(folder: str | os.PathLike[str], archive: str | os.PathLike[str]) -> None:
    """Pack all files below `folder`; their names, contents and order determine every byte."""
    folder = Path(folder)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    with (
        atomic_open(archive, "wb") as stream,
        lzma.open(stream, "wb", preset=9) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in names:
            content = (folder / name).read_bytes()
            member = tarfile.TarInfo(name)  # no date, owner or permissions
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def opened(path: str | os.PathLike[str]) -> Path:
    """The folder of runs that `path` is, or that the archive `path` contains.

    An archive is extracted once in a process; the folder has the name of the archive and is removed at exit.
    Raises `UserError` for an archive that is damaged, or has members that are not acceptable.
    """
    if not (os.fspath(path).endswith(SUFFIX) and os.path.isfile(path)):
        return Path(path)
    found = os.stat(path)
    key = (os.path.abspath(path), found.st_mtime_ns, found.st_size)
    if key not in _folders:
        temporary = tempfile.TemporaryDirectory(prefix="study-")
        _extract(Path(path), Path(temporary.name))
        _folders[key] = temporary
    SHOWN_AS[_folders[key].name] = os.fspath(path)
    return Path(_folders[key].name)


def shown(path: str | os.PathLike[str]) -> str:
    """The path, with the archive in place of the temporary folder of its files."""
    return shown_text(os.fspath(path))


def _extract(archive: Path, target: Path) -> None:
    left_files, left_bytes = MAX_FILES, MAX_BYTES
    try:
        with lzma.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                if member.isdir():
                    continue
                left_files, left_bytes = left_files - 1, left_bytes - member.size
                if left_files < 0 or left_bytes < 0:
                    raise UserError(
                        f"{archive}: more than {MAX_FILES:,} files or {MAX_BYTES >> 30} GiB; extract it "
                        "yourself if you trust it, and specify the folder"
                    )
                _extract_file(archive, tar, member, target)
            while stream.read(CHUNK_BYTES):  # the checksum is at the end
                left_bytes -= CHUNK_BYTES
                if left_bytes < 0:
                    raise tarfile.ReadError("data after the end")
    except (lzma.LZMAError, tarfile.TarError, EOFError) as error:
        reason = str(error) or type(error).__name__
        raise UserError(f"{archive}: damaged, or not an archive of runs ({reason}); copy it again") from None
    if left_files == MAX_FILES:
        raise UserError(f"{archive}: contains no files; copy it again")


def _extract_file(archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    name = PurePosixPath(member.name)
    if not member.isreg():
        raise UserError(f"{archive}: {member.name!r} is not a regular file; do not use this archive")
    if name.is_absolute() or not name.parts or ".." in name.parts or "\0" in member.name:
        raise UserError(f"{archive}: {member.name!r} is outside the archive; do not use it")
    path = target.joinpath(*name.parts)
    if path.exists():
        raise UserError(f"{archive}: contains {member.name!r} twice; do not use this archive")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = tar.extractfile(member)
        assert content is not None  # a regular file
        with content as source, open(path, "xb") as stream:
            shutil.copyfileobj(source, stream, CHUNK_BYTES)
    except (NotADirectoryError, FileExistsError, UnicodeEncodeError) as error:
        raise UserError(f"{archive}: {member.name!r} cannot be extracted ({error}); copy it again") from None
