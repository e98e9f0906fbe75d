"""The report as a single HTML file; it loads no other files, and all text from files is escaped."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import math
import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import pandas as pd

from common.files import atomic_write
from common.metrics import digits, label
from common.tables import LEFT_ALIGNED, Table

from ..figures.style import style_indices
from ..read.long_table import RUN, SELECTING, usual_or_only
from ..read.runs import describe
from ..stats.spread import diverged, validations
from ..study import Study
from ..tables.predictions import accuracy_table, examples_table
from ..tables.presented import present
from ..tables.published import reference_table
from ..tables.runs import best_note, table1, table2
from ..tables.seeds import comparison_table, expected_table, plan_table, spread_table
from .findings import Findings, figures, logged_accuracy
from .provenance import GroupFacts, group_facts
from .summary import summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ASSETS = Path(__file__).parent / "assets"
LEFT = LEFT_ALIGNED | {"lines of", "also in", "split", "labels"}
CAPTIONS = {
    "per_epoch": "Every run and the mean of each group, after each epoch.",
    "seeds": "Each run at its best checkpoint, with intervals for the mean.",
    "expected": "The gain from trying more seeds alone: expected score of the best of n seeds.",
    "confusion": "Predicted classes for each true class, mean over seeds.",
    "confused_pairs": "The most frequent errors: the true class and the class that is predicted instead.",
    "reliability": "Accuracy against confidence; below the dotted line, the model is overconfident.",
}
MORE_METRICS = ("accuracy", "macro_f1", "f1", "mcc", "loss", "ppl")
"""Selectable in the chart in addition to the metric of the report, if an evaluated subset has them."""


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
    drawings = [(name, inline_svg(figure, name)) for name, figure in figures(findings, chance)]
    (_, curves), *others = drawings
    sections = [
        _section("Summary", (f"<p>{html.escape(text)}</p>" for text in summary(findings))),
        _section(
            "Curves", ['<div id="chart"></div>', f"<noscript>{_figure('per_epoch', curves)}</noscript>"]
        ),
        _section("Seeds", [_figure(name, drawing) for name, drawing in others]),
        _section("Results", map(_table, _presented(_result_tables(findings), findings))),
    ]
    if findings.reference is not None:
        note = best_note(**findings.rule.choice)
        table = reference_table(findings.reference, findings.reference_name, note)
        sections.append(_section("Published results", map(_table, _presented([table], findings))))
    if audit:
        sections.append(_section("The data", map(_table, audit)))
    facts = [
        replace(group, name=f"{label} ({group.name})" if label != group.name else label)
        for group in sorted(group_facts(findings.runs), key=lambda group: findings.groups.index(group.name))
        for label in [findings.study.label(group.name)]
    ]
    sections.append(_section("What was run", map(_group, facts)))
    script = (ASSETS / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template((ASSETS / "page.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(title),
        lede=html.escape(_lede(findings)),
        style=(ASSETS / "report.css").read_text(encoding="utf-8"),
        sections="\n".join(sections),
        data=curves_json(findings),
        script=script,
        script_hash=f"sha256-{digest}",
    )


def _lede(findings: Findings) -> str:
    """The runs of the report, and those that it excludes."""
    left_out = ", ".join(
        f"{findings.study.run_label(run.arm, run.init, run.seed)} ({run.status})" for run in findings.left_out
    )
    return (
        findings.study.relabel(describe(findings.runs))
        + (f". Not finished and excluded: {left_out}" if left_out else "")
        + "."
    )


def _result_tables(findings: Findings) -> list[Table]:
    rule, note = findings.rule, best_note(**findings.rule.choice)
    left_out = diverged(findings.table, findings.values, rule.metric, rule.reported)
    tables = [
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
    return tables


def _presented(tables: Sequence[Table], findings: Findings) -> list[Table]:
    """The tables as the study presents them, with all columns."""
    rule = findings.rule
    direction = rule.direction if rule.by == rule.metric else "auto"
    return present(tables, findings.study, findings.values, wide=True, directions={rule.metric: direction})


def _section(heading: str, parts: Iterable[str]) -> str:
    content = "\n".join(parts)
    return f"<section>\n<h2>{heading}</h2>\n{content}\n</section>" if content else ""


def _table(table: Table) -> str:
    """A table with caption, formatted cells and notes, as in Markdown."""
    columns = list(table.shown)
    body = "\n".join(
        _row(columns, row, "td", {column for place, column in table.bold if place == index})
        for index, row in enumerate(table.shown.to_numpy().tolist())
    )
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in table.all_notes)
    return (
        f'<h3>{html.escape(table.caption)}</h3>\n<div class="wide"><table id="table-{table.name}">\n'
        f"<thead>{_row(columns, columns, 'th')}</thead>\n<tbody>\n{body}\n</tbody></table></div>\n"
        f'<ul class="notes">{notes}</ul>'
    )


def _row(columns: Sequence[str], cells: Sequence[str], tag: str, bold: Collection[str] = frozenset()) -> str:
    """A table row with the cells of the columns `bold` in bold.

    Rows with the mean over seeds have a class of their own.
    """
    is_mean = tag == "td" and any(str(cell).startswith("mean ±") for cell in cells)
    texts = [
        f"<strong>{html.escape(str(cell))}</strong>" if column in bold else html.escape(str(cell))
        for column, cell in zip(columns, cells, strict=True)
    ]
    written = "".join(
        f'<{tag} class="{"left" if column in LEFT else "right"}">{text}</{tag}>'
        for column, text in zip(columns, texts, strict=True)
    )
    return f'<tr class="sum">{written}</tr>' if is_mean else f"<tr>{written}</tr>"


def _figure(name: str, drawing: str) -> str:
    caption = next(text for ending, text in CAPTIONS.items() if name.endswith(ending))
    return f'<figure><div class="wide">{drawing}</div><figcaption>{caption}</figcaption></figure>'


def _group(group: GroupFacts) -> str:
    facts = "".join(f"<dt>{html.escape(key)}</dt><dd>{html.escape(value)}</dd>" for key, value in group.facts)
    commands = "".join(
        f"<p>{html.escape(name)}</p><pre>{html.escape(command)}</pre>" for name, command in group.commands
    )
    details = f"<details><summary>The commands</summary>{commands}</details>" if commands else ""
    return f"<h3>{html.escape(group.name)}</h3>\n<dl>{facts}</dl>\n{details}"


def inline_svg(figure: Figure, name: str) -> str:
    """The figure as an `<svg>` element, with text as outlines and ids prefixed by `name`.

    Comments, metadata and namespaces are removed: they repeat the text and contain unnecessary URLs.
    """
    from matplotlib import rc_context

    stream = io.StringIO()
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", stream.getvalue(), flags=re.DOTALL)
    text = text[text.index("<svg") :]
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\1{name}-", text)
    text = re.sub(r"\n\s*", "\n", text)
    label = html.escape(name.replace("_", " "))
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()


def curves_json(findings: Findings) -> str:
    """The data of the interactive chart as JSON without `<`, so that it cannot end a `<script>` element.

    {"metrics": [{"name", "label", "digits"}], "subsets": [...],
     "groups": [...], "labels": {group: text}, "styles": {group: index},
     "runs": [{"name", "group", "seed", "curves": {metric: {subset: [[epoch, value], ...]}}}]}

    `styles` is the index of the color and dashes of a group, as in the figures.

    Values are those logged at validations; NaN and infinity become null. The metric of the report is first.
    """
    table = findings.table
    selecting = usual_or_only(SELECTING, table["subset"].unique())
    subsets = list(dict.fromkeys(["train", selecting, findings.rule.reported]))
    rows = table[table["subset"].isin(subsets)].merge(validations(table), on=[*RUN, "step"])
    known = set(rows.loc[rows["subset"] != "train", "metric"])
    metrics = [metric for metric in dict.fromkeys([findings.rule.metric, *MORE_METRICS]) if metric in known]
    rows = rows[rows["metric"].isin(metrics)]
    content = {
        "metrics": [{"name": metric, "label": label(metric), "digits": digits(metric)} for metric in metrics],
        "subsets": [subset for subset in subsets if subset in set(rows["subset"])],
        "groups": findings.groups,
        "labels": {group: findings.study.label(group) for group in findings.groups},
        "styles": style_indices(findings.groups, findings.study),
        "runs": [_run(names, run, findings.study) for names, run in rows.groupby(RUN)],
    }
    return json.dumps(content, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


def _run(names: tuple[str, str, int], rows: pd.DataFrame, study: Study) -> dict[str, Any]:
    arm, init, seed = names
    curves: dict[str, dict[str, list]] = {}
    for (metric, subset), curve in rows.groupby(["metric", "subset"]):
        values = [value if math.isfinite(value) else None for value in curve["value"].tolist()]
        curves.setdefault(metric, {})[subset] = [
            list(point) for point in zip(curve["epoch"].tolist(), values, strict=True)
        ]
    name = study.run_label(arm, init, seed)
    return {"name": name, "group": f"{arm}/{init}", "seed": seed, "curves": curves}
