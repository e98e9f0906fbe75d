"""The score of each pre-trained checkpoint beside the tokens that it saw."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from .metrics import label
from .tables import Table
from .tables_seeds import spread_table


def pretraining_table(
    spread: pd.DataFrame, metric: str, best_note: str, *, ddof: int, test_size: int | None
) -> Table:
    """The frame of `spread_over_seeds` with a column `tokens`, ordered by arm and tokens."""
    spread = spread.sort_values(["arm", "tokens", "init"], ignore_index=True)
    table = spread_table(spread, metric, "test", best_note, ddof=ddof, test_size=test_size)
    shown = table.shown.copy()
    shown.insert(2, "tokens", [f"{tokens:,}" for tokens in spread["tokens"]])
    return replace(
        table,
        name="pretraining",
        caption=f"Test {label(metric)} over seeds, by tokens of pre-training",
        notes=(
            "tokens: as --tokens has them, else updates times a full batch of the whole pre-training, of "
            "which the checkpoint is the one with the lowest validation loss; 0: no pre-training.",
            *table.notes,
        ),
        shown=shown,
    )
