"""Requests of many clients: a Transformers pipeline in a minimal FastAPI application, roberta-small serve."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from benchmarks import fairseq_commands
from benchmarks.measure import Contender, compare, execute, python, say, timed
from benchmarks.settings import Settings
from roberta_small.common.cpu import THREADS
from roberta_small.common.errors import UserError
from roberta_small.common.files import read_lines
from roberta_small.eval.origin import DataFolder

PREDICT = "/predict"
JSON = {"Content-Type": "application/json"}
WARM_UP = 0.1
"""Time before the one that counts, as a fraction of it."""
COMPARED = 16
"""Texts whose probabilities are compared."""
TOLERANCE = 1e-3
LIMIT = 300
"""Seconds of a request from which on it is an error."""


def run(settings: Settings) -> dict[str, Any]:
    """Seconds of a request; raises `UserError` if the servers have different results."""
    path = texts_of(settings)
    result = compare(
        "serve",
        f"Requests of {settings.clients} clients for {settings.seconds} s, one text each",
        contenders(settings, path),
        settings,
        about=(
            "fp32, the same number of threads; the clients run on the same cores, and each sends its next "
            "request when it has the answer; median and quartiles: seconds of a request"
        ),
    )
    check_same_results(result)
    for row in result["contenders"]:
        if "median" in row:
            row |= summarize(row["rounds"])
            row["rounds"] = [without_requests(one) for one in row["rounds"]]
    return result


def contenders(settings: Settings, path: Path) -> list[Contender]:
    """The exported model in a pipeline, in FastAPI's threads and one request at a time, and our server."""
    checkpoint = fairseq_commands.checkpoint("ours", settings)
    folder = settings.scratch / "serve" / "transformers"
    threads = dict.fromkeys(THREADS, str(settings.machine.threads))
    words = ("transformers", checkpoint, "--data", settings.data, "--out", folder)
    say("preparing: the exported model")
    execute(Contender("export", python("roberta_small.export", *words)), settings, "serve export")
    servers = {
        "Transformers pipeline, threads": python(__name__, folder, "threads"),
        "Transformers pipeline, one at a time": python(__name__, folder, "one"),
        "ours": python(
            "roberta_small", "serve", checkpoint, "--data", settings.data, "--precision", "fp32", "--port", 0
        ),
    }
    numbers = settings.clients, settings.seconds
    return [
        Contender(name, timed(measure, path, *numbers, *command), threads, ours=name == "ours")
        for name, command in servers.items()
    ]


def texts_of(settings: Settings) -> Path:
    """The test texts of the data; those of the sample if the data do not record them, or have pairs."""
    files = [path for part in DataFolder.given(settings.data).texts("test") for path in part]
    if len(files) == 1 and files[0].is_file():
        return files[0]
    return settings.sample / "text" / "test.input0"


def measure(path: str, clients: str, seconds: str, *command: str) -> dict[str, Any]:
    """Start a server and let clients send the lines of a file to it, for a number of seconds."""
    texts = list(read_lines(path))
    with started(command) as address:
        with closing(connect(address)) as connection:
            first = [probabilities(ask(connection, text)) for text in texts[:COMPARED]]
        begin = time.monotonic() + WARM_UP * float(seconds)
        load = Load(address, texts, begin + float(seconds))
        load.run(int(clients))
    counted = [(start, end) for start, end in load.times if start >= begin]
    if not counted:
        raise SystemExit(f"error: no request was answered, {load.errors} errors: {load.reason}")
    return {
        "seconds": [end - start for start, end in counted],
        "requests_per_second": len(counted) / (max(end for _, end in counted) - begin),
        "errors": load.errors,
        "probabilities": first,
    }


class Load:
    """Clients that send requests one after another until a time."""

    def __init__(self, address: str, texts: Sequence[str], until: float) -> None:
        self.address, self.texts, self.until = address, texts, until
        self.times: list[tuple[float, float]] = []
        """Start and end of each answered request."""
        self.errors = 0
        self.reason = ""

    def run(self, clients: int) -> None:
        """Let the clients run, each from another text on."""
        threads = [
            threading.Thread(target=self._client, args=(number * len(self.texts) // clients,))
            for number in range(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _client(self, first: int) -> None:
        texts = itertools.cycle([*self.texts[first:], *self.texts[:first]])
        with closing(connect(self.address)) as connection:
            while (start := time.monotonic()) < self.until:
                try:
                    ask(connection, next(texts))
                    self.times.append((start, time.monotonic()))
                except (OSError, http.client.HTTPException, UserError) as error:
                    self.errors += 1
                    self.reason = str(error) or type(error).__name__
                    connection.close()  # the next request opens it again


def connect(address: str) -> http.client.HTTPConnection:
    """A connection to a server."""
    parts = urlsplit(address)
    assert parts.hostname is not None  # printed by the server
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=LIMIT)


def ask(connection: http.client.HTTPConnection, text: str) -> Any:
    """The answer for a text; raises `UserError` for another status than 200."""
    connection.request("POST", PREDICT, json.dumps({"text": text}), JSON)
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise UserError(f"status {response.status}: {body[:200].decode(errors='replace')}")
    return json.loads(body)


def probabilities(answer: Any) -> dict[str, float]:
    """The probability of each class, from the answer of either server."""
    if "predictions" in answer:
        return answer["predictions"][0]["probabilities"]
    return {one["label"]: one["score"] for one in answer["scores"]}


@contextmanager
def started(command: Sequence[str]) -> Iterator[str]:
    """The address that a server prints; it is ended afterwards."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            addresses = (re.search(r"http://\S+", line) for line in process.stdout)
            found = next(filter(None, addresses), None)
            if found is None:
                raise SystemExit(f"error: the server has ended: {command}")
            yield found[0]
        finally:
            process.terminate()  # not SIGINT, which background jobs of a shell ignore


def check_same_results(result: dict[str, Any]) -> None:
    """Raise `UserError` unless all servers had the same probabilities for the first texts, in every round."""
    rows = [(row["contender"], one) for row in result["contenders"] for one in row.get("rounds", ())]
    for name, record in rows:
        for found, wanted in zip(record["probabilities"], rows[0][1]["probabilities"], strict=True):
            if found.keys() != wanted.keys() or any(
                abs(found[label] - wanted[label]) > TOLERANCE for label in wanted
            ):
                raise UserError(f"{name}: probabilities {found}, not {wanted} as {rows[0][0]}")


def summarize(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Requests per second and percentiles, medians over the rounds; all errors."""
    percentiles_RP = np.array([np.percentile(one["seconds"], (50, 95)) for one in rounds])
    p50, p95 = np.median(percentiles_RP, axis=0).tolist()
    rate = float(np.median([one["requests_per_second"] for one in rounds]))
    return {
        "requests_per_second": rate,
        "p50": p50,
        "p95": p95,
        "errors": sum(one["errors"] for one in rounds),
    }


def without_requests(record: dict[str, Any]) -> dict[str, Any]:
    """A round with the percentiles 0 to 100 of the seconds of its requests, of which there are thousands."""
    seconds, rest = record["seconds"], {key: x for key, x in record.items() if key != "seconds"}
    percentiles = np.percentile(seconds, range(101)).round(4).tolist()
    return {**rest, "requests": len(seconds), "percentiles": percentiles}


def pipeline_server(folder: str, how: str) -> None:
    """A pipeline behind FastAPI, as small as possible; prints its address.

    `how` is "threads", FastAPI's way with blocking functions, or "one" for one request at a time.
    """
    import torch
    import uvicorn
    from fastapi import Body, FastAPI
    from transformers import pipeline

    from roberta_small.eval.serve import listen, url_of

    classify = pipeline(
        "text-classification", model=folder, trust_remote_code=True, top_k=None, dtype=torch.float32,
        device=0 if torch.cuda.is_available() else -1,
    )  # fmt: skip
    app = FastAPI()

    def predict(text: str = Body(embed=True)) -> dict[str, Any]:
        return {"scores": classify([text], truncation=True)[0]}

    async def predict_one(text: str = Body(embed=True)) -> dict[str, Any]:
        return predict(text)

    app.post(PREDICT)(predict if how == "threads" else predict_one)
    listener = listen("127.0.0.1", 0)
    print(url_of(listener), flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    pipeline_server(*sys.argv[1:])
