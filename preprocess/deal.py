"""Running text -> the files of a pre-training folder: each document whole, in train, a shard of it, or valid.

    one folder                          --shards N
    BIN/dict.txt                        BIN/shard0/dict.txt, train.bin, train.idx, valid.bin, valid.idx
    BIN/train.bin, train.idx            BIN/shard1/dict.txt, train.bin, train.idx
    BIN/valid.bin, valid.idx            ...

Documents are dealt out in turn, like cards: each shard looks like the whole, and one is a fair sample of it.
fairseq takes `shard0:shard1:...` and opens one at a time, an epoch each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.data_folder import shard_name
from common.errors import UserError

from .encoder import Encoded
from .indexed import IndexedWriter


class Documents:
    """Numbers the documents of running text; blank lines and file ends part them."""

    def __init__(self) -> None:
        self.count = 0
        self.after_blank = True
        self.path = ""

    def __call__(self, encoded: Encoded) -> NDArray[np.int64]:
        """(lines,) the number of each line's document, from 1; a blank line belongs to the one before it."""
        if encoded.block.path != self.path:
            self.path, self.after_blank = encoded.block.path, True
        blank = encoded.sizes == 1
        starts = ~blank & np.concatenate([[self.after_blank], blank[:-1]])
        number = self.count + np.cumsum(starts)
        self.count, self.after_blank = int(number[-1]), bool(blank[-1])
        return number


def deal(
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
    documents = Documents()
    with ExitStack() as stack:
        writers = [
            stack.enter_context(IndexedWriter(folder / name / split, vocabulary_size))
            for split, name in places
        ]
        for encoded in encoded_blocks:
            place_of_line = _place(documents(encoded), valid_every, shards)
            for place, ids, sizes in _by_place(encoded, place_of_line):
                writers[place].add(ids, sizes)
    for flag, least in (("--valid-every", valid_every or 0), ("--shards", shards if shards > 1 else 0)):
        if documents.count < least:
            raise UserError(
                f"{source}: {documents.count} documents (a blank line parts them), "
                f"too few for {flag} {least}; give a smaller number"
            )
    return dict(zip(places, writers, strict=True))


def _place(number: NDArray[np.int64], valid_every: int | None, shards: int) -> NDArray[np.int64]:
    """(lines,) shard of each line's document, from 0, and `shards` for valid."""
    if valid_every is None:
        return number % shards
    held_out = (number > 0) & (number % valid_every == 0)
    return np.where(held_out, shards, (number - number // valid_every) % shards)


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
