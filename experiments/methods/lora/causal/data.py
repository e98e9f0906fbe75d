"""Questions and answers for a causal language model: reading, splitting, prompts, encoding.

    {"questions": [{"question": "…?", "answer": "…"}, …]}        or only the list

A pair becomes one text, in the format of the published reports, followed by the end-of-text token of the
model, so that generation learns where to stop:

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

from roberta_small.common.errors import UserError

IGNORED = -100
"""Label of tokens without a loss, as in Transformers."""


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
    """The text from which the model generates the answer to a question."""
    return f"<human>: {question.strip()}  \n <assistant>:"


def read_pairs(path: Path) -> list[Pair]:
    """All pairs of a JSON file, in order.

    Raises `UserError` naming file and entry if the file is missing, not JSON or not a list of objects, or if
    a question or answer is missing, empty or not a string.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; --data is a JSON file of questions and answers")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start + 1} is not UTF-8; convert the file") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg}); correct the file") from None
    entries = content.get("questions") if isinstance(content, dict) else content
    if not isinstance(entries, list) or not entries:
        raise UserError(
            f'{path}: contains no pairs; write {{"questions": [{{"question": "…", "answer": "…"}}, …]}}'
        )
    return [_pair(path, number, entry) for number, entry in enumerate(entries, start=1)]


def _pair(path: Path, number: int, entry: object) -> Pair:
    where = f"{path}, entry {number}"
    if not isinstance(entry, dict):
        raise UserError(f"{where}: not an object with 'question' and 'answer'; correct or remove it")
    for key in ("question", "answer"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise UserError(
                f"{where}: '{key}' is missing, empty or not a string; correct or remove the entry"
            )
    return Pair(entry["question"].strip(), entry["answer"].strip())


def split(pairs: Sequence[Pair], valid_share: float, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Training and held-out pairs; pairs with the same question stay together.

    Raises `UserError` if either part would be empty.
    """
    questions = sorted({pair.question.casefold() for pair in pairs})
    random.Random(seed).shuffle(questions)
    held_out = set(questions[: round(len(questions) * valid_share)])
    train = [pair for pair in pairs if pair.question.casefold() not in held_out]
    valid = [pair for pair in pairs if pair.question.casefold() in held_out]
    if not train or not valid:
        raise UserError(
            f"--valid-share {valid_share:g} of {len(questions)} different questions: {len(train)} pairs "
            f"remain for training and {len(valid)} for validation; use more pairs or another fraction"
        )
    return train, valid


class PairDataset(torch.utils.data.Dataset):
    """Encoded pairs: `input_ids` and `labels`, int64 (L,); tokens without a loss have the label `IGNORED`."""

    def __init__(
        self, pairs: Sequence[Pair], tokenizer: PreTrainedTokenizerBase, max_length: int, *, answer_only: bool
    ) -> None:
        """Encode all pairs, truncated to `max_length` tokens; with `answer_only`, prompts have no loss.

        Raises `UserError` if a prompt alone has `max_length` tokens or more.
        """
        self.items = [_encode(pair, tokenizer, max_length, answer_only) for pair in pairs]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.items[index]


def _encode(
    pair: Pair, tokenizer: PreTrainedTokenizerBase, max_length: int, answer_only: bool
) -> dict[str, Tensor]:
    # Encoded separately, so that no token spans prompt and answer.
    prompt_ids = tokenizer(pair.prompt, add_special_tokens=False)["input_ids"]
    answer_ids = tokenizer(f" {pair.answer}", add_special_tokens=False)["input_ids"] + [
        tokenizer.eos_token_id
    ]
    if len(prompt_ids) >= max_length:
        raise UserError(
            f"--max-length {max_length}: the question {pair.question[:40]!r}… has {len(prompt_ids)} tokens, "
            "which leaves none for the answer; shorten it or increase --max-length"
        )
    input_ids = torch.tensor((prompt_ids + answer_ids)[:max_length])
    labels = input_ids.clone()
    if answer_only:
        labels[: len(prompt_ids)] = IGNORED
    return {"input_ids": input_ids, "labels": labels}


@dataclass(frozen=True)
class PadPairs:
    """Collator that pads on the right to the longest text of the batch."""

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
