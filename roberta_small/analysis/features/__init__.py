"""Each table and figure of the commands, with what it computes; `FEATURES` lists them by name."""

from __future__ import annotations

from roberta_small.analysis.features import accuracy, cost, curves, exports, runs, seeds
from roberta_small.analysis.features.best_settings.choice import BEST_SETTINGS
from roberta_small.analysis.features.suite import SUITE
from roberta_small.analysis.presentation import Feature

FEATURES: dict[str, Feature] = {
    "table1": runs.TABLE1,
    "table2": runs.TABLE2,
    "curves": curves.CURVES,
    "seeds": seeds.SEEDS,
    "expected": seeds.EXPECTED,
    "predictions": accuracy.PREDICTIONS,
    "accuracy": accuracy.ACCURACY_TABLE,
    "best-settings": BEST_SETTINGS,
    "cost": cost.COST,
    "suite": SUITE,
    "scalars": exports.SCALARS,
}
"""A name of --table or --figure -> the feature; a table of several can also be named alone."""
