"""The model `roberta_small`: fairseq's RoBERTa with smaller default sizes and a faster encoder.

Defaults: 4 layers, embedding size 512, feed-forward size 512, 8 heads, 256 learned positions; everything else
as in RoBERTa base. fairseq's RoBERTa flags change them. State dicts are interchangeable with those of
fairseq's `roberta` of the same sizes, except for those of `--head linear`.

Shapes: B sentences, L length of the longest, M masked positions, C embedding size, V vocabulary size,
K classes.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder, register_model, register_model_architecture
from fairseq.models.roberta.model import RobertaEncoder, RobertaModel, base_architecture
from fairseq.models.transformer import TransformerEncoder
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from torch import Tensor, nn

from roberta_small.common.cli import positive_number
from roberta_small.common.errors import UserError
from roberta_small.common.families import DEFAULT as FAMILY
from roberta_small.common.families import FAMILIES, POSITIONS, SECOND
from roberta_small.fairseq_plugin.models.encoders import ENCODERS, check_supported
from roberta_small.fairseq_plugin.models.packed import PackedTransformerEncoder, Packing, add_token_types
from roberta_small.fairseq_plugin.tasks.language_modeling import linear_cross_entropy
from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask
from roberta_small.fairseq_plugin.training import precision

logger = logging.getLogger(__name__)
CLASSIFICATION_HEADS = "classification_heads."
LINEAR = "linear"
"""The value of --head without a dense layer."""
LAYER_NORM_EPS = 1e-5
"""The epsilon of every LayerNorm in fairseq and torch."""


@register_model("roberta_small")
class RobertaSmall(RobertaModel):
    """fairseq's `RobertaModel` with `--encoder` (see `encoders`) and `--precision auto|fp32|bf16`."""

    POOLINGS: ClassVar[dict[str, str]] = {
        "first": "the first token's vector (default)",
        "mean": "the mean over all tokens",
    }
    """The sentence vectors that a classification head can use, with their help texts."""
    HEADS: ClassVar[dict[str, str]] = {
        "dense": "a dense layer, its activation, and the output (default)",
        "linear": "the output alone",
    }
    """The classification heads, with their help texts."""
    takes_packing = True
    """`forward` has the argument `packing`, which the criteria of this plugin give to models that have it."""

    def __init__(self, args: Any, encoder: RobertaEncoder) -> None:
        super().__init__(args, encoder)
        self._depending: list[Callable[[int], None]] | None = None
        encoder.sentence_encoder.embed_tokens.weight.is_token_embedding = True  # --embedding-lr-factor
        for module in encoder.modules():
            if hasattr(module, "normalized_shape"):  # torch's LayerNorm, or apex's, which fairseq prefers
                module.eps = args.layer_norm_eps

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Add RoBERTa's flags and those of the plugin."""
        RobertaModel.add_args(parser)
        parser.add_argument(
            "--encoder",
            # fairseq would take `args.encoder` for a nested configuration.
            dest="encoder_kind",
            choices=list(ENCODERS),
            help="; ".join(f"{kind.name}: {kind.summary}" for kind in ENCODERS.values()),
        )
        parser.add_argument(
            "--precision",
            choices=precision.CHOICES,
            help="precision of the matrix products; weights and optimizer stay in fp32 "
            "(default: auto: bf16 if it is faster on this machine, else fp32)",
        )
        parser.add_argument(
            "--pooling",
            choices=list(cls.POOLINGS),
            help="sentence vector of the classification head: "
            + "; ".join(f"{key}: {what}" for key, what in cls.POOLINGS.items()),
        )
        parser.add_argument(
            "--head",
            choices=list(cls.HEADS),
            help="classification head: " + "; ".join(f"{key}: {what}" for key, what in cls.HEADS.items()),
        )
        parser.add_argument(
            "--token-types",
            action="store_true",
            help="add an embedding to the tokens of the second text of a pair, as BERT",
        )
        parser.add_argument(
            "--family",
            choices=list(FAMILIES),
            help="the encoders of Transformers whose class and classification head an export has "
            f"(default: {FAMILY})",
        )
        parser.add_argument(
            "--layer-norm-eps",
            type=positive_number,
            metavar="E",
            help=f"epsilon of every LayerNorm (default: {LAYER_NORM_EPS:g})",
        )

    @classmethod
    def build_model(cls, args: Any, task: FairseqTask) -> RobertaSmall:
        """Build from fairseq's arguments; raises `UserError` for incompatible flags."""
        roberta_small_architecture(args)
        check_sizes(args)
        if isinstance(task, LanguageModelingTask):
            raise UserError(
                "--task language_modeling: --arch roberta_small is bidirectional and cannot be trained as a "
                "left-to-right language model; use --arch causal_roberta_small, or --task masked_lm"
            )
        return cls(args, RobertaSmallEncoder(args, task.source_dictionary))

    def register_classification_head(
        self, name: str, num_classes: int | None = None, inner_dim: int | None = None, **kwargs: Any
    ) -> None:
        """Add the head of `--head`."""
        if self.args.head != LINEAR:
            super().register_classification_head(name, num_classes, inner_dim, **kwargs)
            return
        assert num_classes is not None
        self.classification_heads[name] = LinearClassificationHead(self.args.encoder_embed_dim, num_classes)

    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        classification_head_name: str | None = None,
        packing: Packing | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As `RobertaModel.forward`: `src_tokens` (B, L), int64, to logits (B, K), features or LM scores.

        With the `packing` of the tokens, a classifier needs not compute it.
        """
        with precision.computing(self, src_tokens.device):
            encoder = self.encoder.sentence_encoder
            whole = return_all_hiddens or not hasattr(encoder, "pooled")
            if classification_head_name is None or (whole and self.args.pooling == "first"):
                return super().forward(
                    src_tokens, features_only, return_all_hiddens, classification_head_name, **kwargs
                )
            features_BC = encoder.pooled(src_tokens, self.args.pooling, **self._packed(packing))
            head = self.classification_heads[classification_head_name]
            return head(features_BC.unsqueeze(1)), {"inner_states": None}

    def set_num_updates(self, num_updates: int) -> None:
        """Tell the modules that depend on the number of updates; fairseq's ask all modules, in each update.

        The method of `FairseqEncoder` only asks the modules that it contains, which are asked here anyway.
        """
        if self._depending is None:
            forwards = FairseqEncoder.set_num_updates
            methods = [getattr(module, "set_num_updates", None) for module in self.modules()]
            self._depending = [
                method
                for method in methods
                if method is not None and method.__func__ not in (forwards, type(self).set_num_updates)
            ]
        for method in self._depending:
            method(num_updates)

    def features(self, src_tokens: Tensor, packing: Packing | None = None) -> Tensor:
        """The vectors of all tokens after the last layer: (B, L) -> (B, L, C)."""
        with precision.computing(self, src_tokens.device):
            encoded = self.encoder.sentence_encoder(src_tokens, **self._packed(packing))
            return encoded["encoder_out"][0].transpose(0, 1)

    def _packed(self, packing: Packing | None) -> dict[str, Packing | None]:
        """The argument `packing` of the encoder, if it has it."""
        packs = isinstance(self.encoder.sentence_encoder, PackedTransformerEncoder)
        return {"packing": packing} if packs else {}

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """As in fairseq, without what this model does not use: later positions, and token types.

        fairseq expects a dense layer in every classification head. Others are kept if they have the shapes of
        this model's, and else replaced by its own, with a warning, also with `load_checkpoint_heads`.
        """
        theirs: dict[str, Tensor] = {}
        if self.args.head == LINEAR or not any(".dense." in key for key in heads_in(state_dict)):
            theirs = {key: state_dict.pop(key) for key in heads_in(state_dict)}
        super().upgrade_state_dict_named(state_dict, name)  # which adds the heads that are missing
        ours = {key: state_dict[key].shape for key in heads_in(state_dict)}
        if theirs and ours == {key: weight.shape for key, weight in theirs.items()}:
            state_dict.update(theirs)
        elif theirs:
            logger.warning(
                "the checkpoint's classification head is not used: this model has another one, or none "
                "(--head, --classification-head-name, number of classes)"
            )
        table, stored = self.state_dict().get(POSITIONS), state_dict.get(POSITIONS)
        if table is not None and stored is not None and len(stored) > len(table):
            state_dict[POSITIONS] = stored[: len(table)].clone()
        if not self.args.token_types:
            state_dict.pop(SECOND, None)

    def masked_lm_loss(
        self,
        src_tokens: Tensor,
        index_M: Tensor,
        target_M: Tensor,
        bags: Tensor | None = None,
        packing: Packing | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Summed cross-entropy in nats at M positions.

        `index_M` are the positions in the flattened batch, `target_M` the original tokens there, `bags`
        soft targets (B, V) of the first token of each sentence. Returns the loss, including that of the
        bags, and the loss of the bags alone (0 without bags).
        """
        with precision.computing(self, src_tokens.device):
            features_BLC = self.features(src_tokens, packing)
            x_MC = features_BLC.flatten(0, 1).index_select(0, index_M)
            if bags is not None:
                x_MC = torch.cat([x_MC, features_BLC[:, 0]])
            head, x_MC = self.encoder.lm_head, self.lm_input(x_MC)
            if torch.is_autocast_enabled(src_tokens.device.type):
                x_MC = x_MC.to(torch.get_autocast_dtype(src_tokens.device.type))
            return linear_cross_entropy(x_MC, head.weight, head.bias, target_M, bags)

    def lm_input(self, x_MC: Tensor) -> Tensor:
        """The input of the LM head's output matrix: (M, C) -> (M, C)."""
        head = self.encoder.lm_head
        return head.layer_norm(head.activation_fn(head.dense(x_MC)))


class RobertaSmallEncoder(RobertaEncoder):
    """`RobertaEncoder` with the encoder that `--encoder` selects."""

    def build_encoder(
        self, args: Any, dictionary: Dictionary, embed_tokens: nn.Embedding
    ) -> TransformerEncoder:
        """Build the encoder, initialized as BERT."""
        encoder = ENCODERS[args.encoder_kind].encoder(args, dictionary, embed_tokens)
        if args.token_types:
            add_token_types(encoder, args.encoder_embed_dim)
        encoder.apply(init_bert_params)
        return encoder


class LinearClassificationHead(nn.Module):
    """A linear classification head with the signature of fairseq's `RobertaClassificationHead`."""

    def __init__(self, embed_dim: int, num_classes: int) -> None:
        super().__init__()
        self.out_proj = nn.Linear(embed_dim, num_classes)

    def forward(self, features_B1C: Tensor, **unused: Any) -> Tensor:
        """(B, 1, C) -> (B, K)."""
        return self.out_proj(features_B1C[:, 0])


def heads_in(state_dict: Iterable[str]) -> list[str]:
    """The names of the weights of classification heads."""
    return [key for key in state_dict if key.startswith(CLASSIFICATION_HEADS)]


@register_model_architecture("roberta_small", "roberta_small")
def roberta_small_architecture(args: Any) -> None:
    """Set the defaults of flags that are not given."""
    set_missing(
        args,
        encoder_layers=4,
        encoder_embed_dim=512,
        encoder_ffn_embed_dim=512,
        encoder_attention_heads=8,
        max_positions=256,
        encoder_kind="packed",
        precision="auto",
        pooling="first",
        head="dense",
        layer_norm_eps=LAYER_NORM_EPS,
        token_types=False,
        family=FAMILY,
    )
    base_architecture(args)


def set_missing(args: Any, **defaults: Any) -> None:
    """Set the arguments that are missing or None."""
    for name, value in defaults.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


def check_sizes(args: Any) -> None:
    """Raise `UserError` for incompatible sizes or features, and for impossible probabilities of dropout."""
    for name in ("dropout", "attention_dropout", "activation_dropout", "pooler_dropout"):
        if not 0.0 <= getattr(args, name) <= 1.0:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{flag} {getattr(args, name)}: must be at least 0 and at most 1")
    if args.encoder_embed_dim % args.encoder_attention_heads:
        raise UserError(
            f"--encoder-embed-dim {args.encoder_embed_dim} is not a multiple of "
            f"--encoder-attention-heads {args.encoder_attention_heads}"
        )
    tokens_per_sample = getattr(args, "tokens_per_sample", None)
    if tokens_per_sample is not None and tokens_per_sample > args.max_positions:
        raise UserError(
            f"--tokens-per-sample {tokens_per_sample} exceeds the model's "
            f"--max-positions {args.max_positions}"
        )
    check_supported(args)


# fairseq's own architectures (roberta_base, roberta_large, ...) on this model.
#
# fairseq registers these names for its own `RobertaModel`, which has none of the plugin's flags. The entries
# of its registries are replaced: with the task `sentence_classification`, or with one of the plugin's flags,
# they build `RobertaSmall` in the sizes of their name, with 512 positions unless `--max-positions` is given.
# In all other cases they build fairseq's model as before.

OWN_FLAGS = ("encoder_kind", "precision", "pooling", "head", "layer_norm_eps")
"""The arguments that `RobertaSmall` adds to those of `RobertaModel`."""
PUBLISHED_POSITIONS = 512
"""Of both sizes of RoBERTa (Liu et al. 2019)."""


def with_plugin_flags(original: type[RobertaModel]) -> type[RobertaModel]:
    """Replace an entry of `ARCH_MODEL_REGISTRY`: the architecture on the plugin's model, with its flags."""

    class Roberta(original):
        """Builds `RobertaSmall` or fairseq's own model; it has no instances."""

        __wrapped__ = original

        @classmethod
        def add_args(cls, parser: argparse.ArgumentParser) -> None:
            """Add the flags of `RobertaSmall`."""
            RobertaSmall.add_args(parser)

        @classmethod
        def build_model(cls, args: Any, task: FairseqTask) -> RobertaModel:
            """Build the model for the arguments and the task."""
            if not (wants_plugin(args) or isinstance(task, SentenceClassificationTask)):
                return original.build_model(args, task)
            set_missing(args, max_positions=PUBLISHED_POSITIONS)
            return RobertaSmall.build_model(args, task)

    return Roberta


def with_positions(original: Callable[[Any], None], args: Any) -> None:
    """Replace an entry of `ARCH_CONFIG_REGISTRY`: 512 positions with --task sentence_classification."""
    if wants_plugin(args):
        set_missing(args, max_positions=PUBLISHED_POSITIONS)
    original(args)


def wants_plugin(args: Any) -> bool:
    """Whether the arguments are for the plugin's task or contain one of its flags."""
    given = any(getattr(args, name, None) is not None for name in OWN_FLAGS)
    return given or getattr(args, "task", None) == "sentence_classification"
