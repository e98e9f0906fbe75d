"""Files: atomic writes, checksums, UTF-8 text and JSON with clear errors."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .errors import UserError

CHUNK_BYTES = 1 << 20


@contextmanager
def atomic_open(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO]:
    """Open a file that appears under `path` only when the block ends without an error.

    The content goes to a temporary file in the same folder, which then replaces `path`
    in one step; a crash leaves the old file untouched. Raises `UserError` naming `path`
    where it is a folder or cannot be written.
    """
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path}: is a folder, not a file to write; give another name or move it away")
    path.parent.mkdir(parents=True, exist_ok=True)
    encoding = None if "b" in mode else "utf-8"
    newline = None if "b" in mode else "\n"
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with errors_named_after(path), os.fdopen(handle, mode, encoding=encoding, newline=newline) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def errors_named_after(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of writing to an open file (the disk is full) carry no name: raise `UserError` with this one."""
    try:
        yield
    except OSError as error:
        # A pipe is not this file: it broke under a print meanwhile.
        if error.filename is not None or isinstance(error, BrokenPipeError):
            raise
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); free some space and try again"
        ) from None


def atomic_write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a whole file in one step (see `atomic_open`)."""
    with atomic_open(path, "wb" if isinstance(content, bytes) else "w") as stream:
        stream.write(content)


def sha256(path: str | os.PathLike[str]) -> str:
    """Hexadecimal SHA-256 of a file, read in chunks."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def read_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """The lines of a UTF-8 text file without their newline, one at a time.

    Only `\\n` ends a line (a review may hold other Unicode separators).
    Raises `UserError` naming file and line where the bytes are not UTF-8.
    """
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield line.decode("utf-8").rstrip("\n")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path}, line {number}: byte {error.start + 1} is not UTF-8; "
                    f"convert the file, for example: iconv -f latin1 -t utf-8"
                ) from None


def read_json(path: str | os.PathLike[str], remedy: str) -> Any:
    """The content of a JSON file; raises `UserError` as `read_lines` and `parse_json`."""
    return parse_json("\n".join(read_lines(path)), path, remedy)


def parse_json(text: str, path: str | os.PathLike[str], remedy: str) -> Any:
    """The content of a JSON file's text.

    Raises `UserError` naming file, line and remedy where it is no JSON or is nested too deeply.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg}); {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON that can be read ({json_fault(error)}); {remedy}") from None


def json_fault(error: ValueError | RecursionError) -> str:
    """Why `json.loads` failed, in few words; it has other errors than its own."""
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"


def _umask() -> int:
    """The file mode creation mask of this process.

    Linux reports it without changing it. Elsewhere it can only be read by setting it, which other threads
    would notice: there the mask at import counts.
    """
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as status:
            for line in status:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    return _UMASK_AT_IMPORT


def _umask_by_setting() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_UMASK_AT_IMPORT = _umask_by_setting()


def shown_path(path: Path) -> str:
    """A path as a user would type it: relative where it lies below the working directory."""
    absolute, here = Path(os.path.abspath(path)), Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else path)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary sibling that takes the place of `folder` when the block ends without an error.

    A `UserError` from the block names the files as they would have stood in `folder`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
    try:
        new, old = temporary / "new", temporary / "old"
        new.mkdir()
        yield new
        if folder.exists():
            os.replace(folder, old)
        try:
            os.replace(new, folder)
        except OSError:
            if old.exists():
                os.replace(old, folder)
            raise
    except UserError as error:
        raise UserError(str(error).replace(str(temporary / "new"), str(folder))) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
