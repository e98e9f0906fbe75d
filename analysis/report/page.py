"""The report as a single HTML file; it loads no other files, and all text from files is escaped."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from roberta_small.analysis.figures.predictions import has_many_classes
from roberta_small.analysis.report.chart import curves_json
from roberta_small.analysis.report.elements import (
    Section,
    bullets,
    chosen,
    drawings,
    page,
    paragraph,
    provenance,
    table,
    top_section,
)
from roberta_small.analysis.report.findings import Findings, figures, logged_accuracy
from roberta_small.analysis.report.provenance import group_facts
from roberta_small.analysis.report.summary import (
    cautions,
    main_findings,
    overlap_remark,
    reference_remark,
    seeds_remark,
)
from roberta_small.analysis.stats.power import ALPHA
from roberta_small.analysis.stats.spread import diverged
from roberta_small.analysis.tables.overview import overview_table
from roberta_small.analysis.tables.predictions import accuracy_table, examples_table
from roberta_small.analysis.tables.presented import present
from roberta_small.analysis.tables.published import reference_table, with_published
from roberta_small.analysis.tables.runs import best_note, table1, table2
from roberta_small.analysis.tables.seeds import comparison_table, expected_table, plan_table, spread_table
from roberta_small.common.errors import count
from roberta_small.common.files import atomic_write
from roberta_small.common.tables import Table

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
    chance: float | None = None,
) -> Path:
    """Write the report of `findings` to `path`, atomically; the bytes are reproducible.

    `audit` are the tables of `audit_tables`. Raises `UserError` if `path` cannot be written.
    """
    path = Path(path)
    atomic_write(path, render_report(findings, title=title, audit=audit, chance=chance))
    return path


def render_report(
    findings: Findings,
    *,
    title: str = "Results",
    audit: Sequence[Table] = (),
    chance: float | None = None,
) -> str:
    """The HTML of the report, see `write_report`."""
    tables = {one.name: table(one) for one in _presented(_tables(findings), findings)}
    drawn = _drawings(findings, chance)
    warnings = bullets(cautions(findings), prefix="Caution:", style="cautions")
    top = [
        top_section("findings", "Main findings", [*bullets(main_findings(findings)), *warnings]),
        top_section("results", "Results", chosen(tables, "overview") + chosen(drawn, "seeds")),
    ]
    sections = _sections(findings, tables, drawn, audit)
    return page(title, _lede(findings), top, sections, chart=curves_json(findings))


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
        [*paragraph(overlap_remark(findings)), *map(table, audit)] if audit or findings.overlap else [],
    )
    yield Section(
        "published",
        "Published results",
        "Ours minus the published number. Not significantly different does not mean equal: with few seeds, "
        "the intervals are wide.",
        [*paragraph(reference_remark(findings)), *chosen(tables, "reference")],
    )
    names = findings.groups
    facts = sorted(group_facts(findings.runs), key=lambda group: names.index(group.name))
    yield Section(
        "provenance",
        "Provenance",
        "What the manifests of the runs record: data, weights, software, hardware and commands.",
        [
            provenance(replace(group, name=f"{label} ({group.name})" if label != group.name else label))
            for group in facts
            for label in [findings.study.label(group.name)]
        ],
    )


def _lede(findings: Findings) -> str:
    """The number of runs, the baseline, and the runs that the report excludes."""
    study = findings.study
    sentences = [f"{count(len(findings.runs), 'run')} in {count(len(findings.groups), 'group')}."]
    if findings.baseline is not None:
        default = "" if study.baseline else " (default; --baseline selects another group)"
        sentences.append(f"Baseline: {study.label(findings.baseline)}{default}.")
    if findings.left_out:
        names = ", ".join(
            f"{study.run_label(run.arm, run.init, run.seed)} ({run.status})" for run in findings.left_out
        )
        sentences.append(f"Not finished and excluded: {names}.")
    return " ".join(sentences)


def _drawings(findings: Findings, chance: float | None) -> dict[str, str]:
    """The kind of each figure -> its HTML.

    The learning curves, which a browser with scripts does not show, and figures of many classes have no
    version for small screens.
    """
    many = len(findings.predictions) > 0 and has_many_classes(findings.predictions)

    def draw() -> Iterator[tuple[str, Figure]]:
        for name, drawn in figures(findings, chance, baseline=findings.baseline):
            yield name.removeprefix(f"{findings.rule.metric}_"), drawn

    return drawings(
        draw, CAPTIONS, unscaled={"per_epoch", *(("confusion", "confused_pairs") if many else ())}
    )


def _tables(findings: Findings) -> list[Table]:
    rule, note = findings.rule, best_note(**findings.rule.choice)
    left_out = diverged(findings.table, findings.values, rule.metric, rule.reported)
    overview = overview_table(
        findings.spread,
        findings.differences,
        rule.metric,
        rule.reported,
        note,
        baseline=findings.baseline,
        family=findings.family,
    )
    if findings.reference is not None:
        overview = with_published(
            overview, findings.reference, findings.reference_name, rule.metric, rule.reported
        )
    tables = [
        overview,
        table1(findings.table, rule.metric, ddof=rule.ddof, **rule.choice),
        table2(findings.table, rule.metric, subset=rule.reported, ddof=rule.ddof),
        spread_table(
            findings.spread,
            rule.metric,
            rule.reported,
            note,
            ddof=rule.ddof,
            test_size=findings.test_size,
            left_out=left_out,
        ),
    ]
    if findings.comparison is not None:
        tables.append(
            comparison_table(findings.comparison, rule.metric, rule.reported, note, left_out=left_out)
        )
        tables.append(plan_table(findings.comparison, rule.metric))
    if findings.accuracies is not None:
        tables.append(
            accuracy_table(findings.accuracies, logged_accuracy(findings), rule.reported, findings.overlap)
        )
    if findings.examples is not None:
        tables.append(examples_table(findings.examples, rule.reported))
    if len(findings.expected):
        tables.append(
            expected_table(
                findings.expected,
                rule.metric,
                rule.by,
                rule.subset,
                note,
                reported=rule.reported,
                left_out=left_out,
            )
        )
    if findings.reference is not None:
        tables.append(reference_table(findings.reference, findings.reference_name, note))
    return tables


def _presented(tables: Sequence[Table], findings: Findings) -> list[Table]:
    """The tables as the study presents them, with all columns and the p-values of `comparison`."""
    rule = findings.rule
    direction = rule.direction if rule.by == rule.metric else "auto"
    return present(
        tables, findings.study, family=findings.comparison, wide=True, directions={rule.metric: direction}
    )
