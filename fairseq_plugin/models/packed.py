"""RoBERTa's Transformer encoder without computation on padding.

The tokens of a batch are packed into one sequence, on which every layer operates; attention is computed
within each sentence. Parameters, their names and shapes, and the mathematics are those of fairseq's
`TransformerEncoder`. With dropout, the random numbers are assigned to other elements than in the padded
encoder, so runs agree in distribution, not bit for bit.

Shapes: B sentences, L length of the longest, T tokens of the packed sequence, S sentences with at least one
token, C embedding size, E = 3 * C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from fairseq.models.transformer import TransformerEncoder
from fairseq.modules import MultiheadAttention, gelu
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor

from roberta_small.fairseq_plugin.models import attention as kernels
from roberta_small.fairseq_plugin.models.attention import attend, attend_single_query, sentence_offsets
from roberta_small.fairseq_plugin.models.dropout import add_dropout, dropout
from roberta_small.fairseq_plugin.models.token_types import in_second


class PackedTransformerEncoder(TransformerEncoder):
    """`fairseq.models.transformer.TransformerEncoder` whose forward pass skips padding.

    Layer drop and quantization noise are not supported; building the model with them raises an error (see
    `encoders.py`).
    """

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """Encode `src_tokens` (B, L), int64, padded on the right.

        Returns the dictionary of fairseq's encoder. `encoder_out` contains one tensor (L, B, C), zero at
        padding; `encoder_states`, if requested, contains the same after each layer.
        """
        packing = Packing(src_tokens, self.padding_idx)
        x_TC = self.embed(src_tokens, packing, token_embeddings)
        states = [packing.unpack(x_TC)] if return_all_hiddens else []
        for layer in self.layers:
            x_TC = self.encode_all(layer, x_TC, packing)
            if return_all_hiddens:
                states.append(packing.unpack(x_TC))
        return {
            "encoder_out": [packing.unpack(self.final_norm(x_TC))],
            "encoder_padding_mask": [~packing.real_BL],
            "encoder_embedding": [],
            "encoder_states": states,
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [packing.lengths_B.reshape(-1, 1).int()],
        }

    def pooled(self, src_tokens: Tensor, pooling: str, token_embeddings: Tensor | None = None) -> Tensor:
        """One vector per sentence for a classifier: (B, L) -> (B, C).

        `pooling` is "first" (the first token, `<s>` in RoBERTa), "last" (the last token) or "mean" (the mean
        of all tokens). The vector of a row of padding is zero.

        On a CPU, the last layer computes only the first or last token. With four layers this saves almost a
        quarter of the work, with the same result. On a GPU the number of operations limits small batches, so
        the last layer computes all tokens.
        """
        packing = Packing(src_tokens, self.padding_idx)
        x_TC = self.embed(src_tokens, packing, token_embeddings)
        if not packing.lengths:
            return x_TC.new_zeros(len(src_tokens), x_TC.size(-1))
        for layer in self.layers[:-1]:
            x_TC = self.encode_all(layer, x_TC, packing)
        if pooling != "mean" and kernels.one_by_one(x_TC):
            x_SC = self.final_norm(self.encode_single(self.layers[-1], x_TC, packing, pooling))
        else:
            x_TC = self.final_norm(self.encode_all(self.layers[-1], x_TC, packing))
            x_SC = packing.means(x_TC) if pooling == "mean" else packing.tokens_at(pooling, x_TC)
        return packing.add_empty(x_SC)

    def final_norm(self, x: Tensor) -> Tensor:
        """The norm after the last layer of pre-norm networks: (..., C) -> (..., C)."""
        return x if self.layer_norm is None else self.layer_norm(x)

    def attend(self, qkv_TE: Tensor, lengths: Sequence[int], heads: int, p: float) -> Tensor:
        """Attention within each sentence (see `attention.attend`); subclasses can restrict it."""
        return attend(qkv_TE, lengths, heads, p)

    def encode_all(self, layer: TransformerEncoderLayerBase, x_TC: Tensor, packing: Packing) -> Tensor:
        """Apply a layer to all tokens: (T, C) -> (T, C)."""
        attention = layer.self_attn

        def gather(x_TC: Tensor) -> Tensor:
            p = attention_dropout(layer)
            return self.attend(project(attention, x_TC), packing.lengths, attention.num_heads, p)

        return encode_layer(layer, x_TC, gather)

    def encode_single(
        self, layer: TransformerEncoderLayerBase, x_TC: Tensor, packing: Packing, which: str
    ) -> Tensor:
        """Apply a layer to the "first" or "last" token of each sentence: (T, C) -> (S, C)."""
        keys_TC = layer.self_attn_layer_norm(x_TC) if layer.normalize_before else x_TC

        def gather(x_SC: Tensor) -> Tensor:
            p = attention_dropout(layer)
            return attend_single_query(layer.self_attn, keys_TC, x_SC, packing.lengths, p)

        return encode_layer(layer, packing.tokens_at(which, x_TC), gather)

    def embed(self, src_tokens: Tensor, packing: Packing, token_embeddings: Tensor | None = None) -> Tensor:
        """Token plus position embeddings, after norm and dropout: (B, L) -> (T, C)."""
        if token_embeddings is None:
            weight = self.embed_tokens.weight
            # A sparse gradient if the optimizer supports it (see training/optimizer.py).
            sparse = getattr(weight, "sparse_gradient", False)
            x_TC = F.embedding(packing.pack(src_tokens), weight, sparse=sparse)
        else:
            x_TC = packing.pack(token_embeddings)
        x_TC = self.embed_scale * x_TC if self.embed_scale != 1.0 else x_TC
        if self.embed_positions is not None:
            positions = packing.positions_BL + self.padding_idx
            x_TC = x_TC + F.embedding(packing.pack(positions), self.embed_positions.weight)
        if hasattr(self, "embed_second"):  # token types
            second_T = packing.pack(in_second(src_tokens, self.dictionary.eos()))
            x_TC = x_TC + second_T.unsqueeze(1).to(x_TC.dtype) * self.embed_second.weight
        if self.layernorm_embedding is not None:
            x_TC = self.layernorm_embedding(x_TC)
        return dropout(x_TC, self.dropout_module.p, self.training)


class Packing:
    """The positions of the tokens in a padded batch; packs and unpacks tensors.

    The packed sequence is padded to a multiple of `MULTIPLE` tokens. The matrix kernels of a CPU are compiled
    for each new shape, which takes 5 ms and half a megabyte, and batches of random lengths would always have
    new shapes. Results for this padding are discarded.

    Attributes:
        real_BL: bool (B, L), True for tokens, False for padding.
        positions_BL: int64 (B, L), 1 for the first token of a sentence, 0 for padding.
        lengths_B: int64 (B,), the number of tokens of each sentence.
        lengths: the same as a list, without empty sentences.
        tokens: the sum of the lengths.
        index_T: int64 (T,), the index of each packed token in the flattened batch; None if there is no
            padding at all, so that packing is a reshape.
    """

    MULTIPLE = 64

    def __init__(self, src_tokens: Tensor, padding_idx: int) -> None:
        self.shape = src_tokens.shape
        self.real_BL = src_tokens.ne(padding_idx)
        self.positions_BL = self.real_BL.cumsum(dim=1) * self.real_BL
        self.lengths_B = self.real_BL.sum(dim=1)
        self.lengths = [length for length in self.lengths_B.tolist() if length]
        self.tokens = sum(self.lengths)
        padding = -self.tokens % self.MULTIPLE
        self.index_T = None
        if padding or self.tokens < src_tokens.numel():
            index_T = self.real_BL.flatten().nonzero().squeeze(1)
            self.index_T = F.pad(index_T, (0, padding))

    def pack(self, x_BL: Tensor) -> Tensor:
        """(B, L, ...) -> (T, ...)."""
        x = x_BL.flatten(0, 1)
        return x if self.index_T is None else x.index_select(0, self.index_T)

    def tokens_at(self, which: str, x_TC: Tensor) -> Tensor:
        """The "first" or "last" token of each non-empty sentence: (T, C) -> (S, C)."""
        offsets = sentence_offsets(tuple(self.lengths), x_TC.device)
        return x_TC.index_select(0, offsets[:-1] if which == "first" else offsets[1:] - 1)

    def means(self, x_TC: Tensor) -> Tensor:
        """The mean over the tokens of each non-empty sentence: (T, C) -> (S, C)."""
        if kernels.one_by_one(x_TC):
            return torch.stack([x_lC.mean(0) for x_lC in x_TC[: self.tokens].split(self.lengths)])
        offsets = sentence_offsets(tuple(self.lengths), x_TC.device)
        means_SC = torch.segment_reduce(x_TC[: self.tokens].float(), "mean", offsets=offsets, axis=0)
        return means_SC.to(x_TC.dtype)

    def add_empty(self, x_SC: Tensor) -> Tensor:
        """Insert zeros for the sentences without tokens: (S, C) -> (B, C)."""
        if len(x_SC) == len(self.lengths_B):
            return x_SC
        zeros_BC = x_SC.new_zeros(len(self.lengths_B), x_SC.size(-1))
        return zeros_BC.index_copy(0, self.lengths_B.nonzero().squeeze(1), x_SC)

    def unpack(self, x_TC: Tensor) -> Tensor:
        """(T, C) -> (L, B, C), as in fairseq, with zeros at padding."""
        batch, length = self.shape
        if self.index_T is not None:
            zeros = x_TC.new_zeros(batch * length, x_TC.size(-1))
            x_TC = zeros.index_copy(0, self.index_T[: self.tokens], x_TC[: self.tokens])
        return x_TC.view(batch, length, -1).transpose(0, 1)


def encode_layer(layer: TransformerEncoderLayerBase, x: Tensor, gather: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply one layer, post-norm or pre-norm: (..., C) -> (..., C).

    `gather` computes self-attention before the output projection. Its argument is the layer's input, which
    is normalized if the layer is pre-norm.
    """
    p, training = layer.dropout_module.p, layer.training
    residual = x
    if layer.normalize_before:
        x = layer.self_attn_layer_norm(x)
    x = add_dropout(residual, layer.self_attn.out_proj(gather(x)), p, training)
    if not layer.normalize_before:
        x = layer.self_attn_layer_norm(x)

    residual = x
    if layer.normalize_before:
        x = layer.final_layer_norm(x)
    # fairseq's gelu copies to fp32 and back; torch's computes in fp32 too, with the same result.
    activation = F.gelu if layer.activation_fn is gelu else layer.activation_fn
    x = dropout(activation(layer.fc1(x)), layer.activation_dropout_module.p, training)
    x = add_dropout(residual, layer.fc2(x), p, training)
    return x if layer.normalize_before else layer.final_layer_norm(x)


def project(attention: MultiheadAttention, x: Tensor) -> Tensor:
    """Queries, keys and values, concatenated and computed in one product: (..., C) -> (..., E)."""
    if hasattr(attention, "projection"):  # int8.quantize
        return attention.projection(x)
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    weight_EC = torch.cat([projection.weight for projection in projections])
    return F.linear(x, weight_EC, torch.cat([projection.bias for projection in projections]))


def attention_dropout(layer: TransformerEncoderLayerBase) -> float:
    """Dropout probability of the attention weights, 0 in evaluation mode."""
    return layer.self_attn.dropout_module.p if layer.training else 0.0
