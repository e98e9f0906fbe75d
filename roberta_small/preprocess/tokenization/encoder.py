"""Text to ids of a fairseq dictionary, on all cores and in file order.

`Encoder` tokenizes with SentencePiece. Threads suffice: SentencePiece releases Python's lock while it
encodes, and the rest is numpy.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import sentencepiece
from numpy.typing import NDArray
from tqdm import tqdm

from roberta_small.common.errors import UserError
from roberta_small.preprocess import dictionary as fairseq_dictionary
from roberta_small.preprocess.dictionary import EOS, UNK, Dictionary
from roberta_small.preprocess.readers.lines import Block, disk_bytes, read_blocks

LOWEST_FRACTION_IN_MODEL = 0.5
"""Of a dictionary's symbols that must be subword tokens of the model."""
DEFERRED = -1
"""In the table of ids: the token's text decides."""

Result = TypeVar("Result")

_in_advance: dict[str, Future[sentencepiece.SentencePieceProcessor]] = {}


@dataclass(frozen=True)
class Encoded:
    """Consecutive lines of one file as ids of a dictionary, each line closed by `</s>`."""

    block: Block
    ids: NDArray[np.int32]
    """(tokens,)"""
    sizes: NDArray[np.int64]
    """(lines,) tokens of each line, `</s>` included; 1 for a line without tokens."""


class TextEncoder(Protocol):
    """Lines of text to ids of a dictionary."""

    dictionary: Dictionary

    def __call__(self, block: Block) -> Encoded:
        """Encode one block of lines."""
        ...


class Encoder:
    """Lines to ids as `spm_encode` followed by `fairseq-preprocess` does."""

    def __init__(
        self,
        model: sentencepiece.SentencePieceProcessor,
        dictionary: Dictionary,
        *,
        normalize_apostrophes: bool = False,
    ) -> None:
        self.model = model
        self.dictionary = dictionary
        self.normalize_apostrophes = normalize_apostrophes
        tokens = all_tokens(model)
        self.table = np.array([dictionary.index.get(token, UNK) for token in tokens], dtype=np.int32)
        self.table[[i for i, token in enumerate(tokens) if token.split() != [token]]] = DEFERRED
        self.table[model.unk_id()] = DEFERRED

    @classmethod
    def from_files(
        cls, model_path: str, dictionary_path: str, *, normalize_apostrophes: bool = False
    ) -> Encoder:
        """Read both files; raises `UserError` if one is malformed or they do not fit each other."""
        model, dictionary = load_model(model_path), fairseq_dictionary.load(dictionary_path)
        names, tokens = dictionary.names(), set(all_tokens(model))
        known = sum(name in tokens for name in names)
        if known < LOWEST_FRACTION_IN_MODEL * len(names):
            raise UserError(
                f"{dictionary_path}: only {known:,} of its {len(names):,} symbols are tokens of "
                f"{model_path}; use the model that the dictionary was created with"
            )
        return cls(model, dictionary, normalize_apostrophes=normalize_apostrophes)

    def __call__(self, block: Block) -> Encoded:
        """Encode one block; raises `UserError` where it is not UTF-8."""
        lines = block.lines(normalize_apostrophes=self.normalize_apostrophes)
        rows = self.model.encode(lines, return_type="numpy")
        sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        ids = self.table[np.concatenate(rows)]
        if (ids == DEFERRED).any():
            # As fairseq, which splits the tokenized text at white space: a token that is white space
            # disappears, and text that is unknown to SentencePiece may still be a symbol of the dictionary.
            parts = np.split(ids, np.cumsum(sizes)[:-1])
            for number in np.unique(np.repeat(np.arange(len(sizes)), sizes)[ids == DEFERRED]):
                words = " ".join(self.model.encode(lines[number], out_type=str)).split()
                found = [self.dictionary.index.get(word, UNK) for word in words]
                parts[number] = np.array(found, dtype=np.int32)
            ids = np.concatenate(parts)
            sizes = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
        return Encoded(block, np.insert(ids, np.cumsum(sizes), EOS), sizes + 1)


def load_model(path: str) -> sentencepiece.SentencePieceProcessor:
    """Load a SentencePiece model; raises `UserError` where the file is something else."""
    started = _in_advance.pop(path, None)
    return parse_model(Path(path).read_bytes(), path) if started is None else started.result()


def load_in_advance(path: str) -> None:
    """Start loading a model (0.4 s for XLM-R's) for the next `load_model` of the same path."""
    thread = ThreadPoolExecutor(max_workers=1)
    _in_advance[path] = thread.submit(load_model, path)
    thread.shutdown(wait=False)


def parse_model(content: bytes, path: str) -> sentencepiece.SentencePieceProcessor:
    """The model in the content of the file `path`; errors as for `load_model`."""
    try:
        model = sentencepiece.SentencePieceProcessor()
        model.LoadFromSerializedProto(content)
        if not all_tokens(model):  # which must be UTF-8 as well
            raise RuntimeError("no tokens")
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"{path}: not a SentencePiece model ({error}); use the .model file of spm_train or of XLM-R"
        ) from None
    return model


@functools.lru_cache(maxsize=1)
def all_tokens(model: sentencepiece.SentencePieceProcessor) -> tuple[str, ...]:
    """The model's subword tokens in id order; of the last model, they are kept."""
    return tuple(model.id_to_piece(list(range(len(model)))))


def map_text(
    function: Callable[[Block], Result], paths: Sequence[str], *, workers: int, progress: str
) -> Iterator[Result]:
    """`function` of every block of the files, in order, on `workers` threads, with a progress bar.

    Only a few blocks are read ahead, so that memory stays bounded.
    """
    pending: deque[Future[Result]] = deque()
    size = disk_bytes(paths)
    with (
        tqdm(total=size, unit="B", unit_scale=True, desc=progress, leave=False, disable=None) as bar,
        ThreadPoolExecutor(workers) as pool,
    ):
        try:
            for path in paths:
                for block in read_blocks(path):
                    pending.append(pool.submit(function, block))
                    bar.update(block.file_bytes)
                    if len(pending) > 2 * workers:
                        yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def kept_lengths(first: int, second: int, available: int) -> tuple[int, int]:
    """How many tokens are kept of a sentence pair, `available` in all: the longer one is shortened first.

    This is the rule `longest_first` of tokenizers (huggingface/tokenizers, `truncate_encodings`).
    """
    if first + second <= available:
        return first, second
    short, long = sorted((first, second))
    if 2 * short <= available:
        long = available - short
    else:
        short, long = available // 2, available - available // 2
    return (short, long) if first <= second else (long, short)
