"""RoBERTa in fairseq and in Transformers: checkpoints, sizes, configuration, and weights in both directions.

V vocabulary entries with `<mask>`, C embedding width, T token types, K classes, B sentences, L tokens.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models.roberta.model import RobertaModel
from torch import Tensor
from transformers import (
    PreTrainedConfig,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
)

from roberta_small.common.errors import UserError
from roberta_small.eval.network import Checkpoint, read_checkpoint
from roberta_small.fairseq_plugin.checkpoints.architecture import arch_name
from roberta_small.fairseq_plugin.models.roberta import LAYER_NORM_EPS, RobertaSmall

BOS, PAD, EOS, UNK = range(4)  # the same in fairseq and in RoBERTa of Transformers
Special = tuple[int, int]
"""Ids of the tokens before and after a text: 0 and 2, but 5 and 6 in CamemBERT (--init-token,
--separator-token)."""
ACTIVATIONS = {"gelu": "gelu", "relu": "relu", "tanh": "tanh", "gelu_accurate": "gelu_new"}
"""fairseq's name -> Transformers' name; `gelu` is exact in both."""
HEADS = "classification_heads."
TOKENS = "encoder.sentence_encoder.embed_tokens.weight"
SPECIALS = 4  # <s> <pad> </s> <unk>
ARCHITECTURES = ("roberta_small", "roberta", "roberta_base", "roberta_large")
# Arguments of fairseq that Transformers' RoBERTa does not support -> required value, description of others.
REQUIRED = {
    "encoder_normalize_before": (False, "pre-layer normalization (--encoder-normalize-before)"),
    "untie_weights_roberta": (False, "an untied LM head (--untie-weights-roberta)"),
    "pooling": ("first", "mean pooling in the classification head (--pooling mean)"),
    "pooler_activation_fn": (
        "tanh",
        "a classification head with another activation than tanh (--pooler-activation-fn)",
    ),
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

    @property
    def vocabulary(self) -> int:
        """V, the size of the vocabulary."""
        return len(self.weights[TOKENS])

    @property
    def classes(self) -> int | None:
        """K, the number of classes; None for a masked language model."""
        return None if self.head is None else len(self.weights[f"{HEADS}{self.head}.out_proj.weight"])

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
    path = checkpoint.path
    arguments = _arguments(path, checkpoint.arguments)
    if checkpoint.vocabulary is None:
        raise UserError(f"{path}: no token embeddings, so not a RoBERTa; use a fairseq checkpoint")
    head, classes = _head(path, checkpoint.weights)
    try:
        model = model_of(arguments, checkpoint.vocabulary, head, classes)
        weights = dict(checkpoint.weights)
        model.upgrade_state_dict(weights)
        model.load_state_dict(weights)
    except (RuntimeError, AttributeError, KeyError, TypeError, ValueError, AssertionError) as error:
        raise UserError(
            f"{path}: the weights do not match the stored arguments ({_short(error)}); "
            "use a file that fairseq wrote"
        ) from None
    return Source(path, model.args, weights, head, checkpoint.class_names)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _arguments(path: Path, arguments: argparse.Namespace) -> argparse.Namespace:
    if (name := arch_name(arguments)) not in ARCHITECTURES:
        raise UserError(f"{path}: a model of architecture '{name}', not one of {', '.join(ARCHITECTURES)}")
    for name, (value, what) in REQUIRED.items():
        if getattr(arguments, name, value) != value:
            raise UserError(f"{path}: trained with {what}, which Transformers' RoBERTa does not support")
    return arguments


def _head(path: Path, weights: dict[str, Tensor]) -> tuple[str | None, int | None]:
    names = sorted({key.removeprefix(HEADS).split(".")[0] for key in weights if key.startswith(HEADS)})
    if len(names) > 1:
        raise UserError(
            f"{path}: {len(names)} classification heads ({', '.join(names)}); use a file with one"
        )
    if not names:
        return None, None
    out = weights.get(f"{HEADS}{names[0]}.out_proj.weight")
    if out is None:
        raise UserError(f"{path}: {HEADS}{names[0]}.out_proj.weight is missing; copy the file again")
    return names[0], len(out)


def model_of(
    arguments: argparse.Namespace, vocabulary: int, head: str | None, classes: int | None
) -> RobertaModel:
    """fairseq's own RoBERTa with random weights, built from the arguments of a checkpoint."""
    arguments = argparse.Namespace(**vars(arguments) | {"encoder_kind": "padded", "precision": "fp32"})
    dictionary = Dictionary()
    for number in range(vocabulary - SPECIALS):
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


def sizes_of(source: Source) -> Sizes:
    """Sizes of a fairseq checkpoint, from the shapes of its weights.

    Raises `UserError` for an activation that Transformers does not have.
    """
    encoder = TOKENS.removesuffix("embed_tokens.weight")
    arguments, weights = source.arguments, source.weights
    if arguments.activation_fn not in ACTIVATIONS:
        raise UserError(
            f"{source.path}: --activation-fn {arguments.activation_fn}, but Transformers' RoBERTa has "
            f"{', '.join(ACTIVATIONS)}"
        )
    return Sizes(
        vocabulary=source.vocabulary,
        layers=len({key.split(".")[3] for key in weights if key.startswith(f"{encoder}layers.")}),
        embed=weights[TOKENS].shape[1],
        ffn=len(weights[f"{encoder}layers.0.fc1.weight"]),
        heads=arguments.encoder_attention_heads,
        positions=len(weights[f"{encoder}embed_positions.weight"]) - (PAD + 1),
        dropout=arguments.dropout,
        attention_dropout=arguments.attention_dropout,
        pooler_dropout=arguments.pooler_dropout,
        activation=ACTIVATIONS[arguments.activation_fn],
        layer_norm_eps=arguments.layer_norm_eps,
    )


def roberta_config(
    sizes: Sizes, classes: Sequence[str] | None = None, special: Special = (BOS, EOS)
) -> RobertaConfig:
    """Transformers' configuration; `classes` names the logits of a classifier, in their order.

    Positions start at the padding index + 1 in both libraries, so `max_position_embeddings` is two more than
    the maximum input length. fairseq has no token types; Transformers' single one gets an embedding of zeros.
    """
    labels: dict[str, Any] = {}
    if classes is not None:
        labels = {"id2label": dict(enumerate(classes)), "label2id": {c: k for k, c in enumerate(classes)}}
    return RobertaConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.embed,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.ffn,
        hidden_act=sizes.activation,
        hidden_dropout_prob=sizes.dropout,
        attention_probs_dropout_prob=sizes.attention_dropout,
        classifier_dropout=sizes.pooler_dropout,
        max_position_embeddings=sizes.positions + PAD + 1,
        type_vocab_size=1,
        layer_norm_eps=sizes.layer_norm_eps,
        bos_token_id=special[0],
        pad_token_id=PAD,
        eos_token_id=special[1],
        **labels,
    )


def random_classifier(
    sizes: Sizes, classes: Sequence[str], special: Special = (BOS, EOS)
) -> RobertaForSequenceClassification:
    """A classifier with Transformers' random weights; `classes` names the K logits."""
    return RobertaForSequenceClassification(roberta_config(sizes, classes, special))


def special_ids(task: Any) -> Special:
    """--init-token and --separator-token of the configuration of a task, or of an `InputFormat`."""
    return _special(task.init_token, task.separator_token)


def configured_ids(config: PreTrainedConfig) -> Special:
    """The special ids in a configuration of Transformers, for a model whose tokenizer is unknown."""
    return _special(config.bos_token_id, config.eos_token_id)


def _special(init: int | None, separator: int | None) -> Special:
    return BOS if init is None else init, EOS if separator is None else separator


def converted(
    source: Source, classes: Sequence[str] | None = None, special: Special = (BOS, EOS)
) -> RobertaForSequenceClassification | RobertaForMaskedLM:
    """A checkpoint as a Transformers model in evaluation mode, with the same logits: (B, K) or (B, L, V).

    `classes` names the K logits of a classifier.
    """
    model: RobertaForSequenceClassification | RobertaForMaskedLM
    with torch.random.fork_rng(devices=[]):
        if source.head is not None:
            model = RobertaForSequenceClassification(roberta_config(sizes_of(source), classes, special))
        else:
            model = RobertaForMaskedLM(roberta_config(sizes_of(source), None, special))
    is_lm = source.head is None
    model.load_state_dict(to_transformers(source.weights, head=source.head, lm_head=is_lm))
    return model.eval()


# fairseq's name of a module -> Transformers' name. `weight` and `bias` have the same names in both.
ENCODER = {
    "encoder.sentence_encoder.embed_tokens": "roberta.embeddings.word_embeddings",
    "encoder.sentence_encoder.embed_positions": "roberta.embeddings.position_embeddings",
    "encoder.sentence_encoder.layernorm_embedding": "roberta.embeddings.LayerNorm",
}
LAYER = {  # below encoder.sentence_encoder.layers.N and roberta.encoder.layer.N
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
}
LM_HEAD = {"encoder.lm_head.dense": "lm_head.dense", "encoder.lm_head.layer_norm": "lm_head.layer_norm"}
# In both libraries the LM head shares its matrix with the token embeddings. Transformers stores its bias
# twice.
TIED = "encoder.lm_head.weight"
LM_OUTPUT: dict[str, tuple[str, ...]] = {
    TIED: ("lm_head.decoder.weight",),
    "encoder.lm_head.bias": ("lm_head.bias", "lm_head.decoder.bias"),
}
TOKEN_TYPES = "roberta.embeddings.token_type_embeddings.weight"
POSITIONS = "encoder.sentence_encoder.embed_positions.weight"
FAIRSEQ_LAYER = re.compile(r"encoder\.sentence_encoder\.layers\.(\d+)\.(.+)")
TRANSFORMERS_LAYER = re.compile(r"roberta\.encoder\.layer\.(\d+)\.(.+)")


def to_transformers(weights: Mapping[str, Tensor], *, head: str | None, lm_head: bool) -> dict[str, Tensor]:
    """Translate a state dict of fairseq to Transformers.

    The result is for `RobertaForSequenceClassification` if `head` names a classification head, for
    `RobertaForMaskedLM` with `lm_head`, and contains only the encoder with neither. Weights without a
    counterpart (see `leftover`) are dropped.
    """
    names = _fairseq_modules(head, lm_head)
    found: dict[str, Tensor] = {}
    for key, tensor in weights.items():
        if lm_head and key in LM_OUTPUT:
            found |= dict.fromkeys(LM_OUTPUT[key], tensor)
        elif (name := _translated(key, names, FAIRSEQ_LAYER, LAYER, "roberta.encoder.layer")) is not None:
            found[name] = tensor
    found[TOKEN_TYPES] = torch.zeros(1, found["roberta.embeddings.word_embeddings.weight"].shape[1])
    return found


def to_fairseq(weights: Mapping[str, Tensor], *, head: str | None) -> dict[str, Tensor]:
    """Translate a state dict of Transformers to fairseq; the inverse of `to_transformers`.

    fairseq has no token types. A token type embedding (T, C) that is not zero, as after training with
    Transformers, is added to every position embedding, which gives the same sum for every token; its T rows
    must be equal.
    """
    names = {theirs: ours for ours, theirs in _fairseq_modules(head, lm_head=True).items()}
    layer = {theirs: ours for ours, theirs in LAYER.items()}
    outputs = {names[0]: key for key, names in LM_OUTPUT.items()}
    found: dict[str, Tensor] = {}
    for key, tensor in weights.items():
        if key in outputs:
            found[outputs[key]] = tensor
            continue
        name = _translated(key, names, TRANSFORMERS_LAYER, layer, "encoder.sentence_encoder.layers")
        if name is not None:
            found[name] = tensor
    token_type_TC = weights.get(TOKEN_TYPES)
    if token_type_TC is not None and token_type_TC.any():
        found[POSITIONS] = found[POSITIONS] + token_type_TC[:1]
    return found


def leftover(weights: Mapping[str, Tensor], *, head: str | None, lm_head: bool) -> dict[str, Tensor]:
    """The weights that `to_transformers` drops: the LM head of a classifier, and fairseq's version number.

    The matrix of the LM head is not among them, because it is that of the token embeddings.
    """
    names = _fairseq_modules(head, lm_head)
    placed = {TIED, *(LM_OUTPUT if lm_head else ())}
    return {
        key: tensor
        for key, tensor in weights.items()
        if key not in placed and _translated(key, names, FAIRSEQ_LAYER, LAYER, "") is None
    }


def _fairseq_modules(head: str | None, lm_head: bool) -> dict[str, str]:
    modules = ENCODER | (LM_HEAD if lm_head else {})
    if head is not None:
        for part in ("dense", "out_proj"):
            modules[f"classification_heads.{head}.{part}"] = f"classifier.{part}"
    return modules


def _translated(
    key: str,
    modules: Mapping[str, str],
    layer_pattern: re.Pattern[str],
    layer: Mapping[str, str],
    layers: str,
) -> str | None:
    """Name of a weight in the other library; None if it has no counterpart."""
    if matched := layer_pattern.fullmatch(key):
        number, rest = matched.groups()
        module, _, kind = rest.rpartition(".")
        return f"{layers}.{number}.{layer[module]}.{kind}" if module in layer else None
    module, _, kind = key.rpartition(".")
    return f"{modules[module]}.{kind}" if module in modules else None
