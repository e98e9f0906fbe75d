"""Options shared by the commands, of `export` too; importing this module is fast."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Any

from roberta_small.common.cli import DEVICES, Parser, positive
from roberta_small.common.errors import UserError
from roberta_small.common.hardware import CPU, GPU


@dataclass(frozen=True)
class Sampling:
    """The distribution to sample from; the parameters apply in this order.

    Attributes:
        temperature: divisor of the logits; a value below 1 favors probable tokens.
        top_k: sample only from the k most probable tokens; None for all.
        top_p: sample only from the most probable tokens with a total probability of p (nucleus sampling,
            Holtzman et al. 2020, section 3.1).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise UserError(
                f"--temperature {self.temperature:g}: must be above 0; for greedy decoding, omit --sample"
            )
        if not 0 < self.top_p <= 1:
            raise UserError(f"--top-p {self.top_p:g}: must be above 0 and at most 1")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"--top-k {self.top_k}: must be at least 1")


def add_texts(parser: Parser, text: str, *, tables: str = "") -> None:
    """Add TEXT, --input and --out; `text` is the word for one text in the help, "text" or "prompt".

    `tables` is what the help says about tables as --input.
    """
    parser.add_argument("text", nargs="*", metavar="TEXT", help=f"{text}s (default: read --input)")
    parser.add_argument(
        "--input",
        metavar="FILE",
        help=f"one {text} per line: plain text, .gz, .xz or .bz2{tables} (default: standard input)",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="output file (default: standard output); written only if the command succeeds",
    )


def add_checkpoint_files(parser: Parser, *, tokenizer: bool = True, apostrophes: bool = False) -> None:
    """Add --data and --dict; with `tokenizer` also --sentencepiece-model, and --normalize-apostrophes."""
    group = parser.add_argument_group("data and tokenizer (default: as recorded by the run)")
    group.add_argument("--data", metavar="BIN", help="binarized data folder")
    group.add_argument("--dict", metavar="FILE", help="fairseq dictionary (dict.txt) of the training data")
    if tokenizer:
        group.add_argument(
            "--sentencepiece-model", metavar="FILE", help="SentencePiece model of the training data"
        )
    if apostrophes:
        group.add_argument(
            "--normalize-apostrophes",
            action="store_true",
            help="replace the apostrophes ’ and ʼ by ', as roberta-small prepare can",
        )


def add_computation(parser: Parser, *, max_tokens: bool = True) -> None:
    """Add --device and --precision, and --max-tokens for the batches of a classifier."""
    from roberta_small.eval.precision import PRECISIONS

    group = parser.add_argument_group("computation")
    group.add_argument(
        "--device", choices=DEVICES, default="auto", help="device to compute on (default: %(default)s)"
    )
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="precision of matrix products; use fp32 for figures to publish (default: auto, the one that "
        "training recorded, or fp32 if there is none)",
    )
    if max_tokens:
        group.add_argument(
            "--max-tokens",
            type=positive,
            metavar="N",
            help="tokens per batch, including padding "
            f"(default: {CPU.prediction_tokens}; predict and evaluate on a GPU: {GPU.prediction_tokens})",
        )


OVERRIDES: tuple[str, ...] = ("data", "dict", "sentencepiece_model", "normalize_apostrophes")
OVERRIDES += ("device", "precision", "max_tokens")


def overrides(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `open_model` that the options of a command set."""
    given = {option: value for option, value in vars(args).items() if option in OVERRIDES}
    return {"dictionary" if option == "dict" else option: value for option, value in given.items()}
