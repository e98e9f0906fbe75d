"""Each table and figure of the commands; its module is imported when it is computed or drawn."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from roberta_small.analysis.presentation import Computed


@dataclass(frozen=True)
class Feature:
    """What a name in --table or --figure stands for."""

    text: str
    """One line for --help."""
    tables: tuple[str, ...] = ()
    """The names of its tables; some may be missing, depending on the runs."""
    table: str = ""
    """`module.function` in this package, which computes them from a `Selection`, or from a `Suite`."""
    figure: str = ""
    """The same for figures: yields (name, figure) pairs."""
    several: bool = False
    """Whether it reads several data sets."""

    def compute(self, selection: Any) -> Computed:
        """The tables."""
        return _function(self.table)(selection)

    def draw(self, selection: Any) -> Iterator[tuple[str, Figure]]:
        """(name, figure) pairs."""
        return _function(self.figure)(selection)


def _function(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


FEATURES = {
    "table1": Feature(
        "each run at its best checkpoint, with mean and standard deviation",
        ("table1",), "runs.compute_table1",
    ),
    "table2": Feature(
        "mean and standard deviation after each epoch", ("table2",), "runs.compute_table2"
    ),
    "curves": Feature("learning curves", figure="curves.draw_curves_of"),
    "seeds": Feature(
        "mean, spread and intervals over seeds, and the interval due to the test set",
        ("seeds",), "seeds.compute_seeds", "seeds.draw_seeds_of",
    ),
    "expected": Feature(
        "expected result of the best of n seeds",
        ("expected",), "seeds.compute_expected", "seeds.draw_expected_of",
    ),
    "predictions": Feature(
        "confusion matrices and reliability, from prediction files", figure="accuracy.draw_predictions_of"
    ),
    "accuracy": Feature(
        "accuracy from prediction files, with and without duplicates of train",
        ("accuracy",), "accuracy.compute",
    ),
    "best-settings": Feature(
        "all settings of each method, the one that validation selects, and comparisons of these",
        ("settings", "best_settings", "comparison", "examples"), "best_settings.compute",
        "best_settings_figures.draw",
    ),
    "cost": Feature(
        "score and cost: trained parameters, seconds, peak memory", ("cost",), "cost.compute", "cost.draw"
    ),
    "suite": Feature(
        "methods compared over several data sets: scores, mean ranks, interquartile means",
        ("suite", "aggregates"), "suite.compute", "suite.draw", several=True,
    ),
    "scalars": Feature("all logged numbers, for other tools", ("scalars",), "exports.compute"),
}  # fmt: skip
"""A name of --table or --figure -> the feature; a table of several can also be named alone."""

TABLES = (
    "overview",
    *("table1", "table2", "seeds", "comparison", "plan", "examples", "reference", "expected", "accuracy"),
    *("settings", "best_settings", "suite", "aggregates", "cost", "scalars"),
)
"""The names of all tables, also those of `compare` and of reports."""
