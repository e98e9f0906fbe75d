"""The commands `seeds`, `compare`, `expected` and `accuracy`: statistics over seeds and test examples."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from roberta_small.analysis.commands.options import (
    add_at,
    add_baseline,
    add_choice,
    add_command,
    add_ddof,
    add_marks,
    add_out,
    add_pairs,
    add_reference,
    add_selection,
    add_study,
    add_table_options,
    choice,
    compared_at,
    published_in,
    selected_table,
    show,
)
from roberta_small.analysis.read.long_table import REPORTED
from roberta_small.analysis.read.runs import Run
from roberta_small.analysis.stats.best import at_best, best_checkpoints
from roberta_small.analysis.stats.compare import PAIRINGS, compare_groups
from roberta_small.analysis.stats.predictions import (
    accuracies,
    compare_all_predictions,
    find_size,
    read_predictions,
)
from roberta_small.analysis.stats.reference import compare_reference, read_reference
from roberta_small.analysis.stats.spread import (
    BEST,
    diverged,
    expected_best_of_seeds,
    scores,
    select_points,
    spread_over_seeds,
)
from roberta_small.analysis.study import NO_STUDY
from roberta_small.analysis.tables.predictions import accuracy_table, examples_table
from roberta_small.analysis.tables.published import reference_table
from roberta_small.analysis.tables.runs import best_note
from roberta_small.analysis.tables.seeds import comparison_table, expected_table, plan_table, spread_table
from roberta_small.common.cli import Parser, positive
from roberta_small.common.data_folder import NOTIONS, read_overlap
from roberta_small.common.errors import UserError
from roberta_small.common.files import escaped
from roberta_small.common.metrics import ACCURACIES, in_percent, lower_is_better
from roberta_small.common.tables import PERCENT, Table

EXAMPLES = """examples:
  python -m analysis seeds runs --test-size 2000
  python -m analysis expected runs
  python -m analysis compare runs --groups fairseq/pretrained fairseq/random
  python -m analysis compare runs --baseline fairseq/random
  python -m analysis compare runs --groups fairseq/random other-runs:fairseq/random --at all --detect 2
  python -m analysis compare runs --pair fairseq/pretrained fairseq/random --pair hf/random fairseq/random
  python -m analysis compare runs --reference results/cls-books/published.csv
  python -m analysis accuracy runs --audit audit.json
"""


def register(commands: argparse._SubParsersAction) -> None:
    """Add the four commands."""
    seeds = _add(
        commands,
        "seeds",
        _seeds,
        "mean, spread and intervals over seeds, and the interval due to the test set",
    )
    add_ddof(seeds)
    add_marks(seeds)
    add_reference(seeds, "add published results to the table")
    add_at(seeds, "only these epochs, or best (default: all)")
    size = seeds.add_mutually_exclusive_group()
    size.add_argument(
        "--test-size", type=positive, metavar="N",
        help="examples in the split (default: counted in the prediction files or the runs' data folder)",
    )  # fmt: skip
    size.add_argument(
        "--audit", metavar="JSON", help="take the test size from an audit report (preprocess audit --out)"
    )

    compared = _add(
        commands, "compare", _compare, "compare groups of runs with each other or with published results"
    )
    add_baseline(compared, "compare each of the other groups with this one, instead of all pairs")
    add_pairs(compared)
    add_at(compared)
    add_reference(compared, "compare with published results")
    compared.add_argument(
        "--pairing", choices=PAIRINGS, default="auto",
        help="pair runs of equal seed; auto: where at least two seeds match (%(default)s)",
    )  # fmt: skip
    compared.add_argument(
        "--detect", type=_difference, metavar="D",
        help="smallest difference to detect, for the number of seeds needed (default: 1 point, or 0.01)",
    )  # fmt: skip

    _add(commands, "expected", _expected, "expected result of the best of n seeds")

    accuracy = _add(
        commands,
        "accuracy",
        _accuracy,
        "accuracy from prediction files, with and without duplicates of train",
    )
    add_marks(accuracy)
    accuracy.add_argument("--audit", metavar="JSON", help="written by: python -m preprocess audit --out")
    accuracy.add_argument(
        "--duplicates", choices=NOTIONS, default="exact", help="kind of duplicate to exclude (%(default)s)"
    )


def _seeds(options: argparse.Namespace) -> None:
    runs, table, best = _read(options)
    size = options.test_size
    if options.audit:
        size = read_overlap(options.audit, options.split).size
    elif size is None:
        size = find_size(runs, options.split)
    values = scores(table, best, options.metric, options.split)
    if options.study.at:
        values = select_points(values, compared_at(options.study))
    data = spread_over_seeds(values, options.metric, ddof=options.ddof, test_size=size)
    note = best_note(**choice(options))
    found = spread_table(
        data, options.metric, options.split, note,
        ddof=options.ddof, test_size=size, left_out=diverged(table, values, options.metric, options.split),
    )  # fmt: skip
    found = published_in(found, table, best, options, ["std", f"examples {PERCENT}"])
    show([found], options, values=values)


def _compare(options: argparse.Namespace) -> None:
    study = options.study
    if options.groups and options.pair:
        raise UserError("--groups and --pair: give all groups to compare pairwise, or single pairs")
    if not (study.groups or study.exclude or study.baseline or study.pairs or options.reference):
        raise UserError(
            "compare: give two groups (--groups A B), a file of published results (--reference FILE), or both"
        )
    runs, table, best = _read(options, folders=True)
    study = options.study
    if study.pairs:
        options.groups = list(dict.fromkeys(group for pair in study.pairs for group in pair))
    elif study.groups:
        options.groups = study.ordered(name for name in study.groups if name not in study.exclude)
    elif study.exclude or study.baseline:
        options.groups = list(study.selected)
    if study.baseline and not study.pairs:
        others = [group for group in options.groups if group != study.baseline]
        options.study = replace(study, pairs=tuple((group, study.baseline) for group in others))
        options.groups = [*others, study.baseline]
    if options.groups and len(set(options.groups)) < 2:
        raise UserError(
            f"--groups: '{options.groups[0]}' is a single group; compare at least two of "
            f"{', '.join(study.known)}"
        )
    tables = []
    if options.groups:
        tables += _group_tables(runs, table, best, options)
    if options.reference:
        reference = read_reference(options.reference)
        data = compare_reference(table, best, reference, name=escaped(options.reference))
        tables.append(
            reference_table(data, escaped(Path(options.reference).name), best_note(**choice(options)))
        )
    show(tables, options)


def _group_tables(
    runs: list[Run], table: pd.DataFrame, best: pd.DataFrame, options: argparse.Namespace
) -> list[Table]:
    """Comparison over seeds, seeds needed, and comparison by example if there are prediction files."""
    values = [scores(table, best, options.metric, options.split)]
    left_out = diverged(table, values[0], options.metric, options.split)
    predictions = [read_predictions(runs, options.split)]
    for folder in dict.fromkeys(group.rpartition(":")[0] for group in options.groups if ":" in group):
        other_options = {**vars(options), "runs": folder, "study": NO_STUDY}
        others, other_table, other_best = _read(argparse.Namespace(**other_options))
        other_values = scores(other_table, other_best, options.metric, options.split)
        other_diverged = diverged(other_table, other_values, options.metric, options.split)
        left_out += [f"{escaped(folder)}:{name}" for name in other_diverged]
        other_predictions = read_predictions(others, options.split)
        prefix = f"{escaped(folder)}:"
        values.append(other_values.assign(group=prefix + other_values["group"]))
        predictions.append(other_predictions.assign(group=prefix + other_predictions["group"]))
    options.groups = [escaped(group) for group in options.groups]
    detect = options.detect or (1.0 if in_percent(options.metric) else 0.01)
    data = compare_groups(
        pd.concat(values, ignore_index=True), options.groups, pairs=options.study.pairs or None,
        at=compared_at(options.study), pairing=options.pairing, detect=detect,
        lower=lower_is_better(options.metric, "auto" if options.by else options.direction),
    )  # fmt: skip
    note = best_note(**choice(options))
    left_out = [name for name in left_out if name.rpartition("/")[0] in options.groups]
    compared = comparison_table(data, options.metric, options.split, note, left_out=left_out)
    tables = [compared, plan_table(data, options.metric)]
    return tables + _example_tables(pd.concat(predictions, ignore_index=True), options)


def _example_tables(predictions: pd.DataFrame, options: argparse.Namespace) -> list[Table]:
    if options.metric not in ACCURACIES:
        return []
    examples = compare_all_predictions(predictions, options.groups, options.study.pairs or None)
    return [examples_table(examples, options.split)] if len(examples) else []


def _expected(options: argparse.Namespace) -> None:
    _, table, best = _read(options)
    rule = choice(options)
    data = expected_best_of_seeds(best, lower=lower_is_better(rule["by"], options.direction))
    counted = best.dropna(subset=["valid", "test"]).assign(at=BEST)
    found = expected_table(
        data, options.metric, rule["by"], rule["subset"], best_note(**rule),
        reported=options.split, left_out=diverged(table, counted, options.metric, options.split),
    )  # fmt: skip
    show([found], options)


def _accuracy(options: argparse.Namespace) -> None:
    split, options.split = options.split, None  # best checkpoints do not depend on the predicted split
    runs, table, best = _read(options)
    for name in [split] if split else dict.fromkeys([REPORTED, options.split]):
        split, predictions = name, read_predictions(runs, name)
        if len(predictions):
            break
    else:
        raise UserError(
            f"{options.runs}: no run has a file predictions-{split}.jsonl with labels; "
            "write it with python -m eval evaluate --write-predictions"
        )
    overlap = read_overlap(options.audit, split, notion=options.duplicates) if options.audit else None
    has_accuracy = ((table["subset"] == split) & (table["metric"] == "accuracy")).any()
    logged = at_best(table, best, "accuracy", split) if has_accuracy else None
    data = accuracies(predictions, overlap)
    values = data.assign(group=data["arm"] + "/" + data["init"], at=BEST, value=data["accuracy"])
    show([accuracy_table(data, logged, split, overlap)], options, values=values)


def _read(
    options: argparse.Namespace, *, folders: bool = False
) -> tuple[list[Run], pd.DataFrame, pd.DataFrame]:
    """The runs, their long table and their best checkpoints; for `folders` see `Study.resolve`."""
    runs, table = selected_table(options, folders=folders)
    return runs, table, best_checkpoints(table, options.metric, **choice(options))


def _add(
    commands: argparse._SubParsersAction, name: str, run: Callable[[argparse.Namespace], None], text: str
) -> Parser:
    parser = add_command(commands, name, run, text, EXAMPLES)
    add_selection(parser)
    add_choice(parser)
    add_study(parser)
    add_table_options(parser)
    add_out(parser, "folder to also write the tables to, in every format")
    return parser


def _difference(text: str) -> float:
    try:
        value = abs(float(text))
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number other than 0")
    return value
