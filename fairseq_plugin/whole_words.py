"""`--task masked_lm --mask-whole-words`: all pieces of a word are hidden together.

A piece whose neighbours are the rest of its word is given away by them. fairseq has the flag, but its task
looks for a tokenizer in an attribute that it no longer has (fairseq/tasks/masked_lm.py, `self.args`), to ask
it where words begin. The pieces of a SentencePiece model say so themselves.

Source: whole-word masking of BERT (https://github.com/google-research/bert, May 2019).
"""

from __future__ import annotations

from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.tasks import masked_lm
from torch import Tensor

from common.errors import UserError

WORD_START = "▁"


def word_beginnings(_args: Any, dictionary: Dictionary) -> Tensor:
    """For each id whether a word begins there: uint8 (V,), in the place of `get_whole_word_mask`.

    Special symbols, `<mask>` and the fillers of a dictionary's size are words of their own. Raises
    `UserError` where no piece begins a word: then the dictionary is none of SentencePiece's.
    """
    pieces = dictionary.symbols
    if not any(piece.startswith(WORD_START) for piece in pieces):
        raise UserError(
            f"--mask-whole-words: no piece of the dictionary begins with {WORD_START}, which is how "
            "SentencePiece marks the beginning of a word; binarize with a SentencePiece model, or leave the "
            "flag out"
        )
    return torch.tensor(
        [
            row < dictionary.nspecial or piece == "<mask>" or piece.startswith((WORD_START, "madeupword"))
            for row, piece in enumerate(pieces)
        ],
        dtype=torch.uint8,
    )


def let_fairseq_find() -> None:
    """Let fairseq's task of masked language modelling find where words begin."""
    masked_lm.get_whole_word_mask = word_beginnings
    masked_lm.MaskedLMTask.args = property(lambda task: task.cfg)
