"""A server of `roberta-small serve` in a thread of the test."""

import contextlib
import http.client
import json
import threading
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from roberta_small.eval.serve import address, listen, new_server
from roberta_small.eval.serve.models import Models
from roberta_small.eval.serve.schema import Limits

LIMITS = {"texts": 64, "characters": 20_000, "bytes": 1 << 20, "seconds": 60.0, "waiting": 256}


JSON = {"Content-Type": "application/json"}


@dataclass
class Serving:
    """A server and its models."""

    url: str
    port: int
    models: Models


@contextlib.contextmanager
def serving(*classifiers, host="127.0.0.1", log=False, max_tokens=4096, **limits):
    """The server of some classifiers, on any free port."""
    limits = Limits(**LIMITS | limits)
    models = Models(classifiers, max_tokens=max_tokens, max_waiting=limits.waiting)
    listener = listen(host, 0)
    with contextlib.closing(models), contextlib.closing(listener):
        url, hosts = address(listener)
        server = new_server(models, limits, hosts, log=log)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield Serving(url, listener.getsockname()[1], models)
        finally:
            server.should_exit = True
            thread.join()


def wait_until(condition):
    """Return when it holds; fail after 30 s."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def request(server, method, path, body=None, headers=JSON):
    """The response and its body."""
    connection = http.client.HTTPConnection(urlsplit(server.url).hostname, server.port, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response, response.read()


def get(server, path):
    """The JSON of a path."""
    response, body = request(server, "GET", path, headers={})
    assert response.status == 200
    return json.loads(body)


def post(server, **query):
    """Status and JSON of a request to /predict."""
    response, body = request(server, "POST", "/predict", json.dumps(query))
    return response.status, json.loads(body)
