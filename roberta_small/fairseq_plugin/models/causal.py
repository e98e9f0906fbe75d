"""Left-to-right language models, which can be fine-tuned as sentence classifiers.

`causal_lm_small` has the architecture of the published left-to-right experiment: 4 layers, embedding size 200
with embeddings scaled by sqrt(200), feed-forward size 200, 2 heads, sinusoidal positions, ReLU, post-norm, no
dropout, and a linear LM head with its own weights. Its initialization is that of torch's modules.

`causal_roberta_small` is `roberta_small` (see `roberta.py`) with causal attention, so that the two differ
only in their objective.

Both take RoBERTa's flags and train with fairseq's task `language_modeling`. With the task
`sentence_classification`, a classification head replaces the LM head; its input is the vector of the last
token or the mean of all (`--pooling`).

Neither has an embedding for `<mask>`, which tasks of masked models append to the dictionary.

Shapes: B sentences, L length of the longest, M positions with a target, T tokens of the packed sequence,
P positions, C embedding size, E = 3 * C, V vocabulary size, K classes. In generation: N new tokens of each
sentence, S positions in the cache, H heads, D size of a head.
"""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.models import register_model, register_model_architecture
from fairseq.models.roberta.model import RobertaEncoder
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMTask
from torch import Tensor, nn

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.checkpoints.loading import LM_HEAD
from roberta_small.fairseq_plugin.models.packed import (
    PackedTransformerEncoder,
    Packing,
    encode_layer,
    project,
)
from roberta_small.fairseq_plugin.models.roberta import (
    LINEAR,
    RobertaSmall,
    check_sizes,
    roberta_small_architecture,
    set_missing,
)
from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask
from roberta_small.fairseq_plugin.training import precision


@register_model("causal_roberta_small")
class CausalRobertaSmall(RobertaSmall):
    """`RobertaSmall` with causal attention: a language model until a classification head is registered."""

    POOLINGS: ClassVar[dict[str, str]] = {
        "last": "the last token's vector (default)",
        "last-piece": "the vector of the last token before </s>",
        "mean": "the mean over all tokens",
    }

    @classmethod
    def build_model(cls, args: Any, task: FairseqTask) -> CausalRobertaSmall:
        """Build from fairseq's arguments; raises `UserError` for incompatible flags."""
        linear = issubclass(cls, CausalLmSmall)
        (causal_lm_small_architecture if linear else causal_roberta_small_architecture)(args)
        check_sizes(args)
        if args.encoder_kind != "packed":
            raise UserError(
                f"--encoder {args.encoder_kind}: left-to-right models support only --encoder packed"
            )
        if isinstance(task, MaskedLMTask):
            raise UserError(
                "--task masked_lm: a left-to-right model has no <mask>; use --task language_modeling, or "
                "--arch roberta_small"
            )
        if isinstance(task, SentenceClassificationTask) and task.cfg.word_dropout:
            raise UserError("--word-dropout: a left-to-right model has no <mask>; omit the flag")
        if isinstance(task, LanguageModelingTask) and task.args.add_bos_token:
            raise UserError("--add-bos-token: texts of left-to-right models begin with </s>; omit the flag")
        dictionary = task.source_dictionary
        if dictionary.symbols[-1] == "<mask>":  # appended by the task; no text contains it
            dictionary = copy.deepcopy(dictionary)
            del dictionary.indices[dictionary.symbols.pop()]
            dictionary.count.pop()
        encoder = CausalLmEncoder if linear else CausalRobertaEncoder
        return cls(args, encoder(args, dictionary))

    @property
    def supported_targets(self) -> set[str]:
        """The targets that the task `language_modeling` can request: the next token."""
        return {"future"}

    def register_classification_head(
        self, name: str, num_classes: int | None = None, inner_dim: int | None = None, **kwargs: Any
    ) -> None:
        """Replace the LM head by a classification head."""
        super().register_classification_head(name, num_classes, inner_dim, **kwargs)
        self.encoder.lm_head = None

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """As in `RobertaSmall`; a classifier ignores the checkpoint's LM head."""
        super().upgrade_state_dict_named(state_dict, name)
        if self.classification_heads:
            for key in [key for key in state_dict if key.startswith(LM_HEAD)]:
                del state_dict[key]


@register_model("causal_lm_small")
class CausalLmSmall(CausalRobertaSmall):
    """The published left-to-right model: linear heads and the initialization of torch's modules."""

    def __init__(self, args: Any, encoder: RobertaEncoder) -> None:
        super().__init__(args, encoder)
        initialize_as_torch(encoder)

    def lm_input(self, x_MC: Tensor) -> Tensor:
        """The features: the LM head has no other layer than its output matrix."""
        return x_MC


class CausalRobertaEncoder(RobertaEncoder):
    """`RobertaEncoder` with causal attention."""

    def build_encoder(self, args: Any, dictionary: Dictionary, embed_tokens: nn.Embedding) -> CausalEncoder:
        """Build the encoder, initialized as BERT."""
        encoder = CausalEncoder(args, dictionary, embed_tokens)
        encoder.apply(init_bert_params)
        return encoder


class CausalLmEncoder(CausalRobertaEncoder):
    """`CausalRobertaEncoder` with a linear LM head that is not tied to the embeddings."""

    def build_lm_head(
        self, embed_dim: int, output_dim: int, activation_fn: str, weight: Tensor | None
    ) -> LinearHead:
        """Build the head; `activation_fn` and the embeddings (`weight`) are not used."""
        return LinearHead(embed_dim, output_dim)


class CausalEncoder(PackedTransformerEncoder):
    """`PackedTransformerEncoder` with causal attention: features do not depend on later tokens."""

    causal = True

    def __init__(self, args: Any, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(args, dictionary, embed_tokens)
        self.eos_idx = dictionary.eos()
        if not args.encoder_learned_pos:
            width = embed_tokens.embedding_dim
            self.embed_positions = SinusoidalPositions(args.max_positions, width, self.padding_idx)

    def pooled(
        self,
        src_tokens: Tensor,
        pooling: str,
        token_embeddings: Tensor | None = None,
        packing: Packing | None = None,
    ) -> Tensor:
        """One vector per sentence, as in the packed encoder: (B, L) -> (B, C).

        The additional `pooling` "last-piece" is the last token, ignoring the `</s>` at the end of a text: in
        pre-training another text follows `</s>`, so its vector need not represent the text. A GPU waits for
        the lengths without it.
        """
        if pooling == "last-piece":
            src_tokens, pooling, packing = self.without_eos(src_tokens), "last", None
        return super().pooled(src_tokens, pooling, token_embeddings, packing)

    def without_eos(self, src_tokens: Tensor) -> Tensor:
        """Replace `</s>` at the end of each row by padding, unless it is the only token: (B, L) -> (B, L)."""
        lengths_B1 = src_tokens.ne(self.padding_idx).sum(dim=1, keepdim=True)
        last_B1 = (lengths_B1 - 1).clamp(min=0)
        token_B1 = src_tokens.gather(1, last_B1)
        is_eos_B1 = token_B1.eq(self.eos_idx) & lengths_B1.gt(1)
        return src_tokens.scatter(1, last_B1, token_B1.masked_fill(is_eos_B1, self.padding_idx))


class SinusoidalPositions(nn.Module):
    """The fixed positions of Vaswani et al. 2017, section 3.5: sines at even, cosines at odd dimensions.

    `weight` (P + padding_idx + 1, C) has the layout of fairseq's learned positions: the first token of a
    sentence has row padding_idx + 1. It is neither trained nor saved.
    """

    weight: Tensor

    def __init__(self, positions: int, width: int, padding_idx: int) -> None:
        super().__init__()
        angles = torch.arange(positions).unsqueeze(1) * torch.exp(
            torch.arange(0, width, 2) * (-math.log(10000.0) / width)
        )
        table_PC = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
        self.register_buffer("weight", F.pad(table_PC, (0, 0, padding_idx + 1, 0)), persistent=False)


class LinearHead(nn.Linear):
    """A linear LM head with the signature of fairseq's `RobertaLMHead`."""

    def forward(  # type: ignore[override]  # the signature is that of fairseq's head
        self, features: Tensor, masked_tokens: Tensor | None = None, **unused: Any
    ) -> Tensor:
        """(..., C) -> (..., V), or (M, V) at the positions where `masked_tokens` is true."""
        return super().forward(features if masked_tokens is None else features[masked_tokens, :])


def initialize_as_torch(encoder: RobertaEncoder, bound: float = 0.1) -> None:
    """Initialize as `torch.nn.TransformerEncoderLayer`, with uniform embeddings and LM head.

    The bounds of the uniform distributions are Xavier's for queries, keys and values as one matrix (3C, C),
    1 / sqrt(fan-in) for other layers, and `bound` for embeddings and LM head, whose bias is zero.
    """
    embeddings = encoder.sentence_encoder.embed_tokens
    for weight in (embeddings.weight, encoder.lm_head.weight):
        nn.init.uniform_(weight, -bound, bound)
    nn.init.zeros_(encoder.lm_head.bias)
    with torch.no_grad():
        embeddings.weight[embeddings.padding_idx].zero_()
    for layer in encoder.sentence_encoder.layers:
        attention = layer.self_attn
        for linear in (attention.out_proj, layer.fc1, layer.fc2):
            linear.reset_parameters()
        nn.init.zeros_(attention.out_proj.bias)
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
            # sqrt(6 / (C + 3C)) is the bound of a (C, C) matrix times sqrt(1/2).
            nn.init.xavier_uniform_(linear.weight, gain=0.5**0.5)
            nn.init.zeros_(linear.bias)


@register_model_architecture("causal_roberta_small", "causal_roberta_small")
def causal_roberta_small_architecture(args: Any) -> None:
    """Set the defaults of flags that are not given: the sizes of `roberta_small`."""
    set_missing(args, pooling="last")
    roberta_small_architecture(args)


@register_model_architecture("causal_lm_small", "causal_lm_small")
def causal_lm_small_architecture(args: Any) -> None:
    """Set the defaults of flags that are not given: the published sizes."""
    set_missing(
        args,
        encoder_layers=4,
        encoder_embed_dim=200,
        encoder_ffn_embed_dim=200,
        encoder_attention_heads=2,
        activation_fn="relu",
        dropout=0.0,
        attention_dropout=0.0,
        encoder_learned_pos=False,
        no_scale_embedding=False,
        layernorm_embedding=False,
        untie_weights_roberta=True,
        head=LINEAR,
    )
    causal_roberta_small_architecture(args)


# Generation with a key-value cache: each step computes only the new tokens. The features of a token do not
# depend on later tokens, so keys and values of earlier tokens stay valid when a sentence grows.


class Cache:
    """Keys and values of each layer, (B, H, S, D) each, zero at positions without a token.

    Each token is stored at its position in the sentence. Padding after a shorter sentence is overwritten by
    its next tokens before any token attends to it.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def add(
        self, layer: int, k_BHND: Tensor, v_BHND: Tensor, positions_BN: Tensor, used: int
    ) -> tuple[Tensor, Tensor]:
        """Store keys and values of new tokens; returns those of the layer's first `used` positions."""
        if layer not in self._layers:
            batch, heads, _, size = k_BHND.shape
            empty = k_BHND.new_zeros(batch, heads, self.capacity, size)
            self._layers[layer] = empty, torch.zeros_like(empty)
        index_BHND = positions_BN[:, None, :, None].expand_as(k_BHND)
        keys, values = (
            kept.scatter_(2, index_BHND, new)[:, :, :used]
            for kept, new in zip(self._layers[layer], (k_BHND, v_BHND), strict=True)
        )
        return keys, values


def next_scores(
    model: CausalRobertaSmall, tokens_BN: Tensor, positions_BN: Tensor, lengths_B: Tensor, cache: Cache
) -> Tensor:
    """Scores (B, V), fp32, of the token that follows the new tokens of each sentence; evaluation mode only.

    The new tokens, int64, are padded on the right; `lengths_B` are their numbers, at least 1, and
    `positions_BN` their positions in their sentences, from 0. They are added to the cache.
    """
    encoder = model.encoder.sentence_encoder
    with precision.computing(model, tokens_BN.device):
        x_BNC = encoder.embed_tokens(tokens_BN) * encoder.embed_scale
        rows_BN = positions_BN + encoder.padding_idx + 1
        x_BNC = x_BNC + F.embedding(rows_BN, encoder.embed_positions.weight)
        if encoder.layernorm_embedding is not None:
            x_BNC = encoder.layernorm_embedding(x_BNC)
        used = int(positions_BN.max()) + 1
        for number, layer in enumerate(encoder.layers):
            gather = partial(attend_cached, layer.self_attn, number, positions_BN, used, cache)
            x_BNC = encode_layer(layer, x_BNC, gather)
        x_BNC = encoder.final_norm(x_BNC)
        x_BC = x_BNC[torch.arange(len(x_BNC), device=x_BNC.device), lengths_B - 1]
        return model.encoder.lm_head(x_BC).float()


def attend_cached(
    attention: MultiheadAttention, layer: int, positions_BN: Tensor, used: int, cache: Cache, x_BNC: Tensor
) -> Tensor:
    """Attention of the new tokens to all tokens up to their own position: (B, N, C) -> (B, N, C)."""
    qkv_BNE = project(attention, x_BNC)
    q, k, v = qkv_BNE.unflatten(-1, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    keys_BHSD, values_BHSD = cache.add(layer, k, v, positions_BN, used)
    positions_S = torch.arange(used, device=x_BNC.device)
    visible_B1NS = (positions_S <= positions_BN[:, :, None])[:, None]
    out_BHND = F.scaled_dot_product_attention(q, keys_BHSD, values_BHSD, attn_mask=visible_B1NS)
    return out_BHND.transpose(1, 2).flatten(2)
