"""Tables, statistics, figures and a report from the logs of runs: the commands.

The module of a command, and those of its tables and figures, are imported when it is called.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import roberta_small.common.startup  # noqa: F401  first
from roberta_small.analysis.features import FEATURES, Feature
from roberta_small.analysis.query import MODEL_INDEX, Query, add
from roberta_small.common import archive, run
from roberta_small.common.cli import Collect, Parser, nearest
from roberta_small.common.errors import UsageError, UserError, report_errors
from roberta_small.common.files import escaped
from roberta_small.common.metrics import decimals
from roberta_small.common.tables import FORMATS, Table, render, write_tables

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
  roberta-small compare books=results/cls-books/runs films=films.tar.xz --baseline fairseq/random
  roberta-small figures runs --out results --figure-format png svg --chance 50
  roberta-small figures runs --out results --reference published.csv
  roberta-small figures runs --study study.toml --figure-format pdf --out figures
  roberta-small figures runs --figure best-settings cost --out results
  roberta-small report runs --out report.html
  roberta-small report runs --baseline fairseq/random --out report.html
  roberta-small report runs --audit audit.json --reference published.csv --out report.html
  roberta-small collect runs --out results/runs
  roberta-small collect runs --out results/study.tar.xz
"""
RUNS = "folder of runs (<method>/<init>/seed<N>/) or of other logs, or an archive (see `collect`)"
DATA_SETS = (
    f"{RUNS}; of several data sets: their folder (<data set>/<method>/<init>/seed<N>/), or NAME=FOLDER each"
)
DEFAULTS = {"table": ("table1", "table2"), "figure": ("curves", "seeds", "expected", "predictions")}
CHOICE = ("metric", "by", "choose_on", "ties", "direction", "split")
OF_TABLES = ("ddof", "baseline", "reference", "at", "test_size", "audit", "duplicates", "pairs")


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
    several = {"nargs": "+", "help": DATA_SETS}

    runs = _command(commands, "runs", _runs, "list all runs, finished or not")
    runs.add_argument(
        "--format", choices=FORMATS, default="markdown", help="format of the list (%(default)s)"
    )

    tables = _command(
        commands, "tables", _tables,
        "print tables of runs: best checkpoints, epochs, seeds, settings and others", **several,
    )  # fmt: skip
    _add_names(tables, "table")
    _add_shared(tables)
    _add_output(tables, (*FORMATS, MODEL_INDEX))
    add(tables, (*OF_TABLES, "best_settings", "data_set"))

    compared = _command(
        commands, "compare", _compare, "compare groups of runs with each other or with published results",
        **several,
    )  # fmt: skip
    compared.add_argument(
        "--table", nargs="+", type=escaped, action=Collect, metavar="NAME",
        help="only these of the tables comparison, plan, examples and reference (default: all)",
    )  # fmt: skip
    _add_shared(compared)
    _add_output(compared, FORMATS)
    add(compared, ("baseline", "pairs", "at", "reference", "pairing", "detect"))

    drawn = _command(
        commands, "figures", _figures,
        "draw figures: learning curves, seeds, predictions, settings and others", **several,
    )  # fmt: skip
    _add_names(drawn, "figure")
    drawn.add_argument("--out", required=True, metavar="DIR", help="folder for the figures")
    _add_shared(drawn)
    add(drawn, ("ddof", "reference", "test_size", "audit", "best_settings", "chance"))
    drawn.add_argument(
        "--figure-format", nargs="+", choices=("png", "svg", "pdf"), default=["png"],
        help="formats of the figures (png)",
    )  # fmt: skip

    report = _command(commands, "report", _report, "write everything about the runs to one HTML file")
    report.add_argument("--out", required=True, metavar="FILE", help="HTML file to write")
    report.add_argument("--title", type=escaped, default="Results", help="heading of the report")
    _add_shared(report)
    add(report, ("ddof", "reference", "test_size", "audit", "chance", "at", "baseline"))
    add(report.add_mutually_exclusive_group(), ("pairs", "all_pairs"))

    collected = _command(
        commands, "collect", _collect, "copy manifests, scalars and predictions to a small folder or archive"
    )
    collected.add_argument(
        "--out", required=True, metavar="DIR",
        help=f"target folder, or archive (*{archive.SUFFIX}); run folders keep their relative paths",
    )  # fmt: skip
    return parser


def _command(
    commands: argparse._SubParsersAction, name: str, run: Callable[[argparse.Namespace], None], text: str,
    **source: Any,
) -> Parser:  # fmt: skip
    """Add a command that reads runs; --help prints the lines of `EXAMPLES` with this command.

    `source` has the arguments of the positional one.
    """
    own = [line for line in EXAMPLES.splitlines() if f"roberta-small {name} " in f"{line} "]
    parser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        examples="\n".join(["examples:", *own]),
    )
    parser.add_argument("runs", metavar="RUNS", **{"help": RUNS, **source})
    parser.add_argument(
        "--pattern", metavar="PATH",
        help="path layout of runs without manifest.json, for example '{init}/{seed}/{subset}'; also {arm}, * "
        "and ** (default: inferred from the paths, see `runs`)",
    )  # fmt: skip
    parser.set_defaults(command=run)
    return parser


def _add_names(parser: Parser, kind: str) -> None:
    """Add --table or --figure, and the list of its names to --help."""
    parser.add_argument(
        f"--{kind}", nargs="+", type=escaped, action=Collect, metavar="NAME",
        help=f"{kind}s, from the list below (default: {' '.join(DEFAULTS[kind])}; of several data sets: "
        "suite)",
    )  # fmt: skip
    lines = [f"{kind}s:"]
    for name, feature in FEATURES.items():
        if getattr(feature, kind):
            lines.append(f"  {name:14} {feature.text}")
            if kind == "table" and len(feature.tables) > 1:
                lines.append(f"{'':17}({', '.join(feature.tables)})")
    parser.epilog = "\n".join([*lines, "", parser.epilog or ""])


def _add_shared(parser: Parser) -> None:
    """Add the options of every selection: the best checkpoints, and the groups."""
    add(parser.add_argument_group("best checkpoints and what is reported of them"), CHOICE)
    groups = parser.add_argument_group("runs and groups")
    add(groups, ("include_unfinished", "accuracies"))
    groups.add_argument(
        "--study", metavar="FILE",
        help="TOML file with names, order and selection of groups, digits, captions, ... "
        "(docs/how-to/analysis.md)",
    )  # fmt: skip
    add(groups, ("groups",))


def _add_output(parser: Parser, formats: Sequence[str]) -> None:
    parser.add_argument(
        "--format", choices=formats, default="markdown",
        help="format of the printed tables; csv prints a single one, see --table (markdown)",
    )  # fmt: skip
    parser.add_argument("--out", metavar="DIR", help="folder to also write the tables to, in every format")


def query_of(options: argparse.Namespace) -> Query:
    """The query of parsed options and their study file; raises `UserError` as `read_study`."""
    given = vars(options)
    if not given.get("study"):
        return Query().overridden(given)
    from roberta_small.analysis.study_file import read_study

    return read_study(given["study"]).overridden(given)


def _runs(options: argparse.Namespace) -> None:
    from roberta_small.analysis.features.runs import list_runs
    from roberta_small.analysis.read.long_table import read_runs
    from roberta_small.analysis.read.runs import find_runs

    runs = find_runs(options.runs, options.pattern)
    print(render([list_runs(runs, read_runs(runs))], options.format), end="")


def _tables(options: argparse.Namespace) -> None:
    from roberta_small.analysis.presentation import present

    query = query_of(options)
    with decimals(query.digits):
        if options.format == MODEL_INDEX:
            from roberta_small.analysis.features.exports import model_index

            if options.table:
                raise UsageError(f"--table: has no effect on --format {MODEL_INDEX}; omit it")
            print(model_index(_selected(options.runs, query, options.pattern)), end="")
            return
        found = _chosen("table", options.table, options.runs, options.pattern)
        selection = _selected(options.runs, query, options.pattern, found.values())
        computed = {
            feature: feature.compute(selection) for feature in dict.fromkeys(found.values()) if feature.table
        }
        tables: dict[str, Table] = {}  # each once, also if it is named beside its feature
        for name, feature in found.items():
            alone = options.table and name in feature.tables  # "suite" is a feature and its first table
            one = computed[feature].only([name]) if alone else computed[feature]
            for table in present(one.tables, selection.study, one.values):
                tables.setdefault(table.name, table)
        _show(list(tables.values()), options.format, options.out)


def _compare(options: argparse.Namespace) -> None:
    from roberta_small.analysis.features import comparison, suite
    from roberta_small.analysis.presentation import Computed, present

    query = query_of(options)
    with decimals(query.digits):
        if _is_suite(options.runs, options.pattern):
            study, tables = suite.compare(options.runs, query, options.pattern)
        else:
            study, tables = comparison.compare_selected(options.runs[0], query, options.pattern)
        computed = Computed(tables)
        computed = computed.only(options.table) if options.table else computed
        _show(present(computed.tables, study), options.format, options.out)


def _figures(options: argparse.Namespace) -> None:
    from roberta_small.analysis.style import write_figures

    query = query_of(options)
    found = _chosen("figure", options.figure, options.runs, options.pattern)
    with decimals(query.digits):
        selection = _selected(options.runs, query, options.pattern, found.values())
        figures = (pair for feature in found.values() for pair in feature.draw(selection))
        for path in write_figures(figures, options.out, options.figure_format, query.width):
            print(f"wrote {path}", file=sys.stderr)


def _report(options: argparse.Namespace) -> None:
    from roberta_small.analysis.report.page import audit_tables, write_report
    from roberta_small.analysis.selection import select

    query = query_of(options)
    with decimals(query.digits):
        audit = audit_tables(query.audit) if query.audit else []  # before the slow reading of logs
        selection = select(options.runs, query, pattern=options.pattern)
        path = write_report(selection, options.out, title=options.title or "Results", audit=audit)
    print(f"wrote {path}", file=sys.stderr)


def _collect(options: argparse.Namespace) -> None:
    from roberta_small.analysis.collect import collect_all

    for path in collect_all(options.runs, options.pattern, options.out):
        print(f"wrote {path}", file=sys.stderr)


def _chosen(
    kind: str, names: Sequence[str] | None, sources: Sequence[str], pattern: str | None
) -> dict[str, Feature]:
    """Name -> feature of the requested tables or figures; those of several data sets by default for these.

    Raises `UserError` for an unknown name, and for names of one and of several data sets together.
    """
    if not names:
        names = ["suite"] if _is_suite(sources, pattern) else DEFAULTS[kind]
    known = {table: one for one in FEATURES.values() for table in one.tables} if kind == "table" else {}
    known |= {name: one for name, one in FEATURES.items() if getattr(one, kind)}
    for name in names:
        if name not in known:
            raise UserError(
                f"--{kind} {name}: no such {kind}{nearest(name, known)}; available: {', '.join(known)}"
            )
    found = {name: known[name] for name in names}
    if len({feature.several for feature in found.values()}) > 1:
        raise UserError(f"--{kind} {' '.join(names)}: tables of several data sets and of one; run it twice")
    return found


def _is_suite(sources: Sequence[str], pattern: str | None) -> bool:
    """Whether the words of a command line are several data sets, or the folder of several."""
    if len(sources) > 1 or run.is_named(sources[0]):
        return True
    folder = archive.opened(sources[0])
    several = pattern is None and folder.is_dir() and len(run.data_sets(folder)) > 1
    return several and not run.has_runs(folder)


def _selected(
    sources: Sequence[str], query: Query, pattern: str | None, found: Iterable[Feature] = ()
) -> Any:
    """What the features `found` read: the `Suite` of several data sets, or the `Selection` of the only one.

    Raises `UserError` for several data sets, and for an option of these, if a feature reads one.
    """
    if any(feature.several for feature in found):
        from roberta_small.analysis.features.suite import read_suite

        return read_suite(sources, query, pattern)
    from roberta_small.analysis.selection import select

    if query.best_settings:
        raise UsageError("--best-settings: for several data sets; for one use --table best-settings")
    if len(sources) > 1:
        raise UserError(f"{' '.join(sources)}: several data sets; give one, or omit --table and --figure")
    return select(sources[0], query, pattern=pattern)


def _show(tables: Sequence[Table], fmt: str, folder: str | None) -> None:
    """Print the tables; with a folder also write them there, as for several tables as CSV alone.

    Raises `UserError` for several tables as CSV on standard output.
    """
    text = "" if fmt == "csv" and folder and len(tables) > 1 else render(tables, fmt)
    if folder:
        for path in write_tables(tables, folder):
            print(f"wrote {path}", file=sys.stderr)
    print(text, end="")


if __name__ == "__main__":
    sys.exit(main())
