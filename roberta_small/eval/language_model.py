"""`LanguageModel`: text generation with a left-to-right checkpoint.

As in training with fairseq's task `language_modeling`, a sentence begins with `</s>` and ends with the next
`</s>`.

The next token is the one with the highest score, or is drawn at random.

Shapes: B sentences, N new tokens per step, V vocabulary entries.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from roberta_small.common.errors import UserError
from roberta_small.eval.base import Model
from roberta_small.eval.model import open_model
from roberta_small.eval.network import build_language_model, find_device
from roberta_small.eval.options import Sampling
from roberta_small.eval.precision import FP32
from roberta_small.eval.texts import check_texts, line_of, pad
from roberta_small.fairseq_plugin.models.causal import Cache, next_scores
from roberta_small.preprocess.dictionary import BOS, EOS, PAD, UNK, WORD_START
from roberta_small.preprocess.readers.lines import Block
from roberta_small.preprocess.tokenization.encoder import Encoder

BATCH = 32


@dataclass(frozen=True)
class Completion:
    """The text generated for a prompt.

    Attributes:
        prompt: the prompt as given.
        continuation: the text after it, including a leading space.
        tokens: ids of the continuation, without `</s>`.
        ended: whether `</s>` was generated, not only the maximum length reached.
    """

    prompt: str
    continuation: str
    tokens: list[int]
    ended: bool

    @property
    def text(self) -> str:
        """Prompt and continuation."""
        return (self.prompt + self.continuation).strip()


class LanguageModel:
    """A checkpoint of `causal_lm_small` or `causal_roberta_small`, its dictionary and SentencePiece model."""

    def __init__(self, model: Model) -> None:
        """Build the network; `UserError` if it is no left-to-right model, or a file does not belong to it."""
        model.checkpoint.language_model_class()
        encoder = model.encoder
        if not isinstance(encoder, Encoder):
            raise UserError(
                f"{model.tokenizer.transformers}: a Transformers tokenizer; pass --sentencepiece-model"
            )
        self.model = model
        self.encoder = encoder
        self.device = find_device(model.given.device)
        precision = FP32 if model.precision is None else model.precision.value
        self.network = build_language_model(model.checkpoint, self.device, precision)

    @classmethod
    def from_run(cls, path: str | os.PathLike[str], **options: Any) -> LanguageModel:
        """The language model of a run folder or a checkpoint file; options and errors as for `open_model`."""
        return cls(open_model(path, text=True, **options))

    def generate(
        self,
        prompts: Sequence[str],
        *,
        length: int,
        sampling: Sampling | None = None,
        seed: int = 1,
        first: int = 1,
        batch_size: int = BATCH,
    ) -> list[Completion]:
        """Continue each prompt by at most `length` tokens; greedily if `sampling` is None.

        An empty prompt starts a sentence; unknown text is read as `<unk>`. A completion depends on its
        prompt, on the prompt's number (counted from `first`) and on `seed`, not on the rest of the batch.
        It ends at the model's last position. Raises `UserError` for a prompt that is too long, and
        `TypeError` for one string instead of several prompts.
        """
        check_texts(prompts)
        rows = [self.encode(prompt, number) for number, prompt in enumerate(prompts, start=first)]
        # Batches of similar length have little padding.
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        completions: dict[int, Completion] = {}
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            # Each prompt number has its own random numbers.
            streams = [np.random.default_rng([seed, first + i]) for i in batch]
            continued = self._continue([rows[i] for i in batch], length, sampling, streams)
            for i, tokens in zip(batch, continued, strict=True):
                completions[i] = completion_of(prompts[i], tokens, self.encoder.dictionary.symbols)
        return [completions[i] for i in range(len(rows))]

    def encode(self, prompt: str, number: int = 1) -> list[int]:
        """The ids of `</s>` and the prompt; a line break is read as a space."""
        line = line_of(prompt, f"prompt {number}")
        row = [EOS, *self.encoder(Block(f"prompt {number}", 1, line, len(line))).ids[:-1].tolist()]
        if len(row) > self.network.args.max_positions:
            raise UserError(
                f"prompt {number}: {len(row) - 1} tokens; the model has {self.network.args.max_positions} "
                "positions including </s>; shorten the prompt"
            )
        return row

    @torch.inference_mode()
    def _continue(
        self,
        rows: list[list[int]],
        length: int,
        sampling: Sampling | None,
        streams: Sequence[np.random.Generator],
    ) -> list[list[int]]:
        """Generate the new tokens of each row, including `</s>` if it is generated."""
        most = self.network.args.max_positions
        lengths_B = torch.tensor([len(row) for row in rows], device=self.device)
        tokens_BN = torch.from_numpy(pad([np.array(row) for row in rows])).to(self.device)
        positions_BN = torch.arange(tokens_BN.size(1), device=self.device).expand_as(tokens_BN)
        cache = Cache(min(most, tokens_BN.size(1) + length))
        new_B: list[list[int]] = [[] for _ in rows]
        open_B = torch.ones(len(rows), dtype=torch.bool, device=self.device)
        real_B = lengths_B
        for _ in range(length):
            scores_BV = next_scores(self.network, tokens_BN, positions_BN, real_B, cache)
            scores_BV[:, [BOS, PAD, UNK]] = -torch.inf  # never generated
            if sampling is None:
                chosen_B = scores_BV.argmax(dim=-1)  # the first one on a tie
            else:
                uniform_B = torch.tensor([stream.random() for stream in streams], dtype=torch.float64)
                chosen_B = sample(scores_BV, sampling, uniform_B.to(scores_BV.device))
            for new, token, is_open in zip(new_B, chosen_B.tolist(), open_B.tolist(), strict=True):
                if is_open:
                    new.append(token)
            open_B &= chosen_B.ne(EOS) & lengths_B.lt(most)
            if not open_B.any():
                break
            # Finished sentences stay in the batch at their last position.
            tokens_BN, positions_BN = chosen_B[:, None], lengths_B.clamp(max=most - 1)[:, None]
            lengths_B = lengths_B + open_B
            real_B = torch.ones_like(lengths_B)
        return new_B


def completion_of(prompt: str, tokens: list[int], symbols: Sequence[str]) -> Completion:
    """The text of generated tokens, `</s>` included if it was generated; `symbols` are those of the ids."""
    ended = bool(tokens) and tokens[-1] == EOS
    tokens = tokens[:-1] if ended else tokens
    text = "".join(symbols[token] for token in tokens).replace(WORD_START, " ")
    return Completion(prompt, text, tokens, ended)


def sample(scores_BV: Tensor, sampling: Sampling, uniform_B: Tensor) -> Tensor:
    """Sample a token for each sentence, int64 (B,), from random numbers `uniform_B`, float64 in [0, 1).

    Inverse transform sampling: tokens are sorted by probability, and the first one whose cumulative
    probability exceeds `uniform_B` is returned. The result does not depend on the rest of the batch.
    """
    ordered_BV, order_BV = (scores_BV / sampling.temperature).sort(dim=-1, descending=True, stable=True)
    if sampling.top_k is not None:
        ordered_BV[:, sampling.top_k :] = -math.inf
    probs_BV = ordered_BV.double().softmax(dim=-1)
    before_BV = probs_BV.cumsum(dim=-1) - probs_BV
    probs_BV = probs_BV.masked_fill(before_BV >= sampling.top_p, 0.0)
    sums_BV = probs_BV.cumsum(dim=-1)
    chosen_B1 = torch.searchsorted(sums_BV, uniform_B[:, None] * sums_BV[:, -1:], right=True)
    # Rounding must not select a token of probability 0.
    last_B1 = probs_BV.gt(0).sum(dim=-1, keepdim=True) - 1
    return order_BV.gather(1, chosen_B1.minimum(last_B1)).squeeze(1)
