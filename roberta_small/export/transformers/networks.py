"""An encoder in fairseq and in Transformers: checkpoints, sizes, configuration, and weights both ways.

The encoder may be of any family in `families.FAMILIES`. Its rows of tokens are in the order of a fairseq
dictionary; `order` (V,), if given, has the id of Transformers' tokenizer for each of them.

V vocabulary entries with `<mask>`, C embedding width, T token types, K classes, B sentences, L tokens.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from fairseq.data import Dictionary
from fairseq.models.roberta.model import RobertaModel
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from roberta_small.common import families
from roberta_small.common.errors import UserError
from roberta_small.common.families import (
    ACTIVATIONS,
    FAMILIES,
    FIRST_POSITION,
    LM_BIAS,
    POSITIONS,
    SECOND,
    TIED,
    TOKENS,
    Family,
)
from roberta_small.common.label_kinds import KINDS, SINGLE_LABEL, LabelKind, Scaling
from roberta_small.eval.network import Checkpoint, read_checkpoint
from roberta_small.export.transformers.modeling_mean_pooling import (
    MeanPoolingConfig,
    MeanPoolingForSequenceClassification,
)
from roberta_small.fairseq_plugin.checkpoints.architecture import Head, arch_name
from roberta_small.fairseq_plugin.checkpoints.initialization import missing_weights
from roberta_small.fairseq_plugin.checkpoints.loading import LM_HEAD
from roberta_small.fairseq_plugin.models.roberta import LAYER_NORM_EPS, RobertaSmall
from roberta_small.preprocess.dictionary import BOS, EOS, PAD, SPECIALS

Special = tuple[int, int]
"""Ids of the tokens before and after a text: 0 and 2, but 5 and 6 in CamemBERT (--init-token,
--separator-token)."""
HEADS = "classification_heads."
ARCHITECTURES = ("roberta_small", "roberta", "roberta_base", "roberta_large")
# Arguments of fairseq that no family in Transformers supports -> required value, description of others.
REQUIRED = {
    "encoder_normalize_before": (False, "pre-layer normalization (--encoder-normalize-before)"),
    "untie_weights_roberta": (False, "an untied LM head (--untie-weights-roberta)"),
}


@dataclass(frozen=True)
class Source:
    """A RoBERTa checkpoint of fairseq, in memory."""

    path: Path
    arguments: argparse.Namespace
    """Arguments of the model, from which fairseq builds it."""
    weights: dict[str, Tensor]
    """Weights under the names of the installed fairseq version."""
    head: str | None
    """Name of the classification head; None for a masked language model."""
    class_names: list[str] | None = None
    """In the order of the logits; None if the checkpoint does not record them."""
    has_lm_head: bool = True
    """Whether the checkpoint has the LM head; otherwise its weights are random."""
    kind: LabelKind = KINDS[SINGLE_LABEL]
    """Of the labels of a classifier."""
    scaling: Scaling = Scaling()
    """Of numeric labels."""

    @property
    def family(self) -> Family:
        """The family of encoders in Transformers."""
        return family_of(self.arguments)

    @property
    def needs_own_class(self) -> bool:
        """Whether it is a classifier of the mean of all tokens or with a linear head."""
        mean = getattr(self.arguments, "pooling", "first") == "mean"
        return self.head is not None and (mean or self.has_linear_head)

    @property
    def has_linear_head(self) -> bool:
        """Whether its classification head has no dense layer."""
        return f"{HEADS}{self.head}.dense.weight" not in self.weights

    @property
    def vocabulary(self) -> int:
        """V, the size of the vocabulary."""
        return len(self.weights[TOKENS])

    @property
    def classes(self) -> int | None:
        """K, the number of classes; None for a masked language model."""
        return None if self.head is None else len(self.weights[f"{HEADS}{self.head}.out_proj.weight"])

    @property
    def classification_head(self) -> Head | None:
        """The classification head; None for a masked language model."""
        if self.head is None or self.classes is None:
            return None
        names = None if self.class_names is None else tuple(self.class_names)
        return Head(self.head, self.classes, names, self.kind.name, self.scaling)

    def model(self) -> RobertaModel:
        """fairseq's own model with these weights, in fp32 and evaluation mode: ids (B, L) -> logits."""
        model = model_of(self.arguments, self.vocabulary, self.head, self.classes)
        model.load_state_dict(self.weights)
        return model.eval()


def read_source(path: str | os.PathLike[str]) -> Source:
    """Read the checkpoint of a masked language model or a sentence classifier.

    Raises `UserError` if the file is not a checkpoint (see `load_checkpoint`), if the architecture is not a
    RoBERTa or not supported by Transformers, and if the weights do not match the stored arguments.
    """
    return source_of(read_checkpoint(Path(path)))


def source_of(checkpoint: Checkpoint) -> Source:
    """The content of a checkpoint as that of a RoBERTa; errors as for `read_source`."""
    path, arguments = checkpoint.path, checkpoint.arguments
    if (name := arch_name(arguments)) not in ARCHITECTURES:
        raise UserError(f"{path}: a model of architecture '{name}', not one of {', '.join(ARCHITECTURES)}")
    for name, (value, what) in REQUIRED.items():
        if getattr(arguments, name, value) != value:
            raise UserError(f"{path}: trained with {what}, which Transformers does not support")
    if checkpoint.vocabulary is None:
        raise UserError(f"{path}: no token embeddings, so not a RoBERTa; use a fairseq checkpoint")
    heads = {key.removeprefix(HEADS).split(".")[0] for key in checkpoint.weights if key.startswith(HEADS)}
    if len(heads) > 1:
        raise UserError(
            f"{path}: {len(heads)} classification heads ({', '.join(sorted(heads))}); use a file with one"
        )
    head, classes = heads.pop() if heads else None, None
    if head is not None:
        out = checkpoint.weights.get(f"{HEADS}{head}.out_proj.weight")
        if out is None:
            raise UserError(f"{path}: {HEADS}{head}.out_proj.weight is missing; copy the file again")
        classes = len(out)
    try:
        model = model_of(arguments, checkpoint.vocabulary, head, classes)
        weights = dict(checkpoint.weights)
        model.upgrade_state_dict(weights)
        has_lm_head = any(name.startswith(LM_HEAD) for name in weights)
        weights |= missing_weights(weights, model, LM_HEAD)
        model.load_state_dict(weights)
    except (RuntimeError, AttributeError, KeyError, TypeError, ValueError, AssertionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{path}: the weights do not match the stored arguments ({reason}); use a file that fairseq wrote"
        ) from None
    labels = (checkpoint.class_names, has_lm_head, checkpoint.kind, checkpoint.scaling)
    source = Source(path, model.args, weights, head, *labels)
    activation = getattr(source.arguments, "pooler_activation_fn", "tanh")
    # The class of this project has any activation.
    if head is not None and not source.needs_own_class and activation != source.family.pooler_activation:
        raise UserError(
            f"{path}: trained with --pooler-activation-fn {activation}, but the classification head of "
            f"Transformers' {source.family.classes[1]} has {source.family.pooler_activation}"
        )
    return source


def family_of(arguments: Any) -> Family:
    """The family in the arguments of a model; RoBERTa if they do not name one."""
    return FAMILIES[getattr(arguments, "family", None) or families.DEFAULT]


def has_token_types(arguments: Any) -> bool:
    """Whether the arguments of a model give the second text of a pair a token type of its own."""
    return bool(getattr(arguments, "token_types", False))


def model_of(
    arguments: argparse.Namespace, vocabulary: int, head: str | None, classes: int | None
) -> RobertaModel:
    """fairseq's own RoBERTa with random weights, built from the arguments of a checkpoint."""
    kind = "packed" if getattr(arguments, "pooling", "first") == "mean" else "padded"
    arguments = argparse.Namespace(**vars(arguments) | {"encoder_kind": kind, "precision": "fp32"})
    dictionary = Dictionary()
    for number in range(vocabulary - len(SPECIALS)):
        dictionary.add_symbol(f"token{number}")
    positions = getattr(arguments, "max_positions", None) or getattr(arguments, "tokens_per_sample", 512)
    arguments.max_positions = positions
    task = SimpleNamespace(source_dictionary=dictionary, max_positions=lambda: positions)
    with torch.random.fork_rng(devices=[]):
        model = RobertaSmall.build_model(arguments, task)
        if head is not None:
            model.register_classification_head(head, num_classes=classes)
    return model


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes, dropout and activation of a RoBERTa; the defaults are those of `roberta_small`."""

    vocabulary: int
    """Entries of the dictionary, `<mask>` included."""
    layers: int = 4
    embed: int = 512
    ffn: int = 512
    heads: int = 8
    positions: int = 256
    """Maximum input length in tokens."""
    dropout: float = 0.1
    attention_dropout: float = 0.1
    pooler_dropout: float = 0.0
    """Dropout in the classification head."""
    activation: str = "gelu"
    """Name of the activation in Transformers."""
    layer_norm_eps: float = LAYER_NORM_EPS
    family: str = families.DEFAULT
    token_types: bool = False
    """Whether the second text of a pair has a token type of its own."""


def activation_name(ours: str) -> str:
    """Transformers' name of an activation; raises `UserError` for one that it does not have."""
    for theirs, name in ACTIVATIONS.items():
        if name == ours:
            return theirs
    raise UserError(f"--activation-fn {ours}: not one of {', '.join(dict.fromkeys(ACTIVATIONS.values()))}")


def sizes_of(source: Source) -> Sizes:
    """Sizes of a fairseq checkpoint, from the shapes of its weights.

    Raises `UserError` for an activation that Transformers does not have.
    """
    arguments, weights = source.arguments, source.weights
    try:
        activation = activation_name(arguments.activation_fn)
    except UserError as error:
        raise UserError(f"{source.path}: {error}") from None
    return Sizes(
        vocabulary=source.vocabulary,
        layers=_layers(weights),
        embed=weights[TOKENS].shape[1],
        ffn=len(weights[f"{families.LAYERS}.0.fc1.weight"]),
        heads=arguments.encoder_attention_heads,
        positions=len(weights[POSITIONS]) - FIRST_POSITION,
        dropout=arguments.dropout,
        attention_dropout=arguments.attention_dropout,
        pooler_dropout=arguments.pooler_dropout,
        activation=activation,
        layer_norm_eps=arguments.layer_norm_eps,
        family=source.family.name,
        token_types=SECOND in weights,
    )


def configuration(
    sizes: Sizes, classes: Sequence[str] | None = None, special: Special = (BOS, EOS), padding: int = PAD
) -> PreTrainedConfig:
    """Transformers' configuration; `classes` names the logits of a classifier, in their order.

    Positions of RoBERTa start at the padding index + 1 in both libraries, so `max_position_embeddings` is two
    more than the maximum input length; in other families they start at 0. fairseq has no token types;
    Transformers' get embeddings of zeros, apart from that of the second text of a pair.

    Raises `UserError` if the family has no such sizes.
    """
    family = FAMILIES[sizes.family]
    values = {entry: getattr(sizes, name) for name, entry in family.settings.items()}
    values[family.settings["positions"]] = sizes.positions + family.first_position
    if "ffn" not in family.settings and sizes.ffn != 4 * sizes.embed:
        raise UserError(f"Transformers' {family.prefix} has an FFN of {4 * sizes.embed}, not {sizes.ffn}")
    fixed_eps = family.layer_norm_eps
    if fixed_eps is not None and sizes.layer_norm_eps != fixed_eps:
        raise UserError(
            f"Transformers' {family.prefix} has --layer-norm-eps {fixed_eps}, not {sizes.layer_norm_eps}"
        )
    if family.token_types is not None:
        values["type_vocab_size"] = 1 + family.distinguishes_texts
    values |= {entry: values[other] for entry, other in family.copies.items()}
    if classes is not None:
        values |= {"id2label": dict(enumerate(classes)), "label2id": {c: k for k, c in enumerate(classes)}}
    if family.first_position:
        values |= {"bos_token_id": special[0], "eos_token_id": special[1]}
    return transformers.AutoConfig.for_model(
        family.name, vocab_size=sizes.vocabulary, pad_token_id=padding, **values
    )


def encoder_config(model: PreTrainedModel) -> Any:
    """The configuration of the encoder in a model, which may be that of the model itself."""
    encoder: Any = model.base_model
    return encoder.config


def longest_input(config: PreTrainedConfig) -> int:
    """The maximum input length in tokens of a model of Transformers."""
    family = FAMILIES[config.model_type]
    return getattr(config, family.settings["positions"]) - family.first_position


def build(
    sizes: Sizes, classes: Sequence[str] | None, special: Special = (BOS, EOS), padding: int = PAD
) -> PreTrainedModel:
    """A classifier, or a masked language model without `classes`, with Transformers' random weights."""
    config = configuration(sizes, classes, special, padding)
    masked_lm, classifier, _ = FAMILIES[sizes.family].classes
    return getattr(transformers, masked_lm if classes is None else classifier)(config)


def special_ids(task: Any) -> Special:
    """--init-token and --separator-token of the configuration of a task, or of an `InputFormat`."""
    init, separator = task.init_token, task.separator_token
    return BOS if init is None else init, EOS if separator is None else separator


def converted(
    source: Source,
    classes: Sequence[str] | None = None,
    special: Special = (BOS, EOS),
    order: NDArray[np.int64] | None = None,
) -> PreTrainedModel:
    """A checkpoint as a Transformers model in evaluation mode, with the same logits: (B, K) or (B, L, V).

    `classes` names the K logits of a classifier. Raises `UserError` if the family has no such model.
    """
    family = source.family
    if source.head is None and not source.has_lm_head:
        raise UserError(
            f"{source.path}: an encoder without classification head and LM head; fine-tune it first: "
            f"roberta-small train --data DATA --pretrained {source.path}"
        )
    if source.head is None and family.lm_head is None:
        raise UserError(
            f"{source.path}: a masked language model, but the LM head of Transformers' {family.prefix} is "
            "another one; fine-tune it first"
        )
    sizes, padding = sizes_of(source), PAD
    if order is not None:
        sizes, padding = replace(sizes, vocabulary=len(order)), int(order[PAD])
    if source.needs_own_class:
        return _own_class(source, sizes, classes or [], special, padding, order)
    is_lm = source.head is None
    with torch.random.fork_rng(devices=[]):
        model = build(sizes, None if is_lm else classes or [], special, padding)
    weights = to_transformers(source.weights, family, head=source.head, lm_head=is_lm, order=order)
    model.load_state_dict(weights)
    return model.eval()


def _own_class(
    source: Source,
    sizes: Sizes,
    classes: Sequence[str],
    special: Special,
    padding: int,
    order: NDArray[np.int64] | None,
) -> PreTrainedModel:
    """The class of this project, in evaluation mode; a linear head gets a dense layer without effect."""
    family, head = source.family, f"{HEADS}{source.head}."
    config = MeanPoolingConfig(
        encoder=configuration(sizes, None, special, padding).to_dict(),
        pooling=source.arguments.pooling,
        pooler_activation="linear" if source.has_linear_head else source.arguments.pooler_activation_fn,
        pooler_dropout=sizes.pooler_dropout,
        id2label=dict(enumerate(classes)),
        label2id={name: k for k, name in enumerate(classes)},
    )
    module = MeanPoolingForSequenceClassification.__module__.rpartition(".")[2]
    config.auto_map = {
        "AutoConfig": f"{module}.{MeanPoolingConfig.__name__}",
        "AutoModelForSequenceClassification": f"{module}.{MeanPoolingForSequenceClassification.__name__}",
    }
    with torch.random.fork_rng(devices=[]):
        model = MeanPoolingForSequenceClassification(config)
    weights = to_transformers(source.weights, family, head=None, lm_head=False, order=order)
    renamed = {f"encoder.{name.removeprefix(f'{family.base}.')}": w for name, w in weights.items()}
    renamed |= {name.removeprefix(head): w for name, w in source.weights.items() if name.startswith(head)}
    if source.has_linear_head:
        renamed |= {"dense.weight": torch.eye(sizes.embed), "dense.bias": torch.zeros(sizes.embed)}
    model.load_state_dict(renamed)
    return model.eval()


def to_transformers(
    weights: Mapping[str, Tensor],
    family: Family,
    *,
    head: str | None,
    lm_head: bool,
    order: NDArray[np.int64] | None = None,
) -> dict[str, Tensor]:
    """Translate a state dict of fairseq to Transformers.

    The result is for a classifier if `head` names a classification head, for a masked language model with
    `lm_head`, and contains only the encoder with neither. Weights without a counterpart (see `leftover`) are
    dropped.
    """
    found = _renamed(weights, family.modules(_layers(weights), head, lm_head=lm_head))
    tokens, positions = _names_of(family, "embed_tokens"), _names_of(family, "embed_positions")
    found[tokens] = _in_their_order(weights[TOKENS], order)
    found[positions] = weights[POSITIONS][FIRST_POSITION - family.first_position :]
    if family.token_types is not None:
        width = weights[TOKENS].shape[1]
        table_TC = torch.zeros(1 + family.distinguishes_texts, width, dtype=weights[TOKENS].dtype)
        if SECOND in weights:
            table_TC[1] = weights[SECOND][0]
        found[f"{family.base}.{family.token_types}"] = table_TC
    if lm_head and family.lm_head is not None:
        found[family.lm_head.weight] = _in_their_order(weights[TIED], order)
        found |= dict.fromkeys(family.lm_head.bias, _in_their_order(weights[LM_BIAS], order))
    if head is not None and not family.has_dense:
        dense, out = (f"{HEADS}{head}.{part}" for part in ("dense", "out_proj"))
        out_KC = weights[f"{out}.weight"]
        found[f"{family.head[1]}.weight"] = out_KC @ weights[f"{dense}.weight"]
        found[f"{family.head[1]}.bias"] = out_KC @ weights[f"{dense}.bias"] + weights[f"{out}.bias"]
    return found


def to_fairseq(
    weights: Mapping[str, Tensor],
    family: Family,
    *,
    head: str | None,
    order: NDArray[np.int64] | None = None,
    vocabulary: int | None = None,
    token_types: bool = False,
) -> dict[str, Tensor]:
    """Translate a state dict of Transformers to fairseq; the inverse of `to_transformers`.

    Embeddings of tokens that `order` does not contain are dropped, and those that it lacks up to `vocabulary`
    are zero. fairseq has no token types: the first row of their embedding (T, C) is added to every position,
    which gives the same sum for every token. With `token_types`, the difference to the second row is kept.
    """
    layers = 0
    while f"{family.base}.{family.layer['fc1'].format(layers)}.weight" in weights:
        layers += 1
    modules = family.modules(layers, head, lm_head=True)
    found = _renamed(weights, {theirs: ours for ours, theirs in modules.items()})
    found[TOKENS] = _in_our_order(weights[_names_of(family, "embed_tokens")], order, vocabulary)
    positions_PC = weights[_names_of(family, "embed_positions")]
    lm_head = family.lm_head
    if lm_head is not None and lm_head.bias[0] in weights:
        found[LM_BIAS] = _in_our_order(weights[lm_head.bias[0]], order, vocabulary)
        found[TIED] = found[TOKENS]
    types_TC = None if family.token_types is None else weights.get(f"{family.base}.{family.token_types}")
    if types_TC is not None and types_TC[0].any():
        positions_PC = positions_PC + types_TC[:1]
    if token_types and types_TC is not None and len(types_TC) > 1:
        found[SECOND] = types_TC[1:2] - types_TC[:1]
    unused_2C = positions_PC.new_zeros(FIRST_POSITION - family.first_position, positions_PC.shape[1])
    found[POSITIONS] = torch.cat([unused_2C, positions_PC])
    if head is not None and not family.has_dense:
        width = found[TOKENS].shape[1]
        found[f"{HEADS}{head}.dense.weight"] = torch.eye(width)
        found[f"{HEADS}{head}.dense.bias"] = torch.zeros(width)
        for kind in ("weight", "bias"):
            found[f"{HEADS}{head}.out_proj.{kind}"] = weights[f"{family.head[1]}.{kind}"]
    return found


def leftover(
    weights: Mapping[str, Tensor], family: Family, *, head: str | None, lm_head: bool
) -> dict[str, Tensor]:
    """The weights that `to_transformers` drops: the LM head of a classifier, and fairseq's version number.

    The matrix of the LM head is not among them, because it is that of the token embeddings.
    """
    modules = family.modules(_layers(weights), head, lm_head=lm_head)
    placed = {TIED, TOKENS, POSITIONS, SECOND, *([LM_BIAS] if lm_head else [])}
    return {
        key: tensor
        for key, tensor in weights.items()
        if key not in placed
        and key.rpartition(".")[0] not in modules
        and not (head is not None and key.startswith(f"{HEADS}{head}."))
    }


def _layers(weights: Mapping[str, Tensor]) -> int:
    """The number of layers in a state dict of fairseq."""
    prefix = f"{families.LAYERS}."
    return len({key.removeprefix(prefix).split(".")[0] for key in weights if key.startswith(prefix)})


def _names_of(family: Family, module: str) -> str:
    """Their name of the weight of an embedding."""
    return f"{family.base}.{family.embeddings[module]}.weight"


def _renamed(weights: Mapping[str, Tensor], modules: Mapping[str, str]) -> dict[str, Tensor]:
    """The weights of the modules that have another name, under it."""
    parts = ((*key.rpartition("."), tensor) for key, tensor in weights.items())
    return {f"{modules[name]}.{kind}": tensor for name, _, kind, tensor in parts if name in modules}


def _in_their_order(rows_V: Tensor, order: NDArray[np.int64] | None) -> Tensor:
    """(V, ...) rows in the order of a dictionary -> in that of the tokenizer."""
    if order is None:
        return rows_V
    found = torch.zeros_like(rows_V[: len(order)])
    found[torch.from_numpy(order)] = rows_V[: len(order)]
    return found


def _in_our_order(rows_V: Tensor, order: NDArray[np.int64] | None, vocabulary: int | None) -> Tensor:
    """The inverse; rows of zeros are added up to `vocabulary`."""
    found = rows_V if order is None else rows_V[torch.from_numpy(order)]
    missing = 0 if vocabulary is None else vocabulary - len(found)
    return found if missing <= 0 else torch.cat([found, found.new_zeros(missing, *found.shape[1:])])
