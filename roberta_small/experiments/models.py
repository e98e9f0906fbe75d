"""The command `parameters` counts the parameters of a model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from roberta_small.common.cli import Parser, positive
from roberta_small.common.errors import UserError
from roberta_small.common.tables import markdown

SIZES = {
    "encoder-layers": "number of layers",
    "encoder-embed-dim": "dimension of the embeddings and of the layers",
    "encoder-ffn-embed-dim": "dimension of the feed-forward networks",
    "encoder-attention-heads": "attention heads per layer",
    "max-positions": "maximum number of tokens",
}
VOCABULARIES = {"causal_lm_small": 50001, "causal_roberta_small": 31999}
"""Default vocabulary size of the architectures without <mask>; for all others it is 32,000."""


def parameters(words: Sequence[str]) -> int:
    """The command `parameters`; raises `UserError` if formula and model differ anywhere."""
    options = sizes(words)
    from roberta_small.fairseq_plugin.models.parameters import SPECIAL_SYMBOLS, table

    if options.vocabulary <= SPECIAL_SYMBOLS:
        raise UserError(f"--vocabulary {options.vocabulary}: must be above 4, the number of special symbols")
    try:
        rows, totals = table(options)
    except (ValueError, AssertionError) as error:
        raise UserError(f"--arch {options.arch}: {error}; only post-norm RoBERTas are supported") from None
    cells = [(name, formula.replace("*", "·"), f"{value:,}", f"{n:,}") for name, formula, value, n in rows]
    cells += [(f"**{name}**", "", f"**{value:,}**", "") for name, value in totals.items()]
    print(markdown(("component", "formula", "value", "measured"), cells, "llr", pad=False), end="")
    wrong = [name for name, _, value, count in rows if value != count]
    if wrong:
        raise UserError(f"--arch {options.arch}: the formula does not hold for {', '.join(wrong)}")
    return 0


def sizes(words: Sequence[str]) -> argparse.Namespace:
    """The sizes of a command line; those that are not given are absent: the architecture's defaults."""
    parser = Parser(
        prog="roberta-small parameters",
        description="Count a RoBERTa's parameters by formula and on the built model.",
        examples="example:\n  roberta-small parameters --encoder-layers 6 --vocabulary 50000",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--arch", default="roberta_small", help="architecture (default: %(default)s)")
    parser.add_argument(
        "--vocabulary",
        type=positive,
        help="vocabulary size, including special symbols and, for masked models, <mask> (default: 32000, or "
        "that of the published recipe for left-to-right models)",
    )
    parser.add_argument("--num-classes", type=positive, default=2, help="classes (default: %(default)s)")
    for flag, text in SIZES.items():
        parser.add_argument(f"--{flag}", type=positive, help=f"{text} (default: that of the architecture)")
    options = parser.parse_args(words)
    usual = VOCABULARIES.get(options.arch, 32000)
    return argparse.Namespace(**{"vocabulary": usual} | vars(options))
