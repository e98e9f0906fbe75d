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
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from fairseq.models.transformer import TransformerEncoder
from fairseq.modules import MultiheadAttention, gelu
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from roberta_small.fairseq_plugin.models import attention as kernels
from roberta_small.fairseq_plugin.models.attention import attend, attend_single_query, kernel_offsets
from roberta_small.fairseq_plugin.models.dropout import add_dropout, dropout


class PackedTransformerEncoder(TransformerEncoder):
    """`fairseq.models.transformer.TransformerEncoder` whose forward pass skips padding.

    Layer drop and quantization noise are not supported; building the model with them raises an error (see
    `encoders.py`).
    """

    causal = False
    """Whether a token attends only to itself and to earlier tokens."""

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
        packing: Packing | None = None,
    ) -> dict[str, list[Tensor]]:
        """Encode `src_tokens` (B, L), int64, padded on the right; `packing` is theirs, if it is known.

        Returns the dictionary of fairseq's encoder. `encoder_out` contains one tensor (L, B, C), zero at
        padding; `encoder_states`, if requested, contains the same after each layer.
        """
        packing = packing or Packing.of(src_tokens, self.padding_idx)
        real_BL = src_tokens.ne(self.padding_idx)
        x_TC = self.embed(src_tokens, packing, token_embeddings)
        states = [packing.unpack(x_TC)] if return_all_hiddens else []
        for layer in self.layers:
            x_TC = self.encode_all(layer, x_TC, packing)
            if return_all_hiddens:
                states.append(packing.unpack(x_TC))
        return {
            "encoder_out": [packing.unpack(self.final_norm(x_TC))],
            "encoder_padding_mask": [~real_BL],
            "encoder_embedding": [],
            "encoder_states": states,
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [real_BL.sum(dim=1, keepdim=True).int()],
        }

    def pooled(
        self,
        src_tokens: Tensor,
        pooling: str,
        token_embeddings: Tensor | None = None,
        packing: Packing | None = None,
    ) -> Tensor:
        """One vector per sentence for a classifier: (B, L) -> (B, C).

        `pooling` is "first" (the first token, `<s>` in RoBERTa), "last" (the last token) or "mean" (the mean
        of all tokens). The vector of a row of padding is zero.

        On a CPU, the last layer computes only the first or last token. With four layers this saves almost a
        quarter of the work, with the same result. On a GPU the number of operations limits small batches, so
        the last layer computes all tokens.
        """
        packing = packing or Packing.of(src_tokens, self.padding_idx)
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
        if packing.rows_S is None:
            return x_SC
        zeros_BC = x_SC.new_zeros(packing.shape[0], x_SC.size(-1))
        return zeros_BC.index_copy(0, packing.rows_S, x_SC)

    def final_norm(self, x: Tensor) -> Tensor:
        """The norm after the last layer of pre-norm networks: (..., C) -> (..., C)."""
        return x if self.layer_norm is None else self.layer_norm(x)

    def encode_all(self, layer: TransformerEncoderLayerBase, x_TC: Tensor, packing: Packing) -> Tensor:
        """Apply a layer to all tokens: (T, C) -> (T, C)."""
        attention = layer.self_attn

        def gather(x_TC: Tensor) -> Tensor:
            p = attention.dropout_module.p if layer.training else 0.0
            sizes = packing.lengths, attention.num_heads, p
            return attend(project(attention, x_TC), *sizes, causal=self.causal, offsets=packing.offsets)

        return encode_layer(layer, x_TC, gather)

    def encode_single(
        self, layer: TransformerEncoderLayerBase, x_TC: Tensor, packing: Packing, which: str
    ) -> Tensor:
        """Apply a layer to the "first" or "last" token of each sentence: (T, C) -> (S, C)."""
        keys_TC = layer.self_attn_layer_norm(x_TC) if layer.normalize_before else x_TC

        def gather(x_SC: Tensor) -> Tensor:
            p = layer.self_attn.dropout_module.p if layer.training else 0.0
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
            positions_T = packing.positions_T + self.padding_idx
            x_TC = x_TC + F.embedding(positions_T, self.embed_positions.weight)
        if hasattr(self, "embed_second"):  # token types
            second_T = packing.pack(in_second(src_tokens, self.dictionary.eos()))
            x_TC = x_TC + second_T.unsqueeze(1).to(x_TC.dtype) * self.embed_second.weight
        if self.layernorm_embedding is not None:
            x_TC = self.layernorm_embedding(x_TC)
        return dropout(x_TC, self.dropout_module.p, self.training)


@dataclass(frozen=True)
class Packing:
    """The positions of the tokens in a padded batch; packs and unpacks tensors.

    It is computed on the CPU, in training while the batch is loaded (`tasks/batches.py`): a GPU would have
    to finish all its work before it could return the lengths.

    The packed sequence is padded to a multiple of `MULTIPLE` tokens. The matrix kernels of a CPU are compiled
    for each new shape, which takes 5 ms and half a megabyte, and batches of random lengths would always have
    new shapes. Results for this padding are discarded.
    """

    MULTIPLE: ClassVar[int] = 64

    shape: Sequence[int]
    """B and L."""
    lengths: Sequence[int]
    """The number of tokens of each sentence, without empty sentences."""
    index_T: Tensor | None  # noqa: N815  a shape
    """int64 (T,), the index of each packed token in the flattened batch; None if there is no padding at all,
    so that packing is a reshape."""
    positions_T: Tensor  # noqa: N815
    """int64 (T,), 1 for the first token of a sentence."""
    offsets: Tensor
    """int32 (S + 1,) or (S + 2,): `attention.kernel_offsets`."""
    rows_S: Tensor | None  # noqa: N815
    """int64 (S,), the rows that are not empty; None if all are."""

    @classmethod
    def of(cls, src_tokens: Tensor, padding_idx: int) -> Packing:
        """The packing of a batch (B, L), on its device; a GPU waits."""
        real_BL = src_tokens.ne(padding_idx).cpu()
        positions_L = (real_BL.cumsum(dim=1) * real_BL).flatten()
        lengths_B = real_BL.sum(dim=1).tolist()
        lengths = [length for length in lengths_B if length]
        tokens = sum(lengths)
        index_T, padding = None, -tokens % cls.MULTIPLE
        if padding or tokens < src_tokens.numel():
            index_T = F.pad(real_BL.flatten().nonzero().squeeze(1), (0, padding))
        rows = [row for row, length in enumerate(lengths_B) if length]
        found = cls(
            tuple(src_tokens.shape),
            lengths,
            index_T,
            positions_L if index_T is None else positions_L.index_select(0, index_T),
            torch.tensor(kernel_offsets(lengths, tokens + padding), dtype=torch.int32),
            torch.tensor(rows) if len(rows) < len(lengths_B) else None,
        )
        device = src_tokens.device
        moved: dict[str, Any] = {name: x.to(device) for name, x in vars(found).items() if torch.is_tensor(x)}
        return replace(found, **moved)

    @property
    def tokens(self) -> int:
        """The sum of the lengths."""
        return sum(self.lengths)

    def real_index(self) -> Tensor:
        """The index of each token in the flattened batch, without padding: int64 (`tokens`,)."""
        if self.index_T is None:
            return torch.arange(self.tokens, device=self.positions_T.device)
        return self.index_T[: self.tokens]

    def pack(self, x_BL: Tensor) -> Tensor:
        """(B, L, ...) -> (T, ...)."""
        x = x_BL.flatten(0, 1)
        return x if self.index_T is None else x.index_select(0, self.index_T)

    def tokens_at(self, which: str, x_TC: Tensor) -> Tensor:
        """The "first" or "last" token of each non-empty sentence: (T, C) -> (S, C)."""
        sentences = len(self.lengths)
        index_S = self.offsets[:sentences] if which == "first" else self.offsets[1 : sentences + 1] - 1
        return x_TC.index_select(0, index_S)

    def means(self, x_TC: Tensor) -> Tensor:
        """The mean over the tokens of each non-empty sentence: (T, C) -> (S, C)."""
        if kernels.one_by_one(x_TC):
            return torch.stack([x_lC.mean(0) for x_lC in x_TC[: self.tokens].split(self.lengths)])
        offsets = self.offsets[: len(self.lengths) + 1].long()
        x_TC = x_TC[: self.tokens]
        # Unsafe only leaves out checks of the offsets, for which a GPU would wait.
        means_SC = torch.segment_reduce(x_TC.float(), "mean", offsets=offsets, axis=0, unsafe=True)
        return means_SC.to(x_TC.dtype)

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


# The token type of the second text of a pair (Devlin et al. 2019, section 3), for any encoder. That of all
# other tokens is part of the position embeddings, so that RoBERTa's encoder without types computes the same
# for single texts.


def add_token_types(encoder: TransformerEncoder, width: int) -> None:
    """Give an encoder the parameter `embed_second.weight` (1, C), which it adds to the second text."""
    encoder.embed_second = nn.Embedding(1, width)
    if not hasattr(encoder, "embed"):  # which adds them itself
        encoder.register_forward_pre_hook(_types_for_stock, with_kwargs=True)


def in_second(tokens_BL: Tensor, separator: int) -> Tensor:
    """Whether a token comes after the first separator: int64 (B, L) -> bool (B, L)."""
    ends_BL = tokens_BL == separator
    return (ends_BL.cumsum(dim=1) - ends_BL.long()) > 0


def _types_for_stock(
    encoder: TransformerEncoder, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Add the types to the token embeddings that fairseq's own encoder gets."""
    tokens_BL = args[0] if args else kwargs["src_tokens"]
    embedded_BLC = kwargs.get("token_embeddings")
    if embedded_BLC is None:
        embedded_BLC = encoder.embed_tokens(tokens_BL)
    second_BL = in_second(tokens_BL, encoder.dictionary.eos())
    types_BLC = second_BL.unsqueeze(-1).to(embedded_BLC.dtype) * encoder.embed_second.weight
    return args, kwargs | {"token_embeddings": embedded_BLC + types_BLC / encoder.embed_scale}
