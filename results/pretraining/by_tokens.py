"""Accuracy at the best checkpoint against tokens of pre-training: prints a table and writes a figure.

    python results/pretraining/by_tokens.py results/pretraining/runs.tar.xz results/pretraining/tokens.csv \
        --out results/pretraining

The second file has the columns `init` and `tokens`; inits that it lacks are left out.
"""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING

import pandas as pd

from roberta_small.analysis import Query, Table, render, select, spread_over_seeds
from roberta_small.analysis.query import NO_STUDY
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.scoring import BEST
from roberta_small.analysis.style import finish, group_styles, legend_below, write_figures
from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.metrics import label, number
from roberta_small.common.tables import PERCENT, interval, mean_std_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ASIDE = 1.03
"""Factor by which each method is shifted to the right, so that intervals do not overlap."""


def spread_by_tokens(runs: str, tokens: str, metric: str) -> pd.DataFrame:
    """`spread_over_seeds` at the best checkpoints with a column `tokens`, by method and tokens."""
    known = pd.read_csv(tokens, dtype={"init": str})
    if list(known.columns) != ["init", "tokens"]:
        raise UserError(f"{tokens}: the columns are {', '.join(known)}; write init,tokens")
    selection = select(runs, Query(metric=metric))
    values = selection.values[selection.values["at"] == BEST]
    data = spread_over_seeds(values, metric).merge(known, on="init")
    if not (data["tokens"] > 0).any():
        raise UserError(f"{tokens}: names no pre-trained init of {runs}")
    return data.sort_values(["arm", "tokens"], ignore_index=True)


def table(data: pd.DataFrame, metric: str) -> Table:
    """The rows of `spread_by_tokens`."""
    rows = data.to_dict("records")
    shown = data[GROUP].assign(
        tokens=[f"{row['tokens']:,}" for row in rows],
        mean=[mean_std_cell(row["mean"], row["std"], metric, row["n"]) for row in rows],
        interval=[interval(row["t_low"], row["t_high"], metric) for row in rows],
    )
    note = f"mean ± std (n) and {PERCENT} t interval over seeds"
    return Table("by-tokens", f"Test {label(metric)} by tokens of pre-training", (note,), data, shown)


def draw(data: pd.DataFrame, metric: str) -> Figure:
    """A line for each pre-trained method, a horizontal line for each init without pre-training."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    panel = figure.subplots()
    trained, flat = data[data["tokens"] > 0], data[data["tokens"] == 0]
    style_of = group_styles([*trained["arm"], *(flat["arm"] + "/" + flat["init"])], NO_STUDY)
    for place, (arm, line) in enumerate(trained.groupby("arm", sort=False)):
        tokens = line["tokens"] * ASIDE**place
        panel.vlines(tokens, line["t_low"], line["t_high"], color=style_of[arm]["color"], linewidth=1.4)
        panel.plot(tokens, line["mean"], label=f"{arm}, pre-trained", linewidth=2, **style_of[arm])
    for row in flat.to_dict("records"):
        name = f"{row['arm']}/{row['init']}"
        style = {"color": style_of[name]["color"], "linestyle": "--"}
        panel.axhline(row["mean"], label=f"{name}: {number(row['mean'], metric)}", linewidth=1.4, **style)
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel("tokens of pre-training")
    panel.set_ylabel(f"{label(metric)} on test")
    finish(panel)
    legend_below(figure, f"mean over seeds, bars: {PERCENT} (t)")
    return figure


@report_errors
def main() -> None:
    """Entry point."""
    logging.basicConfig(format="%(levelname)s: %(message)s")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", help="folder or archive of runs")
    parser.add_argument("tokens", help="CSV file with the columns init and tokens")
    parser.add_argument("--metric", default="accuracy", help="metric of the table and the figure (accuracy)")
    parser.add_argument("--out", metavar="FOLDER", help="folder for the figure METRIC_by_tokens.png")
    options = parser.parse_args()
    data = spread_by_tokens(options.runs, options.tokens, options.metric)
    print(render([table(data, options.metric)], "markdown"), end="")
    if options.out:
        named = [(f"{options.metric}_by_tokens", draw(data, options.metric))]
        for path in write_figures(named, options.out, ["png"]):
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
