"""Evaluate checkpoints on a split of binarized data: one, several, or a folder of runs.

For each checkpoint, the report has every metric (accuracy, macro-F1, MCC, AUROC, Brier score, calibration
error) with its bootstrap interval, scores by class and the confusion matrix. Multi-label data have micro-F1,
macro-F1, subset accuracy and scores by class, numeric labels Pearson and Spearman correlation and the root of
the mean squared error. For the runs of each method and
initialization, it has mean and standard deviation, and their ensemble (mean of the probabilities). The table
is printed.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common import archive, predictions
from roberta_small.common.cli import positive
from roberta_small.common.data_folder import NOTIONS, REPORT, Overlap, read_overlap
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write, sha256
from roberta_small.common.label_kinds import Labels, Targets, kind_of_report
from roberta_small.common.run import THRESHOLDS, write_thresholds
from roberta_small.eval.classifier import in_order_of, mean_labels
from roberta_small.eval.model import Model, PrecisionMessages, open_model
from roberta_small.eval.options import add_checkpoint_files, add_checkpoints, add_computation, overrides
from roberta_small.eval.origin import DataFolder, RunCheckpoint, find_runs

if TYPE_CHECKING:
    from roberta_small.eval.report import Group

EXAMPLES = """examples:
  roberta-small evaluate --checkpoint runs/fairseq/pretrained/seed1
  roberta-small evaluate --checkpoint runs --split test --out evaluation.json --write-predictions
  roberta-small evaluate --checkpoint runs --errors errors.html
  roberta-small evaluate --checkpoint runs --audit audit.json
  roberta-small evaluate --checkpoint results/cls-books/runs.tar.xz --from-predictions
  roberta-small evaluate --checkpoint a/model.pt b/model.pt --data data/books --split valid
"""


@dataclass(frozen=True)
class SplitPredictions:
    """The predictions of one checkpoint for the N examples of a split."""

    run: RunCheckpoint
    labels: Labels
    targets: Targets
    """As in `common.label_kinds`."""
    outputs: NDArray[np.float64]
    """(N, K), as `Labels.outputs`."""
    source: Path
    """The checkpoint, or the prediction file if that was evaluated."""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `evaluate`."""
    parser = subparsers.add_parser(
        "evaluate",
        help="evaluate checkpoints: metrics with intervals, mean over runs, ensemble",
        description=__doc__,
        examples=EXAMPLES,
    )
    add_checkpoints(parser)
    parser.add_argument("--split", default="test", help="split to evaluate (default: %(default)s)")
    parser.add_argument(
        "--audit",
        metavar="JSON",
        help="audit.json of the data folder: exclude examples whose text is in train",
    )
    parser.add_argument(
        "--duplicates",
        choices=NOTIONS,
        default="exact",
        help="kind of duplicate to exclude (default: %(default)s)",
    )
    parser.add_argument(
        "--write-predictions",
        action="store_true",
        help=f"write {predictions.file_name('SPLIT')} to each run folder, for the command `compare`",
    )
    parser.add_argument(
        "--from-predictions",
        action="store_true",
        help="score existing prediction files; needs neither checkpoints nor data",
    )
    parser.add_argument(
        "--draws", type=positive, default=2000, metavar="N", help="bootstrap samples (default: %(default)s)"
    )
    parser.add_argument("--out", metavar="JSON", help="JSON file for all values at full precision")
    parser.add_argument(
        "--errors",
        metavar="HTML",
        help="HTML page of the misclassified examples, disagreements of seeds and accuracy by length",
    )
    add_checkpoint_files(parser, tokenizer=False)
    add_computation(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Predict with each checkpoint, score, print the table and write the report."""
    from roberta_small.eval.report import conventions, tables

    if args.from_predictions:
        _check_no_unused_options(args)
        runs = find_runs(args.checkpoint, [predictions.file_name(args.split)])
    else:
        runs = find_runs(args.checkpoint)
    if args.write_predictions:
        _check_one_checkpoint_per_folder(runs)
    overlap = read_overlap(args.audit, args.split, notion=args.duplicates) if args.audit else None
    texts = error_texts(args, runs[0]) if args.errors else []
    if args.from_predictions:
        evaluated = [read_predictions(run, args.split) for run in runs]
    else:
        options = overrides(args)
        data = options.pop("data")  # the data to evaluate on, not those of training
        evaluated = predict(runs, args.split, data, write=args.write_predictions, **options)
    check_same_examples(evaluated)
    kept_N = select_examples(evaluated[0], overlap)
    if args.errors:
        write_errors(args.errors, evaluated, kept_N, texts, args.split)
    groups = score_groups(evaluated, kept_N, args.draws)
    labels = evaluated[0].labels
    dedup = None
    if overlap is not None:
        dedup = {"audit": args.audit, "notion": overlap.notion, "left_out": len(overlap.lines)}
    majority = majority_class(labels, evaluated[0].targets[kept_N])
    report = {
        "split": args.split,
        "examples": int(kept_N.sum()),
        **({} if majority is None else {"majority": majority}),
        "dedup": dedup,
        "classes": list(labels.classes),
        **({} if labels.kind.exclusive else {"label_kind": labels.kind.name}),
        "conventions": conventions(args.draws, labels.kind.name),
        "sha256": {archive.shown(member.source): sha256(member.source) for member in evaluated},
        "groups": [group.as_json() for group in groups],
    }
    if args.out:
        atomic_write(args.out, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    excluded = f", {len(overlap.lines):,} excluded because they are in train" if overlap else ""
    baseline = f"\nmajority class: {majority['class']}, {majority['accuracy']:.2f} %" if majority else ""
    print(f"{args.split}: {report['examples']:,} examples{excluded}{baseline}\n")
    print(tables(groups, conventions(args.draws, labels.kind.name)), end="")


def predict(
    runs: Iterable[RunCheckpoint], split: str, data: str | None, *, write: bool, **options: Any
) -> list[SplitPredictions]:
    """Predict a split of `data`, or of the training data, with each checkpoint; prints their precision.

    `options` as for `open_model`. With `write`, the predictions of a checkpoint are written before the next
    one is read, so that an interruption does not lose them.
    """
    messages = PrecisionMessages()
    evaluated = []
    for run in runs:
        evaluated.append(_predict_one(open_model(run, **options), split, data, messages))
        if write:
            write_predictions(evaluated[-1], split)
    return evaluated


def _predict_one(model: Model, split: str, data: str | None, messages: PrecisionMessages) -> SplitPredictions:
    examples = model.examples(split, data)
    messages.show(model.precision)
    outputs_NK = model.labels.outputs(model.network.logits(examples.rows, progress=model.run.name))
    # The names are those of the data that are evaluated if the training data no longer exist.
    labels = replace(model.labels, classes=tuple(examples.classes))
    return SplitPredictions(model.run, labels, examples.labels, outputs_NK, model.run.checkpoint)


def choose_thresholds(folder: Path, subset: str, **options: Any) -> None:
    """Choose the thresholds of a multi-label run on a subset of its data, and write them into its folder.

    Nothing is done for other kinds of labels, and if they are there. `options` as for `open_model`.
    """
    from roberta_small.common.label_kinds import chosen_thresholds

    if (folder / THRESHOLDS).is_file():
        return
    model = open_model(folder, **options)
    examples = model.examples(subset)
    outputs_NK = model.labels.outputs(model.network.logits(examples.rows))
    if found := chosen_thresholds(model.labels, examples.labels, outputs_NK):
        write_thresholds(folder, found)


def error_texts(args: argparse.Namespace, run: RunCheckpoint) -> list[str]:
    """The text of the split, for --errors.

    Raises `UserError` if the data do not have it, and unless an example has one class.
    """
    from roberta_small.eval.error_analysis import find_texts, read_texts

    data = DataFolder.given(args.data) if args.data else DataFolder.recorded(run.data.get("path"))
    kind = kind_of_report(data.report, data.path / REPORT)
    if not kind.exclusive:
        raise UserError(f"--errors: needs examples with one class each; those of {data.path} are {kind.name}")
    return read_texts(find_texts(data, args.split))


def write_errors(
    path: str, evaluated: list[SplitPredictions], kept_N: NDArray[np.bool_], texts: list[str], split: str
) -> None:
    """Write the page of --errors."""
    from roberta_small.eval.error_analysis import write_page

    predicted = [
        [
            one
            for one in predictions.from_outputs(member.labels, member.outputs, member.targets)
            if isinstance(one, predictions.Prediction) and kept_N[one.index]
        ]
        for member in evaluated
    ]
    write_page(path, [member.run for member in evaluated], predicted, texts, split)


def read_predictions(run: RunCheckpoint, split: str) -> SplitPredictions:
    """Read a run's prediction file; raises `UserError` if an example or its true class is missing."""
    path = run.folder / predictions.file_name(split)
    found = predictions.read_any(path)
    for index, prediction in enumerate(found):
        if prediction.index != index or not prediction.known:
            what = "its prediction is missing" if prediction.index != index else "its true class is unknown"
            raise UserError(
                f"{path}: example {index}: {what}; evaluate the checkpoint with --write-predictions"
            )
    arrays = predictions.to_arrays(found)
    return SplitPredictions(run, arrays.labels, arrays.targets, arrays.outputs, path)


def check_same_examples(evaluated: list[SplitPredictions]) -> None:
    """Raise `UserError` if the labels differ: the runs were trained on different data."""
    first, *others = map(_named_targets, evaluated)
    for member, targets in zip(evaluated[1:], others, strict=True):
        if member.labels.kind is not evaluated[0].labels.kind or first != targets:
            raise UserError(
                f"{member.run.name} and {evaluated[0].run.name} have different examples; "
                "pass the data to evaluate on with --data"
            )


def _named_targets(member: SplitPredictions) -> list[Any]:
    """The labels of each example, whatever the order of the classes."""
    labels, targets = member.labels, member.targets
    if not labels.kind.has_classes:
        return targets.tolist()
    names = np.array(labels.classes)
    if labels.kind.exclusive:
        return names[targets].tolist()
    return [frozenset(names[row_K].tolist()) for row_K in targets]


def majority_class(labels: Labels, targets: Targets) -> dict[str, Any] | None:
    """The most frequent class, and the accuracy in percent of always predicting it.

    None unless an example has one class.
    """
    if not labels.kind.exclusive:
        return None
    counts_K = np.bincount(targets, minlength=labels.size)
    most = int(counts_K.argmax())
    return {"class": labels.classes[most], "accuracy": 100 * float(counts_K[most]) / len(targets)}


def select_examples(member: SplitPredictions, overlap: Overlap | None) -> NDArray[np.bool_]:
    """Which examples to score, (N,) bool; raises `UserError` if the audit is of other data or leaves none."""
    kept_N = np.ones(len(member.targets), dtype=bool)
    if overlap is None:
        return kept_N
    if overlap.size != len(kept_N):
        raise UserError(
            f"--audit: describes {overlap.size:,} lines of {overlap.split}, but the data have "
            f"{len(kept_N):,}; audit the same text"
        )
    kept_N[list(overlap.lines)] = False
    if not kept_N.any():
        raise UserError(
            f"--audit: every line of {overlap.split} is also in {overlap.other}; no example is left"
        )
    return kept_N


def score_groups(evaluated: list[SplitPredictions], kept_N: NDArray[np.bool_], draws: int) -> list[Group]:
    """A `report.Group` for each method and initialization, in the order of the checkpoints."""
    from roberta_small.common.metrics import scored
    from roberta_small.eval.report import Group, Scores

    groups: dict[str, list[SplitPredictions]] = {}
    for member in evaluated:
        groups.setdefault(member.run.group, []).append(member)
    found = []
    for name, members in groups.items():
        labels, first = members[0].labels, members[0].run.name
        columns = [
            in_order_of(
                list(labels.classes), list(member.labels.classes), member.outputs, member.run.name, first
            )
            for member in members
        ]
        # Each with its own thresholds.
        own = [
            labels.with_thresholds(dict(zip(one.classes, one.thresholds, strict=False)))
            for one in (member.labels for member in members)
        ]
        targets = members[0].targets[kept_N]
        ensemble = None
        if len(members) > 1:
            together = mean_labels(own)
            ensemble = Scores.compute(
                f"{name} ensemble".strip(),
                scored(together, targets, np.mean(columns, axis=0)[kept_N]),
                list(labels.classes),
                draws=draws,
            )
        scores = [
            Scores.compute(
                member.run.name,
                scored(meaning, targets, outputs_NK[kept_N]),
                list(labels.classes),
                draws=draws,
            )
            for member, meaning, outputs_NK in zip(members, own, columns, strict=True)
        ]
        found.append(Group(name, scores, ensemble))
    return found


def write_predictions(member: SplitPredictions, split: str) -> Path:
    """Write the predictions to the run folder; returns the path."""
    path = member.run.folder / predictions.file_name(split)
    predictions.write(path, predictions.from_outputs(member.labels, member.outputs, member.targets))
    return path


def _check_no_unused_options(args: argparse.Namespace) -> None:
    """Raise `UserError` for options that have no effect with --from-predictions."""
    given = {
        "--write-predictions": args.write_predictions,
        "--data": args.data and not args.errors,  # where the text of the page is
        "--dict": args.dict,
        "--precision": args.precision,
        "--device": args.device != "auto",
        "--max-tokens": args.max_tokens,
    }
    if names := [name for name, value in given.items() if value]:
        raise UserError(f"{', '.join(names)}: not allowed with --from-predictions")


def _check_one_checkpoint_per_folder(runs: list[RunCheckpoint]) -> None:
    folder, count = Counter(run.folder for run in runs).most_common(1)[0]
    if count > 1:
        raise UserError(
            f"{folder}: {count} checkpoints specified, but --write-predictions writes one file per split; "
            "specify only one of them"
        )
