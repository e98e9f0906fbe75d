"""Write a trained model in another format: Transformers, fairseq or ONNX."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from roberta_small.common.cli import Parser
from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import atomic_write
from roberta_small.common.optional import needed_by
from roberta_small.eval.options import add_checkpoint_files, overrides

EXAMPLES = """examples:
  roberta-small export transformers runs/fairseq/pretrained/seed1 --out classifier
  roberta-small export fairseq classifier --out back/model.pt
  roberta-small export onnx runs/fairseq/pretrained/seed1 --out classifier.onnx --int8
  roberta-small export fairseq runs/fairseq/pretrained/seed1/checkpoint_best.pt --out model.safetensors
"""
TRANSFORMERS = """Convert a fairseq checkpoint to a folder for `from_pretrained`.

The folder contains configuration, model.safetensors, tokenizer and model card. It is written only if the
converted network computes the same logits as fairseq's, and the tokenizer yields the token ids of training.
Dictionary, tokenizer and data default to the files that the run recorded.
"""
FAIRSEQ = """Convert a from_pretrained folder to a fairseq checkpoint, or a checkpoint to fp16 weights.

A folder contains a model of the RoBERTa or the BERT family: a masked language model, a classifier or the
encoder alone. Its checkpoint (.pt), with dictionary and tokenizer beside it, can be used with fairseq-train
--restore-file, `train --pretrained` and `predict`; `train --pretrained` also takes the folder itself, or its
name on the Hugging Face hub. It is written only if both networks compute the same logits. Files are read
without executing code.

A checkpoint is written as .safetensors in fp16. --embedding-scale below 1 then rescales the embeddings, so
that a short fine-tuning with a small learning rate changes them more; the outputs stay nearly the same.
"""
ONNX = """Convert a classifier to ONNX, in fp32 or int8.

The file is written only if ONNX Runtime and PyTorch compute the same logits in fp32. Accuracy is measured on
a split of the data, if there are any. The file also contains tokenizer, dictionary and class names:
`roberta-small predict --checkpoint FILE.onnx` needs nothing else.
"""


def _add(
    subparsers: argparse._SubParsersAction, name: str, text: str, source: str, out: str, *lines: str
) -> Parser:
    """Add a command with its source and output; `lines` are the arguments of its examples."""
    examples = "examples:\n" + "".join(f"  roberta-small export {name} {line}\n" for line in lines)
    parser = subparsers.add_parser(name, help=text.partition("\n")[0], description=text, examples=examples)
    parser.add_argument("source", metavar="SOURCE", help=source)
    parser.add_argument("--out", type=Path, metavar="PATH", required=True, help=f"{out} to write")
    return parser


def run_transformers(args: argparse.Namespace) -> None:
    """The command `transformers`."""
    from roberta_small.export.transformers.to_transformers import convert

    verification = convert(args.source, args.out, **overrides(args))
    print(verification)
    print(f"{args.out}: written")


def run_fairseq(args: argparse.Namespace) -> None:
    """The command `fairseq`; raises `UserError` for an output or option of the other kind of source."""
    source, folder = Path(args.source), Path(args.source).is_dir()
    suffix = ".pt" if folder else ".safetensors"
    if args.out.suffix != suffix:
        what = "a folder" if folder else "not a folder, but a checkpoint"
        raise UserError(f"--out {args.out}: {source} is {what}; the file name must end in {suffix}")
    if folder:
        if args.embedding_scale is not None:
            raise UserError("--embedding-scale: for a checkpoint, not for a folder; omit it")
        from roberta_small.export.transformers.to_fairseq import convert_back

        print(convert_back(source, args.out, dictionary=args.dict))
    else:
        if args.dict is not None:
            raise UserError("--dict: for a folder, not for a checkpoint; omit it")
        from roberta_small.fairseq_plugin.checkpoints.fp16 import write

        write(args.source, args.out, 1.0 if args.embedding_scale is None else args.embedding_scale)
    print(f"{args.out}: written")


def run_onnx(args: argparse.Namespace) -> None:
    """The command `onnx`."""
    out = args.out
    if out.exists():
        raise UserError(f"{out}: already exists; choose another --out or delete it")
    from roberta_small.export.onnx import export, open_classifier, table

    classifier = open_classifier(args.source)
    model, examples = classifier.model, None
    if args.data is not None or (model.data.exists and model.data.dictionary.is_file()):
        examples = model.examples(args.split, args.data)
    rows = examples.rows if examples is not None else classifier.example_rows()
    metadata, note = None, ""
    try:
        metadata = classifier.metadata()
    except UserError as error:
        note = f"note: without a tokenizer, so roberta-small predict cannot read the file ({error})"
    logits, content = export(classifier, rows, int8=args.int8, metadata=metadata)
    atomic_write(out, content)
    if examples is None:
        print(f"{len(rows)} rows of random ids; --data BIN measures the accuracy")
    else:
        print(f"{len(rows):,} sentences of {args.split}")
    print(table(logits, None if examples is None else examples.labels, model.labels))
    print(f"{out}: written, {len(content) / 1e6:.1f} MB")
    if note:
        print(note)


def build_parser() -> Parser:
    """The parser of all commands; building it imports neither torch nor Transformers."""
    parser = Parser(prog="roberta-small export", description=__doc__, examples=EXAMPLES)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)

    command = _add(
        subparsers, "transformers", TRANSFORMERS, "run folder or checkpoint", "folder",
        "runs/fairseq/pretrained/seed1 --out classifier",
        "pretrained/model.pt --out masked-lm --data data/corpus",
        "model.pt --out folder --dict dict.txt --sentencepiece-model spm.model --normalize-apostrophes",
    )  # fmt: skip
    add_checkpoint_files(command, apostrophes=True)
    command.set_defaults(run=run_transformers)

    command = _add(
        subparsers, "fairseq", FAIRSEQ, "from_pretrained folder, or fairseq checkpoint",
        ".pt file of a folder, or .safetensors file of a checkpoint",
        "classifier --out back/model.pt",
        "pretrained/run/model.pt --out pretrained/mine/model.safetensors",
        "pretrained/run/model.pt --out pretrained/eighth/model.safetensors --embedding-scale 0.125",
    )  # fmt: skip
    command.add_argument(
        "--dict",
        metavar="FILE",
        help="fairseq dictionary (default: dict.txt of the folder, or the vocabulary of its tokenizer)",
    )
    command.add_argument(
        "--embedding-scale", type=float, metavar="F", help="multiply the embeddings of a checkpoint by F"
    )
    command.set_defaults(run=run_fairseq)

    command = _add(
        subparsers, "onnx", ONNX, "run folder or checkpoint", ".onnx file",
        "runs/fairseq/pretrained/seed1 --out classifier.onnx",
        "runs/fairseq/pretrained/seed1 --out classifier-int8.onnx --int8 --data data/cls-books --split test",
    )  # fmt: skip
    command.add_argument("--int8", action="store_true", help="quantize the weights to 8 bits")
    command.add_argument("--data", metavar="BIN", help="binarized data to evaluate on (default: the run's)")
    command.add_argument("--split", default="test", metavar="NAME", help="split to evaluate on (%(default)s)")
    command.set_defaults(run=run_onnx)
    return parser


@report_errors
def main(arguments: Sequence[str] | None = None) -> int | None:
    """Run one command and return its exit code."""
    # Progress bars of single files and warnings about tokenizers would hide our own messages.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    with needed_by("export"):
        args = build_parser().parse_args(arguments)
        return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
