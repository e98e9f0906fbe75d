"""Weights to start pre-training from: PPMI of token co-occurrences, factorized by SVD.

The first thing that a masked language model learns is slow to learn by gradients and quick to count:
which tokens occur together. Here the co-occurrences of binarized text are counted within a window,
weighted by positive pointwise mutual information, and factorised by a truncated SVD (Levy & Goldberg
2014, sections 3.1 and 4.3; the square root of the singular values as in section 4.3's symmetric
variant). The result, centred and scaled to what the model initializes, becomes its embedding matrix;
`first_weights.py` writes what makes use of it. `pretrain.sh --start` takes the checkpoint. Models that read
from left to right can start in the same way.

    python -m fairseq_plugin ppmi-svd data/corpus --output warm.pt
    python -m fairseq_plugin ppmi-svd data/corpus --window 40 --output warm.pt --encoder-layers 2
    python -m fairseq_plugin ppmi-svd data/corpus --output causal.pt \\
        --task language_modeling --arch causal_lm_small
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models.roberta import RobertaModel
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.utils import set_torch_seed
from omegaconf import OmegaConf
from scipy.sparse import csr_matrix
from sklearn.utils.extmath import randomized_svd
from tqdm import tqdm

from common.cli import deprecation
from common.errors import UserError, report_errors
from common.files import atomic_open

from ..tasks.datasets import load_split

POWER_ITERATIONS = 2
"""Of the randomised SVD (Halko, Martinsson & Tropp 2011): the embeddings need no more."""
PAIRS = 1 << 25
"""Pairs counted at a time: bounds the memory that counting takes."""


def cooccurrences(tokens: np.ndarray, sentences: np.ndarray, types: int, window: int) -> csr_matrix:
    """How often each pair of types stands within `window` tokens in one sentence: symmetric (V, V).

    `tokens` int (N,) and `sentences` int (N,), the number of the sentence that each token is in.
    """
    counts = csr_matrix((types, types))
    chunk = max(1, PAIRS // window)
    for start in tqdm(range(0, len(tokens), chunk), desc="co-occurrences", unit="chunk", disable=None):
        pairs = []
        for distance in range(1, window + 1):
            left = slice(start, max(start, min(start + chunk, len(tokens) - distance)))
            right = slice(left.start + distance, left.stop + distance)
            same = sentences[left] == sentences[right]
            pairs.append(tokens[left][same].astype(np.int64) * types + tokens[right][same])
            if not same.any():  # nor will any pair that stands farther apart be of one sentence
                break
        numbers, times = np.unique(np.concatenate(pairs), return_counts=True)
        cells = np.divmod(numbers, types)
        counts = counts + csr_matrix((times.astype(float), cells), shape=counts.shape)
    return counts + counts.T


def ppmi(counts: csr_matrix) -> csr_matrix:
    """Positive pointwise mutual information, max(0, log(n_ab * n / (n_a * n_b))), of each pair."""
    pairs = counts.tocoo()
    occurrences = np.asarray(counts.sum(axis=1)).ravel()
    value = np.log(pairs.data * occurrences.sum() / (occurrences[pairs.row] * occurrences[pairs.col]))
    kept = value > 0
    return csr_matrix((value[kept], (pairs.row[kept], pairs.col[kept])), shape=counts.shape)


def embeddings(counts: csr_matrix, dimensions: int, std: float, rng: np.random.Generator) -> np.ndarray:
    """Rows of the factorised PPMI matrix, float32 (V, C), with mean 0 and standard deviation `std`.

    Types that never occur, and dimensions beyond what the matrix has, are random.
    """
    types = counts.shape[0]
    rank = min(dimensions, types)
    vectors, values, _ = randomized_svd(ppmi(counts), rank, n_iter=POWER_ITERATIONS, random_state=0)
    result = rng.standard_normal((types, dimensions)) * std
    seen = np.asarray(counts.sum(axis=1)).ravel() > 0
    factors = vectors[seen] * np.sqrt(values)
    factors -= factors.mean(axis=0)
    result[seen, :rank] = factors / factors.std() * std
    return result.astype(np.float32)


def count_split(data: Path, dictionary: Dictionary, window: int) -> tuple[np.ndarray, csr_matrix]:
    """Of DATA/train: occurrences (V,) of each type, and co-occurrences without the `</s>` of sentences."""
    dataset = load_split(str(data), ".", "train", dictionary)
    tokens = np.asarray(np.memmap(data / "train.bin", dtype=dataset._index.dtype, mode="r"))
    sentences = np.repeat(np.arange(len(dataset)), dataset.sizes)
    words = tokens != dictionary.eos()
    pairs = cooccurrences(tokens[words], sentences[words], len(dictionary), window)
    return np.bincount(tokens, minlength=len(dictionary)), pairs


def warm_start(data: Path, output: Path, window: int, flags: list[str]) -> None:
    """Write a checkpoint of a model with counted embeddings; `flags` are fairseq-train's."""
    parser = options.get_training_parser(default_task="masked_lm")
    words = [
        str(data),
        "--task",
        "masked_lm",
        "--arch",
        "roberta_small",
        "--tokens-per-sample",
        "256",
        *flags,
    ]
    args = options.parse_args_and_arch(parser, words)
    cfg = convert_namespace_to_omegaconf(args)
    set_torch_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    if not isinstance(model, RobertaModel):
        raise UserError(
            f"--arch {args.arch}: first weights are for roberta_small, causal_roberta_small and "
            "causal_lm_small"
        )
    encoder = model.encoder.sentence_encoder
    if learns_positions(encoder) and cfg.model.encoder_attention_heads < 2:
        raise UserError("--encoder-attention-heads 1: the first weights need two heads or more")
    occurrences_V, pairs = count_split(data, task.source_dictionary, window)
    table, content = encoder.embed_tokens, content_dimensions(encoder)
    size = float(table.weight.std())
    counted = embeddings(pairs, content, size, np.random.default_rng(cfg.common.seed))
    with torch.no_grad():
        table.weight.zero_()
        table.weight[:, :content] = torch.from_numpy(counted)
        table.weight[table.padding_idx] = 0
    write_weights(model, occurrences_V)
    if isinstance(task, MaskedLMTask):  # a masked token starts as its position and nothing else
        with torch.no_grad():
            table.weight[task.mask_idx] = 0
    state = {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": model.state_dict(),
        # fairseq looks at these two of every checkpoint, even where it resets them.
        "optimizer_history": [{"criterion_name": "", "lr_scheduler_state": {}, "num_updates": 0}],
        "extra_state": {"train_iterator": {"epoch": 1}},
    }
    with atomic_open(output, "wb") as stream:
        torch.save(state, stream)


@report_errors
def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugin ppmi-svd",
        description="Write a checkpoint to start pre-training from: token embeddings by PPMI and SVD,\n"
        "output biases from token frequencies, and a first layer that attends to the context.",
        epilog="Further flags (--encoder-layers, --encoder-embed-dim, --seed, ...) are fairseq-train's.\n\n"
        "example:\n  python -m fairseq_plugin ppmi-svd data/corpus --window 5 --out pretrained/start.pt",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("data", type=Path, metavar="BIN", help="folder with dict.txt, train.bin, train.idx")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="checkpoint to write")
    parser.add_argument("--window", type=int, default=5, help="tokens to each side (default: %(default)s)")
    words = list(sys.argv[1:] if argv is None else argv)
    if "--output" in words:
        deprecation("--output is deprecated, use --out")
        words[words.index("--output")] = "--out"
    args, flags = parser.parse_known_args(words)
    if args.window < 1:
        raise UserError(f"--window {args.window}: must be at least 1")
    if not (args.data / "dict.txt").is_file():
        raise UserError(
            f"{args.data / 'dict.txt'}: no such file; write it with preprocess binarize --only-source"
        )
    warm_start(args.data, args.out, args.window, flags)
    print(f"written to {args.out}")
    return 0


LINEAR = 0.1
"""What the output transformation scales its input by: GELU(0.1 x) is x / 20 within 8 % for |x| < 1."""
OUTPUT = 0.1
"""Part of the embeddings that a linear output layer starts as."""
BRANCH = 0.3
"""Part of a residual branch that is added."""
NOISE = 0.1
"""Part of the random weights that the first layer's attention keeps."""
MEAN_GAIN = 1.5
"""The mean of a context is much smaller than the vector of one token: the mean heads' output gain."""
SHARPNESS = 1.6
"""Of the heads that look at a neighbour: the factor of queries and of keys."""
FASTEST, RANGE = 1.5, 300.0
"""Radians a position of the fastest sinusoid, and how many times slower the slowest one is."""
RARE = 0.1
"""Occurrences of a token that never occurs."""


def content_dimensions(encoder: Any) -> int:
    """Dimensions of the embeddings that are the tokens' own: all but the last D, which tell positions.

    Fixed positions leave none to themselves.
    """
    attention = encoder.layers[0].self_attn
    return attention.embed_dim - (attention.head_dim if learns_positions(encoder) else 0)


def learns_positions(encoder: Any) -> bool:
    """Whether the table of positions is a weight."""
    return isinstance(encoder.embed_positions.weight, torch.nn.Parameter)


def write_weights(model: Any, occurrences_V: np.ndarray) -> None:
    """Write the first weights into fairseq's RoBERTa or one that reads from left to right.

    Their embeddings are given and use the first `content_dimensions`. `occurrences_V` counts each type.
    """
    encoder, head = model.encoder.sentence_encoder, model.encoder.lm_head
    with torch.no_grad():
        head.bias.copy_(torch.from_numpy(log_shares(occurrences_V)))
        if hasattr(head, "dense"):
            head.dense.weight.copy_(LINEAR * torch.eye(head.dense.in_features))
            head.dense.bias.zero_()
        else:
            head.weight.copy_(OUTPUT * encoder.embed_tokens.weight)
        for layer in encoder.layers:
            layer.self_attn.out_proj.weight.mul_(BRANCH)
            layer.fc2.weight.mul_(BRANCH)
        if learns_positions(encoder):
            write_positions(encoder)
        copy_context(encoder.layers[0].self_attn, content_dimensions(encoder))


def log_shares(occurrences_V: np.ndarray) -> np.ndarray:
    """Logarithm of each type's share of all occurrences, float32 (V,)."""
    counts_V = np.maximum(occurrences_V, RARE)
    return np.log(counts_V / counts_V.sum()).astype(np.float32)


def write_positions(encoder: Any) -> None:
    """Sinusoids in the last D dimensions of the position table, as large as the embeddings there would be."""
    pieces, positions = encoder.embed_tokens.weight, encoder.embed_positions.weight
    content = content_dimensions(encoder)
    angles = torch.arange(len(positions))[:, None] * frequencies(pieces.shape[1] - content)
    size = math.sqrt(2) * float(pieces[:, :content].std())  # a sine has the standard deviation 1 / sqrt(2)
    positions.zero_()
    positions[:, content:] = size * torch.cat([angles.sin(), angles.cos()], dim=1)
    positions[encoder.embed_positions.padding_idx] = 0


def frequencies(dimensions: int) -> torch.Tensor:
    """Radians a position of each sine and cosine pair, (dimensions / 2,)."""
    return FASTEST * torch.exp(-torch.linspace(0, math.log(RANGE), dimensions // 2))


def copy_context(attention: Any, content: int) -> None:
    """Let each head of the first layer copy D dimensions of the context.

    All but the last two of H heads take the mean of all tokens, each in its own D dimensions; the two
    look at the left and the right neighbour, in the first D. They need the dimensions that tell positions:
    where all are `content`, they take the mean as well.
    """
    heads, size = attention.num_heads, attention.head_dim
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj):
        projection.weight.mul_(NOISE)
        projection.bias.zero_()
    identity, place = torch.eye(size), slice(content, None)
    offsets = {heads - 2: -1, heads - 1: 1} if content < heads * size else {}
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        copied = slice(0, size) if head in offsets else own
        attention.v_proj.weight[own, copied] += identity
        attention.out_proj.weight[copied, own] += (1.0 if head in offsets else MEAN_GAIN) * identity
        if head in offsets:
            attention.q_proj.weight[own, place] += SHARPNESS * shift(size, offsets[head])
            attention.k_proj.weight[own, place] += SHARPNESS * identity


def shift(dimensions: int, offset: int) -> torch.Tensor:
    """The matrix (D, D) that turns the sinusoids of position i into those of position i + offset."""
    angles = frequencies(dimensions) * offset
    cosines, sines = torch.diag(angles.cos()), torch.diag(angles.sin())
    return torch.cat([torch.cat([cosines, sines], dim=1), torch.cat([-sines, cosines], dim=1)])


if __name__ == "__main__":
    sys.exit(main())
