"""A run: one training of one method from one initialization with one seed, and the files of its folder.

    runs/<method>/<init>/seed<N>/

`common.manifest` describes the manifest in that folder.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LOG = "train.log"
TENSORBOARD = "tensorboard"
LAST_CHECKPOINT = "checkpoint_last.pt"


class State(enum.Enum):
    """What is to be done about a run."""

    NEW = "new"
    RESUME = "resume"
    FINISHED = "finished"
    QUEUED = "queued"
    """It waits or runs on a cluster."""


@dataclass(frozen=True)
class Run:
    """One training: a seed from an initialisation."""

    folder: Path
    arm: str
    init: str
    seed: int
    checkpoint: Path | None
    """What it starts from; None for random weights."""

    @property
    def setting(self) -> str:
        """What it has otherwise than its recipe, `lr=1e-4`; "" for the recipe itself (see `grid`)."""
        return setting_of(self.arm)

    @property
    def name(self) -> str:
        """For tables and progress lines."""
        return "/".join(part for part in (self.setting, self.init, f"seed{self.seed}") if part)


def runs(out: Path, arm: str, inits: dict[str, Path | None], seeds: Sequence[int]) -> list[Run]:
    """All runs of a sweep, in the order of the settings."""
    return [
        Run(out / arm / init / f"seed{seed}", arm, init, seed, checkpoint)
        for init, checkpoint in inits.items()
        for seed in seeds
    ]


def setting_of(arm: str) -> str:
    """`lr=1e-4` of the arm `fairseq,lr=1e-4`; "" for the recipe itself."""
    return arm.partition(",")[2]
