"""The web application: the page, the JSON API, and the limits of a request.

A page of another site cannot use a server that listens on this machine only: requests need the content type
application/json and an address of this machine as their host. Texts are neither stored nor logged.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError
from roberta_small.eval.serve.batching import QueueFullError
from roberta_small.eval.serve.models import Models
from roberta_small.eval.serve.schema import Error, Limits, ModelInfo, Predictions, Query, Text, Version

DISTRIBUTION = "fairseq-roberta-small"
PAGE = Path(__file__).with_name("page.html")
CLOSED = 499
"""Status for a client that has closed its connection, as nginx logs it; nobody receives it."""
DESCRIPTION = """Classifies texts with trained models.

`POST /predict` returns the predictions of `roberta-small predict`. `GET /version` lists the models and the
limits of a request. Every error of a request has the form `{"error": "message"}`."""


def create_app(models: Models, limits: Limits, hosts: Sequence[str] = (), *, log: bool = False) -> ASGIApp:
    """The application; `hosts` are the accepted names of the header Host, without any all of them."""
    app = FastAPI(
        title="roberta-small serve",
        version=metadata.version(DISTRIBUTION),
        description=DESCRIPTION,
        redoc_url=None,
    )
    html = PAGE.read_text(encoding="utf-8")
    # The page loads nothing and connects to its own server only.
    script = html.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:  # uvicorn logs the error
        return JSONResponse({"error": "internal error; the log of the server has the reason"}, 500)

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(html, headers={"Content-Security-Policy": policy})

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "ok"}

    @app.get("/version")
    async def version() -> Version:
        """The program, its models and the limits of a request."""
        infos = list(models.infos.values())
        return Version(version=app.version, models=infos, default=models.default, limits=limits)

    body: dict[str, Any] = {"content": {"application/json": {"schema": Query.model_json_schema()}}}

    @app.post(
        "/predict",
        response_model_exclude_none=True,
        responses={
            "4XX": {"description": "The request is refused.", "model": Error},
            "5XX": {"description": "No result; after 503, Retry-After has the time to wait.", "model": Error},
        },
        openapi_extra={"requestBody": {**body, "required": True}},
    )
    async def predict(request: Request) -> Predictions:
        """Classify one text or several, with the probabilities that `roberta-small predict` prints."""
        clock = asyncio.get_running_loop().time
        end = clock() + limits.seconds
        query = await read_query(request, limits, end)
        info = choose_model(models, query)
        texts = check_texts(query, info, limits)
        computed = asyncio.ensure_future(models.predict(info.name, texts, explain=query.explain))
        gone = asyncio.ensure_future(closed(request))
        try:
            await asyncio.wait({computed, gone}, timeout=end - clock(), return_when=asyncio.FIRST_COMPLETED)
            if computed.done():
                return Predictions(model=info.name, predictions=computed.result())
        except UserError as error:  # a text that the model cannot read
            raise HTTPException(422, str(error)) from None
        except QueueFullError as error:
            message = f"{error} (--max-waiting); try again in 1 s"
            raise HTTPException(503, message, {"Retry-After": "1"}) from None
        finally:
            computed.cancel()
            gone.cancel()
            await asyncio.wait({computed, gone})
        if not gone.cancelled():
            raise HTTPException(CLOSED)
        raise HTTPException(
            504, f"no result within {limits.seconds:g} s (--timeout); send fewer texts, or later"
        )

    return watched(app, models, hosts, log=log)


def watched(app: FastAPI, models: Models, hosts: Sequence[str], *, log: bool) -> ASGIApp:
    """The application with /metrics, which refuses other hosts and answers HEAD as GET, without the body.

    `log` prints each request.
    """
    counts: defaultdict[str, float] = defaultdict(float)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Requests, their seconds, predicted and waiting texts, in Prometheus' text format."""
        for name, worker in models.workers.items():
            label = f"{{model={json.dumps(name, ensure_ascii=False)}}}"
            counts[f"texts_total{label}"], counts[f"waiting_texts{label}"] = worker.finished, worker.waiting
        lines = []
        for sample, value in sorted(counts.items()):
            family, kind = sample.partition("{")[0], "counter" if "_total{" in sample else "gauge"
            lines += [f"# TYPE roberta_small_{family} {kind}", f"roberta_small_{sample} {value}"]
        content = "\n".join([*dict.fromkeys(lines), ""])
        return PlainTextResponse(content, media_type="text/plain; version=0.0.4")

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        start, status, path = time.perf_counter(), 500, scope["path"]

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        handler: ASGIApp = app
        host = re.sub(r":\d*$", "", Headers(scope=scope).get("host", "").lower())
        if hosts and host not in hosts:
            address = f"http://{hosts[0]}:{scope['server'][1]}/"
            message = f"Host {host[:60]!r}: not an address of this machine; use {address}"
            handler = JSONResponse({"error": message}, 400)
        try:
            await handler(dict(scope, method=scope["method"].replace("HEAD", "GET")), receive, noted)
        finally:
            seconds = time.perf_counter() - start
            known = path in {getattr(route, "path", None) for route in app.routes}
            labels = f'{{path="{path if known else "other"}",status="{status}"}}'
            counts[f"requests_total{labels}"] += 1
            counts[f"request_seconds_total{labels}"] += seconds
            if log:
                now, client = time.strftime("%Y-%m-%dT%H:%M:%S%z"), (scope["client"] or "-")[0]
                print(now, client, scope["method"], quote(path), status, f"{seconds:.3f}", flush=True)

    return handle


async def read_query(request: Request, limits: Limits, end: float) -> Query:
    """The body of a request; `HTTPException` if it is too large, late or invalid.

    A body that is too large is read to its end, because browsers read the answer only then.
    """
    # A form of another site could send other types.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "Content-Type: not application/json")
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout_at(end):
            async for part in request.stream():
                size += len(part)
                if size <= limits.bytes:
                    body += part
    except ClientDisconnect:
        raise HTTPException(CLOSED) from None
    except TimeoutError:
        message = f"body: incomplete after {limits.seconds:g} s (--timeout); send it faster"
        raise HTTPException(408, message) from None
    if size > limits.bytes:
        message = f"body: {size} bytes, at most {limits.bytes} (--max-bytes); send several requests"
        raise HTTPException(413, message)
    try:
        return Query.model_validate(json.loads(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        parts = (f"[{part}]" if isinstance(part, int) else f".{part[:60]}" for part in first["loc"])
        where, fields = "".join(parts)[1:] or "body", Query.model_fields
        reason = first["msg"].removeprefix("Value error, ")
        if first["type"] == "model_type":
            reason = "not an object"
        if first["type"] == "extra_forbidden":
            reason = f"no such field{nearest(where.lower(), fields) or '; there are ' + ', '.join(fields)}"
        raise HTTPException(422, f"{where}: {reason}") from None
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"body: not JSON ({error})") from None


def choose_model(models: Models, query: Query) -> ModelInfo:
    """The model of a request; `HTTPException` if there is none, or it cannot explain its predictions."""
    name = models.default if query.model is None else query.model
    known = ", ".join(models.infos)
    if name is None:
        raise HTTPException(422, f"model: missing, and there are several; choose one of {known}")
    if name not in models.infos:
        raise HTTPException(404, f"model: {name[:60]!r} does not exist; choose one of {known}")
    if query.explain and name in models.unexplained:
        raise HTTPException(422, f"explain: {models.unexplained[name]}")
    return models.infos[name]


def check_texts(query: Query, info: ModelInfo, limits: Limits) -> Sequence[Text]:
    """The texts; `HTTPException` if they are too many, too long, or single where the model needs pairs."""
    texts = [query.text] if query.text is not None else query.texts or []
    if len(texts) > limits.texts:
        message = f"texts: {len(texts)} texts, at most {limits.texts} (--max-texts); send several requests"
        raise HTTPException(413, message)
    for number, text in enumerate(texts):
        where = f"texts[{number}]" if query.text is None else "text"
        size = len(text) if isinstance(text, str) else sum(map(len, text))
        if size > limits.characters:
            message = f"{size} characters, at most {limits.characters} (--max-characters); shorten it"
            raise HTTPException(413, f"{where}: {message}")
        if info.pairs == isinstance(text, str):
            wanted = "sentence pairs; write a list of both" if info.pairs else "single texts; write strings"
            raise HTTPException(422, f"{where}: {info.name} classifies {wanted}")
    return texts


async def closed(request: Request) -> None:
    """Return when the client has closed the connection; its body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
