"""The registry of encoders, from which `--encoder` selects.

An encoder is a class with the constructor (arguments, dictionary, token embeddings) and the `forward` of
fairseq's `TransformerEncoder`. If it also has a method `pooled` (see
`packed.PackedTransformerEncoder.pooled`), a classifier computes only one vector per sentence.
docs/extending.md shows how to add one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairseq.models.transformer import TransformerEncoder

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.models.packed import PackedTransformerEncoder


@dataclass(frozen=True)
class EncoderKind:
    """A registered encoder."""

    name: str
    encoder: type[TransformerEncoder]
    summary: str  # help text
    unsupported: Mapping[str, Any] = field(default_factory=dict)
    """fairseq's argument for a feature that the encoder lacks -> the value that disables it."""


ENCODERS: dict[str, EncoderKind] = {}
"""Name -> encoder, in the order of registration."""


def register_encoder(kind: EncoderKind) -> EncoderKind:
    """Add an encoder; raises `ValueError` if the name is already registered."""
    if kind.name in ENCODERS:
        raise ValueError(f"the encoder {kind.name!r} is already registered")
    ENCODERS[kind.name] = kind
    return kind


def check_supported(args: Any) -> None:
    """Raise `UserError` for a flag that the selected encoder does not support, naming those that do."""
    kind = ENCODERS[args.encoder_kind]
    for argument, off in kind.unsupported.items():
        if getattr(args, argument, off) != off:
            others = [name for name, other in ENCODERS.items() if argument not in other.unsupported]
            raise UserError(f"--{argument.replace('_', '-')} needs --encoder {' or '.join(others)}")
    if args.pooling == "mean" and not hasattr(kind.encoder, "pooled"):
        others = [name for name, other in ENCODERS.items() if hasattr(other.encoder, "pooled")]
        raise UserError(f"--pooling mean needs --encoder {' or '.join(others)}")


register_encoder(
    EncoderKind(
        "packed",
        PackedTransformerEncoder,
        "default; skips padding",
        unsupported={"encoder_layerdrop": 0.0, "quant_noise_pq": 0, "quant_noise_scalar": 0},
    )
)
register_encoder(EncoderKind("padded", TransformerEncoder, "fairseq's own encoder"))
