"""The architecture of a RoBERTa: what must be the same in a checkpoint and in the model that loads it.

Sizes of layers can be seen in the shapes of the weights. The number of heads, the activation, the epsilon of
LayerNorm and the like cannot: a model with 8 heads loads the weights of 12 without an error and computes
something else. fairseq stores these settings in the configuration of a checkpoint. `read_architecture` reads
them from there, checks them against the shapes, and `Architecture.flags` returns the flags of fairseq-train
that build the same network.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.roberta.model import RobertaModel, base_architecture

from roberta_small.common import families
from roberta_small.common.errors import UserError
from roberta_small.common.families import FIRST_POSITION
from roberta_small.common.label_kinds import (
    KINDS,
    MULTI_LABEL,
    REGRESSION,
    SCALING,
    SINGLE_LABEL,
    LabelKind,
    Scaling,
)
from roberta_small.fairseq_plugin.checkpoints.loading import read_outline, task_record, task_settings
from roberta_small.fairseq_plugin.models.causal import CausalRobertaSmall
from roberta_small.fairseq_plugin.models.roberta import LAYER_NORM_EPS

VALUES = {
    "layers": "--encoder-layers",
    "embed": "--encoder-embed-dim",
    "ffn": "--encoder-ffn-embed-dim",
    "heads": "--encoder-attention-heads",
    "activation": "--activation-fn",
    "pooler_activation": "--pooler-activation-fn",
    "layer_norm_eps": "--layer-norm-eps",
    "family": "--family",
}
"""Field of `Architecture` -> the flag that sets it."""
SWITCHES = {
    "pre_norm": "--encoder-normalize-before",
    "embedding_norm": "--layernorm-embedding",
    "untied_lm_head": "--untie-weights-roberta",
}
"""The same for flags without a value. No flag switches them off."""
NOT_COMPARED = ("positions", "pooling", "head", "token_types")
"""Fields in which a checkpoint may differ from the model that loads it."""
BY_ARCH = ("causal", "learned_positions", "scaled_embeddings")
"""Fields that only `--arch` sets."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The settings of a RoBERTa or of a left-to-right model of this plugin, without dropout."""

    causal: bool  # whether a token attends only to itself and to earlier tokens
    layers: int
    embed: int
    ffn: int
    heads: int
    activation: str  # fairseq's name
    pooler_activation: str | None  # of the classification head; None for a checkpoint without one
    pre_norm: bool  # whether LayerNorm comes before attention and feed-forward network
    embedding_norm: bool  # whether a LayerNorm follows the embeddings
    layer_norm_eps: float
    untied_lm_head: bool  # whether the LM head has its own matrix instead of that of the token embeddings
    learned_positions: bool
    scaled_embeddings: bool  # whether token embeddings are multiplied by the square root of their size
    pooling: str | None  # the sentence vector of the classification head; None for a checkpoint without one
    head: str | None  # whether the classification head has a dense layer; None for a checkpoint without one
    family: str  # the encoders of Transformers that it belongs to
    token_types: bool  # whether the second text of a pair has a token type
    positions: int | None  # longest input in tokens; None for sinusoids, which have no limit

    @property
    def arch(self) -> str:
        """The architecture of fairseq-train to which `flags` refers."""
        if self.causal:
            return "causal_roberta_small" if self.learned_positions else "causal_lm_small"
        return "roberta_small" if self.embedding_norm else "roberta_prenorm"

    def flags(self) -> dict[str, tuple[str, ...]]:
        """The flags that build this network, apart from `NOT_COMPARED`: flag -> the flag and its value."""
        found = {"--arch": ("--arch", self.arch)}
        values = {flag: getattr(self, name) for name, flag in VALUES.items()}
        if self.family == families.DEFAULT:
            del values["--family"]
        found |= {flag: (flag, str(value)) for flag, value in values.items() if value is not None}
        return found | {flag: (flag,) for name, flag in SWITCHES.items() if getattr(self, name)}

    def differences(self, other: Architecture) -> list[str]:
        """The names of the fields in which both differ, apart from `NOT_COMPARED`; None equals all values."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in NOT_COMPARED]
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in names)
        return [name for name, ours, theirs in pairs if ours != theirs and None not in (ours, theirs)]

    def flags_from(self, other: Architecture) -> list[str]:
        """The words that, added to the flags of `other`, give this architecture; empty if it is the same.

        What no flag switches off follows from `--arch`; then these are all flags. They do not undo a flag of
        `SWITCHES` among those of `other`.
        """
        names, flags = self.differences(other), self.flags()
        if any(name in BY_ARCH or getattr(self, name) is False for name in names):
            return [word for group in flags.values() for word in group]
        return [word for name in names for word in flags[(VALUES | SWITCHES)[name]]]

    def describe(self, name: str) -> str:
        """A field as a flag with its value: `--encoder-attention-heads 12`, `no --untie-weights-roberta`."""
        value = getattr(self, name)
        if name in BY_ARCH:
            return f"--arch {self.arch}"
        if name in SWITCHES:
            return SWITCHES[name] if value else f"no {SWITCHES[name]}"
        return f"{VALUES[name]} {value}"


def of_arguments(arguments: argparse.Namespace) -> Architecture:
    """The architecture that fairseq builds from a RoBERTa's arguments; missing ones have their defaults."""
    name, arguments = arch_name(arguments), _namespace(arguments)
    (ARCH_CONFIG_REGISTRY.get(name) or base_architecture)(arguments)
    base_architecture(arguments)
    learned = bool(arguments.encoder_learned_pos)
    eps = getattr(arguments, "layer_norm_eps", None)
    positions = getattr(arguments, "max_positions", None) or getattr(arguments, "tokens_per_sample", None)
    return Architecture(
        causal=issubclass(ARCH_MODEL_REGISTRY.get(name, RobertaModel), CausalRobertaSmall),
        layers=arguments.encoder_layers,
        embed=arguments.encoder_embed_dim,
        ffn=arguments.encoder_ffn_embed_dim,
        heads=arguments.encoder_attention_heads,
        activation=str(arguments.activation_fn),
        pooler_activation=str(arguments.pooler_activation_fn),
        pre_norm=bool(arguments.encoder_normalize_before),
        embedding_norm=bool(arguments.layernorm_embedding),
        layer_norm_eps=LAYER_NORM_EPS if eps is None else float(eps),
        untied_lm_head=bool(arguments.untie_weights_roberta),
        learned_positions=learned,
        scaled_embeddings=not arguments.no_scale_embedding,
        pooling=str(getattr(arguments, "pooling", None) or "first"),
        head=str(getattr(arguments, "head", None) or "dense"),
        family=str(getattr(arguments, "family", None) or families.DEFAULT),
        token_types=bool(getattr(arguments, "token_types", False)),
        positions=positions if learned else None,
    )


def of_state(path: Path, state: Mapping[str, Any]) -> Architecture:
    """The architecture of a checkpoint in fairseq's format; `state["model"]` needs only shapes.

    The number of positions is that of the table. Raises `UserError`, naming `path`, if the checkpoint is not
    that of a RoBERTa, records no configuration, or if its weights contradict the configuration.
    """
    arguments = model_arguments(state)
    if not vars(arguments):
        raise UserError(
            f"{path}: records no configuration of its model ('cfg' or 'args'), so the number of heads and "
            "other settings without a shape are unknown; use a checkpoint that fairseq or roberta-small "
            "export fairseq wrote"
        )
    if not is_roberta(name := arch_name(arguments)):
        raise UserError(f"{path}: architecture '{name}' is not a RoBERTa; use a checkpoint of a RoBERTa")
    found = of_arguments(arguments)
    shapes = {name: tuple(weight.shape) for name, weight in state["model"].items()}
    endings = (".embed_tokens.weight", ".embed_positions.weight", ".layers.0.fc1.weight")
    tokens, positions, ffn = (
        next((shape for name, shape in shapes.items() if name.endswith(ending)), None) for ending in endings
    )
    layers = {name.split(".layers.")[1].split(".")[0] for name in shapes if ".layers." in name}
    stored = [
        ("encoder_layers", found.layers, len(layers)),
        ("encoder_embed_dim", found.embed, tokens and tokens[1]),
        ("encoder_ffn_embed_dim", found.ffn, ffn and ffn[0]),
    ]
    wrong = [f"{name} is {ours}, weights have {theirs}" for name, ours, theirs in stored if ours != theirs]
    if found.learned_positions and positions is None:
        wrong.append("the table of positions is missing")
    if wrong:
        raise UserError(
            f"{path}: its weights contradict its configuration ({'; '.join(wrong)}); copy the file again, or "
            "use one that fairseq wrote"
        )
    if not any(name.startswith("classification_heads.") for name in shapes):
        # The head of the runs is that of the recipe, unless the encoder has an activation or pooling of its
        # own: that of its family, or of a sentence encoder.
        activation = families.FAMILIES[found.family].pooler_activation
        found = dataclasses.replace(
            found,
            pooler_activation=None if activation == "tanh" else activation,
            pooling=None if found.pooling == "first" else found.pooling,
            head=None,
        )
    if found.learned_positions:
        assert positions is not None  # `wrong` would have it
        found = dataclasses.replace(found, positions=positions[0] - FIRST_POSITION)
    return found


@dataclass(frozen=True)
class Head:
    """The classification head of a checkpoint."""

    name: str
    classes: int
    class_names: tuple[str, ...] | None  # in the order of the logits; None if they are not recorded
    kind: str = SINGLE_LABEL  # of the labels it was trained on (`common.label_kinds`)
    scaling: Scaling = Scaling()  # of numeric labels


def kind_of_settings(settings: Mapping[str, Any]) -> LabelKind:
    """The kind of labels in the configuration of a task, also of stock fairseq."""
    if settings.get("regression_target"):
        return KINDS[REGRESSION]
    return KINDS[MULTI_LABEL if settings.get("multi_label") else SINGLE_LABEL]


def scaling_of_state(state: Mapping[str, Any], where: object) -> Scaling:
    """The scaling of the numeric labels that a checkpoint was trained on; stock fairseq does not scale them.

    Raises `UserError` with `where` if it is malformed.
    """
    record = task_record(state)
    return Scaling.from_record(record[SCALING], where) if SCALING in record else Scaling()


def head_of(state: Mapping[str, Any], where: object) -> Head | None:
    """The classification head of a checkpoint in fairseq's format; None if it has none.

    Raises `UserError` with `where` if its scaling is malformed.
    """
    for name, weight in state["model"].items():
        parts = name.split(".")
        if parts[0] == "classification_heads" and parts[2:] == ["out_proj", "weight"]:
            names, kind = task_record(state).get("class_names"), kind_of_settings(task_settings(state)).name
            names = None if names is None else tuple(names)
            return Head(parts[1], len(weight), names, kind, scaling_of_state(state, where))
    return None


def class_rows(theirs: Sequence[str], ours: Sequence[str]) -> list[int] | None:
    """For each class in `ours`, its position in `theirs`; None if they are not the same classes.

    Names are compared as they are, then without case. `LABEL_0`, `LABEL_1`, ..., which Transformers writes if
    no names are given, are the classes in `ours` in sorted order.
    """
    for key in (str, str.casefold):
        names = [key(name) for name in theirs]
        if len(set(names)) == len(names) and sorted(names) == sorted(key(name) for name in ours):
            return [names.index(key(name)) for name in ours]
    unnamed = [f"LABEL_{index}" for index in range(len(ours))]
    if sorted(theirs) == sorted(unnamed):
        numbers = {name: float(name) for name in ours if name.lstrip("-").isdecimal()}
        # Numbers by their value, before other names.
        keys = {name: (name not in numbers, numbers.get(name, 0.0), name.casefold()) for name in ours}
        ordered = sorted(ours, key=lambda name: keys[name])
        return [list(theirs).index(unnamed[ordered.index(name)]) for name in ours]
    return None


def read_architecture(path: Path) -> Architecture:
    """The architecture of a checkpoint file, without reading its weights.

    Raises `UserError` as `loading.read_outline` and `of_state` do.
    """
    return of_state(path, read_outline(path))


def model_arguments(state: Mapping[str, Any]) -> argparse.Namespace:
    """The arguments from which fairseq builds the model of a checkpoint, from `cfg` or the older `args`.

    The RoBERTa of another program has an architecture that nobody registered here; it becomes `roberta` of
    the sizes that it records.
    """
    cfg = state.get("cfg")
    arguments = _namespace(cfg.get("model") if cfg is not None else state.get("args"))
    unknown = vars(arguments) and arch_name(arguments) not in ARCH_MODEL_REGISTRY
    if unknown and any(name.endswith(".sentence_encoder.embed_tokens.weight") for name in state["model"]):
        arguments.arch = "roberta"
    return arguments


def arch_name(arguments: argparse.Namespace) -> str | None:
    """The value of `--arch`, which newer checkpoints call `_name`."""
    return getattr(arguments, "arch", None) or getattr(arguments, "_name", None)


def is_roberta(name: str | None) -> bool:
    """Whether an architecture is a RoBERTa of fairseq or of a plugin."""
    return name in ARCH_MODEL_REGISTRY and issubclass(ARCH_MODEL_REGISTRY[name], RobertaModel)


def _namespace(arguments: argparse.Namespace | Mapping[str, Any] | None) -> argparse.Namespace:
    """A copy, as a namespace."""
    known = vars(arguments) if isinstance(arguments, argparse.Namespace) else dict(arguments or {})
    return argparse.Namespace(**known)
