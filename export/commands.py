"""A fairseq checkpoint to a folder for `from_pretrained`, or back.

The folder holds configuration, model.safetensors, tokenizer and a model card. It appears when fairseq's own
network and the converted one have given the same logits, and the tokenizer the ids that training read; if
they differ, nothing is written. What belongs to the checkpoint is where its run recorded it, unless you name
it.

Back (--to-fairseq) a folder becomes a checkpoint for fairseq-train --restore-file, train.sh --pretrained and
python -m eval, with its dict.txt beside it. Only safetensors are read, never pickles.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from common.errors import UserError
from common.files import atomic_write, sha256

CONVERT_EXAMPLES = """examples:
  python -m hf convert runs/fairseq/pretrained/seed1 classifier
  python -m hf convert pretrained/model.pt masked-lm --data data/corpus
  python -m hf convert model.pt folder --dict dict.txt --sentencepiece-model spm.model --normalize-apostrophes
  python -m hf convert --to-fairseq classifier back/model.pt
"""


def register_convert(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `convert`."""
    parser = subparsers.add_parser(
        "convert",
        help="a fairseq checkpoint to a from_pretrained folder, or back",
        description=__doc__,
        epilog=CONVERT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="FROM", help="run folder or checkpoint; or the folder")
    parser.add_argument("output", metavar="TO", type=Path, help="folder to write; or the .pt file")
    parser.add_argument("--to-fairseq", action="store_true", help="from Transformers to fairseq")
    group = parser.add_argument_group("files of the checkpoint (default: those that the run recorded)")
    group.add_argument("--data", metavar="BIN", help="binarized data it was trained on")
    group.add_argument("--dict", metavar="DICT", help="dict.txt of the text")
    group.add_argument("--sentencepiece-model", metavar="MODEL", help="that the data were made with")
    group.add_argument(
        "--normalize-apostrophes", action="store_true",
        help="every apostrophe is read as ', as preprocess binarize does it where it is told so",
    )  # fmt: skip
    parser.set_defaults(run=run_convert)


def run_convert(args: argparse.Namespace) -> None:
    """The command."""
    if args.to_fairseq:
        if args.data or args.sentencepiece_model or args.normalize_apostrophes:
            raise UserError(
                "--to-fairseq takes none of --data, --sentencepiece-model and --normalize-apostrophes; "
                "leave them out"
            )
        from .transformers.to_fairseq import convert_back

        print(convert_back(Path(args.source), args.output, dictionary=args.dict))
    else:
        from .transformers.to_transformers import convert

        print(convert(
            args.source,
            args.output,
            data=args.data,
            dictionary=args.dict,
            sentencepiece_model=args.sentencepiece_model,
            normalize_apostrophes=args.normalize_apostrophes,
        ))  # fmt: skip
    print(f"{args.output}: written")


ONNX_EXAMPLES = """examples:
  python -m hf export runs/fairseq/pretrained/seed1 classifier.onnx
  python -m hf export runs/fairseq/pretrained/seed1 classifier-int8.onnx --int8 --report int8.json
  python -m hf export folder classifier.onnx --data data/cls-books --split test
"""


def register_onnx(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `export`."""
    parser = subparsers.add_parser(
        "export",
        help="a classifier to ONNX, in fp32 or int8",
        description=__doc__,
        epilog=ONNX_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="FROM", help="run folder, checkpoint or from_pretrained folder")
    parser.add_argument("output", metavar="TO.onnx", type=Path, help="file to write")
    parser.add_argument("--int8", action="store_true", help="quantize the weights to 8 bits")
    parser.add_argument("--data", metavar="BIN", help="binarized data to measure on (default: the run's)")
    parser.add_argument("--split", default="test", help="(%(default)s)")
    parser.add_argument("--report", metavar="JSON", type=Path, help="also write what was measured")
    parser.set_defaults(run=run_onnx)


def run_onnx(args: argparse.Namespace) -> None:
    """The command."""
    if args.output.exists():
        raise UserError(f"{args.output}: exists; choose another name, or move it away")
    if args.report is not None and args.report.is_dir():
        raise UserError(f"{args.report}: is a folder; name a file with --report")
    from .classifier import find_classifier
    from .onnx.check import document, export, random_rows, table

    classifier = find_classifier(args.source)
    examples = classifier.examples(args.data, args.split)
    rows = examples.rows if examples is not None else random_rows(classifier)
    measured, content = export(classifier, rows, int8=args.int8)
    atomic_write(args.output, content)
    found = document(measured, None if examples is None else examples.labels, args.split)
    if args.report is not None:
        digest = {"sha256": sha256(args.output), "file": args.output.name}
        atomic_write(args.report, json.dumps(digest | found, indent=2) + "\n")
    print(table(found))
    print(f"{args.output}: written")
