"""Draw the figure of the README from the table of accuracies by number of labels.

python docs/make_figure.py          (writes docs/results.png)
"""

from __future__ import annotations

import re

from matplotlib.figure import Figure

from roberta_small.common.files import ROOT, atomic_open

TABLE = re.compile(r"<!-- table: books-by-labels -->\n(.*?)<!-- end -->", re.DOTALL)
COLORS = ("#0072B2", "#CC79A7", "#0072B2", "#0072B2", "#D55E00", "#D55E00", "#555555", "#009E73")
DASHES = ("-", "-", "--", ":", "-", "--", "-", "-")
"""Of the rows of the table; a frozen encoder has the color of the fine-tuned one."""


def table() -> str:
    """The table in the page of the results."""
    match = TABLE.search((ROOT / "results/encoders/README.md").read_text(encoding="utf-8"))
    assert match is not None
    return match[1]


def main() -> None:
    """Draw test accuracy against the number of labels, a line for each method with its standard deviations.

    The file contains the table, so that a test finds a figure of an earlier table.
    """
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table().splitlines()]
    heading, _, *lines = rows
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    panel = figure.subplots()
    labels = [int(cell.replace(",", "")) for cell in heading[1:]]
    for (name, *cells), color, dash in zip(lines, COLORS, DASHES, strict=True):
        known = [(n, *map(float, cell.split(" ± "))) for n, cell in zip(labels, cells, strict=True) if cell]
        x, y, spread = zip(*((n, mean, std[0] if std else 0.0) for n, mean, *std in known), strict=True)
        panel.errorbar(
            x,
            y,
            yerr=spread,
            color=color,
            linestyle=dash,
            marker="o",
            capsize=3,
            label=name.replace("`", "'"),
        )
    panel.set_xscale("log")
    panel.set_xticks(labels, heading[1:])
    panel.minorticks_off()
    panel.set_xlabel("number of labels")
    panel.set_ylabel("test accuracy (%)")
    panel.grid(alpha=0.4)
    panel.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", frameon=False)
    with atomic_open(ROOT / "docs" / "results.png", "wb") as stream:
        figure.savefig(stream, format="png", dpi=100, metadata={"Description": table()})


if __name__ == "__main__":
    main()
