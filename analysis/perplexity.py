"""How well each pre-trained checkpoint predicts held-out text, as its own training logged it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

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
    for run in runs:
        checkpoint = (manifest.read(run.path) or {}).get("checkpoint")
        if checkpoint is None or (run.arm, run.init) in found:
            continue
        value = _logged(checkpoint)
        if math.isfinite(value):
            found[run.arm, run.init] = value
    return found


def _logged(checkpoint: Mapping[str, Any]) -> float:
    """NaN where nothing is known, or the file is another by now."""
    path = Path(checkpoint["path"])
    try:
        content, _ = training_of(checkpoint)
        run = run_at(path.parent)
        if content is None or content["arm"] != PRETRAIN_ARM or run is None:
            return math.nan
        table = read_runs([run])
    except UserError:
        return math.nan
    rows = table[(table["subset"] == SUBSET) & (table["metric"] == METRIC)]
    update = kept_update(path)
    if update is None:
        return float(rows["value"].min())
    values = rows.loc[rows["step"] == update, "value"]
    return float(values.iloc[0]) if len(values) else math.nan
