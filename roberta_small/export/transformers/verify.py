"""Compares a from_pretrained folder with its fairseq checkpoint: token ids of real texts, and logits.

Ids are those of the fairseq dictionary.

B sentences, L tokens, N of them without padding and P at a time, C embedding width, V vocabulary entries,
K classes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from fairseq.models.roberta.model import RobertaModel
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from roberta_small.common.data_folder import WRITE_AGAIN
from roberta_small.common.errors import UserError
from roberta_small.common.families import Family
from roberta_small.common.files import sha256
from roberta_small.eval.model import Model
from roberta_small.eval.texts import Ids, Text, batches, pad
from roberta_small.export.transformers.networks import Source, encoder_config, special_ids
from roberta_small.export.transformers.tokenization_pieces import PieceTokenizer
from roberta_small.fairseq_plugin.models.packed import in_second
from roberta_small.preprocess.dictionary import EOS, MASK, PAD
from roberta_small.preprocess.readers.lines import read_text_lines
from roberta_small.preprocess.sample import Writer

TOLERANCE = 1e-4
SENTENCES = 200
"""Number of sentences whose logits are compared."""
RANDOM_ROWS = 8
"""Number of rows of random ids that are compared in addition."""
LM_SENTENCES = 20
"""The same for a masked language model, which computes a score per token and vocabulary entry."""
MAX_TOKENS = 1024
"""Tokens of a batch, padding included."""
MAX_SCORES = 1 << 22
"""Scores (P times V) that are compared at a time: 16 MB in fp32."""
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
    own_code: bool = True
    """Whether the folder contains a tokenizer class of its own, with which all ids are equal. Otherwise the
    texts whose ids differ are truncated ones."""

    def __str__(self) -> str:
        """Two lines: ids and logits."""
        equal, rest = self.standard, ""
        if self.own_code:
            equal, rest = self.texts, f"; {self.standard:,} without trust_remote_code"
        elif truncated := self.texts - self.standard:
            rest = f"; {truncated:,} truncated differently than in training"
        return (
            f"ids: {equal:,} of {self.texts:,} texts equal ({self.where}){rest}\n"
            f"logits: {self.sentences} sentences and {RANDOM_ROWS} rows of random ids, "
            f"largest difference {self.difference:.1e} (at most {TOLERANCE:.0e})"
        )


def verify(origin: Model, source: Source, folder: str | os.PathLike[str], other: Counterpart) -> Verification:
    """Compare a written folder, and the model `other` loaded from it, with the checkpoint of `origin`.

    Ids are compared for every text of the run's data, or for sample sentences if the raw text is not
    available; logits for some of these texts, including the longest, and for random ids, because the model
    may have few words of the sample. Raises `UserError` if an id differs, or a logit by more than
    `TOLERANCE`. A Transformers tokenizer may differ in truncated texts, which it always ends in `</s>`.
    """
    examples, own_code = find_examples(origin), origin.tokenizer.model is not None
    standard = 0
    if own_code:
        check_ids(PieceTokenizer.from_pretrained(folder), examples)
    if not own_code or not origin.normalize_apostrophes:
        plain = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        if not own_code:
            check_ids(plain, examples, other.order, truncated=origin.input_format.max_positions)
        rows = tokenized(plain, examples, other.order)
        standard = sum(np.array_equal(*pair) for pair in zip(rows, examples.rows, strict=True))
    # Rows at equal distances, and the longest.
    count, known = LM_SENTENCES if source.head is None else SENTENCES, examples.rows
    numbers = set(np.linspace(0, len(known) - 1, min(count, len(known))).astype(int).tolist())
    numbers.add(int(np.argmax([len(row) for row in known])))
    chosen = [known[number] for number in sorted(numbers)]
    sentences = len(chosen)
    vocabulary = source.vocabulary if other.order is None else len(other.order)
    longest, (init, _) = origin.input_format.max_positions, special_ids(origin.input_format)
    chosen += random_rows(RANDOM_ROWS, longest, vocabulary, init, pairs=other.token_types)
    # Of a regression, whose outputs are rounded in fp32 by their size.
    mean, scale = origin.checkpoint.scaling.mean, origin.checkpoint.scaling.scale
    difference = largest_difference(source.model(), source.head, other, chosen) / scale
    rounding = 4 * float(np.finfo(np.float32).eps) * abs(mean) / scale
    if not difference <= TOLERANCE + rounding:
        raise UserError(
            f"{source.path}: the converted network differs from fairseq's by {difference:.1e}, more "
            f"than {TOLERANCE:.0e}; nothing was written, because Transformers does not support this model"
        )
    return Verification(examples.where, len(examples.texts), standard, sentences, difference, own_code)


def find_examples(origin: Model) -> Examples:
    """The raw texts of the data with their ids in training; sample sentences if there is no raw text."""
    classifier = origin.checkpoint.is_classifier
    if classifier and origin.data.exists and origin.data.option("valid_every") is None:
        recorded = {split: _raw_texts(origin, split) for split in origin.data.splits}
        if recorded and all(recorded.values()):
            texts: list[Text] = []
            rows: list[Ids] = []
            for split, lines in recorded.items():
                found = origin.examples(split).rows
                if len(found) != len(lines):
                    raise UserError(
                        f"{origin.data.path}: {len(found):,} sentences in {split}, but {len(lines):,} lines "
                        f"of text; {WRITE_AGAIN}"
                    )
                texts += lines
                rows += found
            return Examples(texts, rows, ", ".join(recorded))
    writer = Writer("sentences to prove a conversion with")
    sentences = [*ODD_TEXTS, *(writer.review(number % 2) for number in range(SAMPLE_TEXTS))]
    if not classifier:
        # The tokenizer of a masked language model reads <mask> in a text as the special token.
        sentences = [text for text in sentences if MASK not in text]
    texts = list(zip(sentences, reversed(sentences), strict=True)) if origin.pairs else list(sentences)
    if not origin.input_format.shorten:
        longer = replace(origin.text_input, format=replace(origin.input_format, shorten=True))
        lengths = zip(texts, longer.encode(texts).lengths, strict=True)
        texts = [text for text, length in lengths if length <= origin.input_format.max_positions]
    return Examples(texts, origin.text_input.encode(texts).rows, "sample sentences")


def check_ids(
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    order: NDArray[np.int64] | None = None,
    *,
    truncated: int | None = None,
) -> None:
    """Raise `UserError` showing the first text whose ids differ; `order` as in `Counterpart`.

    If `truncated` is given, rows of that many tokens, which are truncated texts, may differ in their last
    token.
    """
    rows = tokenized(tokenizer, examples, order)
    for text, found, wanted in zip(examples.texts, rows, examples.rows, strict=True):
        if len(found) == len(wanted) == truncated:
            found, wanted = found[:-1], wanted[:-1]
        if not np.array_equal(found, wanted):
            pairs = enumerate(zip(found, wanted, strict=False))
            at = next((i for i, (ours, theirs) in pairs if ours != theirs), min(len(found), len(wanted)))
            raise UserError(
                f"{examples.where}: the tokenizer's ids differ from training's at token {at} of "
                f"{str(text)[:60]!r} ({len(found)} and {len(wanted)} tokens); nothing was written"
            )


def tokenized(
    tokenizer: PreTrainedTokenizerBase, examples: Examples, order: NDArray[np.int64] | None = None
) -> Iterator[NDArray[np.int64]]:
    """The ids of each text in the dictionary, truncated to the maximum length of the model."""
    ours = None if order is None else np.argsort(order)
    for text in examples.texts:
        parts = (text,) if isinstance(text, str) else text
        ids = np.array(tokenizer(*parts, truncation=True)["input_ids"])
        yield ids if ours is None else ours[ids]


@dataclass(frozen=True)
class Counterpart:
    """A model of Transformers that takes the ids of a fairseq dictionary."""

    model: PreTrainedModel
    family: Family
    order: NDArray[np.int64] | None = None
    """(V,) Transformers' id of each id; None if they are equal."""
    token_types: bool = False
    """Whether the second text of a pair has a token type of its own."""

    def inputs(self, ids_BL: Tensor) -> dict[str, Tensor]:
        """The arguments of the model for padded ids."""
        theirs_BL = ids_BL if self.order is None else torch.from_numpy(self.order)[ids_BL]
        found = {"input_ids": theirs_BL, "attention_mask": (ids_BL != PAD).long()}
        if self.token_types:
            found["token_type_ids"] = in_second(ids_BL, EOS).long()
        return found

    def scores(self, features: Tensor) -> Tensor:
        """(..., C) -> (..., V), of the masked language model, in the order of the dictionary."""
        assert self.family.lm_head is not None
        for name in self.family.lm_head.modules:
            features = self.model.get_submodule(name)(features)
        return features if self.order is None else features[..., torch.from_numpy(self.order)]


def largest_difference(
    reference: RobertaModel, head: str | None, other: Counterpart, rows: Sequence[Ids], *, scores: bool = True
) -> float:
    """Largest difference of a logit between a fairseq model and `other`; NaN if either computes NaN.

    `head` is the name of fairseq's classification head. Without one, the scores of the masked language model
    are compared for all tokens but padding, or only the hidden states without `scores`.
    """
    lengths = np.array([len(row) for row in rows])
    differences: list[float] = []
    with torch.inference_mode():
        every = list(batches(lengths, MAX_TOKENS))
        for batch in tqdm(every, desc="comparing logits", leave=False, disable=None):
            ids_BL = torch.from_numpy(pad([rows[i] for i in batch], PAD))
            mask_BL = ids_BL != PAD
            if head is not None:
                wanted_BK, _ = reference(ids_BL, features_only=True, classification_head_name=head)
                found_BK = other.model(**other.inputs(ids_BL)).logits
                differences.append(float((found_BK - wanted_BK).abs().max()))
                continue
            wanted_NC = reference(ids_BL, features_only=True)[0][mask_BL]
            found_NC = other.model.base_model(**other.inputs(ids_BL))[0][mask_BL]
            differences.append(float((found_NC - wanted_NC).abs().max()))
            if not scores:
                continue
            size = max(1, MAX_SCORES // encoder_config(other.model).vocab_size)
            for wanted_PC, found_PC in zip(wanted_NC.split(size), found_NC.split(size), strict=True):
                found_PV = other.scores(found_PC)
                wanted_PV = reference.encoder.lm_head(wanted_PC)[..., : found_PV.shape[-1]]
                differences.append(float((found_PV - wanted_PV).abs().max()))
    return float(np.max(differences))


def random_rows(count: int, longest: int, vocabulary: int, init: int, *, pairs: bool = False) -> list[Ids]:
    """At least two rows of random ids, of `longest`, 2 and then any number of tokens between.

    They begin with the id `init`; every second one is divided by separators, as a pair, with `pairs`.
    """
    rng = np.random.default_rng(1)
    rows = []
    for number, size in enumerate([longest, 2, *rng.integers(2, longest + 1, count - 2)]):
        row = np.concatenate([[init], rng.integers(EOS + 1, vocabulary, size - 1)])
        if pairs and number % 2 and size > 3:
            row[[size // 2, -1]] = EOS
        rows.append(row)
    return rows


def _raw_texts(origin: Model, split: str) -> list[Text]:
    """The lines that a split was binarized from; empty if a file is not recorded, missing or has changed."""
    columns = []
    for files in origin.data.texts(split):
        if not all(file.is_file() and digest == sha256(file) for file, digest in files.items()):
            return []
        columns.append([line for file in files for line in read_text_lines(str(file))])
    if not origin.pairs:
        return list(columns[0]) if columns else []
    return list(zip(*columns, strict=True))
