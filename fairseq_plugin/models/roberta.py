"""The model `roberta_small`: fairseq's RoBERTa in the sizes of this project, with a fast encoder.

Sizes (`roberta_small`): 4 layers, embedding 512, feed-forward 512, 8 heads, 256 learned positions;
everything else as RoBERTa base. Any of fairseq's RoBERTa flags changes them. State dicts are
fairseq's: a checkpoint of `roberta` with these sizes loads here, and back.
"""

from __future__ import annotations

import argparse
from typing import Any, ClassVar

import torch
from fairseq.data import Dictionary
from fairseq.models import register_model, register_model_architecture
from fairseq.models.roberta.model import RobertaEncoder, RobertaModel, base_architecture
from fairseq.models.transformer import TransformerEncoder
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from torch import Tensor, nn

from common.errors import UserError

from ..tasks.language_modeling import linear_cross_entropy
from ..training import precision
from .encoders import ENCODERS, check_supported


@register_model("roberta_small")
class RobertaSmall(RobertaModel):
    """fairseq's `RobertaModel` with `--encoder` (see `encoders`) and `--precision auto|fp32|bf16`."""

    POOLINGS: ClassVar[dict[str, str]] = {
        "first": "the first token's vector (default)",
        "mean": "the mean over all tokens",
    }
    """What a classification head may read."""

    def __init__(self, args: Any, encoder: RobertaEncoder) -> None:
        super().__init__(args, encoder)
        encoder.sentence_encoder.embed_tokens.weight.is_token_embedding = True  # --embedding-lr-factor

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """RoBERTa's flags and ours."""
        RobertaModel.add_args(parser)
        parser.add_argument(
            "--encoder",
            # `args.encoder` would be read by fairseq as a nested configuration.
            dest="encoder_kind",
            choices=list(ENCODERS),
            help="; ".join(f"{kind.name}: {kind.summary}" for kind in ENCODERS.values()),
        )
        parser.add_argument(
            "--precision",
            choices=precision.CHOICES,
            help="arithmetic of the matrix products; weights and optimizer stay fp32 "
            "(default auto: bf16 where the hardware multiplies it, else fp32)",
        )
        parser.add_argument(
            "--pooling",
            choices=list(cls.POOLINGS),
            help="what is classified: " + "; ".join(f"{key}: {what}" for key, what in cls.POOLINGS.items()),
        )

    @classmethod
    def build_model(cls, args: Any, task: FairseqTask) -> RobertaSmall:
        """Build from fairseq's arguments; raises `UserError` where flags contradict each other."""
        roberta_small_architecture(args)
        check_sizes(args)
        if isinstance(task, LanguageModelingTask):
            raise UserError(
                "--task language_modeling: --arch roberta_small sees what it is to predict; take "
                "--arch causal_roberta_small, or --task masked_lm"
            )
        return cls(args, RobertaSmallEncoder(args, task.source_dictionary))

    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        classification_head_name: str | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As `RobertaModel.forward`: `src_tokens` (B, L) int64 -> logits (B, K), features or LM scores."""
        with precision.autocast(self.args.precision, src_tokens.device):
            encoder = self.encoder.sentence_encoder
            whole = return_all_hiddens or not hasattr(encoder, "pooled")
            if classification_head_name is None or (whole and self.args.pooling == "first"):
                return super().forward(
                    src_tokens, features_only, return_all_hiddens, classification_head_name, **kwargs
                )
            features_B1C = encoder.pooled(src_tokens, self.args.pooling).unsqueeze(1)
            return self.classification_heads[classification_head_name](features_B1C), {"inner_states": None}

    def masked_lm_loss(
        self, src_tokens: Tensor, masked: Tensor, target: Tensor, bags: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Summed cross-entropy, in nats, of the tokens where `masked` is true; these arguments (B, L).

        With `bags` (B, V), that of each first token against its bag is added; and returned by itself.
        """
        with precision.autocast(self.args.precision, src_tokens.device):
            features_BLC, _ = super().forward(src_tokens, features_only=True)
            x_NC = features_BLC[masked]
            if bags is not None:
                x_NC = torch.cat([x_NC, features_BLC[:, 0]])
            head = self.encoder.lm_head
            x_NC = head.layer_norm(head.activation_fn(head.dense(x_NC)))
            if torch.is_autocast_enabled(src_tokens.device.type):
                x_NC = x_NC.to(torch.get_autocast_dtype(src_tokens.device.type))
            return linear_cross_entropy(x_NC, head.weight, head.bias, target[masked], bags)


class RobertaSmallEncoder(RobertaEncoder):
    """`RobertaEncoder` on the encoder that `--encoder` names."""

    def build_encoder(
        self, args: Any, dictionary: Dictionary, embed_tokens: nn.Embedding
    ) -> TransformerEncoder:
        """Build and initialize as BERT does."""
        encoder = ENCODERS[args.encoder_kind].encoder(args, dictionary, embed_tokens)
        encoder.apply(init_bert_params)
        return encoder


@register_model_architecture("roberta_small", "roberta_small")
def roberta_small_architecture(args: Any) -> None:
    """Fill in what the command line left open."""
    defaults = {
        "encoder_layers": 4,
        "encoder_embed_dim": 512,
        "encoder_ffn_embed_dim": 512,
        "encoder_attention_heads": 8,
        "max_positions": 256,
        "encoder_kind": "packed",
        "precision": "auto",
        "pooling": "first",
    }
    for name, value in defaults.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)
    base_architecture(args)


def check_sizes(args: Any) -> None:
    """Raise `UserError` for sizes or features that do not go together."""
    if args.encoder_embed_dim % args.encoder_attention_heads:
        raise UserError(
            f"--encoder-embed-dim {args.encoder_embed_dim} is no multiple of "
            f"--encoder-attention-heads {args.encoder_attention_heads}"
        )
    tokens_per_sample = getattr(args, "tokens_per_sample", None)
    if tokens_per_sample is not None and tokens_per_sample > args.max_positions:
        raise UserError(
            f"--tokens-per-sample {tokens_per_sample} is more than the model's "
            f"--max-positions {args.max_positions}"
        )
    check_supported(args)
