"""One HTML file about a set of runs: it loads nothing, and whatever comes from files is escaped."""

from __future__ import annotations

import base64
import hashlib
import html
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template

from common.files import atomic_write

from .findings import Findings, figures, logged_accuracy
from .report_curves import curves_json
from .report_runs import GroupFacts, group_facts
from .report_svg import inline_svg
from .report_words import summary
from .runs import describe
from .spread import diverged
from .tables import Table, best_note, table1, table2
from .tables_checks import accuracy_table, answers_table, reference_table
from .tables_seeds import comparison_table, expected_table, plan_table, spread_table
from .writers import LEFT_ALIGNED

ASSETS = Path(__file__).parent / "report_assets"
LEFT = LEFT_ALIGNED | {"lines of", "that stand in", "split", "labels"}
CAPTIONS = {
    "per_epoch": "Every run and the mean of each group, after each epoch.",
    "seeds": "Each run at its best checkpoint, with intervals for the mean.",
    "expected": "What trying more seeds buys by itself: the expected best of n.",
    "confusion": "What each true class was taken for, mean over seeds.",
    "reliability": "Accuracy against confidence; below the dotted line, the model is too sure of itself.",
}


def write_report(
    findings: Findings,
    path: str | os.PathLike[str],
    *,
    title: str = "Results",
    audit: Sequence[Table] = (),
    chance: float | None = None,
) -> Path:
    """Write the report of `findings` to `path`, atomically; the same findings give the same bytes.

    `audit` are the tables of `report_audit.audit_tables`. Raises `UserError` where `path` cannot be written.
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
    """The page as text, see `write_report`."""
    drawings = [(name, inline_svg(figure, name)) for name, figure in figures(findings, chance)]
    (_, curves), *others = drawings
    sections = [
        _section("What the numbers say", (f"<p>{html.escape(text)}</p>" for text in summary(findings))),
        _section(
            "Curves", ['<div id="chart"></div>', f"<noscript>{_figure('per_epoch', curves)}</noscript>"]
        ),
        _section("Seeds", [_figure(name, drawing) for name, drawing in others]),
        _section("Results", map(_table, _result_tables(findings))),
    ]
    if findings.reference is not None:
        note = best_note(**findings.rule.choice)
        table = reference_table(findings.reference, findings.reference_name, note)
        sections.append(_section("Published results", [_table(table)]))
    if audit:
        sections.append(_section("The data", map(_table, audit)))
    sections.append(_section("What was run", map(_group, group_facts(findings.runs))))
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
    """Which runs this is about, and which it leaves out."""
    left_out = ", ".join(f"{run.name} ({run.status})" for run in findings.left_out)
    return describe(findings.runs) + (f". Not finished and left out: {left_out}" if left_out else "") + "."


def _result_tables(findings: Findings) -> list[Table]:
    rule, note = findings.rule, best_note(**findings.rule.choice)
    left_out = diverged(findings.table, findings.values, rule.metric)
    tables = [
        table1(findings.table, rule.metric, ddof=rule.ddof, **rule.choice),
        table2(findings.table, rule.metric, ddof=rule.ddof),
        spread_table(
            findings.spread,
            rule.metric,
            "test",
            note,
            ddof=rule.ddof,
            test_size=findings.test_size,
            left_out=left_out,
        ),
    ]
    if findings.comparison is not None:
        tables.append(comparison_table(findings.comparison, rule.metric, "test", note, left_out=left_out))
        tables.append(plan_table(findings.comparison, rule.metric))
    if findings.accuracies is not None:
        tables.append(
            accuracy_table(findings.accuracies, logged_accuracy(findings), "test", findings.overlap)
        )
    if findings.examples is not None:
        tables.append(answers_table(findings.examples, "test"))
    if len(findings.expected):
        tables.append(
            expected_table(findings.expected, rule.metric, rule.by, rule.subset, note, left_out=left_out)
        )
    return tables


def _section(heading: str, parts: Iterable[str]) -> str:
    content = "\n".join(parts)
    return f"<section>\n<h2>{heading}</h2>\n{content}\n</section>" if content else ""


def _table(table: Table) -> str:
    """A table as its Markdown shows it: caption, cells, notes."""
    columns = list(table.shown)
    body = "\n".join(_row(columns, row, "td") for row in table.shown.to_numpy().tolist())
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in table.notes)
    return (
        f'<h3>{html.escape(table.caption)}</h3>\n<div class="wide"><table id="table-{table.name}">\n'
        f"<thead>{_row(columns, columns, 'th')}</thead>\n<tbody>\n{body}\n</tbody></table></div>\n"
        f'<ul class="notes">{notes}</ul>'
    )


def _row(columns: Sequence[str], cells: Sequence[str], tag: str) -> str:
    """A row; those that sum up seeds stand out."""
    sums = ' class="sum"' if any(str(cell).startswith("mean ±") for cell in cells) and tag == "td" else ""
    written = "".join(
        f'<{tag} class="{"left" if column in LEFT else "right"}">{html.escape(str(cell))}</{tag}>'
        for column, cell in zip(columns, cells, strict=True)
    )
    return f"<tr{sums}>{written}</tr>"


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
