"""Evaluate checkpoints on a split of binarized data: one, several, or a folder of runs.

For each checkpoint, the report has every metric (accuracy, macro-F1, MCC, AUROC, Brier score, calibration
error) with its bootstrap interval, scores by class and the confusion matrix. For the runs of each method and
initialization, it has mean and standard deviation, and their ensemble (mean of the probabilities). The table
is printed.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common import archive, predictions
from roberta_small.common.cli import positive
from roberta_small.common.data_folder import NOTIONS, Overlap, read_overlap
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write, sha256
from roberta_small.eval.classifier import in_order_of
from roberta_small.eval.model import Model, PrecisionMessages, open_model
from roberta_small.eval.options import add_checkpoint_files, add_checkpoints, add_computation, overrides
from roberta_small.eval.origin import RunCheckpoint, find_runs
from roberta_small.eval.texts import probabilities

if TYPE_CHECKING:
    from roberta_small.common.metrics import Scored
    from roberta_small.eval.report import Group

EXAMPLES = """examples:
  roberta-small evaluate --checkpoint runs/fairseq/pretrained/seed1
  roberta-small evaluate --checkpoint runs --split test --out evaluation.json --write-predictions
  roberta-small evaluate --checkpoint runs --audit audit.json
  roberta-small evaluate --checkpoint results/cls-books/runs.tar.xz --from-predictions
  roberta-small evaluate --checkpoint a/model.pt b/model.pt --data data/books --split valid
"""


@dataclass(frozen=True)
class SplitPredictions:
    """The predictions of one checkpoint for the N examples of a split."""

    run: RunCheckpoint
    classes: list[str]
    labels: NDArray[np.int64]
    """(N,) index of the true class in `classes`."""
    probabilities: NDArray[np.float64]
    """(N, K)."""
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
        help="report of roberta-small audit --out JSON: exclude examples whose text is in train",
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
        help=f"write {predictions.file_name('SPLIT')} to each run folder, for "
        "the commands `compare` and `errors`",
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
    if args.from_predictions:
        evaluated = [read_predictions(run, args.split) for run in runs]
    else:
        options = overrides(args)
        data = options.pop("data")  # the data to evaluate on, not those of training
        evaluated = predict(runs, args.split, data, write=args.write_predictions, **options)
    check_same_examples(evaluated)
    kept_N = select_examples(evaluated[0], overlap)
    groups = score_groups(evaluated, kept_N, args.draws)
    dedup = None
    if overlap is not None:
        dedup = {"audit": args.audit, "notion": overlap.notion, "left_out": len(overlap.lines)}
    report = {
        "split": args.split,
        "examples": int(kept_N.sum()),
        "dedup": dedup,
        "classes": evaluated[0].classes,
        "conventions": conventions(args.draws),
        "sha256": {archive.shown(member.source): sha256(member.source) for member in evaluated},
        "groups": [group.as_json() for group in groups],
    }
    if args.out:
        atomic_write(args.out, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    excluded = f", {len(overlap.lines):,} excluded because they are in train" if overlap else ""
    print(f"{args.split}: {report['examples']:,} examples{excluded}\n")
    print(tables(groups, conventions(args.draws)), end="")


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
    p_NK = probabilities(model.network.logits(examples.rows, progress=model.run.name))
    return SplitPredictions(model.run, examples.classes, examples.labels, p_NK, model.run.checkpoint)


def read_predictions(run: RunCheckpoint, split: str) -> SplitPredictions:
    """Read a run's prediction file; raises `UserError` if an example or its true class is missing."""
    path = run.folder / predictions.file_name(split)
    found = predictions.read(path)
    classes = list(found[0].probabilities)
    for index, prediction in enumerate(found):
        if prediction.index != index or prediction.true_class is None:
            what = "its prediction is missing" if prediction.index != index else "its true class is unknown"
            raise UserError(
                f"{path}: example {index}: {what}; evaluate the checkpoint with --write-predictions"
            )
    labels_N = np.array([classes.index(one.true_class) for one in found if one.true_class is not None])
    p_NK = np.array([list(prediction.probabilities.values()) for prediction in found], dtype=np.float64)
    return SplitPredictions(run, classes, labels_N, p_NK, path)


def check_same_examples(evaluated: list[SplitPredictions]) -> None:
    """Raise `UserError` if the true classes differ: the runs were trained on different data."""
    first, *others = [np.array(member.classes)[member.labels] for member in evaluated]
    for member, labels_N in zip(evaluated[1:], others, strict=True):
        if not np.array_equal(first, labels_N):
            raise UserError(
                f"{member.run.name} and {evaluated[0].run.name} have different examples; "
                "pass the data to evaluate on with --data"
            )


def select_examples(member: SplitPredictions, overlap: Overlap | None) -> NDArray[np.bool_]:
    """Which examples to score, (N,) bool; raises `UserError` if the audit is of other data or leaves none."""
    kept_N = np.ones(len(member.labels), dtype=bool)
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
    from roberta_small.eval.report import Group, Scores

    groups: dict[str, list[SplitPredictions]] = {}
    for member in evaluated:
        groups.setdefault(member.run.group, []).append(member)
    found = []
    for name, members in groups.items():
        classes = members[0].classes
        first = members[0].run.name
        columns = [
            in_order_of(classes, member.classes, member.probabilities, member.run.name, first)
            for member in members
        ]
        ensemble = None
        if len(members) > 1:
            scored = _scored(members[0].labels, np.mean(columns, axis=0), kept_N)
            ensemble = Scores.compute(f"{name} ensemble".strip(), scored, classes, draws=draws)
        scores = [
            Scores.compute(member.run.name, _scored(members[0].labels, p_NK, kept_N), classes, draws=draws)
            for member, p_NK in zip(members, columns, strict=True)
        ]
        found.append(Group(name, scores, ensemble))
    return found


def write_predictions(member: SplitPredictions, split: str) -> Path:
    """Write the predictions to the run folder; returns the path."""
    path = member.run.folder / predictions.file_name(split)
    predictions.write(
        path, predictions.from_probabilities(member.classes, member.probabilities, member.labels)
    )
    return path


def _scored(labels_N: NDArray[np.int64], p_NK: NDArray[np.float64], kept_N: NDArray[np.bool_]) -> Scored:
    from roberta_small.common.metrics import Scored

    return Scored(labels_N[kept_N], p_NK[kept_N])


def _check_no_unused_options(args: argparse.Namespace) -> None:
    """Raise `UserError` for options that have no effect with --from-predictions."""
    given = {
        "--write-predictions": args.write_predictions,
        "--data": args.data,
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
