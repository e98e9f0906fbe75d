"""Methods: the trainers of runs, chosen with `roberta-small train --method NAME`.

A method is one object of a class derived from `Method`. It is listed in `REGISTERED`, added with `register`,
or given as `--method package.module:OBJECT` if it is outside the project. docs/extending.md has an
example.
"""

from __future__ import annotations

import argparse
import importlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_small.common.cli import SettingsParser, nearest
from roberta_small.common.errors import UserError
from roberta_small.common.run import BEST_CHECKPOINT
from roberta_small.experiments.settings import Settings, SweepSettings
from roberta_small.experiments.sweep import Sweep, Training

MODEL = "model.json"
"""What a linear method writes beside its model: the chosen strength of the penalty, and the scores of all."""


@dataclass(frozen=True)
class Command:
    """The process that trains a run."""

    argv: tuple[str, ...]
    """What is executed; its output goes to train.log."""
    shown: tuple[str, ...]
    """What a user types to train this run, for the manifest and --dry-run."""


class Method(ABC):
    """How runs are trained, in four steps.

    Options are parsed (`settings`), data are prepared (`prepare`), the runs are planned (`sweep`), and
    `experiments.execute` locks each run folder and starts the process of `command`. Importing the module of
    a method must not import torch or fairseq, so that `--help` stays fast.
    """

    name: str
    """The value of `--method`, and the default of the arm of its runs."""
    summary: str
    """One line for `--help`."""
    outputs: tuple[str, ...] = (BEST_CHECKPOINT,)
    """Files that the process of a run writes into its folder, beside the event files."""
    extends: bool = False
    """Whether a finished run resumes if the command requests more epochs."""

    @abstractmethod
    def add_arguments(self, parser: SettingsParser) -> None:
        """Add options, those of `experiments.settings.add_sweep` or at least of `add_execution`."""

    @abstractmethod
    def settings(self, options: argparse.Namespace) -> Settings:
        """The values of the options, with `options.passthrough`, the words after `--`. Raises `UserError`."""

    def prepare(self, settings: Any) -> Path:
        """The folder that the runs read; a file that is given instead is prepared first."""
        return settings.prepare() if isinstance(settings, SweepSettings) else settings.data

    @abstractmethod
    def sweep(self, settings: Any, data: Path) -> Sweep:
        """The runs; writes nothing, and raises `UserError` for whatever would stop a run after its start."""

    @abstractmethod
    def command(self, sweep: Sweep, training: Training, *, resume: bool, cpu: bool) -> Command:
        """The process of a run, which starts anew or resumes; `cpu` is whether it must not use a GPU."""

    def resumable(self, folder: Path) -> bool:
        """Whether a run can resume from what is in its folder."""
        return False

    def repair(self, folder: Path) -> None:  # noqa: B027  not abstract: most methods have nothing to repair
        """Prepare a run folder before its run resumes."""

    def begin(self, sweep: Sweep, training: Training) -> None:  # noqa: B027  most methods have nothing to do
        """What comes before the process of a run, new or resumed; shows its progress, can be interrupted.

        The run is locked. Raises `UserError` if it fails, and then the run has failed.
        """

    def finish(self, sweep: Sweep, folder: Path) -> dict[str, Any]:
        """Complete the folder of a run whose process has ended without an error; returns manifest keys.

        Also called for finished runs, where it adds what is missing. Raises `UserError` if that fails.
        """
        return {}


REGISTERED: dict[str, Method | tuple[str, str]] = {
    "fairseq": ("fairseq's trainer (default)", f"{__name__}.fairseq:METHOD"),
    "transformers": (
        "the Transformers Trainer, on the same data and recipes", f"{__name__}.transformers.method:METHOD",
    ),
    "lora": ("low-rank adapters, with the Transformers Trainer", f"{__name__}.lora.classify:METHOD"),
    "frozen": (
        "a linear classifier of the vectors of a pretrained encoder, which is not trained",
        f"{__name__}.frozen.method:METHOD",
    ),
    "tfidf": (
        "TF-IDF of word n-grams and logistic regression, on text", f"{__name__}.tfidf.method:METHOD",
    ),
}  # fmt: skip
"""Name -> the method, or its summary and `module:OBJECT`, which is imported when it is used."""
DEFAULT = "fairseq"


def register(method: Method) -> None:
    """Make a method available under its name."""
    REGISTERED[method.name] = method


def find(name: str) -> Method:
    """The method of this name or at `package.module:OBJECT`; raises `UserError` if there is none."""
    entry = REGISTERED.get(name)
    if entry is None and ":" not in name:
        raise UserError(
            f"--method {name!r}: no such method{nearest(name, REGISTERED)}; "
            f"choose from {', '.join(REGISTERED)}, or write package.module:OBJECT"
        )
    if entry is not None and not isinstance(entry, tuple):
        return entry
    place = entry[1] if entry else name
    module, _, attribute = place.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        # Python's message names the missing module, which may be a dependency of the method.
        raise UserError(f"--method {name}: {error}; install the package or correct the name") from None
    except AttributeError:
        raise UserError(
            f"--method {name}: module {module} has no object {attribute!r}; correct the name after the colon"
        ) from None


def summaries() -> str:
    """The name and summary of each method, one a line."""
    texts = {
        name: entry[0] if isinstance(entry, tuple) else entry.summary for name, entry in REGISTERED.items()
    }
    return "\n".join(f"  {name:<14}{text}" for name, text in texts.items())
