"""The report as a single HTML file; it loads no other files, and all text from files is escaped.

It can contain the audit of `roberta-small prepare`.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from roberta_small.analysis.compare import ALPHA
from roberta_small.analysis.features.accuracy import accuracy_table, draw_predictions_of, logged_accuracy
from roberta_small.analysis.features.comparison import comparison_table, examples_tables, plan_table
from roberta_small.analysis.features.curves import draw_curves_of
from roberta_small.analysis.features.runs import best_table, table2
from roberta_small.analysis.features.seeds import (
    draw_expected_of,
    draw_seeds_of,
    expected_table,
    spread_table,
)
from roberta_small.analysis.predictions import accuracies
from roberta_small.analysis.presentation import present
from roberta_small.analysis.published import reference_table
from roberta_small.analysis.report.comparisons import (
    baseline_of,
    compare_over_seeds,
    compared_pairs,
    overview_table,
    warn_of_unused,
)
from roberta_small.analysis.report.elements import (
    Section,
    chosen,
    drawings,
    group_facts,
    page,
    provenance,
    table,
)
from roberta_small.analysis.selection import Selection
from roberta_small.common.data_folder import NOTIONS, REMEDY
from roberta_small.common.errors import UserError, count
from roberta_small.common.files import atomic_write, read_json
from roberta_small.common.metrics import ACCURACIES
from roberta_small.common.tables import Table, whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTIONS = {
    "per_epoch": "Every run and the mean of each group, after each epoch.",
    "seeds": "Each run at its best checkpoint as a dot, with both intervals of the mean of its group.",
    "expected": "The gain from trying more seeds alone: expected score of the best of n seeds.",
    "confusion": "Predicted classes for each true class, mean over seeds.",
    "confused_pairs": "The most frequent errors: the true class and the class that is predicted instead.",
    "reliability": "Accuracy against confidence; below the dotted line, the model is overconfident.",
}


def write_report(
    selection: Selection, path: str | os.PathLike[str], *, title: str = "Results", audit: Sequence[Table] = ()
) -> Path:
    """Write the report on `selection` to `path`, atomically; the bytes are reproducible.

    `audit` are the tables of `audit_tables`. Prints the baseline on standard error if the study has none.
    Raises `UserError` as `baseline_of`, and if `path` cannot be written.
    """
    path = Path(path)
    warn_of_unused(selection)
    baseline = baseline_of(selection)
    if baseline is not None and selection.study.query.baseline is None:
        print(f"baseline: {baseline}; select another one with --baseline", file=sys.stderr)
    atomic_write(path, render_report(selection, baseline, title=title, audit=audit))
    return path


def render_report(
    selection: Selection, baseline: str | None, *, title: str = "Results", audit: Sequence[Table] = ()
) -> str:
    """The HTML of the report, see `write_report`."""
    tables = {one.name: table(one) for one in _tables(selection, baseline)}
    prefix = f"{selection.study.metric}_"
    drawn = drawings(
        ((name.removeprefix(prefix), figure) for name, figure in figures(selection, baseline)), CAPTIONS
    )
    study, runs = selection.study, selection.runs
    lede = f"{count(len(runs), 'run')} in {count(len({run.group for run in runs}), 'group')}."
    if baseline is not None:
        default = "" if study.query.baseline else " (default; --baseline selects another group)"
        lede += f" Baseline: {study.label(baseline)}{default}."
    results = [*chosen(tables, "overview"), *chosen(drawn, "seeds")]
    return page(title, lede, _warnings(selection), results, _sections(selection, tables, drawn, audit))


def _sections(
    selection: Selection, tables: dict[str, str], drawn: dict[str, str], audit: Sequence[Table]
) -> Iterator[Section]:
    """The sections below the results, in order; they have no parts if there are no data for them."""
    yield Section(
        "curves",
        "Learning curves",
        "A thick line is the mean of a group after each epoch, a thin one a run.",
        chosen(drawn, "per_epoch"),
        is_open=True,
    )
    yield Section(
        "runs",
        "Runs and seeds",
        "What each run reached, how much seeds differ, and what trying several seeds gains.",
        chosen(tables, "table1", "table2", "seeds", "expected") + chosen(drawn, "expected"),
    )
    yield Section(
        "comparisons",
        "Comparisons",
        f"A difference is significant if its p-value with Holm's correction is at most {ALPHA:g}; all pairs "
        "below are one family. Not significant does not mean equal.",
        chosen(tables, "comparison", "plan", "examples"),
    )
    yield Section(
        "predictions",
        "Predictions and calibration",
        "Computed from the prediction files of each run: which classes are confused, and whether the "
        "probability of the predicted class is its accuracy.",
        chosen(tables, "accuracy") + chosen(drawn, "confusion", "confused_pairs", "reliability"),
    )
    yield Section(
        "audit",
        "Data audit",
        "The size of each split, and the lines that also occur in another split: scores on these may be too "
        "high.",
        [table(one) for one in audit],
    )
    yield Section(
        "published",
        "Published results",
        "Ours minus the published number. Not significantly different does not mean equal: with few seeds, "
        "the intervals are wide.",
        chosen(tables, "reference"),
    )
    study = selection.study
    names = study.ordered(run.group for run in selection.runs)
    facts = sorted(group_facts(selection.runs), key=lambda group: names.index(group.name))
    yield Section(
        "provenance",
        "Provenance",
        "What the manifests of the runs record: data, weights, software, hardware and commands.",
        [
            provenance(group._replace(name=f"{label} ({group.name})" if label != group.name else label))
            for group in facts
            for label in [study.label(group.name)]
        ],
    )


def _warnings(selection: Selection) -> list[str]:
    """The runs that the report excludes, and the examples that are also in another split, if any."""
    study, overlap, lines = selection.study, selection.overlap, []
    if selection.left_out:
        runs = [f"{study.label(run.group)}/seed{run.seed} ({run.status})" for run in selection.left_out]
        lines.append(f"Not finished and excluded: {', '.join(runs)}.")
    if selection.diverged:
        names = study.relabel(", ".join(selection.diverged))
        lines.append(f"Excluded, without a finite value at a best checkpoint (diverged): {names}.")
    if overlap is not None and overlap.lines:
        lines.append(
            f"{len(overlap.lines):,} of the {overlap.size:,} {overlap.split} examples "
            f"({100 * len(overlap.lines) / overlap.size:.1f} %) occur verbatim in "
            f"{overlap.other}; the scores include them."
        )
    return lines


def figures(selection: Selection, baseline: str | None = None) -> Iterator[tuple[str, Figure]]:
    """(name, figure) for each figure that has data; the baseline is marked."""
    yield from draw_curves_of(selection)
    yield from draw_seeds_of(selection, baseline)
    yield from draw_expected_of(selection)
    yield from draw_predictions_of(selection)


def _tables(selection: Selection, baseline: str | None) -> list[Table]:
    """The tables as the study presents them, with all columns and the p-values of one family."""
    study, left_out, predictions = selection.study, selection.diverged, selection.predictions
    compared = compare_over_seeds(selection, baseline)
    tables = [
        selection.beside_published(overview_table(selection, baseline, compared)),
        best_table(selection),
        table2(selection.table, study.metric, subset=study.split, ddof=study.query.ddof),
        spread_table(selection.spread, study, test_size=selection.test_size, left_out=left_out),
    ]
    if compared is not None:
        tables += [comparison_table(compared, study, left_out=left_out), plan_table(compared, study.metric)]
    if study.metric in ACCURACIES and len(predictions):
        scored, logged = accuracies(predictions, selection.overlap), logged_accuracy(selection, study.split)
        tables.append(accuracy_table(scored, logged, study.split, selection.overlap))
        tables += examples_tables(predictions, compared_pairs(predictions, baseline, study), study.split)
    if len(selection.expected):
        tables.append(expected_table(selection.expected, study, left_out=left_out))
    if selection.reference is not None:
        tables.append(reference_table(selection.reference, selection.reference_name, study.note))
    return present(tables, study, family=compared, wide=True)


def audit_tables(path: str | os.PathLike[str]) -> list[Table]:
    """The size of each split, and the number of lines that also occur in another split.

    Raises `UserError` if the file is not an audit.
    """
    content = read_json(path, REMEDY)
    try:
        splits = []
        for name, split in content["splits"].items():
            lengths = split.get("lengths") or {}
            labels = ", ".join(f"{key}: {value:,}" for key, value in (split.get("labels") or {}).items())
            row = {"split": name, "lines": whole(split["lines"]), "labels": labels or "–"}
            row["tokens"] = whole(split.get("tokens", math.nan))
            unknown = 100 * split["unknown_rate"] if "unknown_rate" in split else None
            row |= {"unknown (%)": _two_decimals(unknown), "mean length": _two_decimals(lengths.get("mean"))}
            splits.append(row | {"truncated": whole(lengths.get("truncated", math.nan))})
        lines = content["duplicates"]
        duplicates = [
            {"lines of": split, "also in": other}
            | {notion: whole(len(lines[notion][split][other])) for notion in NOTIONS}
            for split, others in lines[NOTIONS[0]].items()
            for other in others
        ]
        conflicts = len(content.get("conflicts") or ())
    except (KeyError, TypeError, AttributeError, ValueError):
        raise UserError(f"{path}: not an audit file; {REMEDY}") from None
    notes = (
        "exact: the same text; normalized: the same words, ignoring case, punctuation and spacing.",
        f"Texts with more than one label: {conflicts:,}.",
    )
    lengths_note = ("Lengths in tokens; truncated: number of lines that are cut off.",)
    sizes, shared = pd.DataFrame(splits), pd.DataFrame(duplicates)
    return [
        Table("audit_splits", "Splits", lengths_note, sizes, sizes),
        Table("audit_duplicates", "Duplicates", notes, shared, shared),
    ]


def _two_decimals(value: float | None) -> str:
    return "–" if pd.isna(value) else f"{value:.2f}"
