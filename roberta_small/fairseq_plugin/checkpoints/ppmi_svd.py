"""PPMI-SVD initialization: a checkpoint to start pre-training from, computed from token co-occurrences.

Which tokens occur together is what a language model learns first. Gradient descent learns it slowly; counting
is fast. Co-occurrences in binarized text are counted within a window, weighted by positive pointwise mutual
information (PPMI), and factorized by a truncated SVD (Levy & Goldberg 2014, sections 3.1 and 4.3, with the
square root of the singular values as in the symmetric variant of section 4.3). The factors, centred and
scaled to the standard deviation of the model's own initialization, become the token embeddings.

The other weights are initialized so that these embeddings have an effect before any training:

- the output bias is the logarithm of the token frequencies;
- the LM head is nearly linear, so that scores are nearly dot products of embeddings and normalized features;
- learned positions are sinusoids in the last D of the C dimensions, where token embeddings are zero;
- in the first layer, all heads but two average the context; the last two attend to the left and right
  neighbour, which the sinusoids make possible.

`roberta-small pretrain --start` takes the checkpoint. It works for masked and for left-to-right models.

    python -m roberta_small.fairseq_plugin.checkpoints.ppmi_svd data/corpus --out causal.pt \\
        --task language_modeling --arch causal_lm_small

Shapes: N tokens of the corpus, T positions, V vocabulary size, C embedding size, D size of a head.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models.roberta import RobertaModel
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.utils import set_torch_seed
from omegaconf import OmegaConf
from scipy.sparse import csr_matrix
from sklearn.utils.extmath import randomized_svd
from tqdm import tqdm

from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import atomic_open
from roberta_small.fairseq_plugin.checkpoints.loading import bare_state
from roberta_small.fairseq_plugin.tasks.datasets import load_split

POWER_ITERATIONS = 2
"""Power iterations of the randomized SVD (Halko, Martinsson & Tropp 2011)."""
PAIRS = 1 << 25
"""Token pairs counted at a time, which bounds the memory."""
MIN_COUNT = 0.1
"""Count assumed for a token that never occurs."""
DENSE_SCALE = 0.1
"""Scale of the LM head's dense layer: GELU(0.1 x) is x / 20 within 8 % for |x| < 1."""
OUTPUT_SCALE = 0.1
"""Output matrix of a linear LM head, as a multiple of the embeddings."""
BRANCH_SCALE = 0.3
"""Factor of the output of each residual branch."""
NOISE_SCALE = 0.1
"""Factor of the random weights of the first layer's attention."""
MEAN_GAIN = 1.5
"""Output gain of the averaging heads: the mean of a context is much smaller than the vector of one token."""
SHARPNESS = 1.6
"""Factor of queries and keys of the heads that attend to a neighbour."""
FASTEST, RANGE = 1.5, 300.0
"""Frequency of the fastest sinusoid, in radians per position, and its ratio to that of the slowest."""


def cooccurrences(tokens_N: np.ndarray, sentences_N: np.ndarray, vocab_size: int, window: int) -> csr_matrix:
    """How often each pair of tokens occurs within `window` positions in one sentence: symmetric (V, V).

    `tokens_N` contains token ids, `sentences_N` the number of the sentence that each token is in; both int.
    """
    counts_VV = csr_matrix((vocab_size, vocab_size))
    chunk = max(1, PAIRS // window)
    for start in tqdm(range(0, len(tokens_N), chunk), desc="co-occurrences", unit="chunk", disable=None):
        pairs = []
        for distance in range(1, window + 1):
            left = slice(start, max(start, min(start + chunk, len(tokens_N) - distance)))
            right = slice(left.start + distance, left.stop + distance)
            same = sentences_N[left] == sentences_N[right]
            pairs.append(tokens_N[left][same].astype(np.int64) * vocab_size + tokens_N[right][same])
            if not same.any():  # then no pair at a larger distance is in one sentence either
                break
        cells, times = np.unique(np.concatenate(pairs), return_counts=True)
        rows_columns = np.divmod(cells, vocab_size)
        counts_VV = counts_VV + csr_matrix((times.astype(float), rows_columns), shape=counts_VV.shape)
    return counts_VV + counts_VV.T


def ppmi(counts_VV: csr_matrix) -> csr_matrix:
    """Positive pointwise mutual information, max(0, log(n_ab * n / (n_a * n_b))), of each pair: (V, V)."""
    pairs = counts_VV.tocoo()
    totals_V = np.asarray(counts_VV.sum(axis=1)).ravel()
    value = np.log(pairs.data * totals_V.sum() / (totals_V[pairs.row] * totals_V[pairs.col]))
    positive = value > 0
    return csr_matrix((value[positive], (pairs.row[positive], pairs.col[positive])), shape=counts_VV.shape)


def embeddings(counts_VV: csr_matrix, dimensions: int, std: float, rng: np.random.Generator) -> np.ndarray:
    """Rows of the factorized PPMI matrix, float32 (V, dimensions), with mean 0 and standard deviation `std`.

    Tokens that never occur, and dimensions beyond the rank of the factorization, are random.
    """
    vocab_size = counts_VV.shape[0]
    rank = min(dimensions, vocab_size)
    vectors, values, _ = randomized_svd(ppmi(counts_VV), rank, n_iter=POWER_ITERATIONS, random_state=0)
    result = rng.standard_normal((vocab_size, dimensions)) * std
    occurs_V = np.asarray(counts_VV.sum(axis=1)).ravel() > 0
    factors = vectors[occurs_V] * np.sqrt(values)
    factors -= factors.mean(axis=0)
    result[occurs_V, :rank] = factors / factors.std() * std
    return result.astype(np.float32)


def write_checkpoint(data: Path, output: Path, window: int, flags: list[str]) -> None:
    """Write a checkpoint of an initialized model; `flags` are those of fairseq-train.

    Raises `UserError` for data or flags that do not fit.
    """
    parser = options.get_training_parser(default_task="masked_lm")
    defaults = ["--task", "masked_lm", "--arch", "roberta_small", "--tokens-per-sample", "256"]
    args = options.parse_args_and_arch(parser, [str(data), *defaults, *flags])
    cfg = convert_namespace_to_omegaconf(args)
    set_torch_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    if not isinstance(model, RobertaModel):
        raise UserError(
            f"--arch {args.arch}: PPMI-SVD initialization supports roberta_small, causal_roberta_small and "
            "causal_lm_small"
        )
    encoder = model.encoder.sentence_encoder
    if learns_positions(encoder) and cfg.model.encoder_attention_heads < 2:
        raise UserError("--encoder-attention-heads 1: PPMI-SVD initialization needs two heads or more")
    dictionary = task.source_dictionary
    dataset = load_split(str(data), ".", "train", dictionary)
    tokens_N = np.asarray(np.memmap(data / "train.bin", dtype=dataset._index.dtype, mode="r"))
    sentences_N = np.repeat(np.arange(len(dataset)), dataset.sizes)
    inner_N = tokens_N != dictionary.eos()  # of sentences
    pairs_VV = cooccurrences(tokens_N[inner_N], sentences_N[inner_N], len(dictionary), window)
    table, content = encoder.embed_tokens, content_dimensions(encoder)
    rng = np.random.default_rng(cfg.common.seed)
    factors = embeddings(pairs_VV, content, float(table.weight.detach().std()), rng)
    with torch.no_grad():
        table.weight.zero_()
        table.weight[:, :content] = torch.from_numpy(factors)
        table.weight[table.padding_idx] = 0
    initialize(model, np.bincount(tokens_N, minlength=len(dictionary)))
    if isinstance(task, MaskedLMTask):  # a masked token starts as its position only
        with torch.no_grad():
            table.weight[task.mask_idx] = 0
    state = bare_state(model.state_dict(), OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))
    with atomic_open(output, "wb") as stream:
        torch.save(state, stream)


def initialize(model: Any, counts_V: np.ndarray) -> None:
    """Initialize all weights but the token embeddings, which must be set and zero beyond the content.

    `model` is a RoBERTa or a left-to-right model of this plugin; `counts_V` contains the token frequencies.
    """
    encoder, head = model.encoder.sentence_encoder, model.encoder.lm_head
    with torch.no_grad():
        smoothed_V = np.maximum(counts_V, MIN_COUNT)
        head.bias.copy_(torch.from_numpy(np.log(smoothed_V / smoothed_V.sum()).astype(np.float32)))
        if hasattr(head, "dense"):
            head.dense.weight.copy_(DENSE_SCALE * torch.eye(head.dense.in_features))
            head.dense.bias.zero_()
        else:
            head.weight.copy_(OUTPUT_SCALE * encoder.embed_tokens.weight)
        for layer in encoder.layers:
            layer.self_attn.out_proj.weight.mul_(BRANCH_SCALE)
            layer.fc2.weight.mul_(BRANCH_SCALE)
        if learns_positions(encoder):
            # Sinusoids in the last D dimensions, on the scale of the embeddings.
            tokens, positions = encoder.embed_tokens.weight, encoder.embed_positions.weight
            content = content_dimensions(encoder)
            angles = torch.arange(len(positions))[:, None] * frequencies(tokens.shape[1] - content)
            size = math.sqrt(2) * float(tokens[:, :content].std())  # a sine's deviation is 1 / sqrt(2)
            positions.zero_()
            positions[:, content:] = size * torch.cat([angles.sin(), angles.cos()], dim=1)
            positions[encoder.embed_positions.padding_idx] = 0
        initialize_attention(encoder.layers[0].self_attn, content_dimensions(encoder))


def learns_positions(encoder: Any) -> bool:
    """Whether the position table is a parameter."""
    return isinstance(encoder.embed_positions.weight, torch.nn.Parameter)


def content_dimensions(encoder: Any) -> int:
    """Number of dimensions that token embeddings use: all but the last D if these encode the position."""
    attention = encoder.layers[0].self_attn
    return attention.embed_dim - (attention.head_dim if learns_positions(encoder) else 0)


def frequencies(dimensions: int) -> torch.Tensor:
    """Radians per position of each pair of sine and cosine, (dimensions / 2,)."""
    return FASTEST * torch.exp(-torch.linspace(0, math.log(RANGE), dimensions // 2))


def initialize_attention(attention: Any, content: int) -> None:
    """Let each head of the first layer copy D dimensions of the context.

    Every head but the last two averages all tokens, each in its own D dimensions. The last two attend to the
    left and the right neighbour and copy the first D dimensions. They need the dimensions that encode the
    position: if all dimensions are `content`, they average too.
    """
    heads, size = attention.num_heads, attention.head_dim
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj):
        projection.weight.mul_(NOISE_SCALE)
        projection.bias.zero_()
    identity, position = torch.eye(size), slice(content, None)
    offsets = {heads - 2: -1, heads - 1: 1} if content < heads * size else {}
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        copied = slice(0, size) if head in offsets else own
        attention.v_proj.weight[own, copied] += identity
        attention.out_proj.weight[copied, own] += (1.0 if head in offsets else MEAN_GAIN) * identity
        if head in offsets:
            attention.q_proj.weight[own, position] += SHARPNESS * shift(size, offsets[head])
            attention.k_proj.weight[own, position] += SHARPNESS * identity


def shift(dimensions: int, offset: int) -> torch.Tensor:
    """The matrix (D, D) that maps the sinusoids of position i to those of position i + offset."""
    angles = frequencies(dimensions) * offset
    cosines, sines = torch.diag(angles.cos()), torch.diag(angles.sin())
    return torch.cat([torch.cat([cosines, sines], dim=1), torch.cat([-sines, cosines], dim=1)])


@report_errors
def main(words: Sequence[str] | None = None) -> None:
    """Read the command line and write the checkpoint; unknown flags are fairseq-train's."""
    parser = argparse.ArgumentParser(  # not `Parser`, which refuses unknown flags
        prog="python -m roberta_small.fairseq_plugin.checkpoints.ppmi_svd",
        description="Compute initial weights for pre-training: token embeddings from PPMI and SVD, output\n"
        "biases from token frequencies, and a first layer that attends to the context.",
        epilog="Further flags (--encoder-layers, --encoder-embed-dim, --seed, ...) are fairseq-train's.\n\n"
        "example:\n  %(prog)s data/corpus --window 5 --out pretrained/start.pt",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("data", type=Path, metavar="BIN", help="folder with dict.txt, train.bin, train.idx")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="checkpoint to write")
    parser.add_argument(
        "--window", type=int, default=5, help="window size: tokens on each side (default: %(default)s)"
    )
    args, flags = parser.parse_known_args(words)
    if args.window < 1:
        raise UserError(f"--window {args.window}: must be at least 1")
    if not (args.data / "dict.txt").is_file():
        raise UserError(
            f"{args.data / 'dict.txt'}: no such file; write it with roberta-small prepare --corpus"
        )
    write_checkpoint(args.data, args.out, args.window, flags)
    print(f"written to {args.out}")


if __name__ == "__main__":
    sys.exit(main())
