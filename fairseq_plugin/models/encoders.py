"""The encoders that `--encoder` names: one registry for every model of the plugin.

An encoder is a class with the constructor of fairseq's `TransformerEncoder` (arguments, dictionary, token
embeddings) and its `forward`. One that also has `pooled` (see `packed.PackedTransformerEncoder.pooled`) lets
a classifier compute one vector per sentence only. docs/extending/encoder.md shows how to add one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairseq.models.transformer import TransformerEncoder

from common.errors import UserError

from .packed import PackedTransformerEncoder


@dataclass(frozen=True)
class EncoderKind:
    """A registered encoder."""

    name: str
    encoder: type[TransformerEncoder]
    summary: str
    """For --help."""
    unsupported: Mapping[str, Any] = field(default_factory=dict)
    """Argument of fairseq that the encoder cannot compute -> the value that switches it off."""

    @property
    def pools(self) -> bool:
        """Whether it has `pooled`, which `--pooling mean` needs."""
        return hasattr(self.encoder, "pooled")


ENCODERS: dict[str, EncoderKind] = {}
"""Name -> encoder, in the order of registration."""


def register_encoder(kind: EncoderKind) -> EncoderKind:
    """Add an encoder; raises `ValueError` for a name that is taken."""
    if kind.name in ENCODERS:
        raise ValueError(f"the encoder {kind.name!r} is registered already")
    ENCODERS[kind.name] = kind
    return kind


def check_supported(args: Any) -> None:
    """Raise `UserError` for a flag that the chosen encoder does not support, and name those that do."""
    kind = ENCODERS[args.encoder_kind]
    for argument, off in kind.unsupported.items():
        if getattr(args, argument, off) != off:
            others = [name for name, other in ENCODERS.items() if argument not in other.unsupported]
            raise UserError(f"--{argument.replace('_', '-')} needs --encoder {' or '.join(others)}")
    if args.pooling == "mean" and not kind.pools:
        others = [name for name, other in ENCODERS.items() if other.pools]
        raise UserError(f"--pooling mean needs --encoder {' or '.join(others)}")


register_encoder(
    EncoderKind(
        "packed",
        PackedTransformerEncoder,
        "no computation on padding (default)",
        unsupported={"encoder_layerdrop": 0.0, "quant_noise_pq": 0, "quant_noise_scalar": 0},
    )
)
register_encoder(EncoderKind("padded", TransformerEncoder, "fairseq's own encoder"))
