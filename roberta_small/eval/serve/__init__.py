"""The command `serve`: load the models and serve the page and the JSON API until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import math
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from roberta_small.common.cli import positive, positive_number
from roberta_small.common.errors import UserError
from roberta_small.common.hardware import CPU
from roberta_small.common.optional import needed_by
from roberta_small.eval.options import add_checkpoint_files, add_computation, overrides
from roberta_small.eval.origin import GRAPH, MODELS, RunCheckpoint, find_runs

if TYPE_CHECKING:
    from uvicorn import Server

    from roberta_small.eval.classifier import SentenceClassifier
    from roberta_small.eval.serve.models import Models
    from roberta_small.eval.serve.schema import Limits

DESCRIPTION = """Serve trained models: a page in the browser and a JSON API.

The page classifies typed text. It shows the class, the probabilities, the contribution of each word and, for
several models, the prediction of each and their mean. It loads nothing from the network. POST /predict
returns the same predictions as JSON, and /docs describes all requests. Texts are neither stored nor logged.
Ctrl-C or SIGTERM ends the program after the requests in progress.

Several runs of the same data are also an ensemble. It is the default model of runs that differ in their seed;
of several methods, the default is the run with the best validation.
"""
EXAMPLES = """examples:
  roberta-small serve runs/fairseq/pretrained/seed1
  roberta-small serve runs/fairseq/pretrained --port 8080
  roberta-small serve classifier.onnx --host 0.0.0.0
  curl http://127.0.0.1:8000/predict --json '{"text": "Un livre captivant."}'
"""
GRACE_SECONDS = 5
"""Time in addition to --timeout until requests are aborted at the end."""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `serve`."""
    parser = subparsers.add_parser(
        "serve",
        help="serve models: a page in the browser and a JSON API",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="run folder, checkpoint, folder with runs, or .onnx file of `roberta-small export onnx`",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: %(default)s, this machine only; 0.0.0.0: every machine that can "
        "reach this one, without a password)",
    )
    parser.add_argument(
        "--port", type=int, default=8000, metavar="N", help="port; 0 is any free one (default: %(default)s)"
    )
    group = parser.add_argument_group("limits")
    limits = {
        "--max-texts": (64, "texts of a request"),
        "--max-characters": (20_000, "characters of a text"),
        "--max-bytes": (1 << 20, "bytes of the body of a request"),
        "--max-waiting": (256, "unfinished texts of a model; further requests are refused with status 503"),
    }
    for option, (default, meaning) in limits.items():
        group.add_argument(
            option, type=positive, default=default, metavar="N", help=f"{meaning} (default: %(default)s)"
        )
    group.add_argument(
        "--timeout",
        type=positive_number,
        default=30.0,
        metavar="SECONDS",
        help="time of a request; after it, the answer is status 504 (default: %(default)g)",
    )
    parser.add_argument("--access-log", action="store_true", help="print a line for each request")
    add_checkpoint_files(parser)
    add_computation(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Open the port, load the models, print the address and serve.

    Raises `UserError` for an address that is not available, a model that cannot be loaded, limits that
    exclude each other, and if FastAPI or Uvicorn is not installed.
    """
    with needed_by("serve"):
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    if args.max_waiting < args.max_texts:
        raise UserError(
            f"--max-waiting {args.max_waiting}: less than --max-texts {args.max_texts}, so that a request of "
            "that size would never be computed; raise one or lower the other"
        )
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(listen(args.host, args.port)))
        # SIGTERM as Ctrl-C: Uvicorn raises the signal again when it has ended.
        former = signal.signal(signal.SIGTERM, signal.default_int_handler)
        stack.callback(signal.signal, signal.SIGTERM, former)
        classifiers = load(args.runs, args)

        from roberta_small.eval.serve.models import Models
        from roberta_small.eval.serve.schema import Limits

        sizes = {name: getattr(args, f"max_{name}") for name in ("texts", "characters", "bytes", "waiting")}
        limits = Limits(**sizes, seconds=args.timeout)
        max_tokens = args.max_tokens or CPU.prediction_tokens  # texts wait for each other
        models = Models(classifiers, max_tokens=max_tokens, max_waiting=limits.waiting)
        stack.enter_context(contextlib.closing(models))
        if not local_hosts(listener):
            print(f"warning: --host {args.host}: other machines can use this server", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            print(f"{url_of(listener)}  (Ctrl-C ends)", flush=True)
            hosts = local_hosts(listener)
            new_server(models, limits, hosts, log=args.access_log).run(sockets=[listener])
        print("ended", file=sys.stderr)


def new_server(models: Models, limits: Limits, hosts: Sequence[str], *, log: bool = False) -> Server:
    """Uvicorn with the application; no browser or proxy keeps an answer. Arguments as for `create_app`."""
    import uvicorn

    from roberta_small.eval.serve.app import create_app

    config = uvicorn.Config(
        create_app(models, limits, hosts, log=log),
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="warning",
        server_header=False,
        headers=[("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")],
        timeout_graceful_shutdown=math.ceil(limits.seconds) + GRACE_SECONDS,
    )
    return uvicorn.Server(config)


def load(paths: Sequence[str], args: argparse.Namespace) -> list[SentenceClassifier]:
    """The classifiers of the paths; prints their precision. Raises `UserError` if one cannot be loaded."""
    from roberta_small.eval.classifier import SentenceClassifier
    from roberta_small.eval.precision import print_precisions

    graphs = {os.path.realpath(path): path for path in paths if path.endswith(GRAPH)}
    others = [path for path in paths if not path.endswith(GRAPH)]
    found: list[str | RunCheckpoint] = [*find_runs(others, MODELS), *graphs.values()]
    classifiers = [SentenceClassifier.from_run(one, **overrides(args)) for one in found]
    print_precisions(one.model.precision for one in classifiers)
    return classifiers


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises `UserError` for an unknown host and a port that is not available."""
    try:
        family, *_, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        return socket.create_server((str(address[0]), port), family=family, backlog=1024)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"--host {host} --port {port}: {reason}; choose another port, or 0 for any free one"
        ) from None


def url_of(listener: socket.socket) -> str:
    """The address of the page."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def local_hosts(listener: socket.socket) -> list[str]:
    """The names of this machine in the header Host; empty if other machines can connect.

    A page of another site could let its own name point at this machine, but not change the header.
    """
    host = listener.getsockname()[0]
    if not ipaddress.ip_address(host).is_loopback:
        return []
    return [f"[{host}]" if ":" in host else host, "localhost"]
