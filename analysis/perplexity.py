"""How well each pre-trained checkpoint predicts held-out text, as its own training logged it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from common import manifest
from common.errors import UserError

from .load import load_runs
from .pretraining import PRETRAIN_ARM, kept_update
from .runs import Run

SUBSET, METRIC = "valid", "ppl"


def find_perplexities(runs: Iterable[Run]) -> dict[tuple[str, str], float]:
    """Perplexity behind the arms and inits that started from a checkpoint of a pre-training with logs.

    Of a checkpoint that is kept under the number of its update, the perplexity at that update; of any other
    (`model.pt`) the lowest, which chose it.
    """
    found: dict[tuple[str, str], float] = {}
    for run in runs:
        checkpoint = (manifest.read(run.path) or {}).get("checkpoint")
        if checkpoint is None or (run.arm, run.init) in found:
            continue
        value = _logged(Path(checkpoint["path"]))
        if math.isfinite(value):
            found[run.arm, run.init] = value
    return found


@cache
def _logged(checkpoint: Path) -> float:
    """NaN where nothing is known."""
    content = manifest.read(checkpoint.parent)
    if content is None or content["arm"] != PRETRAIN_ARM:
        return math.nan
    try:
        table = load_runs(checkpoint.parent, include_unfinished=True)
    except UserError:
        return math.nan
    rows = table[(table["subset"] == SUBSET) & (table["metric"] == METRIC)]
    update = kept_update(checkpoint)
    if update is None:
        return float(rows["value"].min())
    values = rows.loc[rows["step"] == update, "value"]
    return float(values.iloc[0]) if len(values) else math.nan
