"""The report as a single HTML file; it loads no other files, and all text from files is escaped.

It can contain the result of `roberta-small audit`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from roberta_small.analysis.compare import ALPHA
from roberta_small.analysis.features.accuracy import (
    accuracy_table,
    draw_predictions_of,
    has_many_classes,
    logged_accuracy,
)
from roberta_small.analysis.features.comparison import comparison_table, examples_table, plan_table
from roberta_small.analysis.features.curves import curves_json, draw_curves_of
from roberta_small.analysis.features.runs import best_table, table2
from roberta_small.analysis.features.seeds import (
    draw_expected_of,
    draw_seeds_of,
    expected_table,
    spread_table,
)
from roberta_small.analysis.presentation import present
from roberta_small.analysis.published import reference_table
from roberta_small.analysis.report.elements import (
    Section,
    bullets,
    chosen,
    drawings,
    group_facts,
    page,
    paragraph,
    provenance,
    table,
    top_section,
)
from roberta_small.analysis.report.findings import Findings
from roberta_small.analysis.report.summary import (
    cautions,
    main_findings,
    overlap_remark,
    overview_table,
    reference_remark,
    seeds_remark,
)
from roberta_small.common.data_folder import NOTIONS, REMEDY
from roberta_small.common.errors import UserError, count
from roberta_small.common.files import atomic_write, read_json
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
    findings: Findings,
    path: str | os.PathLike[str],
    *,
    title: str = "Results",
    audit: Sequence[Table] = (),
) -> Path:
    """Write the report of `findings` to `path`, atomically; the bytes are reproducible.

    `audit` are the tables of `audit_tables`. Raises `UserError` if `path` cannot be written.
    """
    path = Path(path)
    atomic_write(path, render_report(findings, title=title, audit=audit))
    return path


def render_report(
    findings: Findings,
    *,
    title: str = "Results",
    audit: Sequence[Table] = (),
) -> str:
    """The HTML of the report, see `write_report`."""
    tables = {one.name: table(one) for one in _presented(_tables(findings), findings)}
    drawn = _drawings(findings)
    warnings = bullets(cautions(findings), prefix="Caution:", style="cautions")
    top = [
        top_section("findings", "Main findings", [*bullets(main_findings(findings)), *warnings]),
        top_section("results", "Results", chosen(tables, "overview") + chosen(drawn, "seeds")),
    ]
    sections = _sections(findings, tables, drawn, audit)
    return page(title, _lede(findings), top, sections, chart=curves_json(findings.selection))


def _sections(
    findings: Findings, tables: dict[str, str], drawn: dict[str, str], audit: Sequence[Table]
) -> Iterator[Section]:
    """The sections below the results, in order; they have no parts if there are no data for them."""
    yield Section(
        "curves",
        "Learning curves",
        "A thick line is the mean of a group after each epoch, a thin one a run. Select metric, subsets, "
        "groups and seeds; point at an epoch to read its values in the table.",
        ['<div id="chart"></div>', f"<noscript>{drawn['per_epoch']}</noscript>"],
        is_open=True,
    )
    yield Section(
        "runs",
        "Runs and seeds",
        "What each run reached, how much seeds differ, and what trying several seeds gains.",
        [
            *paragraph(seeds_remark(findings)),
            *chosen(tables, "table1", "table2", "seeds", "expected"),
            *chosen(drawn, "expected"),
        ],
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
        [*paragraph(overlap_remark(findings)), *map(table, audit)]
        if audit or findings.selection.overlap
        else [],
    )
    yield Section(
        "published",
        "Published results",
        "Ours minus the published number. Not significantly different does not mean equal: with few seeds, "
        "the intervals are wide.",
        [*paragraph(reference_remark(findings)), *chosen(tables, "reference")],
    )
    names = findings.groups
    facts = sorted(group_facts(findings.selection.runs), key=lambda group: names.index(group.name))
    yield Section(
        "provenance",
        "Provenance",
        "What the manifests of the runs record: data, weights, software, hardware and commands.",
        [
            provenance(replace(group, name=f"{label} ({group.name})" if label != group.name else label))
            for group in facts
            for label in [findings.query.study.label(group.name)]
        ],
    )


def _lede(findings: Findings) -> str:
    """The number of runs, the baseline, and the runs that the report excludes."""
    study = findings.query.study
    sentences = [f"{count(len(findings.selection.runs), 'run')} in {count(len(findings.groups), 'group')}."]
    if findings.baseline is not None:
        default = "" if study.baseline else " (default; --baseline selects another group)"
        sentences.append(f"Baseline: {study.label(findings.baseline)}{default}.")
    if findings.selection.left_out:
        names = ", ".join(
            f"{study.run_label(run.arm, run.init, run.seed)} ({run.status})"
            for run in findings.selection.left_out
        )
        sentences.append(f"Not finished and excluded: {names}.")
    return " ".join(sentences)


def figures(findings: Findings) -> Iterator[tuple[str, Figure]]:
    """(name, figure) for each figure that has data; the baseline is marked."""
    selection = findings.selection
    yield from draw_curves_of(selection)
    yield from draw_seeds_of(selection, findings.baseline)
    yield from draw_expected_of(selection)
    yield from draw_predictions_of(selection)


def _drawings(findings: Findings) -> dict[str, str]:
    """The kind of each figure -> its HTML.

    The learning curves, which a browser with scripts does not show, and figures of many classes have no
    version for small screens.
    """
    predictions, prefix = findings.selection.predictions, f"{findings.query.metric}_"
    many = len(predictions) > 0 and has_many_classes(predictions)
    return drawings(
        lambda: ((name.removeprefix(prefix), figure) for name, figure in figures(findings)),
        CAPTIONS,
        unscaled={"per_epoch", *(("confusion", "confused_pairs") if many else ())},
    )


def _tables(findings: Findings) -> list[Table]:
    selection, query = findings.selection, findings.query
    left_out = selection.diverged
    tables = [
        selection.beside_published(overview_table(findings)),
        best_table(selection),
        table2(selection.table, query.metric, subset=query.reported, ddof=query.ddof),
        spread_table(selection.spread, query, test_size=selection.test_size, left_out=left_out),
    ]
    if findings.comparison is not None:
        tables.append(comparison_table(findings.comparison, query, left_out=left_out))
        tables.append(plan_table(findings.comparison, query.metric))
    if findings.accuracies is not None:
        logged = logged_accuracy(selection, query.reported)
        tables.append(accuracy_table(findings.accuracies, logged, query.reported, selection.overlap))
    if findings.examples is not None:
        tables.append(examples_table(findings.examples, query.reported))
    if len(selection.expected):
        tables.append(expected_table(selection.expected, query, left_out=left_out))
    if selection.reference is not None:
        tables.append(reference_table(selection.reference, selection.reference_name, query.note))
    return tables


def _presented(tables: Sequence[Table], findings: Findings) -> list[Table]:
    """The tables as the study presents them, with all columns and the p-values of `comparison`."""
    query = findings.query
    return present(tables, query.study, family=findings.comparison, wide=True, directions=query.directions)


def audit_tables(path: str | os.PathLike[str]) -> list[Table]:
    """The size of each split, and the number of lines that also occur in another split.

    Raises `UserError` if the file is not an audit.
    """
    content = read_json(path, REMEDY)
    try:
        return [_splits(content), _duplicates(content)]
    except (KeyError, TypeError, AttributeError, ValueError):
        raise UserError(f"{path}: not an audit file; {REMEDY}") from None


def _splits(content: dict[str, Any]) -> Table:
    rows = [
        {
            "split": name,
            "lines": split["lines"],
            "labels": ", ".join(f"{key}: {value:,}" for key, value in (split.get("labels") or {}).items()),
            "tokens": split.get("tokens"),
            "unknown_percent": 100 * split["unknown_rate"] if "unknown_rate" in split else None,
            "mean_length": (split.get("lengths") or {}).get("mean"),
            "truncated": (split.get("lengths") or {}).get("truncated"),
        }
        for name, split in content["splits"].items()
    ]
    data = pd.DataFrame(rows)
    shown = pd.DataFrame(
        {
            "split": data["split"],
            "lines": data["lines"].map(whole),
            "labels": data["labels"].replace("", "–"),
            "tokens": data["tokens"].map(whole),
            "unknown (%)": [_two_decimals(value) for value in data["unknown_percent"]],
            "mean length": [_two_decimals(value) for value in data["mean_length"]],
            "truncated": data["truncated"].map(whole),
        }
    )
    return Table(
        "audit_splits",
        "Splits",
        ("Lengths in tokens; truncated: number of lines that are cut off.",),
        data,
        shown,
    )


def _duplicates(content: dict[str, Any]) -> Table:
    rows = [
        {"split": split, "other": other}
        | {notion: len(content["duplicates"][notion][split][other]) for notion in NOTIONS}
        for split, others in content["duplicates"][NOTIONS[0]].items()
        for other in others
    ]
    data = pd.DataFrame(rows)
    shown = pd.DataFrame(
        {
            "lines of": data["split"],
            "also in": data["other"],
            **{notion: data[notion].map(whole) for notion in NOTIONS},
        }
    )
    conflicts = len(content.get("conflicts") or ())
    notes = (
        "exact: the same text; normalized: the same words, ignoring case, punctuation and spacing.",
        f"Texts with more than one label: {conflicts:,}.",
    )
    return Table("audit_duplicates", "Duplicates", notes, data, shown)


def _two_decimals(value: float | None) -> str:
    return "–" if pd.isna(value) else f"{value:.2f}"
