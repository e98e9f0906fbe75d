"""Where the parameters of a model are: each component by formula, and counted on the built model.

    python -m fairseq_plugin parameters
    python -m fairseq_plugin parameters --arch causal_lm_small
    python -m fairseq_plugin parameters --encoder-layers 12 --encoder-embed-dim 768 \\
        --encoder-ffn-embed-dim 3072 --encoder-attention-heads 12 --vocabulary 50265 --max-positions 512

Symbols: V types of the dictionary (with <mask>, if the model knows it), P positions, L layers, C embedding,
F feed-forward, K classes. fairseq counts positions from the padding index + 1, hence P + 2 rows of positions.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, BaseFairseqModel
from fairseq.models.roberta.model import RobertaModel

from common.cli import positive
from common.errors import UserError, report_errors

HEAD_NAME = "sentence_classification_head"
SPECIAL_SYMBOLS = 4  # <s> <pad> </s> <unk>


@dataclass(frozen=True)
class Component:
    """One row of the table: which parameters it is made of and how many there should be."""

    name: str
    pattern: str  # of the parameters' names, matched in full
    formula: str  # in the symbols V P L C F K
    plain: str = "0"  # the part of it that is biases and layer norms


COMPONENTS = (
    Component("token embeddings", r"encoder\.sentence_encoder\.embed_tokens\.weight", "V*C"),
    Component("position embeddings", r"encoder\.sentence_encoder\.embed_positions\.weight", "(P+2)*C"),
    Component("embedding layer norm", r".*\.layernorm_embedding\..*", "2*C", plain="2*C"),
    Component("attention q, k, v, output", r".*\.self_attn\..*", "L*4*(C*C+C)", plain="L*4*C"),
    Component("feed-forward", r".*\.fc[12]\..*", "L*(2*C*F+F+C)", plain="L*(F+C)"),
    Component("layer norms", r".*\.(self_attn|final)_layer_norm\..*", "L*2*2*C", plain="L*2*2*C"),
    Component("LM head (matrix: token embeddings)", r"encoder\.lm_head\..*", "C*C+C+2*C+V", plain="3*C+V"),
    Component("classification head", r"classification_heads\..*", "C*C+C+K*C+K", plain="C+K"),
)
HEADS = 2
"""The last components of a table: the language model's head and the classifier's."""

# Sinusoidal positions, no norm after the embeddings, an LM head with a matrix of its own.
LEFT_TO_RIGHT = (
    COMPONENTS[0],
    *COMPONENTS[3:6],
    Component("LM head", r"encoder\.lm_head\..*", "V*C+V", plain="V"),
    Component("classification head", r"classification_heads\..*", "K*C+K", plain="K"),
)
VOCABULARIES = {"causal_lm_small": 50001, "causal_roberta_small": 31999}
"""Types of the architectures that have no <mask>; of all others 32,000."""


def components(arch: str) -> tuple[Component, ...]:
    """The table's rows for an architecture."""
    return LEFT_TO_RIGHT if arch == "causal_lm_small" else COMPONENTS


def formula_value(formula: str, sizes: dict[str, int]) -> int:
    """Value of a formula of this module (sums and products of the symbols) for the given sizes."""
    if not re.fullmatch(r"[VPLCFK0-9+*() ]+", formula):
        raise ValueError(f"not a formula: {formula}")
    return eval(formula, {"__builtins__": {}}, dict(sizes))


def measured(model: BaseFairseqModel, components: Sequence[Component]) -> Counter[str]:
    """Number of parameters of each component on the built model; tied weights count once.

    Raises `ValueError` for a parameter that no component, or more than one, claims.
    """
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        owners = [component.name for component in components if re.fullmatch(component.pattern, name)]
        if len(owners) != 1:
            raise ValueError(f"parameter {name} belongs to {len(owners)} components")
        counts[owners[0]] += parameter.numel()
    return counts


def build(args: argparse.Namespace) -> BaseFairseqModel:
    """The architecture with the sizes that the flags give, as a language model."""
    if args.arch not in ARCH_CONFIG_REGISTRY:
        known = (name for name, model in ARCH_MODEL_REGISTRY.items() if issubclass(model, RobertaModel))
        raise UserError(f"--arch {args.arch}: no such architecture; the RoBERTa ones are {', '.join(known)}")
    if not issubclass(ARCH_MODEL_REGISTRY[args.arch], RobertaModel):
        raise UserError(f"--arch {args.arch} is not a RoBERTa")
    dictionary = Dictionary()
    for index in range(args.vocabulary - SPECIAL_SYMBOLS):
        dictionary.add_symbol(f"piece{index}")
    ARCH_CONFIG_REGISTRY[args.arch](args)
    args.max_positions = getattr(args, "max_positions", 512)  # fairseq's default for RoBERTa
    task = SimpleNamespace(source_dictionary=dictionary, max_positions=lambda: args.max_positions)
    return ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)


def table(args: argparse.Namespace) -> tuple[list[tuple[str, str, int, int]], dict[str, int]]:
    """Rows (component, formula, value, measured) and the named totals, computed by formula."""
    parts, model = components(args.arch), build(args)
    counts = measured(model, parts)
    model.register_classification_head(HEAD_NAME, num_classes=args.num_classes)
    counts |= measured(model, parts)  # a left-to-right classifier has lost its LM head
    sizes = {
        "V": args.vocabulary,
        "P": args.max_positions,
        "L": args.encoder_layers,
        "C": args.encoder_embed_dim,
        "F": args.encoder_ffn_embed_dim,
        "K": args.num_classes,
    }
    rows = [(c.name, c.formula, formula_value(c.formula, sizes), counts[c.name]) for c in parts]
    body = sum(value for _, _, value, _ in rows[:-HEADS])
    lm_head, classification_head = (value for _, _, value, _ in rows[-HEADS:])
    plain = sum(formula_value(c.plain, sizes) for c in parts[:-HEADS])
    totals = {"total without heads": body, "the same without biases and layer norms": body - plain}
    if args.arch in VOCABULARIES:
        totals["total as language model"] = body + lm_head
        totals["total as classifier"] = body + classification_head
    else:
        totals["total with both heads"] = body + lm_head + classification_head
    return rows, totals


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """Sizes that are not given are the architecture's own."""
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugin parameters",
        description="Count a RoBERTa's parameters by formula and on the built model.",
        epilog="example: python -m fairseq_plugin parameters --encoder-layers 6 --vocabulary 50000",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--arch", default="roberta_small", help="architecture (default: %(default)s)")
    parser.add_argument(
        "--vocabulary",
        type=positive,
        help="types, with specials and, for models of masked text, <mask> (default: 32000; "
        + "; ".join(f"{arch}: {types}" for arch, types in VOCABULARIES.items())
        + ")",
    )
    parser.add_argument("--num-classes", type=positive, default=2, help="classes (default: %(default)s)")
    for flag in ("layers", "embed-dim", "ffn-embed-dim", "attention-heads"):
        parser.add_argument(f"--encoder-{flag}", type=positive)
    parser.add_argument("--max-positions", type=positive)
    args = parser.parse_args(argv)
    if not hasattr(args, "vocabulary"):
        args.vocabulary = VOCABULARIES.get(args.arch, 32000)
    return args


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Print the table; 1 if formula and model disagree anywhere."""
    args = parse_args(argv)
    if args.vocabulary <= SPECIAL_SYMBOLS:
        raise UserError(f"--vocabulary {args.vocabulary}: four types are fairseq's own, give more")
    try:
        rows, totals = table(args)
    except (ValueError, AssertionError) as error:
        raise UserError(f"--arch {args.arch}: {error}; the table is of post-norm RoBERTas") from None
    print("| component | formula | value | measured |\n|---|---|--:|--:|")
    for name, formula, value, count in rows:
        print(f"| {name} | {formula.replace('*', '·')} | {value:,} | {count:,} |")
    for name, value in totals.items():
        print(f"| **{name}** | | **{value:,}** | |")
    wrong = [name for name, _, value, count in rows if value != count]
    if wrong:
        raise UserError(f"formula and model disagree on: {', '.join(wrong)}")
    return 0


TRAIN = "6 * tokens * L * (4 C^2 + 2 C F) + 12 L C * sum of n^2"
CLASSIFIER = f"{TRAIN} + 6 * sentences * (C^2 + K C)"
MASKED_LM = f"{TRAIN} + 6 * masked * (C^2 + V C)"


def encoder(layers: int, embed: int, ffn: int, tokens: float, squares: float) -> float:
    """FLOPs of forward and backward pass on so many tokens; `squares` is the sum of n^2."""
    return 6.0 * layers * (4 * embed**2 + 2 * embed * ffn) * tokens + 12.0 * layers * embed * squares


def classifier_head(embed: int, classes: int, sentences: float) -> float:
    """FLOPs of the head on `<s>` of each sentence, forward and backward."""
    return 6.0 * sentences * (embed**2 + classes * embed)


def masked_lm_head(embed: int, vocabulary: int, masked: float) -> float:
    """FLOPs of the LM head on the masked tokens, forward and backward."""
    return 6.0 * masked * (embed**2 + vocabulary * embed)


if __name__ == "__main__":
    raise SystemExit(main())
