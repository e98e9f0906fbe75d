"""The score of each pre-trained checkpoint beside the tokens that it saw."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from .metrics import label
from .tables import Table
from .tables_seeds import spread_table

PERPLEXITY = (
    "perplexity: of the text that the pre-training held out, as it logged it; of masked pieces, given both "
    "sides, or of each next piece, so that the two kinds are not to be compared."
)


def pretraining_table(
    spread: pd.DataFrame, metric: str, best_note: str, *, ddof: int, test_size: int | None
) -> Table:
    """The frame of `spread_over_seeds` with `tokens` and `perplexity` (NaN: not known), by arm and tokens."""
    spread = spread.sort_values(["arm", "tokens", "init"], ignore_index=True)
    table = spread_table(spread, metric, "test", best_note, ddof=ddof, test_size=test_size)
    shown = table.shown.copy()
    shown.insert(2, "tokens", [f"{tokens:,}" for tokens in spread["tokens"]])
    known = spread["perplexity"].notna()
    if known.any():
        shown.insert(3, "perplexity", spread["perplexity"].map("{:.4g}".format).where(known, "–"))
    return replace(
        table,
        name="pretraining",
        caption=f"Test {label(metric)} over seeds, by tokens of pre-training",
        notes=(
            "tokens: as --tokens has them, else updates times a full batch, up to the update that the "
            "checkpoint is named after, or of the whole pre-training, of which it is the one with the lowest "
            "validation loss; 0: no pre-training.",
            *([PERPLEXITY] if known.any() else []),
            *table.notes,
        ),
        shown=shown,
    )
