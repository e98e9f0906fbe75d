"""Texts as rows of token ids, prepared as in training, and rows in batches of similar length as input of a
network. Neither torch nor fairseq is imported.

Memory stays constant over any number of texts (`limit_kernels`, `return_free_memory`). By default, it grows
with the number of different batch shapes: PyTorch and oneDNN each keep the matrix products that they have
compiled, and glibc keeps free blocks between those in use.

Shapes: N examples, K classes; B sentences in a batch, L tokens in the longest.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import Targets
from roberta_small.preprocess.dictionary import EOS, NO_SEPARATOR, PAD, UNK, WORD_START, Dictionary
from roberta_small.preprocess.readers.lines import Block
from roberta_small.preprocess.tokenization.encoder import Encoded, TextEncoder, kept_lengths

if TYPE_CHECKING:
    from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationConfig

Ids = NDArray[np.int64]
Text = str | Sequence[str]
"""A sentence, or a pair of sentences."""
Compute = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""(B, L) padded ids -> (B, K) logits."""
CACHES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
"""PyTorch's cache (pytorch#27971) and oneDNN's ("Primitive Cache" in its guide). A product leaves memory only
after it has left both."""
CAPACITY = "64"
"""Enough for the layers of a batch. The default of both, 1024, needs 250 MB for shapes that rarely return."""


@dataclass(frozen=True)
class Examples:
    """The examples of a split, in the order of its text."""

    rows: list[Ids]
    labels: Targets
    """As in `common.label_kinds`; classes are numbered as in `classes`."""
    classes: list[str]
    """In the order of the checkpoint's logits; empty for regression."""


@dataclass(frozen=True)
class EncodedTexts:
    """N texts as input of the network."""

    rows: list[Ids]
    """The token ids of each text, as in training."""
    notes: list[str]
    """What is suspicious about each text (`text_notes`), or ""."""
    lengths: list[int]
    """Tokens of each text before truncation, special symbols included."""


@dataclass(frozen=True)
class Classified:
    """The results for N texts."""

    probabilities: NDArray[np.float64]
    """(N, K); for regression the values (N, 1), here and in `std` and `members`."""
    encoded: EncodedTexts
    std: NDArray[np.float64] | None = None
    """(N,) standard deviation of the predicted class's probability over the members of an ensemble; (N, K)
    for multi-label data."""
    members: NDArray[np.float64] | None = None
    """(M, N, K) probabilities of the M members of an ensemble."""


@dataclass(frozen=True)
class InputFormat:
    """How token ids become the input of the network; fields are named after the options of the task."""

    init_token: int | None
    separator_token: int | None
    max_positions: int
    shorten: bool
    """Whether longer text is truncated: at its end, and of a pair the longer sentence first."""
    keep_eos: bool

    @classmethod
    def from_config(cls, config: SentenceClassificationConfig) -> InputFormat:
        """The format of a task."""
        return cls(
            init_token=config.init_token,
            separator_token=None if config.separator_token == NO_SEPARATOR else config.separator_token,
            max_positions=config.max_positions,
            shorten=str(config.shorten_method) != "none",
            keep_eos=config.keep_eos,
        )

    def length(self, parts: Sequence[Ids]) -> int:
        """The number of tokens of one example before truncation; `parts` as for `assemble`."""
        starts = [self.init_token, self.separator_token][: len(parts)]
        return sum(map(len, parts)) + sum(start is not None for start in starts)

    def assemble(self, parts: Sequence[Ids], where: str) -> Ids:
        """The ids (L,) of one example, made of its one or two sentences, each ending in `</s>`.

        Raises `UserError`, naming `where`, if the example is too long and training did not truncate.
        """
        starts = [[] if start is None else [start] for start in (self.init_token, self.separator_token)]

        def joined(sentences: Sequence[Ids]) -> Ids:
            pairs = zip(starts, sentences, strict=False)
            return np.concatenate([ids for pair in pairs for ids in pair]).astype(np.int64)

        row = joined(parts)
        if len(row) <= self.max_positions:
            return row
        if not self.shorten:
            raise UserError(
                f"{where}: {len(row)} tokens, but the checkpoint has {self.max_positions} positions "
                "and was trained without --shorten-method truncate; shorten the text"
            )
        if len(parts) == 2:
            sizes = [len(part) - 1 for part in parts]  # without </s>
            kept = kept_lengths(sizes[0], sizes[1], max(0, self.max_positions - (len(row) - sum(sizes))))
            short = [np.append(part[:size], part[-1]) for part, size in zip(parts, kept, strict=True)]
            return joined(short)[: self.max_positions]
        row = row[: self.max_positions]
        if self.keep_eos:
            row[-1] = EOS if self.separator_token is None else self.separator_token
        return row


@dataclass(frozen=True)
class TextInput:
    """From texts to rows of token ids."""

    encoder: TextEncoder
    """Tokenizer and dictionary."""
    format: InputFormat
    pairs: bool
    """Whether an example is two sentences."""

    def encode(self, texts: Iterable[Text], *, first: int = 1, where: str = "text") -> EncodedTexts:
        """The token ids of each text, int64, as in training, and what is suspicious about it.

        A line break within a text is read as a space. Error messages name a text by `where` and its number,
        counted from `first`. Raises `UserError` for a text that is no string (for pairs: two strings), not
        Unicode or too long, and `TypeError` for one string instead of several texts.
        """
        check_texts(texts)
        texts = list(texts)
        if not texts:
            return EncodedTexts([], [], [])
        contents = [bytearray() for _ in range(1 + self.pairs)]
        for number, text in enumerate(texts, start=first):
            if self.pairs and (isinstance(text, str) or not isinstance(text, Sequence) or len(text) != 2):
                raise UserError(
                    f"{where} {number}: the checkpoint classifies sentence pairs; "
                    "pass two sentences, separated by a tab"
                )
            for content, sentence in zip(contents, text if self.pairs else [text], strict=True):
                content.extend(line_of(sentence, f"{where} {number}"))
        encoded = [self.encoder(Block(where, 1, bytes(content), len(content))) for content in contents]
        columns = [np.split(one.ids.astype(np.int64), np.cumsum(one.sizes)[:-1]) for one in encoded]
        examples = list(zip(*columns, strict=True))
        rows = [
            self.format.assemble(parts, f"{where} {number}")
            for number, parts in enumerate(examples, start=first)
        ]
        lengths = [self.format.length(parts) for parts in examples]
        notes = text_notes(encoded, self.encoder.dictionary)
        if self.pairs:
            notes = [
                note or (f"truncated: {len(row)} of {length} tokens" if length > len(row) else "")
                for note, row, length in zip(notes, rows, lengths, strict=True)
            ]
        return EncodedTexts(rows, notes, lengths)


def line_of(text: object, where: str) -> bytes:
    """A text as a line of UTF-8; raises `UserError`, naming `where`, for what is no Unicode string."""
    if not isinstance(text, str):
        raise UserError(f"{where}: {type(text).__name__} instead of a string")
    try:
        return text.replace("\n", " ").encode() + b"\n"  # which keeps an empty text at the end
    except UnicodeEncodeError as error:
        raise UserError(
            f"{where}: invalid Unicode (lone surrogate: {error.reason}); correct the text"
        ) from None


def check_texts(texts: object) -> None:
    """Raise `TypeError` for what would be iterated over something else than texts.

    That is one string (its characters), a dictionary (its keys) or a data frame (the names of its columns).
    """
    if isinstance(texts, str | bytes):
        raise TypeError("one string instead of a list of texts: write [text]")
    if isinstance(texts, Mapping):
        raise TypeError("a dictionary instead of a list of texts: write list(texts.values())")
    if hasattr(texts, "columns"):
        raise TypeError('a data frame instead of a list of texts: pass a column, such as frame["text"]')


def text_notes(encoded: Sequence[Encoded], dictionary: Dictionary) -> list[str]:
    """What is suspicious about each of N texts: "", "empty", or "unknown tokens: 80 %".

    `encoded` has one entry, or two for pairs: the N first and the N second sentences. A pair is empty if one
    of its sentences has no token. Unknown tokens are noted if they are more than half of all tokens, before
    truncation. A token that is only SentencePiece's character for a space does not count.
    """
    sizes_PN = np.stack([part.sizes - 1 for part in encoded])
    unknown_N, known_N = np.zeros((2, sizes_PN.shape[1]), dtype=np.int64)
    space = dictionary.index.get(WORD_START)
    for part in encoded:
        text_T = np.repeat(np.arange(len(part.sizes)), part.sizes)
        closing_T = np.zeros(len(part.ids), dtype=bool)
        closing_T[np.cumsum(part.sizes) - 1] = True
        unknown_T = part.ids == UNK
        known_T = ~unknown_T & ~closing_T & (part.ids != (-1 if space is None else space))
        unknown_N += np.bincount(text_T[unknown_T], minlength=len(part.sizes))
        known_N += np.bincount(text_T[known_T], minlength=len(part.sizes))
    fraction_N = unknown_N / np.maximum(unknown_N + known_N, 1)
    empty_N = (sizes_PN == 0).any(axis=0)
    return [
        "empty" if empty else f"unknown tokens: {100 * fraction:.0f} %" if fraction > 0.5 else ""
        for empty, fraction in zip(empty_N.tolist(), fraction_N.tolist(), strict=True)
    ]


def logits_of(
    rows: Sequence[Ids], compute: Compute, classes: int, *, max_tokens: int, progress: str | None = None
) -> NDArray[np.float32]:
    """The logits (N, K) of rows of ids, in their order; `progress` is the title of a progress bar."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    logits_NK = np.empty((len(rows), classes), dtype=np.float32)
    with tqdm(total=len(rows), desc=progress, leave=False, disable=None if progress else True) as bar:
        for batch in batches(lengths, max_tokens):
            logits_NK[batch] = compute(pad([rows[i] for i in batch]))
            bar.update(len(batch))
    return logits_NK


def batches(lengths: NDArray[np.int64], max_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of each batch; every sentence is in exactly one.

    A batch of B sentences of up to L tokens has B * L <= `max_tokens`, padding included; a longer sentence is
    a batch of its own. The longest sentences come first, so that a lack of memory shows at once.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, max_tokens // max(1, int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def pad(rows: Sequence[NDArray[np.int64]], padding: int = PAD) -> NDArray[np.int64]:
    """Rows of ids -> (B, L) int64, padded on the right."""
    padded_BL = np.full((len(rows), max(map(len, rows))), padding, dtype=np.int64)
    for row_L, ids in zip(padded_BL, rows, strict=True):
        row_L[: len(ids)] = ids
    return padded_BL


def limit_kernels() -> None:
    """Let both caches keep few products unless the user set a number; call it before the first product."""
    for cache in CACHES:
        os.environ.setdefault(cache, CAPACITY)


def return_free_memory() -> None:
    """Return free memory to the operating system (malloc_trim(3)); without effect where glibc is not used."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
