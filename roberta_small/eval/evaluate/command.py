"""Evaluate checkpoints on a split of binarized data: one, several, or a folder of runs.

For each checkpoint, the report has every metric (accuracy, macro-F1, MCC, AUROC, Brier score, calibration
error) with its bootstrap interval, scores by class and the confusion matrix. Multi-label data have micro-F1,
macro-F1, subset accuracy and scores by class, numeric labels Pearson and Spearman correlation and the root of
the mean squared error. For the runs of each method and initialization, it has mean and standard deviation,
and their ensemble (mean of the probabilities). The table is printed.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common import archive, predictions
from roberta_small.common.cli import positive
from roberta_small.common.data_folder import NOTIONS, REPORT, Overlap, keys_digest, keys_of, read_overlap
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write, sha256
from roberta_small.common.label_kinds import Labels, Targets, kind_of_report
from roberta_small.common.run import TFIDF, THRESHOLDS, write_thresholds
from roberta_small.eval.classifier import in_order_of, mean_labels
from roberta_small.eval.model import open_model
from roberta_small.eval.options import add_checkpoint_files, add_computation, overrides
from roberta_small.eval.origin import MODELS, DataFolder, RunCheckpoint, check_distinct, find_runs
from roberta_small.eval.precision import Precision, print_precisions

if TYPE_CHECKING:
    from roberta_small.eval.evaluate.report import Group

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
    keys: Sequence[str | None] | None = None
    """Of the examples, if their text is known (`common.predictions`)."""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `evaluate`."""
    parser = subparsers.add_parser(
        "evaluate",
        help="evaluate checkpoints: metrics with intervals, mean over runs, ensemble",
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
    from roberta_small.eval.evaluate.report import conventions, tables

    runs = _runs(args)
    overlap = read_overlap(args.audit, args.split, notion=args.duplicates) if args.audit else None
    texts, places, keys = error_texts(args, runs[0]) if args.errors else ([], [], [])
    if args.from_predictions:
        evaluated = [read_predictions(run, args.split) for run in runs]
    else:
        options = overrides(args)
        data = options.pop("data")  # the data to evaluate on, not those of training
        evaluated = predict(runs, args.split, data, write=args.write_predictions, **options)
    evaluated = aligned(evaluated)
    kept_N = select_examples(evaluated[0], overlap)
    if args.errors:
        if not predictions.may_be_same(evaluated[0].keys, keys):
            raise UserError(
                f"{evaluated[0].source}: predictions of other texts; pass the data of these with --data"
            )
        from roberta_small.eval.evaluate.error_analysis import page_data, render

        names, first = [member.run.name for member in evaluated], evaluated[0]
        lines_N, classes = np.flatnonzero(kept_N), list(first.labels.classes)
        members = [(list(one.labels.classes), one.outputs[kept_N], one.run.name) for one in evaluated]
        p_RNK = np.stack([in_order_of(classes, *member, names[0]) for member in members])
        page = page_data(names, classes, p_RNK, first.targets[kept_N], lines_N, texts, places, args.split)
        atomic_write(args.errors, render(page))
        wrong = sum(row["wrong"] for row in page["rows"])
        print(f"wrote {args.errors}: {len(page['rows']):,} examples, {wrong:,} errors")
    groups = score_groups(evaluated, kept_N, args.draws)
    labels, dedup = evaluated[0].labels, None
    if overlap is not None:
        dedup = {"audit": args.audit, "notion": overlap.notion, "left_out": len(overlap.lines)}
    majority: dict[str, Any] | None = None
    if labels.kind.exclusive:  # the accuracy of always predicting the most frequent class
        counts_K = np.bincount(evaluated[0].targets[kept_N], minlength=labels.size)
        accuracy = 100 * float(counts_K.max()) / int(counts_K.sum())
        majority = {"class": labels.classes[int(counts_K.argmax())], "accuracy": accuracy}
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
    if not labels.kind.has_classes:
        targets_N = evaluated[0].targets[kept_N]
        baseline = f"\nalways the mean, {targets_N.mean():.4g}: RMSE {targets_N.std():.4g}"
    print(f"{args.split}: {report['examples']:,} examples{excluded}{baseline}\n")
    print(tables(groups, conventions(args.draws, labels.kind.name)), end="")


def _runs(args: argparse.Namespace) -> list[RunCheckpoint]:
    """The runs to evaluate; raises `UserError` for options that exclude each other."""
    if args.from_predictions:
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
        return find_runs(args.checkpoint, [predictions.file_name(args.split)])
    runs = find_runs(args.checkpoint, MODELS)
    folder, count = Counter(run.folder for run in runs).most_common(1)[0]
    if args.write_predictions and count > 1:
        raise UserError(
            f"{folder}: {count} checkpoints specified, but --write-predictions writes one file per split; "
            "specify only one of them"
        )
    check_distinct((run.checkpoint, f"{run.group} {sha256(run.checkpoint)}") for run in runs)
    return runs


def predict(
    runs: Sequence[RunCheckpoint], split: str, data: str | None, *, write: bool, **options: Any
) -> list[SplitPredictions]:
    """Predict a split of `data`, or of the training data, with each checkpoint; prints their precision.

    `options` as for `open_model`. With `write`, the predictions of a checkpoint are written before the next
    one is read, so that an interruption does not lose them.
    """
    evaluated: list[SplitPredictions] = []
    printed: set[Precision | None] = set()
    for run in runs:
        model = open_model(run, **({} if run.checkpoint.name == TFIDF and len(runs) > 1 else options))
        examples = model.examples(split, data)
        print_precisions({model.precision} - printed)
        printed.add(model.precision)
        outputs_NK = model.labels.outputs(model.network.logits(examples.rows, progress=run.name))
        # The names are those of the data that are evaluated if the training data no longer exist.
        labels = replace(model.labels, classes=tuple(examples.classes))
        keys = (model.data if data is None else DataFolder.given(data)).keys(split)
        evaluated.append(SplitPredictions(run, labels, examples.labels, outputs_NK, run.checkpoint, keys))
        if write:
            found = predictions.from_outputs(labels, outputs_NK, examples.labels)
            predictions.write(run.folder / predictions.file_name(split), found, keys)
        del model, examples  # before the next one is read
    return evaluated


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


def error_texts(args: argparse.Namespace, run: RunCheckpoint) -> tuple[list[str], list[str], list[str]]:
    """The texts of a split for --errors, those of a pair joined by a vertical bar; their places and keys.

    Raises `UserError` as `DataFolder.columns`, and unless an example has one class.
    """
    data = DataFolder.given(args.data) if args.data else DataFolder.recorded(run.data.get("path"), run)
    data.require_examples(run.name)
    kind = kind_of_report(data.report, data.path / REPORT)
    if not kind.exclusive:
        raise UserError(f"--errors: needs examples with one class each; those of {data.path} are {kind.name}")
    columns = data.columns(args.split, " or omit --errors")
    texts = [" | ".join(parts) for parts in zip(*columns, strict=True)]
    return texts, data.places(args.split, len(texts)), keys_of(columns)


def read_predictions(run: RunCheckpoint, split: str) -> SplitPredictions:
    """Read a run's prediction file; raises `UserError` if an example or its true class is missing."""
    path = run.folder / predictions.file_name(split)
    found = predictions.read(path)
    for index, prediction in enumerate(found):
        if prediction.index != index or prediction.record()["gold"] is None:
            what = "its prediction is missing" if prediction.index != index else "its true class is unknown"
            raise UserError(
                f"{path}: example {index}: {what}; evaluate the checkpoint with --write-predictions"
            )
    arrays = predictions.to_arrays(found)
    keys = [prediction.key for prediction in found]
    return SplitPredictions(run, arrays.labels, arrays.targets, arrays.outputs, path, keys)


def aligned(evaluated: list[SplitPredictions]) -> list[SplitPredictions]:
    """The predictions, within a group with the order of classes of its first run, and with own thresholds.

    Raises `UserError` if texts or labels differ: the runs were trained on different data.
    """

    def named(member: SplitPredictions) -> list[Any]:
        """The labels of each example, whatever the order of the classes."""
        found = predictions.from_outputs(member.labels, member.outputs, member.targets)
        golds = (one.record()["gold"] for one in found)
        return [sorted(gold) if isinstance(gold, list) else gold for gold in golds]

    first, found = evaluated[0], []
    wanted = named(first)
    leaders: dict[str, SplitPredictions] = {}
    for member in evaluated:
        same = member.labels.kind is first.labels.kind and named(member) == wanted
        if not same or not predictions.may_be_same(member.keys, first.keys):
            raise UserError(
                f"{member.run.name} and {first.run.name} have different examples; pass the data to evaluate "
                "both on with --data (and --write-predictions, instead of --from-predictions)"
            )
        leader = leaders.setdefault(member.run.group, member)
        own, names = list(member.labels.classes), list(leader.labels.classes)
        outputs_NK = in_order_of(names, own, member.outputs, member.run.name, leader.run.name)
        thresholds = dict(zip(own, member.labels.thresholds, strict=False))
        labels = leader.labels.with_thresholds(thresholds)
        found.append(replace(member, labels=labels, targets=leader.targets, outputs=outputs_NK))
    return found


def select_examples(member: SplitPredictions, overlap: Overlap | None) -> NDArray[np.bool_]:
    """Which examples to score, (N,) bool; raises `UserError` if the audit is of other data or leaves none."""
    kept_N = np.ones(len(member.targets), dtype=bool)
    if overlap is None:
        return kept_N
    texts = overlap.texts or keys_digest(member.keys)
    if overlap.size != len(kept_N) or texts != (keys_digest(member.keys) or texts):
        raise UserError(
            f"--audit: describes {overlap.size:,} lines of {overlap.split}, but the data have "
            f"{len(kept_N):,}, or other texts; use the audit.json of the data that were predicted"
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
    from roberta_small.eval.evaluate.report import Group, Scores

    groups: dict[str, list[SplitPredictions]] = {}
    for member in evaluated:
        groups.setdefault(member.run.group, []).append(member)
    found = []
    for name, members in groups.items():
        targets, classes = members[0].targets[kept_N], list(members[0].labels.classes)
        tested = [(member.run.name, member.labels, member.outputs) for member in members]
        if len(members) > 1:
            together = mean_labels([member.labels for member in members])
            mean_NK = np.mean([member.outputs for member in members], axis=0)
            tested.append((f"{name} ensemble".strip(), together, mean_NK))
        scores = [
            Scores.compute(title, scored(meaning, targets, outputs_NK[kept_N]), classes, draws=draws)
            for title, meaning, outputs_NK in tested
        ]
        ensemble = scores.pop() if len(members) > 1 else None
        found.append(Group(name, scores, ensemble))
    return found
