"""`LanguageModel`: text generation with a left-to-right checkpoint.

As in training with fairseq's task `language_modeling`, a sentence begins with `</s>` and ends with the next
`</s>`.

Shapes: B sentences, N new tokens per step, V vocabulary entries.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

import roberta_small.fairseq_plugin  # noqa: F401  registers models and tasks
from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from roberta_small.eval.batches import pad
from roberta_small.eval.loading.network import WithoutInitialization, find_device, load_weights
from roberta_small.eval.loading.precision import DEFAULT, Precision, choose_precision, recorded_precision
from roberta_small.eval.loading.runs import RunCheckpoint, find_run
from roberta_small.eval.loading.training_files import OptionalPath, find_data_folder, find_sentencepiece_model
from roberta_small.eval.sampling import Sampling, make_chooser
from roberta_small.eval.texts import check_texts
from roberta_small.fairseq_plugin.checkpoints.architecture import arch_name, model_arguments
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from roberta_small.fairseq_plugin.models.causal import CausalRobertaSmall, without_mask
from roberta_small.fairseq_plugin.models.causal_cache import Cache, next_scores
from roberta_small.fairseq_plugin.tasks.sentence_classification import load_dictionary
from roberta_small.preprocess.dictionary import WORD_START
from roberta_small.preprocess.readers.lines import Block
from roberta_small.preprocess.tokenizer import Encoder

if TYPE_CHECKING:
    from fairseq.data import Dictionary

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

    def __init__(
        self,
        model: CausalRobertaSmall,
        dictionary: Dictionary,
        encoder: Encoder,
        device: str = "auto",
        precision: Precision = DEFAULT,
    ) -> None:
        self.device = find_device(device)
        self.precision = precision
        self.model = model.to(self.device).eval()
        self.model.args.precision = precision.value
        self.dictionary = dictionary
        self.encoder = encoder

    @classmethod
    def from_run(
        cls,
        path: str | os.PathLike[str],
        *,
        data: OptionalPath = None,
        dictionary: OptionalPath = None,
        sentencepiece_model: OptionalPath = None,
        normalize_apostrophes: bool = False,
        device: str = "auto",
        precision: str | None = None,
    ) -> LanguageModel:
        """The language model of a run folder of pretrain.sh, or of a checkpoint file.

        By default, the dictionary is the one in the checkpoint's folder or in the data folder; the
        SentencePiece model and the treatment of apostrophes are those recorded in `preprocess.json`, and the
        precision is that of training (`choose_precision`).

        Raises `UserError` for a file that is missing or does not belong to the checkpoint.
        """
        run = find_run(path)
        state = load_checkpoint(run.checkpoint, optimizer=False)
        find_model_class(run.checkpoint, state)
        folder = find_data_folder(run, None, data or (None if run.manifest else recorded_data(state)))
        folder = folder.with_apostrophes(run.checkpoint, normalize_apostrophes)
        dictionary_path = _find_dictionary(run, folder.path, dictionary)
        symbols = without_mask(load_dictionary(dictionary_path))
        model = build_model(run.checkpoint, state, symbols)
        recorded = recorded_precision(model_arguments(state), state)
        model_path = find_sentencepiece_model(folder, sentencepiece_model)
        return cls(
            model,
            symbols,
            Encoder.from_files(
                str(model_path), str(dictionary_path), normalize_apostrophes=folder.normalize_apostrophes
            ),
            device,
            choose_precision(precision, run, recorded),
        )

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
            choose = make_chooser([first + i for i in batch], sampling, seed)
            continued = self._continue([rows[i] for i in batch], length, choose)
            for i, tokens in zip(batch, continued, strict=True):
                completions[i] = self._completion(prompts[i], tokens)
        return [completions[i] for i in range(len(rows))]

    def encode(self, prompt: str, number: int = 1) -> list[int]:
        """The ids of `</s>` and the prompt; a line break is read as a space."""
        try:
            line = prompt.replace("\n", " ").encode() + b"\n"
        except UnicodeEncodeError as error:
            raise UserError(
                f"prompt {number}: invalid Unicode (lone surrogate: {error.reason}); correct the text"
            ) from None
        ids = self.encoder(Block(f"prompt {number}", 1, line, len(line))).ids
        row = [self.dictionary.eos(), *ids[:-1].tolist()]
        if len(row) > self.model.args.max_positions:
            raise UserError(
                f"prompt {number}: {len(row) - 1} tokens; the model has {self.model.args.max_positions} "
                "positions including </s>; shorten the prompt"
            )
        return row

    @torch.inference_mode()
    def _continue(
        self, rows: list[list[int]], length: int, choose: Callable[[Tensor], Tensor]
    ) -> list[list[int]]:
        """Generate the new tokens of each row, including `</s>` if it is generated."""
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
            scores_BV = self._mask_special(next_scores(self.model, tokens_BN, positions_BN, real_B, cache))
            chosen_B = choose(scores_BV)
            for new, token, is_open in zip(new_B, chosen_B.tolist(), open_B.tolist(), strict=True):
                if is_open:
                    new.append(token)
            open_B &= chosen_B.ne(self.dictionary.eos()) & lengths_B.lt(most)
            if not open_B.any():
                break
            # Finished sentences stay in the batch at their last position.
            tokens_BN, positions_BN = chosen_B[:, None], lengths_B.clamp(max=most - 1)[:, None]
            lengths_B = lengths_B + open_B
            real_B = torch.ones_like(lengths_B)
        return new_B

    def _mask_special(self, scores_BV: Tensor) -> Tensor:
        """Set the scores of `<s>`, `<pad>` and `<unk>` to -inf in place, so that they are never generated."""
        scores_BV[:, [self.dictionary.bos(), self.dictionary.pad(), self.dictionary.unk()]] = -torch.inf
        return scores_BV

    def _completion(self, prompt: str, tokens: list[int]) -> Completion:
        ended = bool(tokens) and tokens[-1] == self.dictionary.eos()
        tokens = tokens[:-1] if ended else tokens
        text = "".join(self.dictionary[token] for token in tokens).replace(WORD_START, " ")
        return Completion(prompt, text, tokens, ended)


def recorded_data(state: dict[str, Any]) -> Path | None:
    """The data folder recorded in a checkpoint, if it still exists."""
    recorded = ((state.get("cfg") or {}).get("task") or {}).get("data")
    return Path(recorded) if recorded and Path(recorded).is_dir() else None


def _find_dictionary(run: RunCheckpoint, data: Path, given: OptionalPath = None) -> Path:
    """The given dictionary, or `dict.txt` in the checkpoint's folder or in the data folder.

    Raises `UserError` if there is none, or if it is not the one that the run recorded.
    """
    candidates = [Path(given)] if given else [run.folder / "dict.txt", data / "dict.txt"]
    path = next((path for path in candidates if path.is_file()), None)
    remedy = f"pass the dictionary of {run.checkpoint} with --dict"
    if path is None:
        raise UserError(f"{candidates[0]}: no such file; {remedy}")
    recorded = (run.manifest or {}).get("data", {}).get("sha256", {}).get("dict.txt")
    if recorded not in (None, sha256(path)):
        raise UserError(f"{path}: not the dictionary of the run; {remedy}")
    return path


def find_model_class(path: Path, state: dict[str, Any]) -> type[CausalRobertaSmall]:
    """The model class of a checkpoint; raises `UserError` unless it is a left-to-right language model."""
    from fairseq.models import ARCH_MODEL_REGISTRY  # after the plugin, which imports fairseq in less time

    name = arch_name(model_arguments(state))
    model_class = ARCH_MODEL_REGISTRY.get(name)
    if model_class is None or not issubclass(model_class, CausalRobertaSmall):
        raise UserError(
            f"{path}: cannot generate text: the architecture '{name}' is not a left-to-right language model"
        )
    if not any(key.startswith("encoder.lm_head.") for key in state["model"]):
        raise UserError(f"{path}: a classifier without language-model head; use the pretrained checkpoint")
    return model_class


def build_model(path: Path, state: dict[str, Any], dictionary: Dictionary) -> CausalRobertaSmall:
    """Build the model and load its weights; raises `UserError` if weights and dictionary do not fit."""
    model_class, arguments = find_model_class(path, state), model_arguments(state)
    with torch.random.fork_rng(devices=[]), WithoutInitialization():
        model = model_class.build_model(arguments, argparse.Namespace(source_dictionary=dictionary))
    load_weights(model, state["model"], path)
    return model
