"""How well each pre-trained checkpoint predicts held-out text, as its own training logged it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from common import manifest
from common.errors import UserError

from .load import read_runs
from .pretraining import PRETRAIN_ARM, kept_update, training_of
from .runs import Run, run_at

SUBSET, METRIC = "valid", "ppl"


def find_perplexities(runs: Iterable[Run]) -> dict[tuple[str, str], float]:
    """Perplexity behind the arms and inits that started from a checkpoint of a pre-training with logs.

    Of a checkpoint that is kept under the number of its update, the perplexity at that update; of any other
    (`model.pt`) the lowest, which chose it.
    """
    found: dict[tuple[str, str], float] = {}
    logged = cache(_logged)  # many runs start from the checkpoints of one pre-training
    for run in runs:
        checkpoint = (manifest.read(run.path) or {}).get("checkpoint")
        if checkpoint is None or (run.arm, run.init) in found:
            continue
        value = _perplexity(checkpoint, logged)
        if math.isfinite(value):
            found[run.arm, run.init] = value
    return found


def _perplexity(checkpoint: Mapping[str, Any], logged: Callable[[Path], pd.DataFrame | None]) -> float:
    """NaN where nothing is known, or the file is another by now."""
    path = Path(checkpoint["path"])
    try:
        content, _ = training_of(checkpoint)
    except UserError:
        return math.nan
    if content is None or content["arm"] != PRETRAIN_ARM:
        return math.nan
    rows = logged(path.parent)
    if rows is None:
        return math.nan
    update = kept_update(path)
    if update is None:
        return float(rows["value"].min())
    values = rows.loc[rows["step"] == update, "value"]
    return float(values.iloc[0]) if len(values) else math.nan


def _logged(folder: Path) -> pd.DataFrame | None:
    """The perplexities of held-out text that a pre-training logged; None where it has no logs to read."""
    try:
        run = run_at(folder)
        table = None if run is None else read_runs([run])
    except UserError:
        return None
    return None if table is None else table[(table["subset"] == SUBSET) & (table["metric"] == METRIC)]
