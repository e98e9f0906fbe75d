"""Text that is in pieces already, parted by white space, to ids as `fairseq-preprocess` would give them."""

from __future__ import annotations

import numpy as np

from common.errors import UserError

from . import dictionary as fairseq_dictionary
from .dictionary import EOS, UNK
from .encoder import Encoded
from .text import Block

LOWEST_SHARE = 0.5  # of the pieces of a block of lines that must be in the dictionary


class PieceReader:
    """The `Encoder` of such text: a dictionary is all that it needs."""

    def __init__(self, dictionary_path: str, *, normalize_apostrophes: bool = False) -> None:
        self.path = dictionary_path
        self.dictionary = fairseq_dictionary.load(dictionary_path)
        self.normalize_apostrophes = normalize_apostrophes

    def __call__(self, block: Block) -> Encoded:
        """Encode one block; raises `UserError` where it is not UTF-8 or of another dictionary."""
        rows = [line.split() for line in block.lines(normalize_apostrophes=self.normalize_apostrophes)]
        get = self.dictionary.index.get
        ids = np.array(
            [i for row in rows for i in (*(get(piece, UNK) for piece in row), EOS)], dtype=np.int32
        )
        sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        pieces, unknown = int(sizes.sum()), int(np.count_nonzero(ids == UNK))
        if unknown > (1 - LOWEST_SHARE) * pieces:
            raise UserError(
                f"{block.path}, from line {block.first_line}: only {pieces - unknown:,} of {pieces:,} pieces "
                f"are in {self.path}; give their dictionary, or for plain text a --sentencepiece-model"
            )
        return Encoded(block, ids, sizes + 1)
