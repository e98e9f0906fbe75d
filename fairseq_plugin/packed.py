"""RoBERTa's Transformer encoder without computation on padding.

The real tokens of a batch are packed into one sequence; every layer works on that, and attention
runs within each sentence. Parameters, their names and shapes, and the mathematics are those of
fairseq's `TransformerEncoder`; only the work on pads is gone. With dropout the random numbers
fall on other elements than in the padded encoder, so runs agree in distribution, not in bits.

Shapes: B sentences, L length of the longest, T real tokens of the batch (T <= B * L),
C embedding size, H heads, D size of a head (C = H * D).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from fairseq.models.transformer import TransformerEncoder
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor


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
            x_TC = encode_layer(layer, x_TC, packing)
            if return_all_hiddens:
                states.append(packing.unpack(x_TC))
        if self.layer_norm is not None:
            x_TC = self.layer_norm(x_TC)
        return {
            "encoder_out": [packing.unpack(x_TC)],
            "encoder_padding_mask": [~packing.real_BL],
            "encoder_embedding": [],
            "encoder_states": states,
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [packing.lengths_B.reshape(-1, 1).int()],
        }

    def first_tokens(self, src_tokens: Tensor) -> Tensor:
        """Features of the first token of each sentence, `<s>`: (B, L) -> (B, 1, C).

        All that a classifier reads. The last layer computes nothing else, a sixth of the work of
        four layers less, with the same result.
        """
        packing = Packing(src_tokens, self.padding_idx)
        x_TC = self.embed(src_tokens, packing)
        for layer in self.layers[:-1]:
            x_TC = encode_layer(layer, x_TC, packing)
        x_BC = encode_layer(self.layers[-1], x_TC, packing, first_only=True)
        return (x_BC if self.layer_norm is None else self.layer_norm(x_BC)).unsqueeze(1)

    def embed(self, src_tokens: Tensor, packing: Packing, token_embeddings: Tensor | None = None) -> Tensor:
        """Token plus position embeddings of the real tokens, normalised and dropped out: (T, C)."""
        if token_embeddings is None:
            x_TC = self.embed_tokens(packing.pack(src_tokens))
        else:
            x_TC = packing.pack(token_embeddings)
        x_TC = self.embed_scale * x_TC if self.embed_scale != 1.0 else x_TC
        if self.embed_positions is not None:
            positions = packing.positions_BL + self.padding_idx
            x_TC = x_TC + F.embedding(packing.pack(positions), self.embed_positions.weight)
        if self.layernorm_embedding is not None:
            x_TC = self.layernorm_embedding(x_TC)
        return self.dropout_module(x_TC)


class Packing:
    """Where the real tokens of a padded batch stand, and the way there and back.

    Attributes:
        real_BL: bool (B, L), True for a token, False for a pad.
        positions_BL: int64 (B, L), 1 for the first token of a sentence, 0 for pads.
        lengths_B: int64 (B,); `lengths`, the same as a list without the empty sentences.
        full: whether there is no pad at all, so that packing is a reshape.
    """

    def __init__(self, src_tokens: Tensor, padding_idx: int) -> None:
        self.shape = src_tokens.shape
        self.real_BL = src_tokens.ne(padding_idx)
        self.positions_BL = self.real_BL.cumsum(dim=1) * self.real_BL
        self.lengths_B = self.real_BL.sum(dim=1)
        self.lengths = [length for length in self.lengths_B.tolist() if length]
        self.full = sum(self.lengths) == src_tokens.numel()
        self.index_T = None if self.full else self.real_BL.flatten().nonzero().squeeze(1)

    def pack(self, x_BL: Tensor) -> Tensor:
        """(B, L, ...) -> (T, ...)."""
        x = x_BL.flatten(0, 1)
        return x if self.full else x.index_select(0, self.index_T)

    def first(self, x_TC: Tensor) -> Tensor:
        """The first token of each sentence: (T, C) -> (B, C); no sentence may be empty."""
        ends_B = self.lengths_B.cumsum(0)
        return x_TC.index_select(0, ends_B - self.lengths_B)

    def unpack(self, x_TC: Tensor) -> Tensor:
        """(T, C) -> (L, B, C), fairseq's order, zeros at the pads."""
        batch, length = self.shape
        if not self.full:
            zeros = x_TC.new_zeros(batch * length, x_TC.size(-1))
            x_TC = zeros.index_copy(0, self.index_T, x_TC)
        return x_TC.view(batch, length, -1).transpose(0, 1)


def encode_layer(
    layer: TransformerEncoderLayerBase, x_TC: Tensor, packing: Packing, first_only: bool = False
) -> Tensor:
    """One encoder layer, post-norm or pre-norm: (T, C) -> (T, C), or (B, C) for first tokens only."""
    residual = packing.first(x_TC) if first_only else x_TC
    if layer.normalize_before:
        x_TC = layer.self_attn_layer_norm(x_TC)
    x_TC = residual + layer.dropout_module(attend(layer.self_attn, x_TC, packing, first_only))
    if not layer.normalize_before:
        x_TC = layer.self_attn_layer_norm(x_TC)

    residual = x_TC
    if layer.normalize_before:
        x_TC = layer.final_layer_norm(x_TC)
    x_TC = layer.activation_dropout_module(layer.activation_fn(layer.fc1(x_TC)))
    x_TC = residual + layer.dropout_module(layer.fc2(x_TC))
    return x_TC if layer.normalize_before else layer.final_layer_norm(x_TC)


def attend(attention: MultiheadAttention, x_TC: Tensor, packing: Packing, first_only: bool) -> Tensor:
    """Multi-head self-attention within each sentence (Vaswani et al. 2017, section 3.2).

    Keys and values are all tokens; queries too, or the first of each sentence: (T, C) -> (T or B, C).
    """
    heads = attention.num_heads
    q_QC = attention.q_proj(packing.first(x_TC) if first_only else x_TC)
    k_TC, v_TC = attention.k_proj(x_TC), attention.v_proj(x_TC)
    dropout = attention.dropout_module.p if attention.training else 0.0
    if packing.full:
        q, k, v = (t.view(packing.shape[0], -1, heads, attention.head_dim) for t in (q_QC, k_TC, v_TC))
        out_QC = attention_BLHD(q, k, v, dropout).reshape(q_QC.shape)
    else:
        # `split` rather than slices: its backward pass writes each gradient once, where slices
        # would each fill a tensor of the whole batch with zeros.
        lengths = packing.lengths
        parts = [
            t.view(1, -1, heads, attention.head_dim).split(sizes, dim=1)
            for t, sizes in (
                (q_QC, [1] * len(lengths) if first_only else lengths),
                (k_TC, lengths),
                (v_TC, lengths),
            )
        ]
        out = [attention_BLHD(q, k, v, dropout) for q, k, v in zip(*parts, strict=True)]
        out_QC = torch.cat(out, dim=1).view(q_QC.shape)
    return attention.out_proj(out_QC)


def attention_BLHD(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:  # noqa: N802
    """torch's attention on (B, L, H, D) tensors, scaled by 1 / sqrt(D)."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout).transpose(1, 2)
