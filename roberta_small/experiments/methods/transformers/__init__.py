"""The method `transformers`: the runs of `train`, trained by the Transformers Trainer."""

from __future__ import annotations

import json
from pathlib import Path

CHECKPOINTS = "trainer"
"""Folder of the Trainer's own checkpoints in a run folder, removed when the run is finished."""
MEASURED = "measured.json"
"""What a run measured of itself; copied into its manifest when it is finished."""


def last_checkpoint(folder: Path) -> Path | None:
    """The Trainer's newest checkpoint below `folder` with trainer_state.json, which it writes last."""
    found = {int(path.name.rpartition("-")[2]): path for path in folder.glob("checkpoint-*")}
    for _, checkpoint in sorted(found.items(), reverse=True):
        try:
            json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return checkpoint
    return None
