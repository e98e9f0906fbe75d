"""Write a trained model in another format: Transformers, fairseq, ONNX or fp16 safetensors."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from roberta_small.common.cli import Parser
from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import atomic_write, sha256
from roberta_small.eval.options import add_checkpoint_files, overrides
from roberta_small.export import missing_package_is_reported

EXAMPLES = """examples:
  roberta-small export transformers runs/fairseq/pretrained/seed1 --out classifier
  roberta-small export fairseq classifier --out back/model.pt
  roberta-small export onnx runs/fairseq/pretrained/seed1 --out classifier.onnx --int8
  roberta-small export fp16 runs/fairseq/pretrained/seed1/checkpoint_best.pt --out model.safetensors
"""
TRANSFORMERS = """Convert a fairseq checkpoint to a folder for `from_pretrained`.

The folder contains configuration, model.safetensors, tokenizer and model card. It is written only if the
converted network computes the same logits as fairseq's, and the tokenizer yields the token ids of training.
Dictionary, tokenizer and data default to the files that the run recorded.
"""
FAIRSEQ = """Convert a from_pretrained folder to a fairseq checkpoint, dictionary and tokenizer beside it.

The folder contains a model of the RoBERTa or the BERT family: a masked language model, a classifier or the
encoder alone. The checkpoint can be used with fairseq-train --restore-file, `train --pretrained` and
`predict`; `train --pretrained` also takes the folder itself, or its name on the Hugging Face hub. The
checkpoint is written only if both networks compute the same logits. Files are read without executing code.
"""
ONNX = """Convert a classifier to ONNX, in fp32 or int8.

The file is written only if ONNX Runtime and PyTorch compute the same logits in fp32. Accuracy is measured on
a split of the data, if there are any. The file of a run also contains tokenizer, dictionary and class names,
and that of a folder with a tokenizer of Transformers, too: `roberta-small predict --checkpoint FILE.onnx`
needs nothing else.
"""
FP16 = """Convert a fairseq checkpoint to fp16 safetensors.

--embedding-scale below 1 rescales the embeddings, so that a short fine-tuning with a small learning rate
changes them more. The function that the model computes stays nearly the same.
"""


def _add(
    subparsers: argparse._SubParsersAction,
    name: str,
    text: str,
    source: str,
    out: str,
    *lines: str,
) -> Parser:
    """Add a command with its source and output; `lines` are the arguments of its examples."""
    examples = "examples:\n" + "".join(f"  roberta-small export {name} {line}\n" for line in lines)
    parser = subparsers.add_parser(name, help=text.partition("\n")[0], description=text, examples=examples)
    parser.add_argument("source", metavar="SOURCE", help=source)
    parser.add_argument("--out", type=Path, metavar="PATH", required=True, help=f"{out} to write")
    return parser


def register_transformers(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `transformers`."""
    parser = _add(
        subparsers, "transformers", TRANSFORMERS, "run folder or checkpoint", "folder",
        "runs/fairseq/pretrained/seed1 --out classifier",
        "pretrained/model.pt --out masked-lm --data data/corpus",
        "model.pt --out folder --dict dict.txt --sentencepiece-model spm.model --normalize-apostrophes",
    )  # fmt: skip
    add_checkpoint_files(parser, apostrophes=True)
    parser.set_defaults(run=run_transformers)


def run_transformers(args: argparse.Namespace) -> None:
    """The command `transformers`."""
    from roberta_small.export.transformers.to_transformers import convert

    verification = convert(args.source, args.out, **overrides(args))
    print(verification)
    print(f"{args.out}: written")


def register_fairseq(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `fairseq`."""
    parser = _add(
        subparsers,
        "fairseq",
        FAIRSEQ,
        "from_pretrained folder",
        ".pt file",
        "classifier --out back/model.pt",
    )
    parser.add_argument(
        "--dict",
        metavar="FILE",
        help="fairseq dictionary (default: dict.txt of the folder, or the vocabulary of its tokenizer)",
    )
    parser.set_defaults(run=run_fairseq)


def run_fairseq(args: argparse.Namespace) -> None:
    """The command `fairseq`."""
    from roberta_small.export.transformers.to_fairseq import convert_back

    print(convert_back(Path(args.source), args.out, dictionary=args.dict))
    print(f"{args.out}: written")


def register_onnx(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `onnx`."""
    parser = _add(
        subparsers, "onnx", ONNX, "run folder, checkpoint or from_pretrained folder", ".onnx file",
        "runs/fairseq/pretrained/seed1 --out classifier.onnx",
        "runs/fairseq/pretrained/seed1 --out classifier-int8.onnx --int8 --report int8.json",
        "folder --out classifier.onnx --data data/cls-books --split test",
    )  # fmt: skip
    parser.add_argument("--int8", action="store_true", help="quantize the weights to 8 bits")
    parser.add_argument("--data", metavar="BIN", help="binarized data to evaluate on (default: the run's)")
    parser.add_argument("--split", default="test", metavar="NAME", help="split to evaluate on (%(default)s)")
    parser.add_argument(
        "--report", metavar="JSON", type=Path, help="also write the measurements to this file"
    )
    parser.set_defaults(run=run_onnx)


def run_onnx(args: argparse.Namespace) -> None:
    """The command `onnx`."""
    out = args.out
    if out.exists():
        raise UserError(f"{out}: already exists; choose another --out or delete it")
    if args.report is not None and args.report.is_dir():
        raise UserError(f"--report: {args.report} is a folder; specify a file")
    from roberta_small.export.onnx import export, open_classifier, random_rows
    from roberta_small.export.onnx_report import document, table

    classifier = open_classifier(args.source)
    examples = classifier.examples(args.data, args.split)
    rows = examples.rows if examples is not None else random_rows(classifier)
    metadata, reason = None, ""
    try:
        metadata = classifier.metadata()
    except UserError as error:
        reason = str(error)
    measured, content = export(classifier, rows, int8=args.int8, metadata=metadata)
    atomic_write(out, content)
    targets = None if examples is None else examples.labels
    found = document(measured, targets, args.split, classifier.model.labels)
    if args.report is not None:
        digest = {"sha256": sha256(out), "file": out.name}
        atomic_write(args.report, json.dumps(digest | found, indent=2) + "\n")
    print(table(found))
    if metadata is None:
        print(f"note: without a tokenizer, so roberta-small predict cannot read the file ({reason})")
    print(f"{out}: written")


def register_fp16(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `fp16`."""
    parser = _add(
        subparsers, "fp16", FP16, "fairseq checkpoint", ".safetensors file",
        "pretrained/run/model.pt --out pretrained/mine/model.safetensors",
        "pretrained/run/model.pt --out pretrained/eighth/model.safetensors --embedding-scale 0.125",
    )  # fmt: skip
    parser.add_argument(
        "--embedding-scale",
        type=float,
        default=1.0,
        metavar="F",
        help="multiply the embeddings by F (default: %(default)s)",
    )
    parser.set_defaults(run=run_fp16)


def run_fp16(args: argparse.Namespace) -> None:
    """The command `fp16`."""
    out = args.out
    if out.suffix != ".safetensors":
        raise UserError(f"{out}: the file name must end in .safetensors")
    from roberta_small.fairseq_plugin.checkpoints.fp16 import write

    write(args.source, out, args.embedding_scale)
    print(f"{out}: written")


COMMANDS = (register_transformers, register_fairseq, register_onnx, register_fp16)


def build_parser() -> Parser:
    """The parser of all commands; building it imports neither torch nor Transformers."""
    parser = Parser(prog="roberta-small export", description=__doc__, examples=EXAMPLES)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for register in COMMANDS:
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
