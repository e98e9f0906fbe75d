"""Members of tar and zip archives as streams, written under our own names."""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from roberta_small.common.errors import UserError

Write = Callable[[IO[bytes], str, str], None]
"""`write(content, name, split)`."""
CORRUPT = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)


def unpack(archive: Path, members: dict[str, str], write: Write) -> None:
    """Call `write(content, name, split)` for the `members` (name -> split) of a tar or zip archive.

    Members are read as streams and written under our own names: paths, links and permissions in the archive
    have no effect. Raises `UserError` where the archive is corrupt or a member is missing.
    """
    wanted = dict(members)
    try:
        (_unpack_zip if archive.suffix == ".zip" else _unpack_tar)(archive, wanted, write)
    except CORRUPT as error:
        raise UserError(f"{archive}: corrupt archive ({error}); delete it and fetch it again") from None
    if wanted:
        raise UserError(f"{archive}: no member {', '.join(wanted)}; this is another archive")


def _unpack_tar(archive: Path, wanted: dict[str, str], write: Write) -> None:
    """`unpack` of a tar archive; removes the members that it finds from `wanted`."""
    with tarfile.open(archive, "r|*") as tar:
        for member in tar:
            split = wanted.pop(member.name, None) if member.isfile() else None
            if split and (stream := tar.extractfile(member)):
                write(stream, member.name, split)
            if not wanted:
                return


def _unpack_zip(archive: Path, wanted: dict[str, str], write: Write) -> None:
    """`unpack` of a zip archive; removes the members that it finds from `wanted`."""
    with zipfile.ZipFile(archive) as content:
        for name in wanted.keys() & set(content.namelist()):
            try:
                stream = content.open(name)
            except RuntimeError as error:  # an encrypted member, or an unknown compression
                raise zipfile.BadZipFile(str(error)) from None
            with stream:
                write(stream, name, wanted.pop(name))
