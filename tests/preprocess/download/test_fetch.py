"""The downloader against a local server that misbehaves on demand."""

import errno
import hashlib
import io
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from roberta_small.common.errors import UserError
from roberta_small.preprocess.download import fetch as fetch_module
from roberta_small.preprocess.download.fetch import Digest, copy, fetch

CONTENT = bytes(range(256)) * 400
SHA = Digest("sha256", hashlib.sha256(CONTENT).hexdigest())
GIT = Digest("git", hashlib.sha1(b"blob %d\0" % len(CONTENT) + CONTENT).hexdigest())


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range")
        server.ranges.append(wanted)
        if server.statuses:
            self.send_error(server.statuses.pop(0))
            return
        etag, start = server.etag, 0
        same = self.headers.get("If-Range") in (None, etag)
        if wanted and same and server.ranged:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(server.content):
                self.send_error(416)
                return
            self.send_response(206)
            shown = server.wrong_start or start
            self.send_header(
                "Content-Range", f"bytes {shown}-{len(server.content) - 1}/{len(server.content)}"
            )
        else:
            self.send_response(200)
        body = server.content[start:]
        self.send_header("Content-Length", str(len(body)))
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        cut = server.cuts.pop(0) if server.cuts else len(body)
        self.wfile.write(body[:cut])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(fetch_module, "PAUSE_SECONDS", 0.01)
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.content, http.etag, http.ranged, http.wrong_start = CONTENT, '"v1"', True, None
    http.ranges, http.statuses, http.cuts = [], [], []
    http.url = f"http://127.0.0.1:{http.server_port}/file.bin"
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield http
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new" / "file.bin"


def only(target):
    return [path.name for path in target.parent.iterdir()] == [target.name]


@pytest.mark.parametrize("digest", [SHA, GIT])
def test_plain_download_then_skipped(server, target, digest):
    fetch(server.url, target, digest)
    assert target.read_bytes() == CONTENT
    assert only(target)
    fetch(server.url, target, digest)
    assert server.ranges == [None]


@pytest.mark.parametrize(
    ("behaviour", "ranges"),
    [
        ({"cuts": [1000, 500]}, [None, "bytes=1000-", "bytes=1500-"]),
        ({"cuts": [1000], "ranged": False}, [None, "bytes=1000-"]),
        ({"cuts": [1000], "etag": ""}, [None, None]),
        ({"cuts": [1000], "wrong_start": 7}, [None, "bytes=1000-", None]),
        ({"statuses": [503, 429]}, [None, None, None]),
    ],
)
def test_an_interrupted_download_is_resumed_where_the_server_can(server, target, behaviour, ranges):
    for name, value in behaviour.items():
        setattr(server, name, value)
    fetch(server.url, target, SHA)
    assert target.read_bytes() == CONTENT
    assert server.ranges == ranges
    assert only(target)


@pytest.mark.parametrize(("content", "etag"), [(CONTENT, '"v1"'), (b"old" * len(CONTENT), '"v0"')])
def test_a_later_call_resumes_the_same_version(server, target, monkeypatch, content, etag):
    monkeypatch.setattr(fetch_module, "ATTEMPTS", 1)
    server.content, server.etag, server.cuts = content, etag, [1000]
    with pytest.raises(UserError, match="byte 1000"):
        fetch(server.url, target, SHA)
    assert not target.exists()
    server.content, server.etag = CONTENT, '"v1"'
    fetch(server.url, target, SHA)
    assert server.ranges == [None, "bytes=1000-"]
    assert target.read_bytes() == CONTENT


def test_part_already_complete(server, target):
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(CONTENT)
    target.with_name("file.bin.part.version").write_text('"v1"')
    fetch(server.url, target, SHA)
    assert target.read_bytes() == CONTENT
    assert only(target)


@pytest.mark.parametrize(("statuses", "requests"), [([404] * 9, 1), ([503] * 9, 5)])
def test_server_that_refuses(server, target, statuses, requests):
    server.statuses = list(statuses)
    with pytest.raises(UserError, match=rf"\b{statuses[0]}\b"):
        fetch(server.url, target, SHA)
    assert len(server.ranges) == requests


@pytest.mark.parametrize(("digest", "name"), [(SHA, "sha256"), (GIT, "git's SHA-1")])
def test_wrong_content(server, target, digest, name):
    server.content = b"<html>please log in</html>"
    before = b"" if digest is SHA else b"blob 26\0"
    measured = (hashlib.sha256 if digest is SHA else hashlib.sha1)(before + server.content).hexdigest()
    with pytest.raises(UserError, match=f"{name} .*{measured}.*{digest.value}"):
        fetch(server.url, target, digest)
    assert list(target.parent.iterdir()) == []


def test_existing_file_that_is_another_is_kept(server, target):
    target.parent.mkdir()
    target.write_bytes(b"mine")
    with pytest.raises(UserError, match=re.escape(str(target))):
        fetch(server.url, target, SHA)
    assert target.read_bytes() == b"mine"
    assert server.ranges == []


def test_no_connection(target, monkeypatch):
    monkeypatch.setattr(fetch_module, "PAUSE_SECONDS", 0.0)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(UserError, match=rf"127\.0\.0\.1:{port}/x: "):
        fetch(f"http://127.0.0.1:{port}/x", target, SHA)


def test_not_http(target):
    with pytest.raises(UserError, match=r"file:///etc/hostname: .*--from"):
        fetch("file:///etc/hostname", target, SHA)


def test_full_disk_keeps_what_came(server, target, monkeypatch):
    class FullDisk(io.FileIO):
        def write(self, data):
            super().write(data[:100])
            raise OSError(errno.ENOSPC, "No space left on device")

    def full_open(path, mode):
        return FullDisk(path, mode) if "r" not in mode else open(path, mode)

    monkeypatch.setattr(fetch_module, "open", full_open, raising=False)
    with pytest.raises(UserError, match=rf"{re.escape(str(target))}.*\b{len(CONTENT)} bytes"):
        fetch(server.url, target, SHA)
    monkeypatch.undo()
    fetch(server.url, target, SHA)
    assert server.ranges == [None, "bytes=100-"]
    assert target.read_bytes() == CONTENT


def test_copy(tmp_path):
    source, target = tmp_path / "a", tmp_path / "new" / "b"
    with pytest.raises(UserError, match=re.escape(str(source))):
        copy(source, target, SHA)
    source.write_bytes(b"wrong")
    with pytest.raises(UserError, match=SHA.value):
        copy(source, target, SHA)
    assert not target.exists()
    source.write_bytes(CONTENT)
    copy(source, target, SHA)
    assert target.read_bytes() == CONTENT
