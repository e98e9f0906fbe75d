"""The commands `figures`, `report` and `watch`: what the runs look like, and how far they are."""

from __future__ import annotations

import argparse
import sys

from common.cli import positive

from ..figures.style import FORMATS, save_figure
from ..read.runs import select_finished
from ..report.audit import audit_tables
from ..report.findings import Findings, Rule, figures, gather
from ..report.page import write_report
from ..watch import watch
from .options import add_choice, add_command, add_ddof, add_selection, choice, found_runs

EXAMPLES = """examples:
  python -m analysis figures runs --output-dir results --format png svg --chance 50
  python -m analysis figures runs --output-dir results --reference published.csv
  python -m analysis report runs --output report.html
  python -m analysis report runs --audit audit.json --reference published.csv --output report.html
  python -m analysis watch runs
  python -m analysis watch runs --inits random pretrained --seeds 1 2 3 --once
"""


def register(commands: argparse._SubParsersAction) -> None:
    """Add the three commands."""
    drawn = _add_findings(commands, "figures", _figures, "curves, seeds with intervals, best of n, answers")
    drawn.add_argument("--output-dir", metavar="DIR", required=True, help="folder for the figures")
    drawn.add_argument("--format", nargs="+", choices=FORMATS, default=["png"], help="of the files (png)")

    report = _add_findings(commands, "report", _report, "everything about the runs in one HTML file")
    report.add_argument("--output", metavar="FILE", required=True, help="the HTML file to write")
    report.add_argument("--title", default="Results", help="heading of the report (%(default)s)")

    watched = add_command(commands, "watch", _watch, "a live table of the runs, finished or not", EXAMPLES)
    watched.add_argument("--metric", default="accuracy", help="shown of the validations (%(default)s)")
    watched.add_argument(
        "--interval", type=positive, default=5, metavar="S", help="seconds between looks (%(default)s)"
    )
    watched.add_argument("--once", action="store_true", help="one look, then end")
    watched.add_argument(
        "--inits", nargs="+", default=[], metavar="INIT",
        help="that the sweep will have (those seen, while a run is at work)",
    )  # fmt: skip
    watched.add_argument(
        "--seeds", nargs="+", type=int, default=[], metavar="N",
        help="that the sweep will have (those seen, while a run is at work)",
    )  # fmt: skip


def _figures(options: argparse.Namespace) -> None:
    for name, figure in figures(_gather(options), options.chance):
        for fmt in options.format:
            print(f"wrote {save_figure(figure, options.output_dir, name, fmt)}", file=sys.stderr)


def _report(options: argparse.Namespace) -> None:
    audit = audit_tables(options.audit) if options.audit else []  # what is none is said before the work
    findings = _gather(options)
    path = write_report(findings, options.output, title=options.title, audit=audit, chance=options.chance)
    print(f"wrote {path}", file=sys.stderr)


def _watch(options: argparse.Namespace) -> None:
    watch(
        options.runs, options.metric, pattern=options.pattern, interval=options.interval, once=options.once,
        inits=options.inits, seeds=options.seeds,
    )  # fmt: skip


def _gather(options: argparse.Namespace) -> Findings:
    rule = Rule(metric=options.metric, ddof=options.ddof, **choice(options))
    found = found_runs(options)
    chosen = select_finished(found, options.include_unfinished)
    return gather(
        chosen, rule, test_size=options.test_size, audit=options.audit, reference=options.reference,
        left_out=[run for run in found if run not in chosen],
    )  # fmt: skip


def _add_findings(
    commands: argparse._SubParsersAction, name: str, run: object, text: str
) -> argparse.ArgumentParser:
    parser = add_command(commands, name, run, text, EXAMPLES)
    add_selection(parser)
    add_ddof(parser)
    add_choice(parser)
    parser.add_argument(
        "--test-size", type=positive, metavar="N",
        help="examples of test (default: those of the audit, of the prediction files or of the data folder)",
    )  # fmt: skip
    parser.add_argument(
        "--audit", metavar="JSON", help="what python -m preprocess audit --output found in the data"
    )
    parser.add_argument(
        "--reference", metavar="FILE", help="published results to set ours beside, as for `compare`"
    )
    parser.add_argument("--chance", type=float, help="draw a line at the score of guessing")
    return parser
