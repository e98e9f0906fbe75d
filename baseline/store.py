"""The run folder of the baseline: what `common.manifest` and `common.predictions` ask for, and model.json."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from common import manifest, predictions
from common.files import atomic_write
from common.predictions import Prediction
from sweep import inputs, record
from sweep import plan as sweep_plan
from sweep.command import shown_path
from sweep.plan import Run, State
from sweep.recipes import Recipe

from .model import Features, Fitted, Probabilities, scores
from .text import Split, Splits, file_names

ARM, INIT, SEED = "bow", "tfidf", 0
RECIPE = "logistic-regression"
PACKAGES = ("scikit-learn", "scipy", "numpy", "tensorboard")
STEP = 1
"""The fit is one step, and its own validation."""
TELLING = 50


@dataclass(frozen=True)
class Store:
    """A planned run; `content` is what is known of its manifest."""

    run: Run
    finished: bool
    content: manifest.Manifest

    @property
    def folder(self) -> Path:
        """Where everything goes."""
        return self.run.folder

    def write(
        self, fitted: Fitted, splits: Splits, started: str, seconds: float
    ) -> dict[str, dict[str, float]]:
        """Write scores, predictions and model.json, then that it is finished; returns the scores by split.

        `started` is when the fit began, which took `seconds`.
        """
        sweep_plan.clear(self.run)
        content = self.content | record.static(record.machine("cpu"), PACKAGES)
        content |= {"status": "running", "started": started, "ended": None, "seconds": round(seconds, 3)}
        manifest.write(self.folder, content)
        results = {}
        for name, split in splits.items():
            probabilities_NK = fitted.probabilities(split.texts)
            results[name] = scores(probabilities_NK, split, fitted.classes)
            _write_events(self.folder / sweep_plan.TENSORBOARD / name, results[name])
            if name != "train":
                answers = _predictions(probabilities_NK, split, fitted.classes)
                predictions.write(self.folder / predictions.file_name(name), answers)
        atomic_write(self.folder / "model.json", _model(fitted))
        manifest.write(self.folder, content | {"status": "finished", "ended": record.now()})
        return results


def plan(out: Path, text: Path, features: Features) -> Store:
    """The run below `out`, and whether it is finished already.

    Raises `UserError` where its folder holds another experiment or none that is known, or cannot be written.
    """
    inputs.require_writable(out)
    run = Run(out / ARM / INIT / f"seed{SEED}", ARM, INIT, SEED, None)
    flags = features.words()
    identity = {
        "data": inputs.fingerprint_data(text, file_names()),
        "checkpoint": None,
        "recipe_flags": flags,
    }
    state = sweep_plan.inspect(run, identity, Recipe(RECIPE, tuple(flags))).state
    content = identity | {
        "schema": manifest.SCHEMA,
        "arm": ARM,
        "init": INIT,
        "seed": SEED,
        "recipe": RECIPE,
        "command": ["python", "-m", "baseline", "--text", shown_path(text), "--out", shown_path(out), *flags],
    }
    return Store(run, state is State.FINISHED, content)


def _write_events(folder: Path, values: dict[str, float]) -> None:
    writer = EventFileWriter(str(folder))
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
    writer.add_event(Event(wall_time=time.time(), step=STEP, summary=summary))
    writer.close()


def _predictions(probabilities_NK: Probabilities, split: Split, classes: list[str]) -> list[Prediction]:
    return [
        Prediction(index, gold, dict(zip(classes, row, strict=True)))
        for index, (gold, row) in enumerate(zip(split.labels, probabilities_NK.tolist(), strict=True))
    ]


def _model(fitted: Fitted) -> str:
    content: dict[str, Any] = {
        "C": fitted.strength,
        "valid_accuracy": [{"C": c, "accuracy": x} for c, x in fitted.valid_accuracy.items()],
        "ngrams": len(fitted.vectorizer.vocabulary_),
        "telling": {
            name: [{"ngram": ngram, "weight": weight} for ngram, weight in ngrams]
            for name, ngrams in fitted.telling(TELLING).items()
        },
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
