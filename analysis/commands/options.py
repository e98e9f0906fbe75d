"""What the commands of `python -m analysis` share: their examples, their common options, their runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from common.metrics import DIRECTIONS
from common.tables import FORMATS

from ..read.runs import Run, describe, find_runs, inferred, mixed_precision, select_finished
from ..stats.best import TIE_RULES

EXAMPLES = """examples:
  python -m analysis runs runs
  python -m analysis runs tensorboard-logs --pattern '{init}/{seed}/{subset}'
  python -m analysis tables runs --ddof 0 --ties earliest
  python -m analysis tables runs --format latex > tables.tex
  python -m analysis tables runs --metric macro_f1 --output-dir results
  python -m analysis tables runs --metric accuracy --by loss
  python -m analysis figures runs --output-dir results --format png svg --chance 50
  python -m analysis collect runs results/runs
"""


def add_command(
    commands: argparse._SubParsersAction,
    name: str,
    run: Callable[[argparse.Namespace], None],
    text: str,
    examples: str = EXAMPLES,
) -> argparse.ArgumentParser:
    """A command that reads the runs below a folder; `text` is its help and its description."""
    parser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".",
        epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("runs", metavar="RUNS", help="folder with <arm>/<init>/seed<N>/ or any logs below it")
    parser.add_argument(
        "--pattern", metavar="PATH",
        help="how the folders of logs without manifest.json end, such as '{init}/{seed}/{subset}'; "
        "{arm}, * and ** may be used as well (default: guessed, see `runs`)",
    )  # fmt: skip
    parser.set_defaults(command=run)
    return parser


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Which metric, of which runs."""
    parser.add_argument(
        "--metric", default="accuracy", help="what valid chooses and test reports (%(default)s)"
    )
    parser.add_argument(
        "--include-unfinished", action="store_true", help="use runs that are not finished as well"
    )


def add_ddof(parser: argparse.ArgumentParser) -> None:
    """The convention of standard deviations."""
    parser.add_argument(
        "--ddof", type=int, choices=(0, 1), default=1,
        help="standard deviation: 1 sample, 0 population (%(default)s)",
    )  # fmt: skip


def add_choice(parser: argparse.ArgumentParser) -> None:
    """How the best checkpoint of a run is chosen."""
    parser.add_argument(
        "--ties", choices=TIE_RULES, default="latest",
        help="which of equally good validations counts; fairseq keeps the latest (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--by", metavar="METRIC", help="what chooses the best checkpoint (the same as --metric)"
    )
    parser.add_argument(
        "--choose-on", metavar="SUBSET", default="valid", help="where it is chosen (%(default)s)"
    )
    parser.add_argument(
        "--direction", choices=DIRECTIONS, default="auto",
        help="which value of it is best; auto: the lowest of losses, perplexity and errors (%(default)s)",
    )  # fmt: skip


def choice(options: argparse.Namespace) -> dict[str, str]:
    """The options of `add_choice` and `add_selection` as `best_checkpoints` takes them."""
    return {
        "by": options.by or options.metric,
        "subset": options.choose_on,
        "ties": options.ties,
        "direction": options.direction,
    }


def add_format(parser: argparse.ArgumentParser) -> None:
    """How tables are printed."""
    parser.add_argument("--format", choices=FORMATS, default="markdown", help="printed (%(default)s)")


def found_runs(options: argparse.Namespace) -> list[Run]:
    """The runs that the options name; what was found is said on standard error."""
    runs = find_runs(options.runs, options.pattern)
    print(describe(runs), *inferred(runs), *mixed_precision(runs), sep="\n", file=sys.stderr)
    return runs


def selected_runs(options: argparse.Namespace) -> list[Run]:
    """Those of `found_runs` that are finished, or all that are asked for."""
    return select_finished(found_runs(options), options.include_unfinished)
