"""A run: one training of one method, from one initialization, with one seed.

This module is the one definition of what identifies a run and of the files in its folder:

    OUT/<arm>/<init>/seed<N>/
        manifest.json           described in `common.manifest`
        train.log               everything the trainer printed
        tensorboard/<subset>/   event files
        checkpoint_best.pt      chosen on the first validation subset
        checkpoint_last.pt      where an interrupted run resumes

`arm` is the method's name in the run folder and in the manifest ("fairseq", "hf", "lora", "bow", ...). A run
of a grid adds what differs from its recipe: "fairseq,lr=1e-4" is "fairseq" with the setting "lr=1e-4".
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import manifest
from .errors import UserError

LOG = "train.log"
TENSORBOARD = "tensorboard"
BEST_CHECKPOINT = "checkpoint_best.pt"
LAST_CHECKPOINT = "checkpoint_last.pt"
WEIGHTS = ("model.safetensors", "model.pt")
"""File names of a model that is passed on without its training state."""


class State(enum.Enum):
    """The state of a run when a command starts."""

    NEW = "new"
    RESUME = "resume"
    FINISHED = "finished"
    QUEUED = "queued"
    """Waiting or running on a cluster."""


@dataclass(frozen=True)
class Run:
    """The identity of a run and its folder."""

    folder: Path
    arm: str
    init: str
    seed: int
    checkpoint: Path | None = None
    """The checkpoint it starts from; None for random weights, or where that is not known."""

    @classmethod
    def below(cls, out: Path, arm: str, init: str, seed: int, checkpoint: Path | None = None) -> Run:
        """The run with its folder below the output folder `out`."""
        return cls(out / arm / init / f"seed{seed}", arm, init, seed, checkpoint)

    @classmethod
    def at(cls, folder: str | os.PathLike[str]) -> Run | None:
        """The run that the manifest of `folder` describes; None without a manifest."""
        content = manifest.read(folder)
        if content is None:
            return None
        started_from = content.get("checkpoint") or {}
        checkpoint = Path(started_from["path"]) if "path" in started_from else None
        return cls(Path(folder), content["arm"], content["init"], content["seed"], checkpoint)

    @property
    def family(self) -> str:
        """`fairseq` of the arm `fairseq,lr=1e-4`."""
        return split_arm(self.arm)[0]

    @property
    def setting(self) -> str:
        """`lr=1e-4` of the arm `fairseq,lr=1e-4`; "" for the recipe itself."""
        return split_arm(self.arm)[1]

    @property
    def group(self) -> str:
        """`arm/init`: the runs of a group differ only in their seed."""
        return f"{self.arm}/{self.init}"

    @property
    def name(self) -> str:
        """`arm/init/seedN`, unique in an output folder."""
        return f"{self.group}/seed{self.seed}"

    @property
    def label(self) -> str:
        """For progress lines of one command, where the method is the same for all: `lr=1e-4/random/seed1`."""
        return "/".join(part for part in (self.setting, self.init, f"seed{self.seed}") if part)

    def read_manifest(self) -> manifest.Manifest | None:
        """The manifest in the run's folder; None where there is none yet."""
        return manifest.read(self.folder)


def runs(out: Path, arm: str, inits: Mapping[str, Path | None], seeds: Sequence[int]) -> list[Run]:
    """The runs of an arm: each initialization (name -> checkpoint) with each seed, in this order."""
    return [
        Run.below(out, arm, init, seed, checkpoint) for init, checkpoint in inits.items() for seed in seeds
    ]


def split_arm(arm: str) -> tuple[str, str]:
    """Method and setting of an arm: `("fairseq", "lr=1e-4")` of `fairseq,lr=1e-4`."""
    family, _, setting = arm.partition(",")
    return family, setting


def find_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """The checkpoint that a folder stands for: its model file, else its best checkpoint; None without either.

    pretrain.sh exports `model.pt` from its best checkpoint, so both are the same model. Raises `UserError`
    where the folder has both `model.safetensors` and `model.pt`, because they may be different models.
    """
    folder = Path(folder)
    found = [folder / name for name in WEIGHTS if (folder / name).is_file()]
    if len(found) > 1:
        raise UserError(
            f"{folder}: contains both {' and '.join(path.name for path in found)}, which may be different "
            "models; give the path of one of the files"
        )
    best = folder / BEST_CHECKPOINT
    return found[0] if found else best if best.is_file() else None
