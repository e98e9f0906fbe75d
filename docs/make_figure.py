"""Draw the figure of the README from its table of results, which docs/check_numbers.py computes.

python docs/make_figure.py          (writes docs/results.png)
"""

from __future__ import annotations

import re

from matplotlib.figure import Figure

from roberta_small.common.files import ROOT, atomic_open

TABLE = re.compile(r"<!-- table: cls-books -->\n(.*?)<!-- end -->", re.DOTALL)
COLOR = "#0072B2"


def table() -> str:
    """The rows of the table of results, without its heading."""
    match = TABLE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert match is not None
    return match[1].split("\n", 2)[2]


def main() -> None:
    """Draw test accuracy at the best checkpoint of each row, with the standard deviation over seeds.

    The file contains the rows, so that a test finds a figure of an earlier table.
    """
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table().splitlines()]
    points = [[float(part) for part in row[-1].split(" ± ")] for row in rows]
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    panel = figure.subplots()
    for place, (best, *std) in enumerate(points):
        spread = std[0] if std else 0.0
        panel.errorbar(best, place, xerr=spread, fmt="o", color=COLOR, capsize=3, markersize=8)
        where = {"xytext": (10, 0), "textcoords": "offset points", "va": "center", "fontsize": 12}
        panel.annotate(f"{best:.2f}", (best + spread, place), **where)
    panel.set_yticks(range(len(rows)), [row[0] for row in rows], fontsize=12)
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.set_xlim(min(points)[0] - 2, max(points)[0] + 2)
    figure.supxlabel(
        "test accuracy (%) on French book reviews, 1,800 labels: mean ± standard deviation over seeds"
    )
    panel.grid(axis="x", alpha=0.4)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(axis="y", length=0)
    with atomic_open(ROOT / "docs" / "results.png", "wb") as stream:
        figure.savefig(stream, format="png", dpi=100, metadata={"Description": table()})


if __name__ == "__main__":
    main()
