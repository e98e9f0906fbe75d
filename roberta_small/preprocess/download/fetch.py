"""Download of one file: resumed after an interruption, checked, complete or absent."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import shutil
import ssl
import sys
import time
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from tqdm import tqdm

from roberta_small.common.errors import UserError
from roberta_small.common.files import CHUNK_BYTES, atomic_open, atomic_write, sha256

ATTEMPTS = 5
PAUSE_SECONDS = 1.0  # before the second attempt; doubled before each further one
TIMEOUT_SECONDS = 30.0  # without a byte
RETRIED = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses that a retry may resolve


@dataclass(frozen=True)
class Digest:
    """The checksum to expect: `sha256`, or `git` for the SHA-1 that git gives to a file's content."""

    kind: str
    value: str

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return {"sha256": "sha256", "git": "git's SHA-1"}[self.kind]

    def of(self, path: Path) -> str:
        """The digest of this kind of a file, in hexadecimal."""
        if self.kind == "sha256":
            return sha256(path)
        header = f"blob {path.stat().st_size}\0".encode()
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.sha1(header)).hexdigest()

    def check(self, path: Path, name: str, remedy: str) -> None:
        """Raises `UserError` with both digests where the file is another."""
        if (measured := self.of(path)) != self.value:
            raise UserError(f"{name}: {self.name} is {measured}, but {self.value} is expected; {remedy}")


class _BrokenError(Exception):
    """A connection error that a retry may resolve."""


def fetch(url: str, target: Path, digest: Digest) -> None:
    """Download `url` to `target`, unless it is there and is the right file.

    Received bytes are kept in `<target>.part`; a later attempt or call requests only the rest (HTTP
    Range) if the server still has the same version (If-Range, RFC 9110 13.1.5).
    Raises `UserError` where the address is wrong, the network is unreachable, the disk is full or
    the digest is another; only in the last case the partial file is removed.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise UserError(f"{url}: not an http or https address; for local files use --from DIR")
    if _is_there(target, digest):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _receive(url, part)
            break
        except _BrokenError as error:
            if attempt == ATTEMPTS:
                raise UserError(
                    f"{url}: {error} ({ATTEMPTS} attempts); run the same command again to resume at byte "
                    f"{_size(part)}, or fetch the file by other means and use --from DIR"
                ) from None
            pause = PAUSE_SECONDS * 2 ** (attempt - 1)
            tqdm.write(f"{url}: {error}; trying again in {pause:g} s", file=sys.stderr)
            time.sleep(pause)
    try:
        digest.check(part, url, "the download was deleted; try again, or check the digest with the host")
    except UserError:
        _forget(part)
        raise
    os.replace(part, target)
    _forget(part)


def copy(source: Path, target: Path, digest: Digest) -> None:
    """Take a local copy instead, with the same check. Raises `UserError` where it is missing or another."""
    if _is_there(target, digest):
        return
    if not source.is_file():
        raise UserError(f"{source}: no such file; --from needs a folder that contains {target.name}")
    digest.check(source, str(source), "download it again, or pass --sha256 for another version")
    with open(source, "rb") as origin, atomic_open(target, "wb") as stream:
        shutil.copyfileobj(origin, stream, CHUNK_BYTES)


def _is_there(target: Path, digest: Digest) -> bool:
    if not target.exists():
        return False
    digest.check(target, str(target), "move the file away to fetch it again")
    return True


def _receive(url: str, part: Path) -> None:
    """One attempt: append to `part` what is missing, or begin anew. Raises `_BrokenError` or `UserError`."""
    headers = {"User-Agent": "Python urllib", "Accept-Encoding": "identity"}
    version, begun = _version_file(part), _size(part)
    if begun and version.exists():
        headers |= {"Range": f"bytes={begun}-", "If-Range": version.read_text(encoding="utf-8")}
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            if response.status != HTTPStatus.PARTIAL_CONTENT:
                begun = 0  # no range requested, or the server ignores it or has another version
                # A weak ETag does not identify a version for ranges.
                etag = response.headers.get("ETag", "")
                known = response.headers.get("Last-Modified") if not etag or etag.startswith("W/") else etag
                if known:
                    atomic_write(version, known)
                else:
                    version.unlink(missing_ok=True)
            elif not response.headers.get("Content-Range", "").startswith(f"bytes {begun}-"):
                _forget(part)
                raise _BrokenError("the server sent another range than requested")
            _write(response, part, begun)
    except HTTPError as error:
        error.close()
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is missing; the digest decides whether it is right
        refusal = f"the server returned {error.code} {error.reason}"
        if error.code in RETRIED:
            raise _BrokenError(refusal) from None
        raise UserError(f"{url}: {refusal}; use a mirror (--url) or a local copy (--from)") from None
    except URLError as error:
        raise _BrokenError(f"no connection ({error.reason})") from None
    except (TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException) as error:
        raise _BrokenError(f"the connection was interrupted ({error})") from None


def _write(response: http.client.HTTPResponse, part: Path, begun: int) -> None:
    """Write the body after the first `begun` bytes of `part`; `_BrokenError` where it ends too soon."""
    length = response.headers.get("Content-Length")
    total = None if length is None else begun + int(length)
    name = part.name.removesuffix(".part")
    with (
        open(part, "ab" if begun else "wb") as stream,
        tqdm(desc=name, total=total, initial=begun, unit="B", unit_scale=True, disable=None) as progress,
    ):
        while chunk := response.read(CHUNK_BYTES):
            try:
                stream.write(chunk)
                stream.flush()
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                raise UserError(
                    f"{part}: the disk is full; free {total or 'some'} bytes and run the same command again"
                ) from None
            progress.update(len(chunk))
    if total is not None and _size(part) < total:
        raise _BrokenError(f"the connection was interrupted at byte {_size(part)} of {total}")


def _version_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.version")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _version_file(part).unlink(missing_ok=True)
