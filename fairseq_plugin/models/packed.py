"""RoBERTa's Transformer encoder without computation on padding.

The real tokens of a batch are packed into one sequence; every layer works on that, and attention
runs within each sentence. Parameters, their names and shapes, and the mathematics are those of
fairseq's `TransformerEncoder`; only the work on pads is gone. With dropout the random numbers
fall on other elements than in the padded encoder, so runs agree in distribution, not in bits.

Shapes: B sentences, L length of the longest, T tokens of the packed sequence,
S sentences that have a token, C embedding size, E = 3 * C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from fairseq.models.transformer import TransformerEncoder
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor

from . import attention as kernels
from .attention import attend, attend_from_one, dropout, ends_of


class PackedTransformerEncoder(TransformerEncoder):
    """`fairseq.models.transformer.TransformerEncoder` whose forward pass skips padding.

    Features that this forward pass does not have (layer drop, quantisation noise) are refused
    when the model is built, see `roberta.py`.
    """

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """Encode `src_tokens` (B, L), int64, padded on the right.

        Returns the dictionary of fairseq's encoder. `encoder_out` holds one tensor (L, B, C) whose
        padded positions are zero; `encoder_states`, if asked for, the same after each layer.
        """
        packing = Packing(src_tokens, self.padding_idx)
        x_TC = self.embed(src_tokens, packing, token_embeddings)
        states = [packing.unpack(x_TC)] if return_all_hiddens else []
        for layer in self.layers:
            x_TC = self.encode_all(layer, x_TC, packing)
            if return_all_hiddens:
                states.append(packing.unpack(x_TC))
        return {
            "encoder_out": [packing.unpack(self.normalised(x_TC))],
            "encoder_padding_mask": [~packing.real_BL],
            "encoder_embedding": [],
            "encoder_states": states,
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [packing.lengths_B.reshape(-1, 1).int()],
        }

    def pooled(self, src_tokens: Tensor, pooling: str, token_embeddings: Tensor | None = None) -> Tensor:
        """One vector a sentence, all that a classifier reads: (B, L) -> (B, C).

        That of its first token (`first`, as RoBERTa does: `<s>`), of its last one (`last`), or the mean of
        all (`mean`); zeros for a row of pads alone. For a single token the last layer computes nothing else,
        which of four layers' work leaves little more than three's, with the same result; on a CPU alone, as
        small batches on a GPU are bound by the number of operations.
        """
        packing = Packing(src_tokens, self.padding_idx)
        x_TC = self.embed(src_tokens, packing, token_embeddings)
        if not packing.lengths:
            return x_TC.new_zeros(len(src_tokens), x_TC.size(-1))
        for layer in self.layers[:-1]:
            x_TC = self.encode_all(layer, x_TC, packing)
        if pooling != "mean" and kernels.one_by_one(x_TC):
            x_SC = self.normalised(self.encode_one(self.layers[-1], x_TC, packing, pooling))
        else:
            x_TC = self.normalised(self.encode_all(self.layers[-1], x_TC, packing))
            x_SC = packing.means(x_TC) if pooling == "mean" else packing.tokens_at(pooling, x_TC)
        return packing.among_empty(x_SC)

    def normalised(self, x: Tensor) -> Tensor:
        """The norm after the last layer, which pre-norm networks have: (..., C) -> (..., C)."""
        return x if self.layer_norm is None else self.layer_norm(x)

    def attend(self, qkv_TE: Tensor, lengths: Sequence[int], heads: int, p: float) -> Tensor:
        """Which tokens see which: here all of a sentence see each other (see `attention.attend`)."""
        return attend(qkv_TE, lengths, heads, p)

    def encode_all(self, layer: TransformerEncoderLayerBase, x_TC: Tensor, packing: Packing) -> Tensor:
        """A layer over all tokens: (T, C) -> (T, C)."""
        attention = layer.self_attn

        def gather(x_TC: Tensor) -> Tensor:
            p = attention_dropout(layer)
            return self.attend(project(attention, x_TC), packing.lengths, attention.num_heads, p)

        return encode_layer(layer, x_TC, gather)

    def encode_one(
        self, layer: TransformerEncoderLayerBase, x_TC: Tensor, packing: Packing, which: str
    ) -> Tensor:
        """A layer at the `first` or `last` token of each sentence, which has to see all others: (S, C)."""
        seen_TC = layer.self_attn_layer_norm(x_TC) if layer.normalize_before else x_TC

        def gather(x_SC: Tensor) -> Tensor:
            return attend_from_one(layer.self_attn, seen_TC, x_SC, packing.lengths, attention_dropout(layer))

        return encode_layer(layer, packing.tokens_at(which, x_TC), gather)

    def embed(self, src_tokens: Tensor, packing: Packing, token_embeddings: Tensor | None = None) -> Tensor:
        """Token plus position embeddings of the real tokens, normalized and dropped out: (T, C)."""
        if token_embeddings is None:
            weight = self.embed_tokens.weight
            # The rows that occurred as gradient, where the optimizer takes that (see optimizer.py).
            rows = getattr(weight, "takes_rows", False)
            x_TC = F.embedding(packing.pack(src_tokens), weight, sparse=rows)
        else:
            x_TC = packing.pack(token_embeddings)
        x_TC = self.embed_scale * x_TC if self.embed_scale != 1.0 else x_TC
        if self.embed_positions is not None:
            positions = packing.positions_BL + self.padding_idx
            x_TC = x_TC + F.embedding(packing.pack(positions), self.embed_positions.weight)
        if self.layernorm_embedding is not None:
            x_TC = self.layernorm_embedding(x_TC)
        return dropout(x_TC, self.dropout_module.p, self.training)


class Packing:
    """Where the real tokens of a padded batch stand, and the way there and back.

    The packed sequence is filled up to a multiple of `MULTIPLE` tokens: the matrix kernels of a CPU
    are compiled for each shape they meet, 5 ms and half a megabyte at a time, and batches of random
    lengths would be new shapes for ever. What is computed for the padding goes nowhere.

    Attributes:
        real_BL: bool (B, L), True for a token, False for a pad.
        positions_BL: int64 (B, L), 1 for the first token of a sentence, 0 for pads.
        lengths_B: int64 (B,); `lengths`, the same as a list without the empty sentences.
        index_T: int64 (T,), where each token stands in the flattened batch, padding at the end;
            None where there is neither pad nor filler, so that packing is a reshape.
    """

    MULTIPLE = 64

    def __init__(self, src_tokens: Tensor, padding_idx: int) -> None:
        self.shape = src_tokens.shape
        self.real_BL = src_tokens.ne(padding_idx)
        self.positions_BL = self.real_BL.cumsum(dim=1) * self.real_BL
        self.lengths_B = self.real_BL.sum(dim=1)
        self.lengths = [length for length in self.lengths_B.tolist() if length]
        self.tokens = sum(self.lengths)
        fillers = -self.tokens % self.MULTIPLE
        self.index_T = None
        if fillers or self.tokens < src_tokens.numel():
            index_T = self.real_BL.flatten().nonzero().squeeze(1)
            self.index_T = F.pad(index_T, (0, fillers))

    def pack(self, x_BL: Tensor) -> Tensor:
        """(B, L, ...) -> (T, ...)."""
        x = x_BL.flatten(0, 1)
        return x if self.index_T is None else x.index_select(0, self.index_T)

    def tokens_at(self, which: str, x_TC: Tensor) -> Tensor:
        """The `first` or `last` token of each sentence that has one: (T, C) -> (S, C)."""
        ends = ends_of(tuple(self.lengths), x_TC.device)
        return x_TC.index_select(0, ends[:-1] if which == "first" else ends[1:] - 1)

    def means(self, x_TC: Tensor) -> Tensor:
        """The mean of the tokens of each sentence that has one: (T, C) -> (S, C)."""
        if kernels.one_by_one(x_TC):
            return torch.stack([x_lC.mean(0) for x_lC in x_TC[: self.tokens].split(self.lengths)])
        ends = ends_of(tuple(self.lengths), x_TC.device)
        return torch.segment_reduce(x_TC[: self.tokens].float(), "mean", offsets=ends, axis=0).to(x_TC.dtype)

    def among_empty(self, x_SC: Tensor) -> Tensor:
        """With zeros for the sentences that have no token: (S, C) -> (B, C)."""
        if len(x_SC) == len(self.lengths_B):
            return x_SC
        zeros_BC = x_SC.new_zeros(len(self.lengths_B), x_SC.size(-1))
        return zeros_BC.index_copy(0, self.lengths_B.nonzero().squeeze(1), x_SC)

    def unpack(self, x_TC: Tensor) -> Tensor:
        """(T, C) -> (L, B, C), fairseq's order, zeros at the pads."""
        batch, length = self.shape
        if self.index_T is not None:
            zeros = x_TC.new_zeros(batch * length, x_TC.size(-1))
            x_TC = zeros.index_copy(0, self.index_T[: self.tokens], x_TC[: self.tokens])
        return x_TC.view(batch, length, -1).transpose(0, 1)


def encode_layer(layer: TransformerEncoderLayerBase, x: Tensor, gather: Callable[[Tensor], Tensor]) -> Tensor:
    """One layer, post-norm or pre-norm: (..., C) -> (..., C).

    `gather` takes the layer's input, normalized where the layer is pre-norm, to what attention gathers for
    each token, before the output projection.
    """
    p, training = layer.dropout_module.p, layer.training
    residual = x
    if layer.normalize_before:
        x = layer.self_attn_layer_norm(x)
    x = residual + dropout(layer.self_attn.out_proj(gather(x)), p, training)
    if not layer.normalize_before:
        x = layer.self_attn_layer_norm(x)

    residual = x
    if layer.normalize_before:
        x = layer.final_layer_norm(x)
    x = dropout(layer.activation_fn(layer.fc1(x)), layer.activation_dropout_module.p, training)
    x = residual + dropout(layer.fc2(x), p, training)
    return x if layer.normalize_before else layer.final_layer_norm(x)


def project(attention: MultiheadAttention, x: Tensor) -> Tensor:
    """Queries, keys and values side by side, in one product: (..., C) -> (..., E)."""
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    weight_EC = torch.cat([projection.weight for projection in projections])
    return F.linear(x, weight_EC, torch.cat([projection.bias for projection in projections]))


def attention_dropout(layer: TransformerEncoderLayerBase) -> float:
    """Probability with which attention weights are dropped now."""
    return layer.self_attn.dropout_module.p if layer.training else 0.0
