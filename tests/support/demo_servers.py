"""A server of `eval demo` in a thread of the test."""

import threading
from contextlib import contextmanager

from roberta_small.eval.demo.server import Demonstration, DemoServer


@contextmanager
def serving(model):
    """The server of a classifier or an ensemble, on any free port."""
    with DemoServer("127.0.0.1", 0) as server:
        server.present(Demonstration(model))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
