"""What the page shows, and its HTTP server, on the standard library.

    GET  /          the page
    POST /classify  {"texts": [...]}               -> `Demonstration.classify`
    POST /explain   {"texts": [...], "member": 0}  -> `Demonstration.explain`

A text that cannot be classified is answered with status 422 and {"error": message}. Texts are neither stored
nor logged. A page of another site cannot use the server: requests need the content type application/json and,
while the server listens on this machine only, an address of this machine as their host.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import re
import socket
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any

from roberta_small.common.errors import UserError, count, message_of
from roberta_small.common.predictions import from_probabilities
from roberta_small.eval.classifier import Ensemble, SentenceClassifier
from roberta_small.eval.texts import Classified, Text
from roberta_small.preprocess.dictionary import UNK

TEMPLATE = Path(__file__).with_name("page.html")
MAX_BYTES = 1 << 20
"""Largest request."""
TIMEOUT = 60
"""Seconds until a connection without data is closed."""


GRADIENTS = "Contributions to the log-odds of the predicted class: integrated gradients over the embeddings."
LINEAR = "Contributions to the predicted class: the terms of the linear classifier of n-grams (exact)."
WHERE = "text"


class Demonstration:
    """What the page shows for one text, as plain lists and dictionaries: classes, probabilities of each
    checkpoint, notes, and words with their contributions."""

    def __init__(self, model: SentenceClassifier | Ensemble) -> None:
        """Raises `UserError` if explanations need Captum and it is not installed."""
        from roberta_small.eval.predict import explain

        self.explanations = explain
        self.model = model
        self.members = model.members if isinstance(model, Ensemble) else [model]
        for member in self.members:
            explain.check_explainable(member)

    def settings(self) -> dict[str, Any]:
        """What the page needs before the first text."""
        return {
            "pairs": self.model.pairs,
            "members": [member.model.run.name for member in self.members],
            "explanation": [
                LINEAR if self.explanations.is_linear(member) else GRADIENTS for member in self.members
            ],
        }

    def classify(self, texts: Sequence[str]) -> dict[str, Any]:
        """The prediction for one text, or for the two sentences of a pair.

        `classes` and `probabilities` are in the order of the checkpoint, `members` has the probabilities of
        each checkpoint in this order, and `std` is their sample standard deviation for the predicted class
        (None for one checkpoint). Raises `UserError` for a text that the checkpoint cannot read.
        """
        example = self._example(texts)
        found = self.model.classify([example], where=WHERE)
        (prediction,) = from_probabilities(self.model.classes, found.probabilities)
        each = found.probabilities[None] if found.members is None else found.members
        return {
            "classes": self.model.classes,
            "predicted": prediction.predicted,
            "probabilities": found.probabilities[0].tolist(),
            "members": each[:, 0].tolist(),
            "std": None if found.std is None else float(found.std[0]),
            "notes": self._notes(found),
        }

    def explain(self, texts: Sequence[str], member: int) -> dict[str, Any]:
        """The words of a text, colored by their contribution to the prediction of one checkpoint, as HTML.

        Raises `UserError` as `classify`, and for a checkpoint that does not exist.
        """
        if not 0 <= member < len(self.members):
            raise UserError(f"checkpoint {member}: choose one from 0 to {len(self.members) - 1}")
        classifier, example = self.members[member], self._example(texts)
        found = classifier.classify([example], where=WHERE)
        (words,) = self.explanations.explain_texts(classifier, [example], found.encoded.rows)
        (prediction,) = from_probabilities(classifier.classes, found.probabilities)
        return {
            "predicted": prediction.predicted,
            "probability": prediction.probabilities[prediction.predicted],
            "html": self.explanations.marked(words),
        }

    def _example(self, texts: Sequence[str]) -> Text:
        expected = 2 if self.model.pairs else 1
        if len(texts) != expected:
            raise UserError(f"{count(len(texts), 'text')}: the checkpoint classifies {expected} at a time")
        return tuple(texts) if self.model.pairs else texts[0]

    def _notes(self, found: Classified) -> list[str]:
        """What is suspicious about the text."""
        row, length = found.encoded.rows[0], found.encoded.lengths[0]
        notes = []
        if found.encoded.notes[0] == "empty":
            notes.append("A sentence is empty." if self.model.pairs else "The text is empty.")
        if unknown := int((row == UNK).sum()):
            notes.append(f"Not in the vocabulary, read as <unk>: {count(unknown, 'token')}.")
        if length > len(row):
            notes.append(f"Truncated: the first {len(row):,} of {length:,} tokens are read.")
        return notes


class RequestError(Exception):
    """A request that is refused; the status and the message of the answer."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class DemoServer(ThreadingHTTPServer):
    """Listens as soon as it is created; answers when `serve_forever` is called with a `demonstration`.

    Browsers open connections in advance, so each has a thread. The model runs in one thread, for one request
    at a time.
    """

    daemon_threads = True
    allow_reuse_port = False  # a port in use must be an error
    demonstration: Demonstration

    def __init__(self, host: str, port: int) -> None:
        """Raises `UserError` for an unknown host and a port that is not available."""
        self.worker = ThreadPoolExecutor(max_workers=1)
        self.page = b""
        try:
            self.address_family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            super().__init__((str(address[0]), int(address[1])), Handler)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UserError(
                f"--host {host} --port {port}: {reason}; choose another port, or 0 for any free one"
            ) from None

    def server_bind(self) -> None:
        """Bind without the look-up of the machine's name that `HTTPServer` makes."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    @property
    def local(self) -> bool:
        """Whether only this machine can connect."""
        return ipaddress.ip_address(self.server_name).is_loopback

    @property
    def url(self) -> str:
        """The address of the page."""
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}/"

    def present(self, demonstration: Demonstration) -> None:
        """Set what the page shows."""
        self.demonstration = demonstration
        self.page = render(demonstration.settings())

    def compute(self, path: str, request: Any) -> dict[str, Any]:
        """The answer to a POST request; raises `RequestError`, and `UserError` for an invalid text."""
        texts = request.get("texts") if isinstance(request, dict) else None
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise RequestError(HTTPStatus.BAD_REQUEST, 'expected JSON: {"texts": ["..."]}')
        if path == "/classify":
            return self.worker.submit(self.demonstration.classify, texts).result()
        if path == "/explain":
            member = request.get("member", 0)
            if type(member) is not int:
                raise RequestError(HTTPStatus.BAD_REQUEST, "member: not an integer")
            return self.worker.submit(self.demonstration.explain, texts, member).result()
        raise RequestError(HTTPStatus.NOT_FOUND, f"{path}: no such address")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that closes its connection is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        """Close the socket and wait for the computation in progress."""
        super().server_close()
        self.worker.shutdown(cancel_futures=True)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: DemoServer
    timeout = TIMEOUT

    def do_GET(self) -> None:
        """Send the page."""
        try:
            self._check_host()
            if self.path.partition("?")[0] != "/":
                raise RequestError(HTTPStatus.NOT_FOUND, f"{self.path}: no such address")
        except RequestError as error:
            self._send_json(error.status, {"error": str(error)})
            return
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page)

    def do_POST(self) -> None:
        """Classify or explain."""
        try:
            self._check_host()
            status, answer = HTTPStatus.OK, self.server.compute(self.path, self._read_json())
        except RequestError as error:
            status, answer = error.status, {"error": str(error)}
        except CancelledError:
            return  # the server ends
        except Exception as error:
            message = message_of(error)
            if message is None:
                traceback.print_exc()
                status, message = HTTPStatus.INTERNAL_SERVER_ERROR, "error: see the terminal of the server"
            else:
                status = HTTPStatus.UNPROCESSABLE_ENTITY
            answer = {"error": message.removeprefix("error: ")}
        self._send_json(status, answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _check_host(self) -> None:
        """Refuse other host names, which a page of another site could point at this machine."""
        if not self.server.local:
            return
        host = self.headers.get("Host", "").removesuffix(f":{self.server.server_port}")
        if host.strip("[]") not in (self.server.server_name, "localhost"):
            raise RequestError(HTTPStatus.FORBIDDEN, f"unknown host; open {self.server.url}")

    def _read_json(self) -> Any:
        if self.headers.get_content_type() != "application/json":
            raise RequestError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected the content type application/json"
            )
        if not re.fullmatch("[0-9]{1,15}", header := self.headers.get("Content-Length", "")):
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "expected the header Content-Length")
        length = int(header)
        if length > MAX_BYTES:
            # A browser reads the answer only after it has sent everything.
            while length > 0 and (data := self.rfile.read(min(length, MAX_BYTES))):
                length -= len(data)
            raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"text of more than {MAX_BYTES:,} bytes")
        try:
            return json.loads(self.rfile.read(length))
        except (ValueError, RecursionError):
            raise RequestError(HTTPStatus.BAD_REQUEST, "not JSON") from None

    def _send_json(self, status: HTTPStatus, answer: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(answer).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)


def render(settings: dict[str, Any]) -> bytes:
    """The page, UTF-8. Its policy lets it load nothing and connect to its own server only."""
    from roberta_small.eval.predict.explain import LEGEND, STYLE

    data = json.dumps(settings).replace("<", "\\u003c")
    page = TEMPLATE.read_text(encoding="utf-8")
    script = page.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    for name, value in {"POLICY": policy, "STYLE": STYLE, "LEGEND": LEGEND, "SETTINGS": data}.items():
        page = page.replace(f"{{{{{name}}}}}", value)
    return page.encode()
