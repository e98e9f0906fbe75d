"""Parameters and FLOPs of a model: the parameters of each component by formula and counted on the model.

    roberta-small parameters
    roberta-small parameters --arch causal_lm_small
    roberta-small parameters --encoder-layers 12 --encoder-embed-dim 768 \\
        --encoder-ffn-embed-dim 3072 --encoder-attention-heads 12 --vocabulary 50265 --max-positions 512

Symbols: V vocabulary size (including <mask> for masked models), P positions, L layers, C embedding size,
F feed-forward size, K classes. fairseq numbers positions from the padding index + 1, hence P + 2 rows of
positions.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roberta_small.common.errors import UserError

if TYPE_CHECKING:
    from fairseq.models import BaseFairseqModel

HEAD_NAME = "sentence_classification_head"
SPECIAL_SYMBOLS = 4  # <s> <pad> </s> <unk>


@dataclass(frozen=True)
class Component:
    """One row of the table: a group of parameters and the formula for its size."""

    name: str
    pattern: str  # regular expression that matches the full names of the parameters
    formula: str  # number of parameters, in the symbols V P L C F K
    plain: str = "0"  # number of those that are biases or belong to layer norms


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
"""Number of heads, which are the last components of a table: LM head and classification head."""

# Sinusoidal positions, no norm after the embeddings, an LM head with its own matrix.
LEFT_TO_RIGHT = (
    COMPONENTS[0],
    *COMPONENTS[3:6],
    Component("LM head", r"encoder\.lm_head\..*", "V*C+V", plain="V"),
    Component("classification head", r"classification_heads\..*", "K*C+K", plain="K"),
)
ONE_HEAD = ("causal_lm_small", "causal_roberta_small")
"""Left-to-right architectures, whose classifiers have no LM head."""


def formula_value(formula: str, sizes: dict[str, int]) -> int:
    """Value of a formula for the given sizes; raises `ValueError` for other expressions."""
    if not re.fullmatch(r"[VPLCFK0-9+*() ]+", formula):
        raise ValueError(f"not a formula: {formula}")
    return eval(formula, {"__builtins__": {}}, dict(sizes))


def measured(model: BaseFairseqModel, components: Sequence[Component]) -> Counter[str]:
    """Count the parameters of each component on the built model; tied weights count once.

    Raises `ValueError` for a parameter that does not belong to exactly one component.
    """
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        owners = [component.name for component in components if re.fullmatch(component.pattern, name)]
        if len(owners) != 1:
            raise ValueError(f"parameter {name} belongs to {len(owners)} components")
        counts[owners[0]] += parameter.numel()
    return counts


def build(args: argparse.Namespace) -> BaseFairseqModel:
    """Build the architecture as a language model, with the sizes of the command line."""
    from fairseq.data import Dictionary  # here, because --help does not need it
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
    from fairseq.models.roberta.model import RobertaModel

    if args.arch not in ARCH_CONFIG_REGISTRY:
        known = (name for name, model in ARCH_MODEL_REGISTRY.items() if issubclass(model, RobertaModel))
        raise UserError(f"--arch {args.arch}: no such architecture; use one of {', '.join(known)}")
    if not issubclass(ARCH_MODEL_REGISTRY[args.arch], RobertaModel):
        raise UserError(f"--arch {args.arch}: not a RoBERTa architecture")
    dictionary = Dictionary()
    dictionary.symbols += [""] * (args.vocabulary - SPECIAL_SYMBOLS)
    ARCH_CONFIG_REGISTRY[args.arch](args)
    args.max_positions = getattr(args, "max_positions", 512)  # fairseq's default for RoBERTa
    task = argparse.Namespace(source_dictionary=dictionary)
    return ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)


def table(args: argparse.Namespace) -> tuple[list[tuple[str, str, int, int]], dict[str, int]]:
    """Rows (component, formula, value, measured count) and the named totals, computed by formula."""
    parts = LEFT_TO_RIGHT if args.arch == "causal_lm_small" else COMPONENTS
    model = build(args)
    counts = measured(model, parts)
    model.register_classification_head(HEAD_NAME, num_classes=args.num_classes)
    counts |= measured(model, parts)  # a left-to-right classifier has no LM head
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
    if args.arch in ONE_HEAD:
        totals["total as language model"] = body + lm_head
        totals["total as classifier"] = body + classification_head
    else:
        totals["total with both heads"] = body + lm_head + classification_head
    return rows, totals


# Formulas of the FLOPs of an update, forward and backward: n tokens of each sentence.
TRAIN = "6 * tokens * L * (4 C^2 + 2 C F) + 12 L C * sum of n^2"
CLASSIFIER = f"{TRAIN} + 6 * sentences * (C^2 + K C)"
MASKED_LM = f"{TRAIN} + 6 * masked * (C^2 + V C)"


def encoder(layers: int, embed: int, ffn: int, tokens: float, squares: float) -> float:
    """FLOPs of the encoder, forward and backward; `squares` is the sum of the squared sentence lengths."""
    return 6.0 * layers * (4 * embed**2 + 2 * embed * ffn) * tokens + 12.0 * layers * embed * squares


def classifier_head(embed: int, classes: int, sentences: float) -> float:
    """FLOPs of the classification head on `<s>` of each sentence, forward and backward."""
    return 6.0 * sentences * (embed**2 + classes * embed)


def masked_lm_head(embed: int, vocabulary: int, masked: float) -> float:
    """FLOPs of the LM head on the masked tokens, forward and backward."""
    return 6.0 * masked * (embed**2 + vocabulary * embed)
