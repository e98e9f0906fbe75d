"""How well each pre-trained checkpoint predicts held-out text, as its own training logged it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from common import manifest
from common.errors import UserError
from common.files import sha256

from .load import read_runs
from .pretraining import PRETRAIN_ARM, kept_update
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
        value = _logged(Path(checkpoint["path"]), checkpoint["sha256"])
        if math.isfinite(value):
            found[run.arm, run.init] = value
    return found


def _logged(checkpoint: Path, digest: str) -> float:
    """NaN where nothing is known, or the file is another by now."""
    folder = checkpoint.parent
    try:
        content = manifest.read(folder)
        if content is None or content["arm"] != PRETRAIN_ARM or sha256(checkpoint) != digest:
            return math.nan
        run = run_at(folder)
        if run is None:
            return math.nan
        table = read_runs([run])
    except (UserError, OSError):
        return math.nan
    rows = table[(table["subset"] == SUBSET) & (table["metric"] == METRIC)]
    update = kept_update(checkpoint)
    if update is None:
        return float(rows["value"].min())
    values = rows.loc[rows["step"] == update, "value"]
    return float(values.iloc[0]) if len(values) else math.nan
