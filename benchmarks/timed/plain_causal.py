"""The published left-to-right model as a plain PyTorch loop, with a clock at each update.

torch.nn.TransformerEncoder with a square mask, torch.optim.Adam, batches padded to their longest sentence,
the scores of all positions at once: the program that one writes from torch's own tutorials. Work, batches
and settings are those of the recipes causal-pretrain and causal-reference.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.sentences import fairseq_batches, read_sentences
from benchmarks.timed.clock import Clock
from benchmarks.timed.transformers_model import EOS, FIRST_LABEL, PAD
from roberta_small.common.files import atomic_write

SEED = 1
CLIP = 0.5


class PlainCausal(nn.Module):
    """Sinusoidal positions, norms after each sub-layer, a linear head for vocabulary entries or classes."""

    def __init__(self, args: argparse.Namespace, outputs: int) -> None:
        super().__init__()
        self.width = args.embed
        self.embed = nn.Embedding(args.vocabulary, args.embed)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        layer = nn.TransformerEncoderLayer(args.embed, args.heads, args.ffn, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, args.layers, enable_nested_tensor=False)
        self.head = nn.Linear(args.embed, outputs)
        angles = torch.arange(args.max_positions).unsqueeze(1) * torch.exp(
            torch.arange(0, args.embed, 2) * (-math.log(10000.0) / args.embed)
        )
        self.register_buffer("positions_PC", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))

    def features(self, tokens_BL: Tensor) -> Tensor:
        """(B, L) ids -> (B, L, C)."""
        length = tokens_BL.size(1)
        x_BLC = self.embed(tokens_BL) * math.sqrt(self.width) + self.positions_PC[:length]
        mask_LL = nn.Transformer.generate_square_subsequent_mask(length, device=tokens_BL.device)
        # What follows a pad is a pad, so that the square mask hides pads from all real tokens.
        return self.encoder(x_BLC, mask=mask_LL, is_causal=True)


def language_model_loss(model: PlainCausal, tokens_BL: Tensor) -> Tensor:
    """Mean cross-entropy of each token after the first, given those before it; padding is ignored."""
    scores_BLV = model.head(model.features(tokens_BL[:, :-1]))
    return F.cross_entropy(scores_BLV.flatten(0, 1), tokens_BL[:, 1:].flatten(), ignore_index=PAD)


def classifier_loss(model: PlainCausal, tokens_BL: Tensor, labels_B: Tensor) -> Tensor:
    """Mean cross-entropy of the classes, from the last real token of each sentence."""
    last_B = tokens_BL.ne(PAD).sum(1) - 1
    features_BLC = model.features(tokens_BL)
    return F.cross_entropy(model.head(features_BLC[torch.arange(len(last_B)), last_B]), labels_B)


def read_blocks(data: Path, size: int) -> list[np.ndarray]:
    """Blocks of `size` + 1 tokens across sentences, the last of each being the first of the next.

    `</s>` stands before the first sentence and at the end of each; the last block may be shorter.
    """
    sentences = read_sentences(data / "train", first=EOS, longest=1 << 30)
    tokens = np.concatenate([[EOS], *(ids_L[1:] for ids_L in sentences)])
    return [tokens[start : start + size + 1] for start in range(0, len(tokens) - 1, size)]


def main() -> None:
    """Train and write the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", help="JSON file to write")
    parser.add_argument("data", type=Path, help="binarized folder: of sentences and labels, or of text")
    parser.add_argument("--blocks", action="store_true", help="a language model on blocks of text")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--lr", type=float, required=True)
    for name in (
        *("layers", "embed", "ffn", "heads", "max-positions", "vocabulary", "classes"),
        *("batch-size", "updates", "warm-up"),
    ):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()

    torch.manual_seed(SEED)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.blocks:
        rows = read_blocks(args.data, args.max_positions)
        labels = None
    else:
        rows = read_sentences(args.data / "input0/train", first=EOS, longest=args.max_positions)
        named = read_sentences(args.data / "label/train", first=EOS, longest=2)
        labels = torch.tensor([int(label[1]) - FIRST_LABEL for label in named])
    model = PlainCausal(args, args.vocabulary if args.blocks else args.classes).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    clock = Clock()
    batches = fairseq_batches(
        len(rows),
        batch_size=args.batch_size,
        seed=SEED,
        updates=args.updates,
        sizes=np.array([len(row) for row in rows]) if args.blocks else None,
    )
    for batch in batches:
        sentences = [torch.from_numpy(rows[i]) for i in batch]
        clock.start(sum(len(sentence) - args.blocks for sentence in sentences))
        tokens_BL = nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=PAD).to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.precision == "bf16"):
            loss = (
                language_model_loss(model, tokens_BL)
                if labels is None
                else classifier_loss(model, tokens_BL, labels[batch].to(device))
            )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        clock.loss(loss.item())
    atomic_write(args.output, json.dumps(clock.result(args.warm_up)))


if __name__ == "__main__":
    main()
