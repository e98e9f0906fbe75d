"""A classifier to one ONNX file, whose batch and length are free, checked before it is put in place.

The graph must give torch's logits to 1e-4, on the split of the data if there are data, else on random ids.
With --int8 the file is the quantized graph; what that costs in accuracy (with an interval and a paired test)
and gains in size and time is measured beside fp32. The file takes ids (python -m hf convert writes the
tokenizer) and carries the classes' names.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from common.errors import UserError
from common.files import atomic_write, sha256

EXAMPLES = """examples:
  python -m hf export runs/fairseq/pretrained/seed1 classifier.onnx
  python -m hf export runs/fairseq/pretrained/seed1 classifier-int8.onnx --int8 --report int8.json
  python -m hf export folder classifier.onnx --data data/cls-books --split test
"""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `export`."""
    parser = subparsers.add_parser(
        "export",
        help="a classifier to ONNX, in fp32 or int8",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="FROM", help="run folder, checkpoint or from_pretrained folder")
    parser.add_argument("output", metavar="TO.onnx", type=Path, help="file to write")
    parser.add_argument("--int8", action="store_true", help="quantize the weights to 8 bits")
    parser.add_argument("--data", metavar="BIN", help="binarized data to measure on (default: the run's)")
    parser.add_argument("--split", default="test", help="(%(default)s)")
    parser.add_argument("--report", metavar="JSON", type=Path, help="also write what was measured")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """The command."""
    if args.output.exists():
        raise UserError(f"{args.output}: exists; choose another name, or move it away")
    if args.report is not None and args.report.is_dir():
        raise UserError(f"{args.report}: is a folder; name a file with --report")
    from .classifier import find_classifier
    from .onnx_check import export, random_rows
    from .onnx_report import document, table

    classifier = find_classifier(args.source)
    examples = classifier.examples(args.data, args.split)
    rows = examples.rows if examples is not None else random_rows(classifier)
    measured, content = export(classifier, rows, int8=args.int8)
    atomic_write(args.output, content)
    found = document(measured, None if examples is None else examples.gold, args.split)
    if args.report is not None:
        digest = {"sha256": sha256(args.output), "file": args.output.name}
        atomic_write(args.report, json.dumps(digest | found, indent=2) + "\n")
    print(table(found))
    print(f"{args.output}: written")
