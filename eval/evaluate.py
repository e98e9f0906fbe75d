"""Measure checkpoints on a split of binarized data: one, several, or a folder of runs.

For each checkpoint accuracy, macro-F1, MCC, AUROC, Brier score and calibration error with bootstrap
intervals, per-class scores and the confusion matrix; for the runs of each arm and initialisation their mean
and their ensemble, the mean of the probabilities. The table goes to standard output.
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

from .options import add_checkpoint_files, add_engine
from .runs import Run, find_runs

EXAMPLES = """examples:
  python -m eval evaluate --checkpoint runs/fairseq/pretrained/seed1
  python -m eval evaluate --checkpoint runs --split test --output evaluation.json --write-predictions
  python -m eval evaluate --checkpoint runs --dedup audit.json
  python -m eval evaluate --checkpoint results/cls-books/runs --from-predictions
  python -m eval evaluate --checkpoint a/model.pt b/model.pt --data data/books --split valid
"""


@dataclass(frozen=True)
class Answered:
    """What one checkpoint says of the split."""

    run: Run
    classes: list[str]
    gold: NDArray[np.int64]
    """(N,) index of the true class."""
    probabilities: NDArray[np.float64]
    """(N, K)."""
    source: Path
    """What was measured: the checkpoint, or a prediction file."""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `evaluate`."""
    parser = subparsers.add_parser(
        "evaluate",
        help="metrics with intervals of checkpoints, their mean and their ensemble",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--checkpoint", required=True, nargs="+", metavar="C", help="checkpoints, runs or folders of runs"
    )
    parser.add_argument("--data", metavar="BIN", help="binarized data (default: those of the run)")
    parser.add_argument("--split", default="test", help="(%(default)s)")
    parser.add_argument(
        "--dedup", metavar="AUDIT",
        help="leave out examples that stand in train; written by: python -m preprocess audit --output",
    )  # fmt: skip
    parser.add_argument(
        "--duplicates", choices=NOTIONS, default="exact", help="which of the audit's count (%(default)s)"
    )
    parser.add_argument(
        "--write-predictions", action="store_true",
        help=f"write {predictions.file_name('SPLIT')} beside each checkpoint, for analysis and errors",
    )  # fmt: skip
    parser.add_argument(
        "--from-predictions", action="store_true",
        help="measure the prediction files that stand there already; needs neither checkpoints nor data",
    )  # fmt: skip
    parser.add_argument("--draws", type=positive, default=2000, help="of the bootstrap (%(default)s)")
    parser.add_argument("--output", metavar="JSON", help="also write everything, at full precision")
    add_checkpoint_files(parser)
    add_engine(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """The command: answer with each checkpoint, measure, print, write."""
    from .report import conventions, tables

    if args.from_predictions:
        _nothing_is_computed(args)
        runs = find_runs(args.checkpoint, predictions.file_name(args.split))
    else:
        runs = find_runs(args.checkpoint)
    if args.write_predictions:
        _one_checkpoint_a_folder(runs)
    overlap = read_overlap(args.dedup, args.split, notion=args.duplicates) if args.dedup else None
    answered = [recorded(run, args.split) if args.from_predictions else answer(run, args) for run in runs]
    check_same_examples(answered)
    kept_N = kept(answered[0], overlap)
    groups = measure(answered, kept_N, args.draws)
    if args.write_predictions:
        for answers in answered:
            write_predictions(answers, args.split)
    report = {
        "split": args.split,
        "examples": int(kept_N.sum()),
        "dedup": _dedup(args, overlap),
        "classes": answered[0].classes,
        "conventions": conventions(args.draws),
        "sha256": {str(answers.source): sha256(answers.source) for answers in answered},
        "groups": [group.as_json() for group in groups],
    }
    if args.output:
        atomic_write(args.output, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    without = f", {len(overlap.lines):,} that stand in train left out" if overlap else ""
    print(f"{args.split}: {report['examples']:,} examples{without}\n")
    print(tables(groups, report["conventions"]), end="")


def answer(run: Run, args: argparse.Namespace) -> Answered:
    """The answers of one checkpoint to the split that the options name."""
    from .checkpoint import read_checkpoint
    from .inputs import read_split
    from .network import Network, probabilities
    from .sources import class_names_of, data_folder, dictionary_of

    checkpoint = read_checkpoint(run.checkpoint)
    trained_on = data_folder(run, checkpoint)
    data = data_folder(run, checkpoint, args.data) if args.data else trained_on
    if not data.exists:
        raise UserError(
            f"{data.path}: no such folder, which {run.name} was trained on; name data with --data"
        )
    dictionary, _ = dictionary_of(run, checkpoint, data, args.dict)
    classes = class_names_of(checkpoint, trained_on if trained_on.exists else data)
    examples = read_split(checkpoint, dictionary, classes, data.path, args.split)
    network = Network(
        checkpoint, dictionary, device=args.device, precision=args.precision, max_tokens=args.max_tokens
    )
    answers_NK = probabilities(network.logits(examples.rows, progress=run.name))
    return Answered(run, classes, examples.gold, answers_NK, run.checkpoint)


def recorded(run: Run, split: str) -> Answered:
    """The answers in a run's prediction file; raises `UserError` where one lacks or has no true class."""
    path = run.folder / predictions.file_name(split)
    answers = predictions.read(path)
    classes = list(answers[0].probabilities)
    for place, answer in enumerate(answers):
        if answer.index != place or answer.gold is None:
            what = "no answer to it" if answer.index != place else "its true class is unknown"
            raise UserError(
                f"{path}: example {place}: {what}; evaluate the checkpoint with --write-predictions"
            )
    gold_N = np.array([classes.index(answer.gold) for answer in answers])
    p_NK = np.array([list(answer.probabilities.values()) for answer in answers], dtype=np.float64)
    return Answered(run, classes, gold_N, p_NK, path)


def check_same_examples(answered: list[Answered]) -> None:
    """Raise `UserError` where the true classes differ: the runs' own data folders may."""
    first, *others = [np.array(answers.classes)[answers.gold] for answers in answered]
    for answers, gold_N in zip(answered[1:], others, strict=True):
        if not np.array_equal(first, gold_N):
            raise UserError(
                f"{answers.run.name} and {answered[0].run.name} have other examples in their data; "
                "name the data to evaluate them on with --data"
            )


def kept(answers: Answered, overlap: Overlap | None) -> NDArray[np.bool_]:
    """(N,) which examples count; raises `UserError` where the audit is of another split, or leaves none."""
    kept_N = np.ones(len(answers.gold), dtype=bool)
    if overlap is None:
        return kept_N
    if overlap.size != len(kept_N):
        raise UserError(
            f"--dedup: the audit knows {overlap.size:,} lines of {overlap.split}, but the data have "
            f"{len(kept_N):,}; audit the same text"
        )
    kept_N[list(overlap.lines)] = False
    if not kept_N.any():
        raise UserError(f"--dedup: every line of {overlap.split} stands in {overlap.other}; nothing is left")
    return kept_N


def measure(answered: list[Answered], kept_N: NDArray[np.bool_], draws: int) -> list[Any]:
    """A `report.Group` for each arm and initialisation, in the order of the checkpoints."""
    from .report import Group, Scores

    groups: dict[str, list[Answered]] = {}
    for answers in answered:
        groups.setdefault(answers.run.group, []).append(answers)
    found = []
    for name, members in groups.items():
        classes = members[0].classes
        columns = [_in_order_of(classes, answers) for answers in members]
        ensemble = None
        if len(members) > 1:
            mean_NK = np.mean(columns, axis=0)
            ensemble = Scores.of(
                f"{name} ensemble".strip(), _scored(members[0].gold, mean_NK, kept_N), classes, draws=draws
            )
        scores = [
            Scores.of(answers.run.name, _scored(members[0].gold, p_NK, kept_N), classes, draws=draws)
            for answers, p_NK in zip(members, columns, strict=True)
        ]
        found.append(Group(name, scores, ensemble))
    return found


def write_predictions(answers: Answered, split: str) -> Path:
    """The prediction file of a checkpoint, in its run folder; returns its path."""
    path = answers.run.folder / predictions.file_name(split)

    def lines() -> Iterable[Prediction]:
        for index, (gold, row_K) in enumerate(zip(answers.gold, answers.probabilities.tolist(), strict=True)):
            yield Prediction(index, answers.classes[gold], dict(zip(answers.classes, row_K, strict=True)))

    predictions.write(path, lines())
    return path


def _scored(gold_N: NDArray[np.int64], p_NK: NDArray[np.float64], kept_N: NDArray[np.bool_]) -> Any:
    from common.metrics import Scored

    return Scored(gold_N[kept_N], p_NK[kept_N])


def _in_order_of(classes: list[str], answers: Answered) -> NDArray[np.float64]:
    """(N, K) with the columns in the order of `classes`."""
    if sorted(classes) != sorted(answers.classes):
        raise UserError(
            f"{answers.run.name}: classes {', '.join(answers.classes)}, but {', '.join(classes)} in the "
            "first checkpoint; evaluate classifiers of the same classes together"
        )
    return answers.probabilities[:, [answers.classes.index(name) for name in classes]]


def _nothing_is_computed(args: argparse.Namespace) -> None:
    given = {
        "--write-predictions": args.write_predictions,
        "--data": args.data,
        "--dict": args.dict,
        "--precision": args.precision,
    }
    if names := [name for name, value in given.items() if value]:
        raise UserError(f"{', '.join(names)}: with --from-predictions nothing is computed; leave them out")


def _one_checkpoint_a_folder(runs: list[Run]) -> None:
    folder, count = Counter(run.folder for run in runs).most_common(1)[0]
    if count > 1:
        raise UserError(
            f"{folder}: {count} checkpoints of one folder, which has one prediction file a split; "
            "name one of them with --write-predictions"
        )


def _dedup(args: argparse.Namespace, overlap: Overlap | None) -> dict[str, Any] | None:
    if overlap is None:
        return None
    return {"audit": args.dedup, "notion": overlap.notion, "left_out": len(overlap.lines)}
