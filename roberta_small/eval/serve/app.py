"""The web application: the page, the JSON API, and the answer to every kind of invalid request.

A page of another site cannot use a server that listens on this machine only: requests need the content type
application/json and an address of this machine as their host. Texts are neither stored nor logged.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import reprlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.routing import APIRoute
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError
from roberta_small.eval.serve.batching import QueueFullError
from roberta_small.eval.serve.models import Models
from roberta_small.eval.serve.schema import (
    Error,
    Health,
    Limits,
    ModelInfo,
    Predictions,
    Query,
    Version,
)
from roberta_small.eval.texts import Text

DISTRIBUTION = "fairseq-roberta-small"
PAGE = Path(__file__).with_name("page.html")
FORM = 'send {"text": "..."} or {"texts": ["...", "..."]}'
RETRY_SECONDS = "1"
"""Of the header Retry-After."""
CLOSED = 499
"""Status for a client that has closed its connection, as nginx logs it; nobody receives it."""
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is not JSON."},
    403: {"description": "The host is not an address of this machine."},
    404: {"description": "There is no such model."},
    408: {"description": "The body did not arrive in time."},
    413: {"description": "Too many bytes or texts, or a text with too many characters."},
    415: {"description": "The content type is not application/json."},
    422: {"description": "A field or a text is invalid."},
    500: {"description": "An error of the program."},
    503: {"description": "The model has too many unfinished texts. Retry-After has the seconds to wait."},
    504: {"description": "The result was not computed in time."},
}
DESCRIPTION = """Classifies texts with trained models.

`POST /predict` returns the predictions of `roberta-small predict`. `GET /version` lists the models and the
limits of a request. Every error has the form `{"error": "message"}`."""


class RequestError(HTTPException):
    """A request that is refused: status and message."""


def create_app(models: Models, limits: Limits, hosts: Sequence[str] = ()) -> FastAPI:
    """The application.

    `hosts` are the accepted values of the header Host, the usual one first; without any, all are accepted.
    """
    app = FastAPI(
        title="roberta-small serve",
        version=metadata.version(DISTRIBUTION),
        description=DESCRIPTION,
        redoc_url=None,
    )
    app.add_middleware(Guard, hosts=hosts)
    app.state.limits = limits
    for kind, answer in ERRORS.items():
        app.add_exception_handler(kind, answer)
    html = PAGE.read_text(encoding="utf-8")
    headers = {"Content-Security-Policy": policy_of(html)}

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        """The page."""
        return HTMLResponse(html, headers=headers)

    @app.get("/health")
    async def health() -> Health:
        """Whether the server answers."""
        return Health()

    @app.get("/version")
    async def version() -> Version:
        """The program, its models and the limits of a request."""
        infos = list(models.infos.values())
        return Version(version=app.version, models=infos, default=models.default, limits=limits)

    router = APIRouter(route_class=LimitedRoute)

    @router.post("/predict", responses=refusals(), response_model_exclude_none=True)
    async def predict(query: Query) -> Predictions:
        """Classify one text or several, with the probabilities that `roberta-small predict` prints."""
        info = choose(models, query.model)
        texts = [query.text] if query.text is not None else query.texts or []
        if len(texts) > limits.texts:
            raise RequestError(
                413, f"texts: {len(texts)} texts, at most {limits.texts} (--max-texts); send several requests"
            )
        for number, text in enumerate(texts):
            check_text(text, "text" if query.text is not None else f"texts[{number}]", info, limits)
        if query.explain and info.name in models.unexplained:
            raise RequestError(422, f"explain: {models.unexplained[info.name]}")
        found = await models.predict(info.name, texts, explain=query.explain)
        return Predictions(model=info.name, predictions=found)

    app.include_router(router)
    return app


def refusals() -> dict[int | str, dict[str, Any]]:
    """The errors of /predict for the OpenAPI page."""
    return {status: {**about, "model": Error} for status, about in REFUSALS.items()}


class LimitedRoute(APIRoute):
    """A POST route with limits of bytes and time; it stops when the client has closed the connection."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler within the limits."""
        handler = super().get_route_handler()

        async def limited(request: Request) -> Response:
            limits: Limits = request.app.state.limits
            end = asyncio.get_running_loop().time() + limits.seconds
            check_content_type(request)
            body = await read_body(request, limits, end)
            if body is None:
                return Response(status_code=CLOSED)

            async def replay() -> Message:
                return {"type": "http.request", "body": body}

            answer = asyncio.ensure_future(handler(Request(request.scope, replay)))
            gone = asyncio.ensure_future(closed(request))
            left = end - asyncio.get_running_loop().time()
            try:
                await asyncio.wait({answer, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    return answer.result()
            finally:
                answer.cancel()
                gone.cancel()
                await asyncio.wait({answer, gone})
            if gone.cancelled():
                raise RequestError(
                    504, f"no result within {limits.seconds:g} s (--timeout); send fewer texts, or later"
                )
            return Response(status_code=CLOSED)

        return limited


def check_content_type(request: Request) -> None:
    """Refuse other types, which a form of another site could send."""
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, f"Content-Type {shown(given)}: not application/json; {FORM}")


async def read_body(request: Request, limits: Limits, end: float) -> bytes | None:
    """The body; None if the client closes the connection first.

    A body that is too large is read to its end, because browsers read the answer only then.
    """
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout_at(end):
            async for part in request.stream():
                size += len(part)
                if size <= limits.bytes:
                    body += part
    except ClientDisconnect:
        return None
    except TimeoutError:
        raise RequestError(
            408, f"body: incomplete after {limits.seconds:g} s (--timeout); send it faster"
        ) from None
    if size > limits.bytes:
        raise RequestError(
            413, f"body: {size} bytes, at most {limits.bytes} (--max-bytes); send several requests"
        )
    return bytes(body)


async def closed(request: Request) -> None:
    """Return when the client has closed the connection; its body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def choose(models: Models, name: str | None) -> ModelInfo:
    """The model of a request."""
    known = ", ".join(models.infos)
    name = models.default if name is None else name
    if name is None:
        raise RequestError(422, f"model: missing, and there are several; choose one of {known}")
    if name not in models.infos:
        raise RequestError(404, f"model: {shown(name)} does not exist; choose one of {known}")
    return models.infos[name]


def check_text(text: Text, field: str, info: ModelInfo, limits: Limits) -> None:
    """Refuse a text that is too long, a single text where the model needs a pair, and the reverse."""
    size = len(text) if isinstance(text, str) else sum(map(len, text))
    if size > limits.characters:
        raise RequestError(
            413, f"{field}: {size} characters, at most {limits.characters} (--max-characters); shorten it"
        )
    if info.pairs and isinstance(text, str):
        raise RequestError(
            422,
            f"{field} {shown(text)}: one text, but {info.name} classifies sentence pairs; write a list of "
            "both sentences",
        )
    if not info.pairs and not isinstance(text, str):
        several = "; texts has several texts" if field == "text" else ""
        raise RequestError(
            422,
            f"{field} {shown(text)}: a sentence pair, but {info.name} classifies single texts; write one "
            f"string{several}",
        )


class Guard:
    """Refuses unknown hosts, and lets no browser or proxy keep an answer."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Cache-Control"] = "no-store"
                headers["X-Content-Type-Options"] = "nosniff"
            await send(message)

        app = self.app
        host = Headers(scope=scope).get("host", "")
        if self.hosts and host.lower() not in self.hosts:
            app = failure(403, f"Host {shown(host)}: not this server; use {self.hosts[0]}")
        await app(scope, receive, send_with_headers)


def failure(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error as JSON."""
    return JSONResponse({"error": message}, status, headers)


async def refused(request: Request, error: Exception) -> Response:
    """The answer to a request that this module refuses."""
    assert isinstance(error, RequestError)
    return failure(error.status_code, error.detail)


async def unroutable(request: Request, error: Exception) -> Response:
    """The answer to a request that Starlette or FastAPI refuses."""
    assert isinstance(error, HTTPException)
    method, path, headers = request.method, shown(request.url.path), error.headers or {}
    message = {
        400: f"body: not JSON; {FORM}",
        404: f"{path}: no such path; /docs describes all",
        405: f"{method} {path}: not this method; use {headers.get('Allow', 'GET or POST')}",
    }.get(error.status_code, error.detail)
    return failure(error.status_code, message, headers)


async def invalid(request: Request, error: Exception) -> Response:
    """The answer to a body that is not of the class `Query`: its first error."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"][1:])[1:]
    reason, value = first["msg"].removeprefix("Value error, "), shown(first.get("input"))
    if first["type"] == "json_invalid":
        return failure(
            400, f"body: not JSON: {first['ctx']['error']}, at character {first['loc'][1]}; {FORM}"
        )
    if first["type"] == "extra_forbidden":
        hint = nearest(path, Query.model_fields) or f"; there are {', '.join(Query.model_fields)}"
        return failure(422, f"{shown(path)}: no such field{hint}")
    if not path:
        return failure(422, f"body {value}: {reason}; {FORM}")
    return failure(422, f"{path} {value}: {reason}")


async def unreadable(request: Request, error: Exception) -> Response:
    """The answer to a text that the model cannot read."""
    return failure(422, str(error))


async def overloaded(request: Request, error: Exception) -> Response:
    """The answer while the queue is full."""
    message = f"{error} (--max-waiting); try again in {RETRY_SECONDS} s"
    return failure(503, message, {"Retry-After": RETRY_SECONDS})


async def failed(request: Request, error: Exception) -> Response:
    """The answer to an error of this program, which uvicorn logs."""
    return failure(500, "internal error; the log of the server has the reason")


ERRORS: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    RequestError: refused,
    HTTPException: unroutable,
    RequestValidationError: invalid,
    UserError: unreadable,
    QueueFullError: overloaded,
    Exception: failed,
}


def shown(value: object) -> str:
    """A value for a message, shortened."""
    short = reprlib.Repr()
    short.maxstring = 60
    return short.repr(value)


def policy_of(html: str) -> str:
    """The Content-Security-Policy of the page: it loads nothing and connects to its own server only."""
    script = html.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
