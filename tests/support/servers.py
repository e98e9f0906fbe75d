"""A server of `roberta-small serve` in a thread of the test."""

import contextlib
import http.client
import json
import threading
import time
from dataclasses import dataclass

from roberta_small.eval.serve import listen, local_hosts, new_server, url_of
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
def serving(*classifiers, log=False, **limits):
    """The server of some classifiers, on any free port."""
    limits = Limits(**LIMITS | limits)
    models = Models(classifiers, max_tokens=4096, max_waiting=limits.waiting)
    listener = listen("127.0.0.1", 0)
    with contextlib.closing(models), contextlib.closing(listener):
        server = new_server(models, limits, local_hosts(listener), log=log)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        url, port = url_of(listener), listener.getsockname()[1]
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield Serving(url, port, models)
        finally:
            server.should_exit = True
            thread.join()


def request(server, method, path, body=None, headers=JSON):
    """The response and its body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
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
