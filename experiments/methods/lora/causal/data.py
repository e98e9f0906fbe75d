"""Questions and answers for a causal language model: read, split, written as prompts, encoded.

    {"questions": [{"question": "…?", "answer": "…"}, …]}        or the list alone

A pair becomes one text, in the form of the published reports, and the end-of-text token of the model
follows it, so that generation learns where to stop:

    <human>: QUESTION  \\n <assistant>: ANSWER
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from common.errors import UserError

IGNORED = -100
"""Label of tokens that the loss leaves out, as Transformers has it."""


@dataclass(frozen=True)
class Pair:
    """A question and its answer."""

    question: str
    answer: str

    @property
    def prompt(self) -> str:
        """The text up to the answer."""
        return prompt(self.question)


def prompt(question: str) -> str:
    """What the model is given to answer a question."""
    return f"<human>: {question.strip()}  \n <assistant>:"


def read_pairs(path: Path) -> list[Pair]:
    """All pairs of a JSON file, in order.

    Raises `UserError` naming file and entry: missing, no JSON, no list of objects, a question or answer
    that is missing, empty or no text.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; --data is a JSON file of questions and answers")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start + 1} is not UTF-8; convert the file") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg}; cut short?); mend it") from None
    entries = content.get("questions") if isinstance(content, dict) else content
    if not isinstance(entries, list) or not entries:
        raise UserError(
            f'{path}: no pairs in it; write {{"questions": [{{"question": "…", "answer": "…"}}, …]}}'
        )
    return [_pair(path, number, entry) for number, entry in enumerate(entries, start=1)]


def _pair(path: Path, number: int, entry: object) -> Pair:
    where = f"{path}, entry {number}"
    if not isinstance(entry, dict):
        raise UserError(f"{where}: not an object with 'question' and 'answer'; mend or remove it")
    for key in ("question", "answer"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise UserError(f"{where}: '{key}' is missing, empty or not a text; mend or remove the entry")
    return Pair(entry["question"].strip(), entry["answer"].strip())


def split(pairs: Sequence[Pair], valid_share: float, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Train and held-out pairs; a question that is asked twice is on one side only.

    Raises `UserError` where either side would be empty.
    """
    questions = sorted({pair.question.casefold() for pair in pairs})
    random.Random(seed).shuffle(questions)
    held_out = set(questions[: round(len(questions) * valid_share)])
    train = [pair for pair in pairs if pair.question.casefold() not in held_out]
    valid = [pair for pair in pairs if pair.question.casefold() in held_out]
    if not train or not valid:
        raise UserError(
            f"--valid-share {valid_share:g} of {len(questions)} different questions leaves {len(train)} to "
            f"train on and {len(valid)} to measure with; give more pairs or another share"
        )
    return train, valid


class PairDataset(torch.utils.data.Dataset):
    """Encoded pairs: `input_ids` and `labels`, int64 (L,); what the loss leaves out is `IGNORED`."""

    def __init__(
        self, pairs: Sequence[Pair], tokenizer: PreTrainedTokenizerBase, max_length: int, *, answer_only: bool
    ) -> None:
        """Encode all; longer texts are cut at `max_length`. `answer_only` keeps the prompt out of the loss.

        Raises `UserError` where a prompt alone takes `max_length` tokens: nothing of the answer is left.
        """
        self.items = [_encode(pair, tokenizer, max_length, answer_only) for pair in pairs]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.items[index]


def _encode(
    pair: Pair, tokenizer: PreTrainedTokenizerBase, max_length: int, answer_only: bool
) -> dict[str, Tensor]:
    # The parts are encoded apart, so that the border between them is one between tokens.
    asked = tokenizer(pair.prompt, add_special_tokens=False)["input_ids"]
    answered = tokenizer(f" {pair.answer}", add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    if len(asked) >= max_length:
        raise UserError(
            f"the question {pair.question[:40]!r}… takes {len(asked)} tokens and leaves none of "
            f"--max-length {max_length} to the answer; shorten it or raise --max-length"
        )
    input_ids = torch.tensor((asked + answered)[:max_length])
    labels = input_ids.clone()
    if answer_only:
        labels[: len(asked)] = IGNORED
    return {"input_ids": input_ids, "labels": labels}


@dataclass(frozen=True)
class PadPairs:
    """Collator: a batch (B, L), padded on the right to its longest text."""

    pad: int

    def __call__(self, items: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """`input_ids`, `attention_mask` and `labels`, each int64 (B, L)."""
        ids = [item["input_ids"] for item in items]
        pad = torch.nn.utils.rnn.pad_sequence
        return {
            "input_ids": pad(ids, batch_first=True, padding_value=self.pad),
            "attention_mask": pad([torch.ones_like(row) for row in ids], batch_first=True),
            "labels": pad([item["labels"] for item in items], batch_first=True, padding_value=IGNORED),
        }
