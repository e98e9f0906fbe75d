"""A run: one training with one method, initialization and seed.

This module defines what identifies a run and which files its folder contains:

    OUT/<arm>/<init>/seed<N>/
        manifest.json           described in `common.manifest`
        train.log               output of the trainer
        tensorboard/<subset>/   event files (subsets train, train_inner, valid, test)
        checkpoint_best.pt      best on the first validation subset, the later one on a tie
        checkpoint_last.pt      where an interrupted run resumes
        thresholds.json         multi-label: the threshold of each class, chosen on valid
        tfidf.npz               instead of checkpoints: the classifier of the method tfidf
        inputs/                 dictionaries and tokenizer of the data

`arm` is the name of the method in run folder and manifest ("fairseq", "lora", "tfidf", ...). In a grid, it
also contains the setting that differs from the recipe: "fairseq,lr=1e-4" is "fairseq" with "lr=1e-4".

A suite has several data sets with the same methods in one folder, OUT/<data set>/<arm>/<init>/seed<N>/. On
the command line, a data set is NAME=PATH. NAME is that of its folder.
"""

from __future__ import annotations

import enum
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write, read_json
from roberta_small.common.metrics import lower_is_better

LOG = "train.log"
TENSORBOARD = "tensorboard"
BEST_CHECKPOINT = "checkpoint_best.pt"
LAST_CHECKPOINT = "checkpoint_last.pt"
TFIDF = "tfidf.npz"
"""The classifier of a run of the method tfidf (`eval.tfidf`)."""
THRESHOLDS = "thresholds.json"
"""{class: threshold} of a multi-label classifier."""
WEIGHTS = ("model.safetensors", "model.pt")
"""File names of a model without training state."""
FOLDER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
NOT_IN_NAMES = re.compile(r"[/\\:]")
"""Characters before "=" with which a word is a path and not NAME=PATH."""
RUNS = f"*/*/seed*/{manifest.NAME}"
"""The manifests of the runs of one data set, below its folder."""


class State(enum.Enum):
    """The state of a run when a command starts."""

    NEW = "new"
    RESUME = "resume"
    FINISHED = "finished"
    ELSEWHERE = "elsewhere"
    """Being trained by another process, on this or another machine."""


@dataclass(frozen=True)
class Run:
    """The identity of a run and its folder."""

    folder: Path
    arm: str
    init: str
    seed: int
    checkpoint: Path | None = None
    """The checkpoint of the initial weights; None for random weights, or if unknown."""

    @classmethod
    def below(cls, out: Path, arm: str, init: str, seed: int, checkpoint: Path | None = None) -> Run:
        """The run whose folder is in the output folder `out`."""
        return cls(out / arm / init / f"seed{seed}", arm, init, seed, checkpoint)

    @classmethod
    def at(cls, folder: str | os.PathLike[str]) -> Run | None:
        """The run that the manifest of `folder` describes; None without a manifest."""
        content = manifest.read(folder)
        if content is None:
            return None
        initial = content.get("checkpoint") or {}
        checkpoint = Path(initial["path"]) if "path" in initial else None
        return cls(Path(folder), content["arm"], content["init"], content["seed"], checkpoint)

    @property
    def method(self) -> str:
        """The method: `fairseq` for the arm `fairseq,lr=1e-4`."""
        return split_arm(self.arm)[0]

    @property
    def setting(self) -> str:
        """The setting of a grid: `lr=1e-4` for the arm `fairseq,lr=1e-4`; "" for the recipe itself."""
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
        """A short name within one method, for progress messages: `lr=1e-4/random/seed1`."""
        return "/".join(part for part in (self.setting, self.init, f"seed{self.seed}") if part)

    def read_manifest(self) -> manifest.Manifest | None:
        """Read the manifest in the run's folder; None if there is none yet."""
        return manifest.read(self.folder)


def split_arm(arm: str) -> tuple[str, str]:
    """Split an arm into method and setting: `fairseq,lr=1e-4` -> `("fairseq", "lr=1e-4")`."""
    method, _, setting = arm.partition(",")
    return method, setting


def find_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """The checkpoint of a folder: its model file, otherwise its best checkpoint; None without either.

    `pretrain` exports `model.pt` from its best checkpoint, so both are the same model. Raises `UserError` if
    the folder has both `model.safetensors` and `model.pt`, because they may be different models.
    """
    folder = Path(folder)
    found = [folder / name for name in WEIGHTS if (folder / name).is_file()]
    if len(found) > 1:
        raise UserError(
            f"{folder}: contains both {' and '.join(path.name for path in found)}, which may be different "
            "models; specify one of the files"
        )
    best = folder / BEST_CHECKPOINT
    return found[0] if found else best if best.is_file() else None


def read_thresholds(folder: str | os.PathLike[str]) -> dict[str, float]:
    """The thresholds by class in a folder; empty without the file. Raises `UserError` if it is malformed."""
    path = Path(folder) / THRESHOLDS
    if not path.is_file():
        return {}
    found = read_json(path, "train the run again")
    if not isinstance(found, dict) or not all(type(value) in (int, float) for value in found.values()):
        raise UserError(f"{path}: not a number for each class; train the run again")
    return {name: float(value) for name, value in found.items()}


def write_thresholds(folder: str | os.PathLike[str], thresholds: Mapping[str, float]) -> None:
    """Write the thresholds by class into a folder."""
    text = json.dumps(dict(thresholds), indent=2, ensure_ascii=False)
    atomic_write(Path(folder) / THRESHOLDS, f"{text}\n")


def folder_name(flag: str, text: str) -> str:
    """The text if it can be the name of a folder; raises `UserError` that names the flag otherwise."""
    if not FOLDER_NAME.fullmatch(text):
        raise UserError(
            f"{flag} {text!r}: cannot be the name of a folder; use only letters, digits, '_', '-' and '.'"
        )
    return text


def is_named(word: str) -> bool:
    """Whether a word is NAME=PATH. An existing file or folder is not, nor is a path such as `runs/lr=1`."""
    name, equals, _ = word.partition("=")
    return bool(equals) and not NOT_IN_NAMES.search(name) and not os.path.exists(word)


def split_named(flag: str, words: Sequence[str]) -> dict[str, str]:
    """NAME -> PATH for words that are all NAME=PATH.

    Raises `UserError` that names the flag for a name that cannot be that of a folder, for an empty path, and
    for a name or a path that occurs twice.
    """
    found: dict[str, str] = {}
    for word in words:
        name, _, path = word.partition("=")
        folder_name(flag, name)
        if not path:
            raise UserError(f"{flag} {word!r}: no path after '='; write NAME=PATH")
        if name in found:
            raise UserError(f"{flag}: two data sets are named '{name}'; choose different names")
        for other, known in found.items():
            if os.path.realpath(known) == os.path.realpath(path):
                raise UserError(f"{flag}: {other} and {name} are the same, {path}; correct one of the paths")
        found[name] = path
    return found


def data_sets(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """The folders of the data sets of a suite by name, in alphabetical order; empty if there is none."""
    folder = Path(folder)
    found = sorted({path.parents[3] for path in folder.glob(f"*/{RUNS}")})
    return {path.name: path for path in found}


def has_runs(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder contains runs of its own, as the folder of one data set does."""
    return any(Path(folder).glob(RUNS))


@dataclass(frozen=True)
class Group:
    """Finished runs that differ in their seed only."""

    runs: tuple[Run, ...]
    """The one with the best validation first; on a tie, in the order of the seeds."""
    metric: str
    subset: str
    """The validation set."""
    scores: dict[str, float]
    """Subset -> mean over the runs at their best validation, the validation set first."""
    seconds: float
    """Mean time of a run."""

    @property
    def valid(self) -> float:
        """The score on the validation set."""
        return self.scores[self.subset]


def rank(runs: Iterable[Run]) -> list[Group]:
    """The groups of the runs, the best one first: by the validation set, on a tie the faster one.

    Raises `UserError` if the runs cannot be compared: if a manifest has no `best`, or if metric or validation
    set differ.
    """
    by_name: dict[str, list[tuple[Run, dict[str, Any]]]] = {}
    for run in runs:
        by_name.setdefault(run.group, []).append((run, run.read_manifest() or {}))
    contents = [content for members in by_name.values() for _, content in members]
    if any("best" not in content for content in contents):
        raise UserError("the manifest of a run has no best validation")
    metrics = {content["best"]["metric"] for content in contents}
    if len(metrics) > 1:
        raise UserError("the runs have different metrics")
    sign = 1 if any(map(lower_is_better, metrics)) else -1
    if len({content["best"]["labels"] or content["data"]["path"] for content in contents}) > 1:
        raise UserError("the runs have different validation sets")
    groups = []
    for members in by_name.values():
        best = [content["best"] for _, content in members]
        metric, first = best[0]["metric"], best[0]["subset"]
        shared = [subset for subset in best[0]["scores"] if all(subset in one["scores"] for one in best)]
        shared.sort(key=lambda subset: subset != first)
        ranked = sorted(
            (sign * content["best"]["scores"][first], run.seed, number)
            for number, (run, content) in enumerate(members)
        )
        groups.append(
            Group(
                tuple(members[number][0] for *_, number in ranked),
                metric,
                first,
                {subset: fmean(one["scores"][subset] for one in best) for subset in shared},
                fmean(content.get("seconds", 0.0) for _, content in members),
            )
        )
    return sorted(groups, key=lambda group: (sign * group.valid, group.seconds))
