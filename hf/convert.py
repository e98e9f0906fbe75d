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
from pathlib import Path

from common.errors import UserError

EXAMPLES = """examples:
  python -m hf convert runs/fairseq/pretrained/seed1 classifier
  python -m hf convert pretrained/model.pt masked-lm --data data/corpus
  python -m hf convert model.pt folder --dict dict.txt --sentencepiece-model spm.model --normalize-apostrophes
  python -m hf convert --to-fairseq classifier back/model.pt
"""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `convert`."""
    parser = subparsers.add_parser(
        "convert",
        help="a fairseq checkpoint to a from_pretrained folder, or back",
        description=__doc__,
        epilog=EXAMPLES,
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
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """The command."""
    if args.to_fairseq:
        if args.data or args.sentencepiece_model or args.normalize_apostrophes:
            raise UserError(
                "--to-fairseq takes none of --data, --sentencepiece-model and --normalize-apostrophes; "
                "leave them out"
            )
        from .to_fairseq import convert_back

        print(convert_back(Path(args.source), args.output, dictionary=args.dict))
    else:
        from .to_transformers import convert

        print(convert(
            args.source,
            args.output,
            data=args.data,
            dictionary=args.dict,
            sentencepiece_model=args.sentencepiece_model,
            normalize_apostrophes=args.normalize_apostrophes,
        ))  # fmt: skip
    print(f"{args.output}: written")
