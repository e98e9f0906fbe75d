"""Writes token ids in fairseq's data format `mmap`: PREFIX.bin has the ids, PREFIX.idx the sentence sizes.

`open_writer` writes one split as a stream. `distribute` distributes the documents of running text among the
training set, the validation set and shards, and `text_blocks` joins its sentences to longer texts.
`common.data_folder` describes the format.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.data_folder import DTYPE_CODES, OFFSET, SIZE, Header, shard_name
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_open, errors_named_after
from roberta_small.preprocess.dictionary import UNK
from roberta_small.preprocess.tokenization.encoder import Encoded

LARGEST_UINT16_VOCABULARY = 65500  # fairseq's own margin, from this size on ids take four bytes
PART = 1 << 16
"""Sentences whose offsets are worked out at a time."""


def id_dtype(vocabulary_size: int) -> np.dtype:
    """The type fairseq stores ids of such a vocabulary in."""
    return np.dtype("<u2" if vocabulary_size < LARGEST_UINT16_VOCABULARY else "<u4")


class IndexedWriter:
    """Writes one split as a stream (`open_writer`); nothing of it is kept in memory."""

    def __init__(self, prefix: Path, vocabulary_size: int, index: IO[bytes], ids: IO[bytes]) -> None:
        self.prefix, self._index, self._bin = prefix, index, ids
        self.dtype = id_dtype(vocabulary_size)
        self.sentences = self.tokens = self.unknown = 0
        self._write_header()

    def add(self, ids: NDArray[np.integer], sizes: NDArray[np.integer]) -> None:
        """Append sentences: ids (tokens,), sizes (sentences,) in tokens, with `sizes.sum() == len(ids)`."""
        # The names here, as several writers may be open at once.
        with errors_named_after(f"{self.prefix}.bin"):
            self._bin.write(ids.astype(self.dtype, copy=False).tobytes())
        with errors_named_after(f"{self.prefix}.idx"):
            self._index.write(sizes.astype(SIZE).tobytes())
        self.sentences += len(sizes)
        self.tokens += len(ids)
        self.unknown += int(np.count_nonzero(ids == UNK))

    def _write_header(self) -> None:
        self._index.write(Header(DTYPE_CODES[self.dtype], self.sentences).pack())

    def finish(self) -> None:
        """With all sizes written: write how many there are, and the offsets that follow from them."""
        with errors_named_after(f"{self.prefix}.idx"):
            self._index.seek(0)
            self._write_header()
            header, end = self._index.tell(), 0
            for start in range(0, self.sentences, PART):
                self._index.seek(header + SIZE.itemsize * start)
                count = min(PART, self.sentences - start)
                sizes = np.frombuffer(self._index.read(SIZE.itemsize * count), SIZE).astype(OFFSET)
                ends = end + np.cumsum(sizes) * self.dtype.itemsize
                self._index.seek(0, os.SEEK_END)
                self._index.write((ends - sizes * self.dtype.itemsize).tobytes())
                end = int(ends[-1])


@contextmanager
def open_writer(prefix: Path, vocabulary_size: int) -> Iterator[IndexedWriter]:
    """A writer whose `.bin` and `.idx` appear when the block ends without an error.

    Raises `UserError` where one cannot be written (the disk is full); no partial file remains.
    """
    with atomic_open(f"{prefix}.idx", "w+b") as index, atomic_open(f"{prefix}.bin", "wb") as ids:
        writer = IndexedWriter(prefix, vocabulary_size, index, ids)
        yield writer
        writer.finish()


def _numbered(encoded_blocks: Iterable[Encoded]) -> Iterator[tuple[Encoded, NDArray[np.int64]]]:
    """Each block with the number of each line's document, (lines,), from 1; a blank line ends a document."""
    count, after_blank, path = 0, True, ""
    for encoded in encoded_blocks:
        if encoded.block.path != path:
            path, after_blank = encoded.block.path, True
        blank = encoded.sizes == 1
        number = count + np.cumsum(~blank & np.concatenate([[after_blank], blank[:-1]]))
        count, after_blank = int(number[-1]), bool(blank[-1])
        yield encoded, number


def distribute(
    encoded_blocks: Iterable[Encoded],
    folder: Path,
    vocabulary_size: int,
    *,
    source: str,
    valid_every: int | None = None,
    shards: int = 1,
) -> dict[tuple[str, str], IndexedWriter]:
    """Write train, and valid where each `valid_every`-th document is held out; `source` names the text.

    Returns the closed writers by split and folder inside `folder`. Raises `UserError` where there are too
    few documents.
    """
    names = ["."] if shards == 1 else [shard_name(number) for number in range(shards)]
    places = [("train", name) for name in names] + ([("valid", names[0])] if valid_every else [])
    documents = 0
    with ExitStack() as stack:
        writers = [
            stack.enter_context(open_writer(folder / name / split, vocabulary_size)) for split, name in places
        ]
        for encoded, number in _numbered(encoded_blocks):
            documents = int(number[-1])
            place_of_line = number % shards
            if valid_every is not None:
                held_out = (number > 0) & (number % valid_every == 0)
                place_of_line = np.where(held_out, shards, (number - number // valid_every) % shards)
            for place, ids, sizes in _by_place(encoded, place_of_line):
                writers[place].add(ids, sizes)
    if documents < (valid_every or 0):
        raise UserError(
            f"{source}: only {documents} documents (separated by blank lines), too few to hold out "
            f"each {valid_every}-th; pass --valid a larger fraction or a file"
        )
    if documents < shards > 1:
        raise UserError(
            f"{source}: only {documents} documents (separated by blank lines), fewer than --shards "
            f"{shards}; use a smaller number"
        )
    return dict(zip(places, writers, strict=True))


def _by_place(
    encoded: Encoded, place_of_line: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int32], NDArray[np.int64]]]:
    """Ids and sizes of the lines of each place that has some; the work does not grow with the places."""
    place_of_line = place_of_line.astype(np.uint16)  # which are sorted in one pass
    order = np.argsort(place_of_line, kind="stable")
    places, first_line = np.unique(place_of_line[order], return_index=True)
    sizes = np.split(encoded.sizes[order], first_line[1:])
    order = np.argsort(np.repeat(place_of_line, encoded.sizes), kind="stable")
    ids = np.split(encoded.ids[order], np.cumsum([part.sum() for part in sizes])[:-1])
    yield from zip(places.tolist(), ids, sizes, strict=True)


def text_blocks(sizes: list[int], longest: int) -> Iterator[tuple[int, int]]:
    """Texts of running text: consecutive sentences of one document, with at most `longest` tokens together.

    Yields the begin and the end of each text in the tokens, from the numbers of tokens of the sentences,
    `</s>` included. An empty sentence ends a document; longer sentences are divided.
    """
    begin = end = 0
    for size in sizes:
        if end > begin and (size == 1 or end - begin + size > longest):
            yield begin, end
            begin = end
        end += size
        if size == 1:
            begin = end
        while end - begin > longest:
            yield begin, begin + longest
            begin += longest
    if end > begin:
        yield begin, end
