"""`LanguageModel`: a left-to-right checkpoint that completes sentences.

A sentence begins with `</s>`, as fairseq's task `language_modeling` has it in training, and ends with the
next one.

Shapes: B sentences, L tokens of the longest, V types.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from torch import Tensor

import fairseq_plugin  # noqa: F401  registers what a checkpoint names
from common.errors import UserError
from common.files import sha256
from fairseq_plugin.checkpoints.loading import load_checkpoint
from fairseq_plugin.models.causal import CausalRobertaSmall, without_mask
from fairseq_plugin.models.causal_cache import Cache, next_scores
from fairseq_plugin.tasks.sentence_classification import load_dictionary
from preprocess.readers.lines import Block
from preprocess.tokenizer import Encoder

from .network import find_device, pad
from .runs import Run, find_run
from .sources import Place, data_folder, sentencepiece_model_of

WORD_START = "\u2581"  # SentencePiece's mark of a space
BATCH = 32


@dataclass(frozen=True)
class Completion:
    """What follows a prompt.

    Attributes:
        prompt: as it was given.
        continuation: the text after it, with the space that begins it, if any.
        tokens: ids of the continuation, without `</s>`.
        ended: whether the sentence came to its end, `</s>`; False where the length ran out.
    """

    prompt: str
    continuation: str
    tokens: list[int]
    ended: bool

    @property
    def text(self) -> str:
        """The whole sentence."""
        return (self.prompt + self.continuation).strip()


class LanguageModel:
    """A checkpoint of `causal_lm_small` or `causal_roberta_small`, its dictionary and SentencePiece model."""

    def __init__(
        self, model: CausalRobertaSmall, dictionary: Dictionary, encoder: Encoder, device: str = "auto"
    ) -> None:
        self.device = find_device(device)
        self.model = model.to(self.device).eval()
        self.dictionary = dictionary
        self.encoder = encoder

    @classmethod
    def from_run(
        cls,
        path: str | os.PathLike[str],
        *,
        data: Place = None,
        dictionary: Place = None,
        sentencepiece_model: Place = None,
        normalize_apostrophes: bool = False,
        device: str = "auto",
        precision: str | None = None,
    ) -> LanguageModel:
        """The language model of a run folder of pretrain.sh, or of a checkpoint file.

        Its dictionary lies beside it or in its data folder, whose `preprocess.json` names the SentencePiece
        model and how apostrophes are read, unless they are given.

        Raises `UserError` for whatever is missing or does not belong to it.
        """
        run = find_run(path)
        state = load_checkpoint(run.checkpoint)
        check_kind(run.checkpoint, state)
        folder = data_folder(run, None, data or (None if run.manifest else recorded_data(state)))
        folder = folder.told(run.checkpoint, normalize_apostrophes)
        dictionary_path = find_dictionary(run, folder.path, dictionary)
        symbols = without_mask(load_dictionary(dictionary_path))
        model = build(run.checkpoint, state, symbols)
        if precision is not None:
            model.args.precision = precision
        pieces = sentencepiece_model_of(folder, sentencepiece_model)
        return cls(
            model,
            symbols,
            Encoder(str(pieces), str(dictionary_path), normalize_apostrophes=folder.normalize_apostrophes),
            device,
        )

    def complete(
        self,
        prompts: Sequence[str],
        *,
        length: int,
        sampling: Sampling | None = None,
        seed: int = 1,
        first: int = 1,
        batch_size: int = BATCH,
    ) -> list[Completion]:
        """Continue each prompt by at most `length` pieces; greedily where `sampling` is None.

        An empty prompt begins a sentence, and text without a known piece is read as `<unk>`. A completion
        depends on its prompt, its number (counted from `first`) and `seed`, not on what else is in its batch.
        It also ends where the model has no more positions. Raises `UserError` for a prompt that is too long.
        """
        rows = [self.encode(prompt, number) for number, prompt in enumerate(prompts, start=first)]
        # Prompts of one length together: little padding.
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        found: dict[int, Completion] = {}
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            choose = chooser([first + i for i in batch], sampling, seed)
            continued = self._continue([rows[i] for i in batch], length, choose)
            for i, tokens in zip(batch, continued, strict=True):
                found[i] = self._completion(prompts[i], tokens)
        return [found[i] for i in range(len(rows))]

    def encode(self, prompt: str, number: int = 1) -> list[int]:
        """`</s>` and the prompt's pieces; a line break counts as a space."""
        try:
            line = prompt.replace("\n", " ").encode() + b"\n"
        except UnicodeEncodeError as error:
            raise UserError(f"prompt {number}: a lone surrogate ({error.reason}); repair the text") from None
        ids = self.encoder(Block(f"prompt {number}", 1, line, len(line))).ids
        row = [self.dictionary.eos(), *ids[:-1].tolist()]
        if len(row) > self.model.args.max_positions:
            raise UserError(
                f"prompt {number}: {len(row) - 1} pieces, but the model has {self.model.args.max_positions} "
                "positions, one of which begins the sentence; shorten it"
            )
        return row

    @torch.inference_mode()
    def _continue(
        self, rows: list[list[int]], length: int, choose: Callable[[Tensor], Tensor]
    ) -> list[list[int]]:
        """New tokens of each row, `</s>` included where it came."""
        most = self.model.args.max_positions
        lengths_B = torch.tensor([len(row) for row in rows], device=self.device)
        padded = pad([np.array(row) for row in rows], self.dictionary.pad())
        tokens_BN = torch.from_numpy(padded).to(self.device)
        positions_BN = torch.arange(tokens_BN.size(1), device=self.device).expand_as(tokens_BN)
        cache = Cache(min(most, tokens_BN.size(1) + length))
        new_B: list[list[int]] = [[] for _ in rows]
        open_B = torch.ones(len(rows), dtype=torch.bool, device=self.device)
        real_B = lengths_B
        for _ in range(length):
            scores_BV = self.forbid(next_scores(self.model, tokens_BN, positions_BN, real_B, cache))
            chosen_B = choose(scores_BV)
            for new, token, is_open in zip(new_B, chosen_B.tolist(), open_B.tolist(), strict=True):
                if is_open:
                    new.append(token)
            open_B &= chosen_B.ne(self.dictionary.eos()) & lengths_B.lt(most)
            if not open_B.any():
                break
            # Finished sentences stay in the batch, at their last place.
            tokens_BN, positions_BN = chosen_B[:, None], lengths_B.clamp(max=most - 1)[:, None]
            lengths_B = lengths_B + open_B
            real_B = torch.ones_like(lengths_B)
        return new_B

    def forbid(self, scores_BV: Tensor) -> Tensor:
        """Scores without those of `<s>`, `<pad>` and `<unk>`, which are no text; in place."""
        scores_BV[:, [self.dictionary.bos(), self.dictionary.pad(), self.dictionary.unk()]] = -torch.inf
        return scores_BV

    def _completion(self, prompt: str, tokens: list[int]) -> Completion:
        ended = bool(tokens) and tokens[-1] == self.dictionary.eos()
        tokens = tokens[:-1] if ended else tokens
        text = "".join(self.dictionary[token] for token in tokens).replace(WORD_START, " ")
        return Completion(prompt, text, tokens, ended)


def chooser(numbers: Sequence[int], sampling: Sampling | None, seed: int) -> Callable[[Tensor], Tensor]:
    """Scores (B, V) -> pieces (B,); the prompt of each number has random numbers of its own."""
    if sampling is None:
        return best
    streams = [np.random.default_rng([seed, number]) for number in numbers]

    def choose(scores_BV: Tensor) -> Tensor:
        uniform = [stream.random() for stream in streams]
        return draw(scores_BV, sampling, torch.tensor(uniform, dtype=torch.float64, device=scores_BV.device))

    return choose


def recorded_data(state: dict[str, Any]) -> Path | None:
    """The data folder that a checkpoint's content names, where it is still there."""
    recorded = ((state.get("cfg") or {}).get("task") or {}).get("data")
    return Path(recorded) if recorded and Path(recorded).is_dir() else None


def find_dictionary(run: Run, data: Path, given: Place = None) -> Path:
    """The dict.txt that is given, that lies beside the checkpoint, or in the data folder.

    Raises `UserError` where there is none, and where it is not the one that the run recorded.
    """
    candidates = [Path(given)] if given else [run.folder / "dict.txt", data / "dict.txt"]
    path = next((path for path in candidates if path.is_file()), None)
    remedy = f"name with --dict the one that {run.checkpoint} was trained with"
    if path is None:
        raise UserError(f"{candidates[0]}: no such file; {remedy}")
    recorded = (run.manifest or {}).get("data", {}).get("sha256", {}).get("dict.txt")
    if recorded not in (None, sha256(path)):
        raise UserError(f"{path}: not the dictionary of the run; {remedy}")
    return path


def check_kind(path: Path, state: dict[str, Any]) -> type[CausalRobertaSmall]:
    """The class of a checkpoint's model; raises `UserError` where that is no left-to-right language model."""
    architecture = getattr(arguments_of(state), "arch", None) or getattr(arguments_of(state), "_name", None)
    kind = ARCH_MODEL_REGISTRY.get(architecture)
    if kind is None or not issubclass(kind, CausalRobertaSmall):
        raise UserError(f"{path}: a model of architecture '{architecture}'; only left-to-right ones complete")
    if not any(key.startswith("encoder.lm_head.") for key in state["model"]):
        raise UserError(f"{path}: a classifier, which has no language-model head; give what it started from")
    return kind


def arguments_of(state: dict[str, Any]) -> argparse.Namespace:
    """The model's, as fairseq builds it from them."""
    found = (state.get("cfg") or {}).get("model") or state.get("args") or {}
    return argparse.Namespace(**(vars(found) if hasattr(found, "__dict__") else found))


def build(path: Path, state: dict[str, Any], dictionary: Dictionary) -> CausalRobertaSmall:
    """The model of a checkpoint's content; raises `UserError` where it is none or its weights do not fit."""
    kind, arguments = check_kind(path, state), arguments_of(state)
    with torch.random.fork_rng(devices=[]):
        model = kind.build_model(arguments, argparse.Namespace(source_dictionary=dictionary))
    wanted = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    found = {key: tuple(value.shape) for key, value in state["model"].items()}
    if wanted != found:
        key = min(key for key in wanted | found if wanted.get(key) != found.get(key))
        raise UserError(
            f"{path}: its weights do not fit the dictionary ({key} is {found.get(key, 'missing')} instead of "
            f"{wanted.get(key, 'absent')}); name the one it was trained with (--dict)"
        )
    model.load_state_dict(state["model"])
    return model


# --- Which piece comes next, given the scores of all: the best, or one drawn at random.


@dataclass(frozen=True)
class Sampling:
    """How a piece is drawn; the restrictions apply one after the other, `top_k` first.

    Attributes:
        temperature: scores are divided by it; below 1 likely pieces become likelier still.
        top_k: only the k most probable pieces; None for all.
        top_p: only the most probable pieces that together reach p (Holtzman et al. 2020, section 3.1).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise UserError(
                f"--temperature {self.temperature:g}: give a number above 0; greedy is without --sample"
            )
        if not 0 < self.top_p <= 1:
            raise UserError(f"--top-p {self.top_p:g}: give more than 0 and at most 1")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"--top-k {self.top_k}: give at least 1")


def best(scores_BV: Tensor) -> Tensor:
    """The piece with the highest score, int64 (B,); the first of equal ones."""
    return scores_BV.argmax(dim=-1)


def draw(scores_BV: Tensor, sampling: Sampling, uniform_B: Tensor) -> Tensor:
    """A piece of each sentence, int64 (B,); `uniform_B`, float64 in [0, 1), decides which.

    Pieces stand in the order of their probability, and the first is drawn at which their sum exceeds
    `uniform_B`: one random number gives one piece, whatever else is in the batch.
    """
    ordered_BV, order_BV = (scores_BV / sampling.temperature).sort(dim=-1, descending=True, stable=True)
    if sampling.top_k is not None:
        ordered_BV[:, sampling.top_k :] = -torch.inf
    probs_BV = ordered_BV.double().softmax(dim=-1)
    before_BV = probs_BV.cumsum(dim=-1) - probs_BV
    probs_BV = probs_BV.masked_fill(before_BV >= sampling.top_p, 0.0)
    sums_BV = probs_BV.cumsum(dim=-1)
    chosen_B1 = torch.searchsorted(sums_BV, uniform_B[:, None] * sums_BV[:, -1:], right=True)
    # Rounding must not choose a piece beyond the last that has a probability.
    last_B1 = probs_BV.gt(0).sum(dim=-1, keepdim=True) - 1
    return order_BV.gather(1, chosen_B1.minimum(last_B1)).squeeze(1)
