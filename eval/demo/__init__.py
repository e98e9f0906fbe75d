"""The command `demo`: load the checkpoints and serve the page until Ctrl-C."""

from __future__ import annotations

import argparse
import sys

from roberta_small.eval.options import add_checkpoint_files, add_checkpoints, add_computation, overrides
from roberta_small.eval.origin import find_runs

DESCRIPTION = """Classify text that is typed into a page of the browser.

The page shows the class, the probabilities, the contribution of each word and, for several checkpoints, the
prediction of each and their mean. It loads nothing from the network and sends the text only to this program,
which stores nothing. Ctrl-C ends it.
"""
EXAMPLES = """examples:
  roberta-small demo --checkpoint runs/fairseq/pretrained/seed1
  roberta-small demo --checkpoint runs/fairseq/pretrained --port 8080
"""
HOST = "127.0.0.1"
PORT = 7860


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `demo`."""
    parser = subparsers.add_parser(
        "demo",
        help="classify and explain typed text in a page of the browser",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    add_checkpoints(parser, "; several are an ensemble")
    parser.add_argument(
        "--host",
        default=HOST,
        help="address to listen on (default: %(default)s, this machine only; 0.0.0.0: every machine that can "
        "reach this one, without a password)",
    )
    parser.add_argument(
        "--port", type=_port, default=PORT, metavar="N", help="port; 0 is any free one (default: %(default)s)"
    )
    add_checkpoint_files(parser)
    add_computation(parser, max_tokens=False)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Open the port, load the checkpoints, print the address and serve."""
    from roberta_small.eval.classifier import Ensemble, SentenceClassifier, describe
    from roberta_small.eval.demo.server import Demonstration, DemoServer
    from roberta_small.eval.model import PrecisionMessages

    runs = find_runs(args.checkpoint)
    with DemoServer(args.host, args.port) as server:
        if not server.local:
            print(f"warning: --host {args.host}: other machines can open the page", file=sys.stderr)
        members = [SentenceClassifier.from_run(one, **overrides(args)) for one in runs]
        model = members[0] if len(members) == 1 else Ensemble(members)
        if isinstance(model, Ensemble):
            describe(model)
        PrecisionMessages().show(*(member.model.precision for member in members))
        server.present(Demonstration(model))
        print(f"{server.url}  (Ctrl-C ends)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended", file=sys.stderr)


def _port(text: str) -> int:
    """Parse a port number; raises `ArgumentTypeError`, or `ValueError` if it is not an integer."""
    number = int(text)
    if not 0 <= number < 1 << 16:
        raise argparse.ArgumentTypeError(f"{number} is not from 0 to 65535")
    return number
