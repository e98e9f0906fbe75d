"""Files: atomic writes, locks, checksums, UTF-8 text and JSON with clear errors."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from roberta_small.common.errors import UserError

CHUNK_BYTES = 1 << 20
PACKAGE = Path(__file__).resolve().parents[1]
"""The package: its recipes, weights and the fairseq plugin are below it."""
ROOT = PACKAGE.parent
"""The clone; where the package is installed, the folder with all packages."""
SHIPPED_NAME = "roberta_small_fr"
"""The weights in the package, as `--pretrained`, `--tokenizer` and `TextClassifier` accept them."""
SHIPPED = PACKAGE / "pretrained" / SHIPPED_NAME
"""Their weights, dict.txt and model card. The SentencePiece model is XLM-R's, which is downloaded."""
CACHE = "RS_CACHE"
"""Environment variable with the folder of converted models and of the downloaded tokenizer."""
DEFAULT_CACHE = Path("~/.cache/fairseq-roberta-small")
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape in JSON that is half of a surrogate pair, alone or not."""
LINE_BREAK = re.compile("[\x85\u2028\u2029]")
"""Line breaks of Unicode that JSON does not escape."""


@contextmanager
def atomic_open(path: str | os.PathLike[str], mode: str = "w", *, encoding: str = "utf-8") -> Iterator[IO]:
    """Open `path` for writing; the new content appears only when the block ends without an error.

    The content is written to a temporary file in the same folder, which then replaces `path` in one step. An
    error or a crash leaves the old file unchanged. Raises `UserError` if `path` is a folder or cannot be
    written.
    """
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path}: is a folder; choose another file name")
    path.parent.mkdir(parents=True, exist_ok=True)
    text: dict[str, Any] = {} if "b" in mode else {"encoding": encoding, "newline": "\n"}
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with errors_named_after(path), open(temporary, mode.replace("w", "x"), **text) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def errors_named_after(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise write errors of an open file (full disk) as `UserError` with its path, which they lack."""
    try:
        yield
    except OSError as error:
        # A broken pipe comes from a print inside the block, not from this file.
        if error.filename is not None or isinstance(error, BrokenPipeError):
            raise
        remedy = "free disk space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the device"
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); {remedy} and try again"
        ) from None


def atomic_write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file in one step (see `atomic_open`)."""
    with atomic_open(path, "wb" if isinstance(content, bytes) else "w") as stream:
        stream.write(content)


def sha256(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file without their newline.

    Only `\\n` ends a line: a text may contain other Unicode line separators. Raises `UserError` with file and
    line for bytes that are not UTF-8.
    """
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield line.decode("utf-8").rstrip("\n")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path}, line {number}: byte {error.start + 1} is not UTF-8; "
                    "convert the file from its encoding, usually Windows-1252: iconv -f cp1252 -t utf-8"
                ) from None


def read_json(path: str | os.PathLike[str], remedy: str) -> Any:
    """Read a JSON file; raises `UserError` like `read_lines` and `parse_json`."""
    return parse_json("\n".join(read_lines(path)), path, remedy)


def read_object(path: str | os.PathLike[str], remedy: str) -> dict[str, Any]:
    """Read a JSON file with one object; raises `UserError` like `read_json`, and for anything else in it."""
    found = read_json(path, remedy)
    if not isinstance(found, dict):
        raise UserError(f"{path}: not a JSON object; {remedy}")
    return found


def parse_json(text: str, path: str | os.PathLike[str], remedy: str) -> Any:
    """Parse the text of the JSON file `path`; lone surrogates are `escaped`.

    Raises `UserError` with file, line and remedy if it is not valid JSON or is nested too deeply.
    """
    try:
        return load_json(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg}); {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: JSON that cannot be read ({json_fault(error)}); {remedy}") from None


def load_json(text: str) -> Any:
    """`json.loads`, with lone surrogates as in `escaped`, also in keys. Raises as `json.loads`."""
    content = json.loads(text)
    return _escape_all(content) if SURROGATE.search(text) else content


def _escape_all(value: Any) -> Any:
    if isinstance(value, dict):
        return {escaped(key): _escape_all(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escape_all(item) for item in value]
    return escaped(value) if isinstance(value, str) else value


def escaped(text: str) -> str:
    """The text with lone surrogates as escapes (`\\udce9`), so that it can be written as UTF-8.

    JSON may contain lone surrogates. Python also represents bytes of file names and arguments that are not
    UTF-8 by them.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def json_line(record: Any, default: Callable[[Any], Any] | None = None) -> str:
    """One line of JSON lines, with its newline; `default` as in `json.dumps`.

    Characters at which `str.splitlines` splits are escaped, so that every reader finds one line.
    """
    line = json.dumps(record, ensure_ascii=False, default=default)
    return LINE_BREAK.sub(lambda found: f"\\u{ord(found[0]):04x}", line) + "\n"


def json_fault(error: ValueError | RecursionError) -> str:
    """Why `json.loads` failed, in a few words; not all of its errors are `JSONDecodeError`."""
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"


def shown_path(path: Path) -> str:
    """A path as a user would type it: relative if it is in the working directory."""
    absolute, here = Path(os.path.abspath(path)), Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else path)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `folder` when the block ends without an error.

    In the message of a `UserError` from the block, paths in the temporary folder become paths in `folder`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Without "..": a/../a has no parent while a is renamed.
    target = folder.resolve() if folder.name in ("", "..") else folder.parent.resolve() / folder.name
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"))
    try:
        new, old = temporary / "new", temporary / "old"
        new.mkdir()
        yield new
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(new, target)
        except OSError:
            if old.exists():
                os.replace(old, target)
            raise
    except UserError as error:
        raise UserError(str(error).replace(str(temporary / "new"), str(folder))) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def exclusive(path: Path, waiting: str) -> Iterator[None]:
    """Hold a lock on a folder, or on a file that is created; other processes wait.

    A process that has to wait prints `waiting` on standard error. On a file system without locks, no process
    waits.
    """
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(waiting, file=sys.stderr, flush=True)
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def cache_folder() -> Path:
    """The folder of what is made or downloaded once: $RS_CACHE, or ~/.cache/fairseq-roberta-small."""
    return Path(os.environ.get(CACHE) or DEFAULT_CACHE.expanduser()).absolute()
