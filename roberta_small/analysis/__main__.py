"""Tables, statistics, figures and a report from the logs of runs: the commands and their options."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence

import roberta_small.common.startup  # noqa: F401  first
from roberta_small.analysis import collect
from roberta_small.analysis.features import FEATURES
from roberta_small.analysis.features.comparison import compare_selected
from roberta_small.analysis.features.exports import MODEL_INDEX, model_index
from roberta_small.analysis.features.runs import list_runs
from roberta_small.analysis.features.suite import Suite, is_suite, read_suite
from roberta_small.analysis.options import (
    PRESENTATION,
    Output,
    add,
    add_command,
    add_shared,
    output_of,
    query_of,
)
from roberta_small.analysis.presentation import Computed, Feature, present_all
from roberta_small.analysis.query import Query, ResolvedQuery, Selection, select
from roberta_small.analysis.read.long_table import read_runs
from roberta_small.analysis.read.runs import find_runs
from roberta_small.analysis.style import write_figures
from roberta_small.common.cli import Collect, Parser, nearest
from roberta_small.common.errors import UsageError, UserError, report_errors
from roberta_small.common.files import escaped
from roberta_small.common.metrics import decimals
from roberta_small.common.tables import FORMATS, render, write_tables

EXAMPLES = """examples:
  roberta-small runs runs
  roberta-small runs tensorboard-logs --pattern '{init}/{seed}/{subset}'
  roberta-small tables runs
  roberta-small tables runs --ddof 0 --ties earliest --metric macro_f1 --by loss
  roberta-small tables runs --study study.toml --baseline fairseq/random
  roberta-small tables runs --study study.toml --table table1 --format latex > table.tex
  roberta-small tables runs --table seeds accuracy --audit audit.json --out results
  roberta-small tables runs --table best-settings
  roberta-small tables books=results/cls-books/runs films=films.tar.xz --best-settings
  roberta-small tables runs --table scalars --format csv > scalars.csv
  roberta-small tables runs --format model-index --groups fairseq/pretrained > model-index.yaml
  roberta-small compare runs --groups fairseq/pretrained fairseq/random
  roberta-small compare runs --baseline fairseq/random
  roberta-small compare runs --groups fairseq/random other-runs:fairseq/random --at all --detect 2
  roberta-small compare runs --pair fairseq/pretrained fairseq/random --pair hf/random fairseq/random
  roberta-small compare runs --reference results/cls-books/published.csv
  roberta-small figures runs --out results --figure-format png svg --chance 50
  roberta-small figures runs --out results --reference published.csv
  roberta-small figures runs --study study.toml --figure-format pdf --out figures
  roberta-small figures runs --figure best-settings cost --out results
  roberta-small report runs --out report.html
  roberta-small report runs --baseline fairseq/random --out report.html
  roberta-small report runs --audit audit.json --reference published.csv --out report.html
"""
TABLE_NAMES = [name for name, one in FEATURES.items() if one.tables]
FIGURE_NAMES = [name for name, one in FEATURES.items() if one.draw]
DEFAULT_TABLES = ("table1", "table2")
DEFAULT_FIGURES = ("curves", "seeds", "expected", "predictions")
OF_TABLES = (
    *PRESENTATION, "ddof", "baseline", "reference", "at", "test_size", "audit", "duplicates", "pairs",
    "best_settings", "data_set",
)  # fmt: skip
OF_FIGURES = (
    "ddof", "reference", "test_size", "audit", "best_settings", "chance", "figure_format",
)  # fmt: skip
OF_REPORT = (
    "ddof", "reference", "test_size", "audit", "chance", "at", "baseline", "pairs", "all_pairs",
)  # fmt: skip


@report_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point; exits with 0, or 1 after an error."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    logging.addLevelName(logging.WARNING, "warning")
    logging.addLevelName(logging.INFO, "note")
    logging.getLogger(__package__).setLevel(logging.INFO)
    options = build_parser().parse_args(arguments)
    options.command(options)


def build_parser() -> Parser:
    """The parser of all commands; `command` of the parsed options runs one."""
    parser = Parser(
        prog="roberta-small",
        description="Tables, figures and statistics from the logs of the runs below a folder.",
        examples=f"{EXAMPLES}\nMore examples: roberta-small COMMAND --help",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    runs = add_command(commands, "runs", _runs, "list all runs, finished or not", EXAMPLES)
    runs.add_argument(
        "--format", choices=FORMATS, default="markdown", help="format of the list (%(default)s)"
    )

    tables = add_command(
        commands, "tables", _tables,
        "print tables of runs: best checkpoints, epochs, seeds, settings and others", EXAMPLES, several=True,
    )  # fmt: skip
    _add_names(tables, "table", TABLE_NAMES, f"{' '.join(DEFAULT_TABLES)}; of several data sets: suite")
    add_shared(tables)
    add(tables, ["format"], choices=(*FORMATS, MODEL_INDEX))
    add(tables, [name for name in OF_TABLES if name != "format"])

    compared = add_command(
        commands, "compare", _compare, "compare groups of runs with each other or with published results",
        EXAMPLES,
    )  # fmt: skip
    compared.add_argument(
        "--table", nargs="+", type=escaped, action=Collect, metavar="NAME",
        help="only these of the tables comparison, plan, examples and reference (default: all)",
    )  # fmt: skip
    add_shared(compared)
    add(compared, (*PRESENTATION, "baseline", "pairs", "at", "reference", "pairing", "detect"))

    drawn = add_command(
        commands, "figures", _figures,
        "draw figures: learning curves, seeds, predictions, settings and others", EXAMPLES, several=True,
    )  # fmt: skip
    _add_names(drawn, "figure", FIGURE_NAMES, f"{' '.join(DEFAULT_FIGURES)}; of several data sets: suite")
    add(drawn, ["out"], required=True, help="folder for the figures")
    add_shared(drawn)
    add(drawn, OF_FIGURES)

    report = add_command(
        commands, "report", _report, "write everything about the runs to one HTML file", EXAMPLES
    )
    add(report, ["out"], required=True, metavar="FILE", help="HTML file to write")
    report.add_argument("--title", type=escaped, help="heading of the report")
    add_shared(report)
    add(report, OF_REPORT[:-2])
    add(report.add_mutually_exclusive_group(), OF_REPORT[-2:])

    collect.register(commands)
    return parser


def _add_names(parser: Parser, kind: str, names: Iterable[str], default: str) -> None:
    """Add --table or --figure, and the list of its names to --help."""
    parser.add_argument(
        f"--{kind}", nargs="+", type=escaped, action=Collect, metavar="NAME",
        help=f"{kind}s, from the list below (default: {default})",
    )  # fmt: skip
    lines = [f"  {name:14} {FEATURES[name].text}{_parts(FEATURES[name], kind)}" for name in names]
    parser.epilog = "\n".join([f"{kind}s:", *lines, "", parser.epilog or ""])


def _parts(feature: Feature, kind: str) -> str:
    several = kind == "table" and len(feature.tables) > 1
    return f"\n{'':17}({', '.join(feature.tables)})" if several else ""


def _runs(options: argparse.Namespace) -> None:
    runs = find_runs(options.runs, options.pattern)
    print(render([list_runs(runs, read_runs(runs))], options.format), end="")


def _tables(options: argparse.Namespace) -> None:
    query, output = query_of(options), output_of(options)
    sources, pattern = options.runs, options.pattern
    with decimals(query.study.digits):
        if output.format == MODEL_INDEX:
            if output.names:
                raise UsageError(f"--table: has no effect on --format {MODEL_INDEX}; omit it")
            print(model_index(select(_single(sources, query), query, pattern=pattern)), end="")
            return
        found = _chosen("table", output.names, sources, pattern, DEFAULT_TABLES)
        selection = _read(sources, query, pattern, found)
        features = dict.fromkeys(found.values())
        computed = {feature: feature.compute(selection) for feature in features if feature.compute}
        chosen = [
            computed[feature] if name in FEATURES else computed[feature].only([name])
            for name, feature in found.items()
        ]
        _show(chosen, selection.query, output)


def _compare(options: argparse.Namespace) -> None:
    query, output = query_of(options), output_of(options)
    with decimals(query.study.digits):
        selection, tables = compare_selected(options.runs, query, options.pattern)
        computed = Computed(tables)
        _show([computed.only(output.names) if output.names else computed], selection.query, output)


def _figures(options: argparse.Namespace) -> None:
    query, output = query_of(options), output_of(options, "figure")
    sources, pattern = options.runs, options.pattern
    found = _chosen("figure", output.names, sources, pattern, DEFAULT_FIGURES)
    with decimals(query.study.digits):
        selection = _read(sources, query, pattern, found)
        figures = (pair for feature in found.values() if feature.draw for pair in feature.draw(selection))
        for path in write_figures(figures, str(output.out), output.figure_format, query.study.width):
            print(f"wrote {path}", file=sys.stderr)


def _report(options: argparse.Namespace) -> None:
    # Imported here, because --help of all commands imports this module.
    from roberta_small.analysis.report.page import audit_tables, write_report

    query = query_of(options)
    with decimals(query.study.digits):
        audit = audit_tables(query.audit) if query.audit else []  # before the slow reading of logs
        selection = select(options.runs, query, pattern=options.pattern)
        path = write_report(selection, options.out, title=options.title or "Results", audit=audit)
    print(f"wrote {path}", file=sys.stderr)


def _chosen(
    kind: str, names: Sequence[str], sources: Sequence[str], pattern: str | None, default: Sequence[str]
) -> dict[str, Feature]:
    """Name -> feature of the requested tables or figures; those of several data sets by default for these.

    Raises `UserError` for an unknown name, and for names of one and of several data sets together.
    """
    if not names:
        names = ["suite"] if is_suite(sources, pattern) else default
    if kind == "table":
        known = {table: one for one in FEATURES.values() for table in one.tables}
        known |= {name: FEATURES[name] for name in TABLE_NAMES}
    else:
        known = {name: FEATURES[name] for name in FIGURE_NAMES}
    for name in names:
        if name not in known:
            raise UserError(
                f"--{kind} {name}: no such {kind}{nearest(name, known)}; available: {', '.join(known)}"
            )
    found = {name: known[name] for name in names}
    if len({feature.several for feature in found.values()}) > 1:
        raise UserError(f"--{kind} {' '.join(names)}: tables of several data sets and of one; run it twice")
    return found


def _read(
    sources: Sequence[str], query: Query, pattern: str | None, found: Mapping[str, Feature]
) -> Selection | Suite:
    """What the features `found` read: several data sets, or the only one."""
    if any(feature.several for feature in found.values()):
        return read_suite(sources, query, pattern)
    return select(_single(sources, query), query, pattern=pattern)


def _single(sources: Sequence[str], query: Query) -> str:
    """The only source of runs; raises `UserError` for several data sets, and for an option of these."""
    if query.best_settings:
        raise UsageError("--best-settings: for several data sets; for one use --table best-settings")
    if len(sources) > 1:
        raise UserError(f"{' '.join(sources)}: several data sets; give one, or omit --table and --figure")
    return sources[0]


def _show(computed: Iterable[Computed], query: ResolvedQuery, output: Output) -> None:
    """Print the tables as the study presents them; with --out also write them.

    Raises `UserError` as `present_all`, and for several tables as CSV on standard output.
    """
    tables = present_all(computed, query.study, directions=query.directions)
    several = output.format == "csv" and output.out and len(tables) > 1
    text = "" if several else render(tables, output.format)
    if output.out:
        for path in write_tables(tables, output.out):
            print(f"wrote {path}", file=sys.stderr)
    print(text, end="")


if __name__ == "__main__":
    sys.exit(main())
