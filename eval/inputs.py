"""From the ids of a text to what the network reads, as the task makes it in training (task.py there)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError
from preprocess.dictionary import EOS

from .checkpoint import Checkpoint

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class InputFormat:
    """The task's settings that concern the input, under their names there."""

    init_token: int | None
    separator_token: int | None
    max_positions: int
    shorten: bool
    """Whether longer text is cut. `random_crop` is cut at its end here, so that an answer can be repeated."""
    keep_eos: bool

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> InputFormat:
        """As the checkpoint was trained."""
        config = checkpoint.task_config()
        return cls(
            init_token=config.init_token,
            separator_token=config.separator_token,
            max_positions=config.max_positions,
            shorten=str(config.shorten_method) != "none",
            keep_eos=config.keep_eos,
        )

    def assemble(self, parts: Sequence[Ids], where: str) -> Ids:
        """(tokens,) of one example from the ids of its one or two sentences, each ending in `</s>`.

        Raises `UserError` naming `where` for an example that is too long, where training did not cut.
        """
        starts = [self.init_token, self.separator_token]
        pieces: list[Ids] = []
        for start, part in zip(starts, parts, strict=False):
            if start is not None:
                pieces.append(np.array([start], dtype=np.int64))
            pieces.append(part)
        row = np.concatenate(pieces).astype(np.int64)
        if len(row) <= self.max_positions:
            return row
        if not self.shorten:
            raise UserError(
                f"{where}: {len(row)} tokens, more than the {self.max_positions} that the checkpoint reads, "
                "and it was trained without --shorten-method truncate; shorten the text"
            )
        row = row[: self.max_positions]
        if self.keep_eos:
            row[-1] = EOS
        return row
