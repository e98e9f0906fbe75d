"""An encoder in fairseq and in Transformers: checkpoints, configuration, and weights both ways.

The encoder may be of any family in `families.FAMILIES`. Its rows of tokens are in the order of a fairseq
dictionary; `order` (V,), if given, has the id of Transformers' tokenizer for each of them.

V vocabulary entries with `<mask>`, C embedding width, T token types, K classes, B sentences, L tokens.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
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
from roberta_small.common.label_kinds import SCALING, Labels
from roberta_small.eval.network import HEADS, Checkpoint, head_weight
from roberta_small.export.transformers.modeling_mean_pooling import (
    MeanPoolingConfig,
    MeanPoolingForSequenceClassification,
)
from roberta_small.fairseq_plugin.checkpoints.architecture import arch_name
from roberta_small.fairseq_plugin.checkpoints.initialization import missing_weights
from roberta_small.fairseq_plugin.checkpoints.loading import LM_HEAD
from roberta_small.fairseq_plugin.models.roberta import RobertaSmall, heads_in
from roberta_small.preprocess.dictionary import BOS, EOS, PAD, SPECIALS

Special = tuple[int, int]
"""Ids of the tokens before and after a text: 0 and 2, but 5 and 6 in CamemBERT (--init-token,
--separator-token)."""
ARCHITECTURES = ("roberta_small", "roberta", "roberta_base", "roberta_large")
# Arguments of fairseq that no family in Transformers supports -> required value, description of others.
REQUIRED = {
    "encoder_normalize_before": (False, "pre-layer normalization (--encoder-normalize-before)"),
    "untie_weights_roberta": (False, "an untied LM head (--untie-weights-roberta)"),
}


@dataclass(frozen=True)
class Source:
    """A RoBERTa of fairseq, in memory."""

    path: Path
    """Its file, for messages."""
    arguments: argparse.Namespace
    """Arguments of the model, from which fairseq builds it; none is missing."""
    weights: dict[str, Tensor]
    """Weights under the names of the installed fairseq version."""
    head: str | None
    """Name of the classification head; None for a masked language model."""
    has_lm_head: bool = True
    """Whether the checkpoint has the LM head; otherwise its weights are random."""

    @property
    def family(self) -> Family:
        """The family of encoders in Transformers."""
        return FAMILIES[self.arguments.family]

    @property
    def needs_own_class(self) -> bool:
        """Whether it is a classifier of the mean of all tokens or with a linear head."""
        return self.has_linear_head or (self.head is not None and self.arguments.pooling == "mean")

    @property
    def has_linear_head(self) -> bool:
        """Whether its classification head has no dense layer."""
        return self.head is not None and f"{HEADS}{self.head}.dense.weight" not in self.weights

    @property
    def vocabulary(self) -> int:
        """V, the size of the vocabulary."""
        return len(self.weights[TOKENS])

    def model(self) -> RobertaModel:
        """fairseq's own model with these weights, in fp32 and evaluation mode: ids (B, L) -> logits."""
        classes = None if self.head is None else len(self.weights[head_weight(self.head)])
        model = model_of(self.arguments, self.vocabulary, self.head, classes)
        model.load_state_dict(self.weights)
        return model.eval()


def source_of(checkpoint: Checkpoint) -> Source:
    """The content of the checkpoint of a masked language model or a sentence classifier.

    Raises `UserError` if the architecture is not a RoBERTa or not supported by Transformers, and if the
    weights do not match the stored arguments.
    """
    path, weights = checkpoint.path, dict(checkpoint.weights)
    if (name := arch_name(checkpoint.arguments)) not in ARCHITECTURES:
        raise UserError(f"{path}: a model of architecture '{name}', not one of {', '.join(ARCHITECTURES)}")
    for name, (value, what) in REQUIRED.items():
        if getattr(checkpoint.arguments, name, value) != value:
            raise UserError(f"{path}: trained with {what}, which Transformers does not support")
    if checkpoint.vocabulary is None:
        raise UserError(f"{path}: no token embeddings, so not a RoBERTa; use a fairseq checkpoint")
    heads = sorted({key.removeprefix(HEADS).split(".")[0] for key in weights if key.startswith(HEADS)})
    if len(heads) > 1:
        raise UserError(
            f"{path}: {len(heads)} classification heads ({', '.join(heads)}); use a file with one"
        )
    head = heads[0] if heads else None
    if head is not None and head_weight(head) not in weights:
        raise UserError(f"{path}: {head_weight(head)} is missing; copy the file again")
    try:
        classes = None if head is None else len(weights[head_weight(head)])
        model = model_of(checkpoint.arguments, checkpoint.vocabulary, head, classes)
        if set(heads_in(weights)) != set(heads_in(model.state_dict())):  # which would be replaced
            raise KeyError("the classification head has other layers: --head")
        model.upgrade_state_dict(weights)
        has_lm_head = any(name.startswith(LM_HEAD) for name in weights)
        weights |= missing_weights(weights, model, LM_HEAD)
        model.load_state_dict(weights)
    except (RuntimeError, AttributeError, KeyError, TypeError, ValueError, AssertionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{path}: the weights do not match the stored arguments ({reason}); use a file that fairseq wrote"
        ) from None
    source = Source(path, model.args, weights, head, has_lm_head)
    known, activation = dict.fromkeys(ACTIVATIONS.values()), source.arguments.activation_fn
    if activation not in known:
        raise UserError(f"{path}: --activation-fn {activation}: not one of {', '.join(known)}")
    activation = source.arguments.pooler_activation_fn
    # The class of this project has any activation.
    if head is not None and not source.needs_own_class and activation != source.family.pooler_activation:
        raise UserError(
            f"{path}: trained with --pooler-activation-fn {activation}, but the classification head of "
            f"Transformers' {source.family.classes[1]} has {source.family.pooler_activation}"
        )
    return source


def model_of(
    arguments: argparse.Namespace, vocabulary: int, head: str | None, classes: int | None
) -> RobertaModel:
    """fairseq's own RoBERTa with random weights, built from the arguments of a checkpoint."""
    kind = "packed" if getattr(arguments, "pooling", "first") == "mean" else "padded"
    arguments = argparse.Namespace(**vars(arguments) | {"encoder_kind": kind, "precision": "fp32"})
    dictionary = Dictionary()
    dictionary.symbols += [""] * (vocabulary - len(SPECIALS))
    positions = getattr(arguments, "max_positions", None) or getattr(arguments, "tokens_per_sample", 512)
    arguments.max_positions = positions
    task = argparse.Namespace(source_dictionary=dictionary)
    with torch.random.fork_rng(devices=[]):
        model = RobertaSmall.build_model(arguments, task)
        if head is not None:
            model.register_classification_head(head, num_classes=classes)
    return model


def converted(
    source: Source,
    labels: Labels | None = None,
    special: Special = (BOS, EOS),
    order: NDArray[np.int64] | None = None,
) -> PreTrainedModel:
    """A checkpoint as a Transformers model in evaluation mode, with the same logits: (B, K) or (B, L, V).

    `labels` are those of a classifier. Raises `UserError` if the family has no such model.
    """
    family, is_lm, is_own = source.family, source.head is None, source.needs_own_class
    if is_lm and not source.has_lm_head:
        raise UserError(
            f"{source.path}: an encoder without classification head and LM head; fine-tune it first: "
            f"roberta-small train --data DATA --pretrained {source.path}"
        )
    if is_lm and family.lm_head is None:
        raise UserError(
            f"{source.path}: a masked language model, but the LM head of Transformers' {family.prefix} is "
            "another one; fine-tune it first"
        )
    described = {} if labels is None else entries_of(labels)
    config = configuration(source, special, order, **({} if is_own else described))
    model_class: Any = getattr(transformers, family.classes[0 if is_lm else 1])
    if is_own:
        family, model_class = own_class(family), MeanPoolingForSequenceClassification
        module = model_class.__module__.rpartition(".")[2]
        auto = {"AutoConfig": MeanPoolingConfig, "AutoModelForSequenceClassification": model_class}
        config = MeanPoolingConfig(
            encoder=config.to_dict(),
            pooling=source.arguments.pooling,
            pooler_activation="linear" if source.has_linear_head else source.arguments.pooler_activation_fn,
            pooler_dropout=0.0 if source.has_linear_head else source.arguments.pooler_dropout,
            auto_map={name: f"{module}.{kind.__name__}" for name, kind in auto.items()},
            **described,
        )
    weights = to_transformers(source.weights, family, head=source.head, lm_head=is_lm, order=order)
    if is_own and source.has_linear_head:  # a dense layer without effect
        width = source.arguments.encoder_embed_dim
        weights |= {"dense.weight": torch.eye(width), "dense.bias": torch.zeros(width)}
    with torch.random.fork_rng(devices=[]):
        model = model_class(config)
    model.load_state_dict(weights)
    return model.eval()


def configuration(
    source: Source, special: Special, order: NDArray[np.int64] | None, **others: Any
) -> PreTrainedConfig:
    """Transformers' configuration of an encoder, with the `others` of its head.

    Positions of RoBERTa start at the padding index + 1 in both libraries, so `max_position_embeddings` is two
    more than the maximum input length; in other families they start at 0. fairseq has no token types;
    Transformers' get embeddings of zeros, apart from that of the second text of a pair.

    Raises `UserError` if the family has no such sizes.
    """
    family, arguments = source.family, source.arguments
    values = {entry: getattr(arguments, name) for name, entry in family.settings.items()}
    rows = len(source.weights[POSITIONS]) - FIRST_POSITION + family.first_position
    values[family.settings["max_positions"]] = rows
    if (entry := family.settings.get("activation_fn")) is not None:
        values[entry] = next(name for name, ours in ACTIVATIONS.items() if ours == values[entry])
    ffn, width, eps = arguments.encoder_ffn_embed_dim, arguments.encoder_embed_dim, family.layer_norm_eps
    if "encoder_ffn_embed_dim" not in family.settings and ffn != 4 * width:
        raise UserError(f"Transformers' {family.prefix} has an FFN of {4 * width}, not {ffn}")
    if eps is not None and arguments.layer_norm_eps != eps:
        raise UserError(
            f"Transformers' {family.prefix} has --layer-norm-eps {eps}, not {arguments.layer_norm_eps}"
        )
    if family.token_types is not None:
        values["type_vocab_size"] = 1 + family.distinguishes_texts
    values |= {entry: values[other] for entry, other in family.copies.items()}
    if family.first_position:
        values |= {"bos_token_id": special[0], "eos_token_id": special[1]}
    vocabulary, padding = (source.vocabulary, PAD) if order is None else (len(order), int(order[PAD]))
    return transformers.AutoConfig.for_model(
        family.name, vocab_size=vocabulary, pad_token_id=padding, **values, **others
    )


def entries_of(labels: Labels) -> dict[str, Any]:
    """What the logits of a classifier mean, as entries of its configuration; `families.labels_of` reads them.

    One class per text is Transformers' default. The number of a regression has the name that Transformers
    gives by itself.
    """
    names = labels.classes if labels.kind.has_classes else ("LABEL_0",)
    found: dict[str, Any] = {
        "id2label": dict(enumerate(names)),
        "label2id": {name: k for k, name in enumerate(names)},
    }
    if not labels.kind.exclusive:
        found["problem_type"] = labels.kind.name
    if not labels.kind.has_classes:
        found[SCALING] = labels.scaling.record()
    return found


def own_class(family: Family) -> Family:
    """The names of a family's weights in the class of this project for classifiers."""
    return replace(family, base="encoder", head=("dense", "out_proj"))


def encoder_config(model: PreTrainedModel) -> Any:
    """The configuration of the encoder in a model, which may be that of the model itself."""
    encoder: Any = model.base_model
    return encoder.config


def longest_input(config: PreTrainedConfig) -> int:
    """The maximum input length in tokens of a model of Transformers."""
    family = FAMILIES[config.model_type]
    return getattr(config, family.settings["max_positions"]) - family.first_position


def special_ids(task: Any) -> Special:
    """--init-token and --separator-token of the configuration of a task, or of an `InputFormat`."""
    init, separator = task.init_token, task.separator_token
    return BOS if init is None else init, EOS if separator is None else separator


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
