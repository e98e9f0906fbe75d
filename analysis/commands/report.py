"""The commands `figures` and `report`: figures, and an HTML page with all results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from roberta_small.analysis.commands.options import (
    add_at,
    add_baseline,
    add_bold,
    add_choice,
    add_command,
    add_ddof,
    add_figure_options,
    add_out,
    add_pairs,
    add_reference,
    add_selection,
    add_study,
    compared_at,
    selected_runs,
    write_figures,
)
from roberta_small.analysis.report.audit import audit_tables
from roberta_small.analysis.report.findings import Findings, Rule, figures, gather
from roberta_small.common.cli import Parser, positive
from roberta_small.common.files import escaped

EXAMPLES = """examples:
  python -m analysis figures runs --out results --figure-format png svg --chance 50
  python -m analysis figures runs --out results --reference published.csv
  python -m analysis figures runs --study study.toml --width one-column --figure-format pdf --out figures
  python -m analysis report runs --out report.html
  python -m analysis report runs --baseline fairseq/random --out report.html
  python -m analysis report runs --audit audit.json --reference published.csv --out report.html
"""


def register(commands: argparse._SubParsersAction) -> None:
    """Add the two commands."""
    drawn = _add_findings(
        commands,
        "figures",
        _figures,
        "draw learning curves, seeds with intervals, the expected best of n seeds, and predictions",
    )
    add_out(drawn, "folder for the figures", required=True)
    add_figure_options(drawn)
    drawn.set_defaults(all_pairs=False)

    report = _add_findings(commands, "report", _report, "write everything about the runs to one HTML file")
    add_out(report, "HTML file to write", metavar="FILE", required=True)
    compared = report.add_mutually_exclusive_group()
    add_pairs(compared, "each group with the baseline")
    compared.add_argument(
        "--all-pairs", action="store_true",
        help="compare all pairs of groups, which are then one family of corrected p-values",
    )  # fmt: skip
    add_at(report)
    add_baseline(
        report, "group that all others are compared with (default: the first one with random weights)"
    )
    add_bold(report)
    report.add_argument(
        "--title", type=escaped, default="Results", help="heading of the report (%(default)s)"
    )


def _figures(options: argparse.Namespace) -> None:
    write_figures(figures(_gather(options), options.chance), options)


def _report(options: argparse.Namespace) -> None:
    from roberta_small.analysis.report.page import (
        write_report,  # here, because --help of all commands imports this module
    )

    audit = audit_tables(options.audit) if options.audit else []  # before the slow reading of logs
    findings = _gather(options)
    if findings.baseline is not None and options.study.baseline is None:
        print(f"baseline: {findings.baseline}; select another one with --baseline", file=sys.stderr)
    path = write_report(findings, options.out, title=options.title, audit=audit, chance=options.chance)
    print(f"wrote {path}", file=sys.stderr)


def _gather(options: argparse.Namespace) -> Findings:
    chosen, left_out = selected_runs(options)
    rule = Rule(
        metric=options.metric, by=options.by or options.metric, subset=options.choose_on, ties=options.ties,
        direction=options.direction, ddof=options.ddof, reported=options.split,
    )  # fmt: skip
    return gather(
        chosen, rule, test_size=options.test_size, audit=options.audit, reference=options.reference,
        left_out=left_out, at=compared_at(options.study), all_pairs=options.all_pairs, study=options.study,
    )  # fmt: skip


def _add_findings(
    commands: argparse._SubParsersAction, name: str, run: Callable[[argparse.Namespace], None], text: str
) -> Parser:
    parser = add_command(commands, name, run, text, EXAMPLES)
    add_selection(parser)
    add_ddof(parser)
    add_choice(parser)
    add_study(parser)
    parser.add_argument(
        "--test-size", type=positive, metavar="N",
        help="examples in the reported split (default: counted in the audit, the prediction files or the "
        "data folder)",
    )  # fmt: skip
    parser.add_argument("--audit", metavar="JSON", help="written by: python -m preprocess audit --out")
    add_reference(parser, "published results to compare with")
    parser.add_argument("--chance", type=float, help="draw a horizontal line at chance level, for example 50")
    return parser
