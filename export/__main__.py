"""Write a trained model in another format: Transformers, fairseq, ONNX or fp16 safetensors."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from roberta_small.common.cli import Parser
from roberta_small.common.errors import report_errors
from roberta_small.export import commands, missing_package_is_reported

EXAMPLES = """examples:
  python -m export transformers runs/fairseq/pretrained/seed1 --out classifier
  python -m export fairseq classifier --out back/model.pt
  python -m export onnx runs/fairseq/pretrained/seed1 --out classifier.onnx --int8
  python -m export fp16 runs/fairseq/pretrained/seed1/checkpoint_best.pt --out model.safetensors
"""


def build_parser() -> Parser:
    """The parser of all commands; building it imports neither torch nor Transformers."""
    parser = Parser(prog="python -m export", description=__doc__, examples=EXAMPLES)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for register in commands.REGISTER:
        register(subparsers)
    return parser


@report_errors
def main(arguments: Sequence[str] | None = None) -> int | None:
    """Run one command and return its exit code."""
    # Progress bars of single files and warnings about tokenizers would hide our own messages.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    with missing_package_is_reported():
        args = build_parser().parse_args(arguments)
        return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
