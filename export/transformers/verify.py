"""Compares a from_pretrained folder with its fairseq checkpoint: token ids of real texts, and logits.

B sentences, L tokens.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from common.errors import UserError
from common.files import sha256
from eval.loading.inputs import Ids, read_split
from eval.loading.network import batches, pad
from eval.loading.training_files import resolve_recorded
from fairseq_plugin.tasks.sentence_classification import load_dictionary
from preprocess.readers.lines import read_text_lines
from preprocess.sample.writer import REVIEW_MIX, Writer

from .origin import MASK, Origin, Text
from .roberta import PAD, Source
from .tokenization_pieces import PieceTokenizer

TOLERANCE = 1e-4
SENTENCES = 200
"""Number of sentences whose logits are compared."""
LM_SENTENCES = 20
"""The same for a masked language model, which computes a score per token and vocabulary entry."""
MAX_TOKENS = 2048
SAMPLE_TEXTS = 120
ODD_TEXTS = ("", "   ", "Œuvre à 5 € — l’été…", "中文 и 😀 <mask> </s>", "a\u0085b", "mot " * 600)


@dataclass(frozen=True)
class Examples:
    """Texts with their token ids in training."""

    texts: list[Text]
    rows: list[Ids]
    where: str
    """Description of the texts, for the report."""


@dataclass(frozen=True)
class Verification:
    """Result of a comparison."""

    where: str
    texts: int
    standard: int
    """Texts with equal ids also without `trust_remote_code`; 0 if the tokenizer needs it to load."""
    sentences: int
    difference: float
    """Largest difference of a logit, or of a score of the masked language model."""

    def as_json(self) -> dict[str, Any]:
        """Content of proof.json."""
        return asdict(self) | {"tolerance": TOLERANCE}

    def __str__(self) -> str:
        """Two lines: ids and logits."""
        return (
            f"ids: {self.texts:,} of {self.texts:,} texts equal ({self.where}); {self.standard:,} without "
            f"trust_remote_code\nlogits: {self.sentences} sentences, largest difference "
            f"{self.difference:.1e} (at most {TOLERANCE:.0e})"
        )


def verify(origin: Origin, folder: str | os.PathLike[str], model: nn.Module) -> Verification:
    """Compare a written folder, and the `model` loaded from it, with the checkpoint.

    Ids are compared for every text of the run's data, or for sample sentences if the raw text is not
    available; logits for some of these texts, including the longest. Raises `UserError` if an id differs, or
    a logit by more than `TOLERANCE`.
    """
    examples = find_examples(origin)
    check_ids(PieceTokenizer.from_pretrained(folder), examples)
    standard = 0
    if not origin.data.normalize_apostrophes:
        plain = AutoTokenizer.from_pretrained(folder)
        standard = sum(
            np.array_equal(*pair) for pair in zip(tokenized(plain, examples), examples.rows, strict=True)
        )
    chosen = chosen_rows(examples.rows, LM_SENTENCES if origin.classes is None else SENTENCES)
    difference = largest_difference(origin.source, model, chosen)
    if not difference <= TOLERANCE:
        raise UserError(
            f"{origin.source.path}: the converted network differs from fairseq's by {difference:.1e}, more "
            f"than {TOLERANCE:.0e}; nothing was written, because Transformers does not support this model"
        )
    return Verification(examples.where, len(examples.texts), standard, len(chosen), difference)


def find_examples(origin: Origin) -> Examples:
    """The raw texts of the data with their ids in training; sample sentences if there is no raw text."""
    whole = origin.data.exists and origin.data.option("valid_every") is None
    if origin.checkpoint is not None and whole:
        splits = origin.data.option("splits") or {}
        texts = {split: _raw_texts(origin, parts["texts"]) for split, parts in splits.items()}
        if texts and None not in texts.values():
            return _of_splits(origin, texts)
    writer = Writer(random.Random("sentences to prove a conversion with"), REVIEW_MIX)
    sentences = [*ODD_TEXTS, *(writer.review(number % 2) for number in range(SAMPLE_TEXTS))]
    if origin.checkpoint is None:
        # The tokenizer of a masked language model reads <mask> in a text as the special token.
        sentences = [text for text in sentences if MASK not in text]
    texts = list(zip(sentences, reversed(sentences), strict=True)) if origin.pairs else sentences
    if not origin.input_format.shorten:
        texts = [text for text in texts if _fits(origin, text)]
    return Examples(list(texts), origin.encode(texts), "sample sentences")


def check_ids(tokenizer: PreTrainedTokenizerBase, examples: Examples) -> None:
    """Raise `UserError` showing the first text whose ids differ."""
    for text, found, wanted in zip(
        examples.texts, tokenized(tokenizer, examples), examples.rows, strict=True
    ):
        if not np.array_equal(found, wanted):
            pairs = enumerate(zip(found, wanted, strict=False))
            at = next((i for i, (ours, theirs) in pairs if ours != theirs), min(len(found), len(wanted)))
            raise UserError(
                f"{examples.where}: the tokenizer's ids differ from training's at token {at} of "
                f"{str(text)[:60]!r} ({len(found)} and {len(wanted)} tokens); nothing was written"
            )


def tokenized(tokenizer: PreTrainedTokenizerBase, examples: Examples) -> Iterator[NDArray[np.int64]]:
    """The ids of each text, truncated to the maximum length of the model."""
    for text in examples.texts:
        parts = (text,) if isinstance(text, str) else text
        yield np.array(tokenizer(*parts, truncation=True)["input_ids"])


def chosen_rows(rows: Sequence[Ids], count: int) -> list[Ids]:
    """`count` rows at equal distances, and the longest."""
    numbers = set(np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int).tolist())
    numbers.add(int(np.argmax([len(row) for row in rows])))
    return [rows[number] for number in sorted(numbers)]


def largest_difference(source: Source, model: nn.Module, rows: Sequence[Ids]) -> float:
    """Largest difference of a logit between fairseq's own model and `model`; NaN if either computes NaN."""
    reference, head = source.model(), source.head
    lengths = np.array([len(row) for row in rows])
    differences: list[float] = []
    with torch.inference_mode():
        for batch in tqdm(
            list(batches(lengths, MAX_TOKENS)), desc="comparing logits", leave=False, disable=None
        ):
            ids_BL = torch.from_numpy(pad([rows[i] for i in batch], PAD))
            wanted, _ = reference(ids_BL, features_only=head is not None, classification_head_name=head)
            found = model(input_ids=ids_BL, attention_mask=(ids_BL != PAD).long()).logits
            differences.append(_difference(found, wanted, ids_BL, per_token=head is None))
    return float(np.max(differences))


def _difference(found: Tensor, wanted: Tensor, ids_BL: Tensor, *, per_token: bool) -> float:
    difference = (found - wanted).abs()
    # Scores of padding tokens are undefined.
    difference = difference[ids_BL != PAD] if per_token else difference
    return float(difference.max())


def _fits(origin: Origin, text: Text) -> bool:
    try:
        origin.encode([text])
    except UserError:
        return False
    return True


def _raw_texts(origin: Origin, columns: dict[str, list[str]]) -> list[Text] | None:
    """The lines that a split was binarized from; None if a file is missing or has changed."""
    found = []
    for paths in columns.values():
        files = {path: resolve_recorded(path) for path in paths}
        if not all(
            file.is_file() and origin.data.digest(path) == sha256(file) for path, file in files.items()
        ):
            return None
        found.append([line for file in files.values() for line in read_text_lines(str(file))])
    return list(zip(*found, strict=True)) if len(found) > 1 else found[0]


def _of_splits(origin: Origin, texts: dict[str, list[Text]]) -> Examples:
    dictionary = load_dictionary(origin.dictionary)
    dictionary.add_symbol(MASK)
    rows: list[Ids] = []
    for split, lines in texts.items():
        found = read_split(origin.checkpoint, dictionary, origin.classes, origin.data.path, split).rows
        if len(found) != len(lines):
            raise UserError(
                f"{origin.data.path}: {len(found):,} sentences in {split}, but {len(lines):,} lines of text; "
                "binarize again"
            )
        rows += found
    return Examples([text for lines in texts.values() for text in lines], rows, ", ".join(texts))
