"""The families of Transformers encoders that are RoBERTa's encoder under other names.

A family is one entry of `FAMILIES`: the names of its classes, weights and settings, and what differs from
RoBERTa. Conversion, verification and export read everything from it (docs/extending.md). `refusal` is
the reason why another model cannot be represented. Nothing of Transformers or torch is imported.

Weights are given by the names of their modules; `weight` and `bias` have the same names everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roberta_small.common.errors import UserError
from roberta_small.common.files import read_object
from roberta_small.common.label_kinds import REGRESSION, SCALING, SINGLE_LABEL, Labels, Scaling, kind_of

ENCODER = "encoder.sentence_encoder"
LAYERS = f"{ENCODER}.layers"
TOKENS = f"{ENCODER}.embed_tokens.weight"
POSITIONS = f"{ENCODER}.embed_positions.weight"
SECOND = f"{ENCODER}.embed_second.weight"
"""(1, C), the difference of the token types of the second and the first text of a pair."""
TIED, LM_BIAS = "encoder.lm_head.weight", "encoder.lm_head.bias"
"""The matrix of the LM head, which is that of the token embeddings, and its bias."""
POOLING = "1_Pooling/config.json"
"""File below a model's folder: how a sentence encoder makes one vector of a text."""
FIRST_POSITION = 2
"""Row of fairseq's position table that the first token of a sentence has: the padding index + 1."""

BERT_LAYER = {
    "self_attn.q_proj": "encoder.layer.{}.attention.self.query",
    "self_attn.k_proj": "encoder.layer.{}.attention.self.key",
    "self_attn.v_proj": "encoder.layer.{}.attention.self.value",
    "self_attn.out_proj": "encoder.layer.{}.attention.output.dense",
    "self_attn_layer_norm": "encoder.layer.{}.attention.output.LayerNorm",
    "fc1": "encoder.layer.{}.intermediate.dense",
    "fc2": "encoder.layer.{}.output.dense",
    "final_layer_norm": "encoder.layer.{}.output.LayerNorm",
}
ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
BERT_EMBEDDINGS = {
    "embed_tokens": "embeddings.word_embeddings",
    "embed_positions": "embeddings.position_embeddings",
    "layernorm_embedding": "embeddings.LayerNorm",
}
BERT_SETTINGS = {
    "encoder_layers": "num_hidden_layers",
    "encoder_embed_dim": "hidden_size",
    "encoder_ffn_embed_dim": "intermediate_size",
    "encoder_attention_heads": "num_attention_heads",
    "max_positions": "max_position_embeddings",
    "activation_fn": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "pooler_dropout": "classifier_dropout",
    "layer_norm_eps": "layer_norm_eps",
}
ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "gelu_new": "gelu_accurate",
    "gelu_pytorch_tanh": "gelu_accurate",
}
"""Transformers' name of an activation in the layers -> fairseq's; `gelu` is exact in both."""


@dataclass(frozen=True)
class LMHead:
    """The names of a masked-LM head: a dense layer, its norm, and the matrix of the token embeddings."""

    dense: str
    layer_norm: str
    weight: str
    bias: tuple[str, ...]
    """Transformers may store it twice."""
    modules: tuple[str, ...]
    """What turns hidden states into scores, applied one after the other."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of encoders in Transformers."""

    name: str
    """`model_type` of its config.json."""
    prefix: str
    """Of its classes: `BertForMaskedLM`."""
    base: str
    """Attribute of its models that is the encoder, and prefix of its weights."""
    embeddings: Mapping[str, str] = field(default_factory=lambda: BERT_EMBEDDINGS)
    """fairseq's module -> theirs, below `base`."""
    layer: Mapping[str, str] = field(default_factory=lambda: BERT_LAYER)
    """The same for the modules of a layer, whose number is `{}`."""
    head: tuple[str, str] = ("classifier.dense", "classifier.out_proj")
    """The dense layer and the output of the classification head. If they are equal, the head is only an
    output, which is the product of both."""
    lm_head: LMHead | None = None
    settings: Mapping[str, str] = field(default_factory=lambda: BERT_SETTINGS)
    """Argument of fairseq's model -> entry of the configuration."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Entry of the configuration -> the entry that it must equal."""
    required: Mapping[str, Any] = field(default_factory=dict)
    """Entry of the configuration -> the only value that is supported."""
    first_position: int = 0
    """Row of the position table that the first token has."""
    token_types: str | None = "embeddings.token_type_embeddings.weight"
    """The table of token types, below `base`; None without one."""
    pooler_activation: str = "tanh"
    """fairseq's name of the activation in the classification head."""
    layer_norm_eps: float | None = None
    """The epsilon of its norms, if the configuration does not have it."""

    def modules(self, layers: int, head: str | None, *, lm_head: bool) -> dict[str, str]:
        """fairseq's module -> theirs, for the encoder, the classification head `head` and the LM head."""
        found = {f"{ENCODER}.{ours}": f"{self.base}.{theirs}" for ours, theirs in self.embeddings.items()}
        for number in range(layers):
            for ours, theirs in self.layer.items():
                found[f"{LAYERS}.{number}.{ours}"] = f"{self.base}.{theirs.format(number)}"
        if head is not None and self.has_dense:
            for ours, theirs in zip(("dense", "out_proj"), self.head, strict=True):
                found[f"classification_heads.{head}.{ours}"] = theirs
        if lm_head and self.lm_head is not None:
            found["encoder.lm_head.dense"] = self.lm_head.dense
            found["encoder.lm_head.layer_norm"] = self.lm_head.layer_norm
        return found

    @property
    def distinguishes_texts(self) -> bool:
        """Whether the second text of a pair may have a token type of its own; RoBERTa's never has."""
        return self.token_types is not None and self.first_position == 0

    @property
    def head_modules(self) -> list[str]:
        """The modules of a classifier that belong to its head."""
        return sorted({name.removeprefix(f"{self.base}.").split(".")[0] for name in self.head})

    def linear(self, name: str) -> str:
        """The name of a linear layer whose name in BERT and RoBERTa is given (`query`); others stay."""
        pairs = ((BERT_LAYER[ours].split(".")[-1], self.layer[ours].split(".")[-1]) for ours in ATTENTION)
        return dict(pairs).get(name, name)

    @property
    def has_dense(self) -> bool:
        """Whether the classification head has a dense layer before the output."""
        return self.head[0] != self.head[1]

    @property
    def classes(self) -> tuple[str, str, str]:
        """The classes of a masked language model, a classifier, and the encoder alone."""
        return tuple(f"{self.prefix}{kind}" for kind in ("ForMaskedLM", "ForSequenceClassification", "Model"))  # type: ignore[return-value]


ROBERTA_HEAD = LMHead(
    "lm_head.dense",
    "lm_head.layer_norm",
    "lm_head.decoder.weight",
    ("lm_head.bias", "lm_head.decoder.bias"),
    ("lm_head",),
)
BERT_HEAD = LMHead(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.decoder.weight",
    ("cls.predictions.bias", "cls.predictions.decoder.bias"),
    ("cls.predictions",),
)
ABSOLUTE = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
COMMON = {"vocab_size", "type_vocab_size", "bos_token_id", "eos_token_id", "tie_word_embeddings"}
"""The entries of every family that matter, besides `Family.settings`, `copies` and `required`."""
PLAIN = {"quantization_config": None, "per_layer_config": None}
"""Required of every family, as `Family.required`."""


def _roberta(name: str, prefix: str) -> Family:
    return Family(
        name=name,
        prefix=prefix,
        base="roberta",
        lm_head=ROBERTA_HEAD,
        required=ABSOLUTE | {"pad_token_id": 1},
        first_position=FIRST_POSITION,
    )


FAMILIES = {
    family.name: family
    for family in (
        _roberta("roberta", "Roberta"),
        _roberta("camembert", "Camembert"),
        _roberta("xlm-roberta", "XLMRoberta"),
        # Devlin et al. 2019; also multilingual BERT, MiniLM, E5 and LaBSE.
        Family(
            name="bert",
            prefix="Bert",
            base="bert",
            head=("bert.pooler.dense", "classifier"),
            lm_head=BERT_HEAD,
            required=ABSOLUTE,
        ),
        # Sanh et al. 2019.
        Family(
            name="distilbert",
            prefix="DistilBert",
            base="distilbert",
            layer={
                "self_attn.q_proj": "transformer.layer.{}.attention.q_lin",
                "self_attn.k_proj": "transformer.layer.{}.attention.k_lin",
                "self_attn.v_proj": "transformer.layer.{}.attention.v_lin",
                "self_attn.out_proj": "transformer.layer.{}.attention.out_lin",
                "self_attn_layer_norm": "transformer.layer.{}.sa_layer_norm",
                "fc1": "transformer.layer.{}.ffn.lin1",
                "fc2": "transformer.layer.{}.ffn.lin2",
                "final_layer_norm": "transformer.layer.{}.output_layer_norm",
            },
            head=("pre_classifier", "classifier"),
            lm_head=LMHead(
                "vocab_transform",
                "vocab_layer_norm",
                "vocab_projector.weight",
                ("vocab_projector.bias",),
                ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
            ),
            settings={
                "encoder_layers": "n_layers",
                "encoder_embed_dim": "dim",
                "encoder_ffn_embed_dim": "hidden_dim",
                "encoder_attention_heads": "n_heads",
                "max_positions": "max_position_embeddings",
                "activation_fn": "activation",
                "dropout": "dropout",
                "attention_dropout": "attention_dropout",
                "pooler_dropout": "seq_classif_dropout",
            },
            token_types=None,
            pooler_activation="relu",
            layer_norm_eps=1e-12,
        ),
        # Clark et al. 2020.
        Family(
            name="electra",
            prefix="Electra",
            base="electra",
            lm_head=LMHead(
                "generator_predictions.dense",
                "generator_predictions.LayerNorm",
                "generator_lm_head.weight",
                ("generator_lm_head.bias",),
                ("generator_predictions", "generator_lm_head"),
            ),
            copies={"embedding_size": "hidden_size"},
            required=ABSOLUTE,
            pooler_activation="gelu",
        ),
        # Le et al. 2020; its LM head has no dense layer, so that fairseq's cannot represent it.
        Family(
            name="flaubert",
            prefix="Flaubert",
            base="transformer",
            embeddings={
                "embed_tokens": "embeddings",
                "embed_positions": "position_embeddings",
                "layernorm_embedding": "layer_norm_emb",
            },
            layer={
                "self_attn.q_proj": "attentions.{}.q_lin",
                "self_attn.k_proj": "attentions.{}.k_lin",
                "self_attn.v_proj": "attentions.{}.v_lin",
                "self_attn.out_proj": "attentions.{}.out_lin",
                "self_attn_layer_norm": "layer_norm1.{}",
                "fc1": "ffns.{}.lin1",
                "fc2": "ffns.{}.lin2",
                "final_layer_norm": "layer_norm2.{}",
            },
            head=("sequence_summary.summary", "sequence_summary.summary"),
            settings={
                "encoder_layers": "n_layers",
                "encoder_embed_dim": "emb_dim",
                "encoder_attention_heads": "n_heads",
                "max_positions": "max_position_embeddings",
                "dropout": "dropout",
                "attention_dropout": "attention_dropout",
                "pooler_dropout": "summary_first_dropout",
                "layer_norm_eps": "layer_norm_eps",
            },
            required={
                "pre_norm": False,
                "causal": False,
                "is_encoder": True,
                "gelu_activation": True,
                "asm": False,
                "summary_type": "first",
                "summary_use_proj": True,
                "summary_proj_to_labels": True,
                "summary_activation": None,
                "n_langs": 1,
            },
            token_types=None,
            pooler_activation="linear",
        ),
    )
}
"""`model_type` of a configuration -> family."""
DEFAULT = "roberta"

MEAN_POOLING = "mean-pooling"
"""`model_type` of a classifier of this project that wraps an encoder of a family (export/transformers)."""
PROJECTED = "its embeddings are projected to the width of the encoder"
RELATIVE = "its attention depends on relative positions"
OTHER = {
    "albert": f"{PROJECTED}, and its layers share weights",
    "convbert": "it has convolutions",
    "deberta": RELATIVE,
    "deberta-v2": RELATIVE,
    "esm": "it has other positions",
    "eurobert": "it has rotary positions",
    "funnel": "its layers pool tokens",
    "longformer": "its attention is local",
    "modernbert": "it has rotary positions",
    "mpnet": RELATIVE,
    "nomic_bert": "it has rotary positions",
    "roberta-prelayernorm": "its norms come before attention and feed-forward network",
    "xlm": "its text is tokenized in a way of its own",
    "xlnet": RELATIVE,
}
"""`model_type` -> why it is not RoBERTa's encoder."""


def read_config(path: Path) -> dict[str, Any]:
    """The content of a config.json; raises `UserError` if it is not the configuration of a model."""
    found = read_object(path, "write the folder again")
    if not isinstance(found.get("architectures") or [], list):
        raise UserError(f"{path}: not the configuration of a model; write the folder again")
    return found


def wrapped(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration of the encoder, of a classifier of this project's own class or of another model."""
    encoder = config.get("encoder")
    is_wrapper = config.get("model_type") == MEAN_POOLING and isinstance(encoder, dict)
    return encoder if is_wrapper and encoder is not None else config


def labels_of(config: Mapping[str, Any], where: object) -> Labels | None:
    """What the logits of a sequence classifier mean; None for a regression of several numbers.

    As in Transformers, a head with one output is a regression unless `problem_type` is another one. Raises
    `UserError`, naming the file `where`, unless `id2label` has a name of its own for each output.
    """
    given, inverse = config.get("id2label") or {}, config.get("label2id") or {}
    try:
        names = {int(k): str(name) for k, name in given.items() if isinstance(name, str | int | float)}
        numbers = {str(name): int(k) for name, k in inverse.items()}
        outputs = int(config.get("num_labels") or len(given) or 2)
    except (AttributeError, TypeError, ValueError):
        names, numbers, outputs = {}, {}, 0
    usual = REGRESSION if outputs == 1 else SINGLE_LABEL
    kind = kind_of(config.get("problem_type") or usual, f"{where}: problem_type")
    if not kind.has_classes:
        record = config.get(SCALING)
        scaling = Scaling() if record is None else Scaling.from_record(record, where)
        return Labels(kind, scaling=scaling) if outputs == 1 else None
    own = {k: f"LABEL_{k}" for k in range(outputs)}
    names = own if all(name == f"LABEL_{k}" for k, name in names.items()) else names
    contradicts = any(names.get(k) != name for name, k in numbers.items() if name in names.values())
    if not outputs or names.keys() != own.keys() or len(set(names.values())) < outputs or contradicts:
        raise UserError(
            f"{where}: id2label must have a name of its own for each output of the head, counted from 0, but "
            f"is {given!r} (label2id: {inverse!r}, num_labels: {config.get('num_labels')!r}); correct it, as "
            'in {"0": "bad", "1": "good"}, and remove the other two'
        )
    return Labels(kind, tuple(names[k] for k in own))


def refusal(config: Mapping[str, Any]) -> str | None:
    """Why the model of a config.json cannot be represented; None for one that can."""
    config = wrapped(config)
    kind = config.get("model_type")
    family = FAMILIES.get(str(kind))
    if family is None:
        reason = OTHER.get(str(kind), "it is none of these encoders")
        return f"a model of type '{kind}' cannot be converted: {reason}; supported: {', '.join(FAMILIES)}"
    for name, value in (PLAIN | dict(family.required)).items():
        if (found := config.get(name, value)) != value:
            return f"{name} is {found!r}, but only {value!r} can be converted"
    activation = family.settings.get("activation_fn")
    if activation is not None and (found := str(config.get(activation, "gelu"))) not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        return f"{activation} is {found!r}, which fairseq does not have; only {known} can be converted"
    limits = {"encoder_layers": 1, "encoder_attention_heads": 1, "max_positions": family.first_position + 2}
    for setting, least in limits.items():
        entry = family.settings[setting]
        if type(found := config.get(entry, least)) is not int or found < least:
            return f"{entry} is {found!r}, but must be an integer of at least {least}"
    for name, other in family.copies.items():
        if config.get(name) != config.get(other):
            return (
                f"{name} {config.get(name)} is not {other} {config.get(other)}: {PROJECTED}, and the model "
                "cannot be converted"
            )
    return None
