"""Evaluate checkpoints on a split of binarized data: one, several, or a folder of runs.

For each checkpoint: every metric (accuracy, macro-F1, MCC, AUROC, Brier score, calibration error) with its
bootstrap interval, scores by class and the confusion matrix. For the runs of each method and initialization:
mean and standard deviation, and their ensemble (mean of the probabilities). The table is printed.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common import predictions
from common.cli import positive
from common.data_folder import NOTIONS, Overlap, read_overlap
from common.errors import UserError
from common.files import atomic_write, sha256
from common.predictions import Prediction

from .loading.runs import RunCheckpoint, find_runs
from .options import add_checkpoint_files, add_computation, add_max_tokens

EXAMPLES = """examples:
  python -m eval evaluate --checkpoint runs/fairseq/pretrained/seed1
  python -m eval evaluate --checkpoint runs --split test --out evaluation.json --write-predictions
  python -m eval evaluate --checkpoint runs --audit audit.json
  python -m eval evaluate --checkpoint results/cls-books/runs --from-predictions
  python -m eval evaluate --checkpoint a/model.pt b/model.pt --data data/books --split valid
"""


@dataclass(frozen=True)
class SplitPredictions:
    """The predictions of one checkpoint for a split."""

    run: RunCheckpoint
    classes: list[str]
    labels: NDArray[np.int64]
    """(N,) index of the true class."""
    probabilities: NDArray[np.float64]
    """(N, K)."""
    source: Path
    """What was evaluated: the checkpoint or a prediction file."""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `evaluate`."""
    parser = subparsers.add_parser(
        "evaluate",
        help="metrics with intervals of checkpoints, their mean and their ensemble",
        description=__doc__,
        examples=EXAMPLES,
    )
    parser.add_argument(
        "--checkpoint",
        required=True,
        nargs="+",
        metavar="PATH",
        help="checkpoints, run folders or folders with runs",
    )
    parser.add_argument("--split", default="test", help="(default: %(default)s)")
    parser.add_argument(
        "--audit",
        metavar="JSON",
        help="leave out examples whose text is in train; report of: python -m preprocess audit --out JSON",
    )
    parser.deprecated("--dedup", "--audit")
    parser.add_argument(
        "--duplicates",
        choices=NOTIONS,
        default="exact",
        help="which duplicates of the audit to leave out (default: %(default)s)",
    )
    parser.add_argument(
        "--write-predictions",
        action="store_true",
        help=f"write {predictions.file_name('SPLIT')} to each run folder, for analysis and errors",
    )
    parser.add_argument(
        "--from-predictions",
        action="store_true",
        help="score existing prediction files; needs neither checkpoints nor data",
    )
    parser.add_argument(
        "--draws", type=positive, default=2000, metavar="N", help="of the bootstrap (default: %(default)s)"
    )
    parser.add_argument("--out", metavar="JSON", help="also write all values at full precision")
    parser.deprecated("--output", "--out")
    add_checkpoint_files(parser)
    add_max_tokens(add_computation(parser))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Predict with each checkpoint, score, print and write."""
    from .report import conventions, tables

    if args.from_predictions:
        _refuse_unused_options(args)
        runs = find_runs(args.checkpoint, predictions.file_name(args.split))
    else:
        runs = find_runs(args.checkpoint)
    if args.write_predictions:
        _one_checkpoint_a_folder(runs)
    overlap = read_overlap(args.audit, args.split, notion=args.duplicates) if args.audit else None
    evaluated = [recorded(run, args.split) if args.from_predictions else predict(run, args) for run in runs]
    check_same_examples(evaluated)
    kept_N = kept(evaluated[0], overlap)
    groups = measure(evaluated, kept_N, args.draws)
    if args.write_predictions:
        for member in evaluated:
            write_predictions(member, args.split)
    report = {
        "split": args.split,
        "examples": int(kept_N.sum()),
        "dedup": _dedup(args, overlap),
        "classes": evaluated[0].classes,
        "conventions": conventions(args.draws),
        "sha256": {str(member.source): sha256(member.source) for member in evaluated},
        "groups": [group.as_json() for group in groups],
    }
    if args.out:
        atomic_write(args.out, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    without = f", {len(overlap.lines):,} that are in train left out" if overlap else ""
    print(f"{args.split}: {report['examples']:,} examples{without}\n")
    print(tables(groups, report["conventions"]), end="")


def predict(run: RunCheckpoint, args: argparse.Namespace) -> SplitPredictions:
    """The predictions of one checkpoint for the split of the options."""
    from .loading.checkpoint import read_checkpoint
    from .loading.inputs import read_split
    from .loading.network import Network, probabilities
    from .loading.sources import class_names_of, data_folder, dictionary_of

    checkpoint = read_checkpoint(run.checkpoint)
    trained_on = data_folder(run, checkpoint)
    data = data_folder(run, checkpoint, args.data) if args.data else trained_on
    if not data.exists:
        raise UserError(f"{data.path}: no such folder (data of {run.name}); give the data with --data")
    dictionary, _ = dictionary_of(run, checkpoint, data, args.dict)
    classes = class_names_of(checkpoint, trained_on if trained_on.exists else data)
    examples = read_split(checkpoint, dictionary, classes, data.path, args.split)
    network = Network(
        checkpoint, dictionary, device=args.device, precision=args.precision, max_tokens=args.max_tokens
    )
    p_NK = probabilities(network.logits(examples.rows, progress=run.name))
    return SplitPredictions(run, classes, examples.labels, p_NK, run.checkpoint)


def recorded(run: RunCheckpoint, split: str) -> SplitPredictions:
    """The predictions in a run's file; raises `UserError` if one or its true class is missing."""
    path = run.folder / predictions.file_name(split)
    found = predictions.read(path)
    classes = list(found[0].probabilities)
    for place, prediction in enumerate(found):
        if prediction.index != place or prediction.gold is None:
            what = "its prediction is missing" if prediction.index != place else "its true class is unknown"
            raise UserError(
                f"{path}: example {place}: {what}; evaluate the checkpoint with --write-predictions"
            )
    labels_N = np.array([classes.index(prediction.gold) for prediction in found])
    p_NK = np.array([list(prediction.probabilities.values()) for prediction in found], dtype=np.float64)
    return SplitPredictions(run, classes, labels_N, p_NK, path)


def check_same_examples(evaluated: list[SplitPredictions]) -> None:
    """Raise `UserError` if the true classes differ, because the runs were trained on different data."""
    first, *others = [np.array(member.classes)[member.labels] for member in evaluated]
    for member, labels_N in zip(evaluated[1:], others, strict=True):
        if not np.array_equal(first, labels_N):
            raise UserError(
                f"{member.run.name} and {evaluated[0].run.name} have different examples in their data; "
                "give the data to evaluate on with --data"
            )


def kept(member: SplitPredictions, overlap: Overlap | None) -> NDArray[np.bool_]:
    """(N,) examples to score; raises `UserError` if the audit is of other data or leaves no example."""
    kept_N = np.ones(len(member.labels), dtype=bool)
    if overlap is None:
        return kept_N
    if overlap.size != len(kept_N):
        raise UserError(
            f"--audit: {overlap.split} has {overlap.size:,} lines there, but {len(kept_N):,} in the data; "
            "audit the same text"
        )
    kept_N[list(overlap.lines)] = False
    if not kept_N.any():
        raise UserError(
            f"--audit: every line of {overlap.split} is also in {overlap.other}; no example is left"
        )
    return kept_N


def measure(evaluated: list[SplitPredictions], kept_N: NDArray[np.bool_], draws: int) -> list[Any]:
    """A `report.Group` for each method and initialization, in the order of the checkpoints."""
    from .report import Group, Scores

    groups: dict[str, list[SplitPredictions]] = {}
    for member in evaluated:
        groups.setdefault(member.run.group, []).append(member)
    found = []
    for name, members in groups.items():
        classes = members[0].classes
        columns = [_in_order_of(classes, member) for member in members]
        ensemble = None
        if len(members) > 1:
            mean_NK = np.mean(columns, axis=0)
            ensemble = Scores.of(
                f"{name} ensemble".strip(), _scored(members[0].labels, mean_NK, kept_N), classes, draws=draws
            )
        scores = [
            Scores.of(member.run.name, _scored(members[0].labels, p_NK, kept_N), classes, draws=draws)
            for member, p_NK in zip(members, columns, strict=True)
        ]
        found.append(Group(name, scores, ensemble))
    return found


def write_predictions(member: SplitPredictions, split: str) -> Path:
    """Write the predictions to the run folder; returns the path."""
    path = member.run.folder / predictions.file_name(split)

    def lines() -> Iterable[Prediction]:
        for index, (k, row_K) in enumerate(zip(member.labels, member.probabilities.tolist(), strict=True)):
            yield Prediction(index, member.classes[k], dict(zip(member.classes, row_K, strict=True)))

    predictions.write(path, lines())
    return path


def _scored(labels_N: NDArray[np.int64], p_NK: NDArray[np.float64], kept_N: NDArray[np.bool_]) -> Any:
    from common.metrics import Scored

    return Scored(labels_N[kept_N], p_NK[kept_N])


def _in_order_of(classes: list[str], member: SplitPredictions) -> NDArray[np.float64]:
    """(N, K) with the columns in the order of `classes`."""
    if sorted(classes) != sorted(member.classes):
        raise UserError(
            f"{member.run.name}: classes {', '.join(member.classes)}, but {', '.join(classes)} in the "
            "first checkpoint; evaluate classifiers of the same classes together"
        )
    return member.probabilities[:, [member.classes.index(name) for name in classes]]


def _refuse_unused_options(args: argparse.Namespace) -> None:
    """Raise `UserError` for options without effect on existing predictions."""
    given = {
        "--write-predictions": args.write_predictions,
        "--data": args.data,
        "--dict": args.dict,
        "--precision": args.precision,
    }
    if names := [name for name, value in given.items() if value]:
        raise UserError(f"{', '.join(names)}: no effect with --from-predictions; omit")


def _one_checkpoint_a_folder(runs: list[RunCheckpoint]) -> None:
    folder, count = Counter(run.folder for run in runs).most_common(1)[0]
    if count > 1:
        raise UserError(
            f"{folder}: {count} checkpoints in a folder, but one prediction file per split; "
            "give one of them with --write-predictions"
        )


def _dedup(args: argparse.Namespace, overlap: Overlap | None) -> dict[str, Any] | None:
    if overlap is None:
        return None
    return {"audit": args.audit, "notion": overlap.notion, "left_out": len(overlap.lines)}
