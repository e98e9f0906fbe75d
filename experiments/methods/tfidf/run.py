"""The method tfidf: its options, and its run folder (manifest, event files, predictions, model.json)."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from roberta_small.common import manifest, predictions
from roberta_small.common.cli import OneOrMore, SettingsParser, positive
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write, shown_path
from roberta_small.common.predictions import Prediction
from roberta_small.common.run import TENSORBOARD, Run, State
from roberta_small.experiments import inputs, prepare, provenance, report
from roberta_small.experiments import plan as sweep_plan
from roberta_small.experiments.methods.tfidf.model import (
    STRENGTHS,
    Features,
    Fitted,
    Probabilities,
    Split,
    Splits,
    file_names,
    fit,
    read_folder,
    scores,
)
from roberta_small.experiments.recipes import Recipe

ARM, INIT, SEED = "bow", "tfidf", 0
RECIPE = "logistic-regression"
PACKAGES = ("scikit-learn", "scipy", "numpy", "tensorboard")
STEP = 1
"""The fit is logged as one step."""
MOST_INFORMATIVE = 50


@dataclass(frozen=True)
class Store:
    """A planned run."""

    run: Run
    finished: bool
    content: manifest.Manifest
    """The manifest keys that are known before the fit."""

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.run.folder

    def write(
        self, fitted: Fitted, splits: Splits, started: str, seconds: float
    ) -> dict[str, dict[str, float]]:
        """Write scores, predictions and model.json, then the final status; returns the scores by split.

        `started` is the time at which the fit started, `seconds` its duration.
        """
        sweep_plan.clear(self.run)
        content = self.content | provenance.static(provenance.machine("cpu"), PACKAGES)
        content |= {"status": "running", "started": started, "ended": None, "seconds": round(seconds, 3)}
        manifest.write(self.folder, content)
        results = {}
        for name, split in splits.items():
            probabilities_NK = fitted.probabilities(split.texts)
            results[name] = scores(probabilities_NK, split, fitted.classes)
            _write_events(self.folder / TENSORBOARD / name, results[name])
            if name != "train":
                path = self.folder / predictions.file_name(name)
                predictions.write(path, _predictions(probabilities_NK, split, fitted.classes))
        atomic_write(self.folder / "model.json", _model(fitted))
        manifest.write(self.folder, content | {"status": "finished", "ended": provenance.now()})
        return results


def plan(out: Path, text: Path, features: Features) -> Store:
    """Plan the run below `out`.

    Raises `UserError` if its folder contains another experiment or unknown files, or is not writable.
    """
    inputs.require_writable(out)
    run = Run.below(out, ARM, INIT, SEED)
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
        "command": [
            *("./train.sh", "--method", "tfidf", "--text", shown_path(text), "--out", shown_path(out)),
            *flags,
        ],
    }
    return Store(run, state is State.FINISHED, content)


def _write_events(folder: Path, values: dict[str, float]) -> None:
    writer = EventFileWriter(str(folder))
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
    writer.add_event(Event(wall_time=time.time(), step=STEP, summary=summary))
    writer.close()


def _predictions(probabilities_NK: Probabilities, split: Split, classes: list[str]) -> list[Prediction]:
    return [
        Prediction(index, label, dict(zip(classes, row, strict=True)))
        for index, (label, row) in enumerate(zip(split.labels, probabilities_NK.tolist(), strict=True))
    ]


def _model(fitted: Fitted) -> str:
    content: dict[str, Any] = {
        "C": fitted.strength,
        "valid_accuracy": [{"C": c, "accuracy": x} for c, x in fitted.valid_accuracy.items()],
        "ngrams": len(fitted.vectorizer.vocabulary_),
        "telling": {
            name: [{"ngram": ngram, "weight": weight} for ngram, weight in ngrams]
            for name, ngrams in fitted.most_informative(MOST_INFORMATIVE).items()
        },
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


DESCRIPTION = f"""\
TF-IDF of word n-grams and logistic regression, fitted on train: a baseline for neural classifiers.
The strength of the regularization is chosen by accuracy on valid, among {len(STRENGTHS)} values of C
from {STRENGTHS[0]:g} to {STRENGTHS[-1]:g} on a logarithmic scale; the smallest C wins a tie.
Test is not used for the choice.

A word is a run of two or more letters, digits or underscores, in lower case (scikit-learn's token_pattern).

The fit is deterministic: there is one run, OUT/bow/tfidf/seed0, with the scores as TensorBoard scalars, the
predictions of valid and test, and model.json: the chosen C and the most informative n-grams of each class."""

EXAMPLES = """examples:
  ./train.sh --method tfidf --data reviews.csv --out runs
  ./train.sh --method tfidf --text cls-books/split --out runs
  ./train.sh --method tfidf --data books=data/books films=films.csv --out runs
  ./train.sh --method tfidf --text cls-books/split --out runs --ngrams 1 1 --min-df 2 --sublinear
  python -m analysis tables runs
"""


class Tfidf:
    """The method `tfidf` (see `experiments.methods.Method`)."""

    name = "tfidf"
    summary = "TF-IDF of word n-grams and logistic regression, on text"

    def add_arguments(self, parser: SettingsParser) -> None:
        """Add --data or --text, --out and the options of the features."""
        parser.description, parser.epilog = DESCRIPTION, EXAMPLES
        prepare.add_data(parser)
        parser.add_setting(
            "text",
            None,
            "instead of --data: folder with SPLIT.input0 and SPLIT.label, as written by "
            "`python -m preprocess split`; several: NAME=FOLDER NAME=FOLDER ...",
            nargs="+",
            action=OneOrMore,
        )
        parser.add_setting("out", "runs", "folder of the runs")
        parser.add_argument(
            "--dry-run", action="store_true", help="print the plan and the command only (a file is prepared)"
        )
        parser.add_argument(
            "--ngrams", type=positive, nargs=2, default=(1, 2), metavar=("MIN", "MAX"),
            help="minimum and maximum number of words of an n-gram (1 2)",
        )  # fmt: skip
        parser.add_argument(
            "--min-df", type=positive, default=1, metavar="N",
            help="ignore n-grams that occur in fewer than N training texts (%(default)s)",
        )  # fmt: skip
        parser.add_argument(
            "--sublinear", action="store_true", help="count n occurrences in a text as 1 + log(n)"
        )
        prepare.add_options(parser)

    def train(self, options: argparse.Namespace) -> int:
        """Fit, write the run and return the exit code; raises `UserError` before the run is written."""
        if options.passthrough:
            raise UserError(f"after --: {options.passthrough[0]}: the method tfidf accepts no flags after --")
        features, out = _features(options), Path(options.out)
        inputs.require_writable(out)
        return _train(_text(options), out, features, dry_run=options.dry_run)


METHOD = Tfidf()


def _train(text: Path, out: Path, features: Features, *, dry_run: bool) -> int:
    splits = read_folder(text)
    run = plan(out, text, features)
    if dry_run:
        print(f"{run.folder}: {'finished (skipped)' if run.finished else 'new'}")
        print(shlex.join(run.content["command"]))
        return 0
    if run.finished:
        print(f"{run.folder}: finished, skipped (delete the folder to fit again)")
        return 0
    started, began = provenance.now(), time.monotonic()
    fitted = fit(splits, features)
    results = run.write(fitted, splits, started, time.monotonic() - began)
    for strength, accuracy in fitted.valid_accuracy.items():
        print(f"C {strength:<8.3g} valid accuracy {accuracy:.2f}{'  chosen' * (strength == fitted.strength)}")
    for name, measured in results.items():
        print(f"{name:<5}  accuracy {measured['accuracy']:.2f}  macro-F1 {measured['macro_f1']:.4f}")
    print(f"written to {run.folder}")
    report.print_next(out)
    return 0


def _text(options: argparse.Namespace) -> Path:
    """The folder of line files: --text, or that of the data folder or file in --data."""
    if (options.text is None) == (options.data is None):
        problem = "both are given" if options.text is not None else "both are missing"
        raise UserError(f"--data and --text (or RS_DATA= and RS_TEXT=): {problem}; pass one of them")
    if options.data is not None:
        return prepare.text_folder(prepare.data_folder(options))
    prepare.reject_options(options, f"--text {options.text} contains the splits already")
    return Path(options.text)


def _features(options: argparse.Namespace) -> Features:
    shortest, longest = options.ngrams
    if shortest > longest:
        raise UserError(f"--ngrams {shortest} {longest}: MIN is larger than MAX; write {longest} {shortest}")
    return Features((shortest, longest), options.min_df, options.sublinear)
