"""Which classes are confused, and whether confidence is earned: more than right and wrong.

predicted   group, arm, init, seed, index, gold, predicted, confidence, correct
            confidence is the probability of the predicted class
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from common import predictions

from .runs import Run

BINS = 10


def read_confidences(runs: Iterable[Run], split: str = "test") -> tuple[pd.DataFrame, list[str]]:
    """The answers of the runs that have a prediction file for `split`, and the classes in their order.

    Lines without a known class are left out; empty where nothing is left. Raises `UserError` as
    `predictions.read`.
    """
    rows, classes = [], {}
    for run in runs:
        path = run.path / predictions.file_name(split)
        if not path.exists():
            continue
        for answer in predictions.read(path):
            classes |= dict.fromkeys(answer.probabilities)
            if answer.gold is not None:
                best = answer.predicted
                confidence = answer.probabilities[best]
                names = (f"{run.arm}/{run.init}", run.arm, run.init, run.seed)
                rows.append((*names, answer.index, answer.gold, best, confidence, answer.correct))
    columns = ["group", "arm", "init", "seed", "index", "gold", "predicted", "confidence", "correct"]
    return pd.DataFrame(rows, columns=columns), list(classes)


def confusion(answers: pd.DataFrame, classes: list[str]) -> pd.DataFrame:
    """(C, C) float: mean count a run, a row for each true class and a column for each predicted one."""
    counts = pd.crosstab(answers["gold"], answers["predicted"])
    return counts.reindex(index=classes, columns=classes, fill_value=0) / answers["seed"].nunique()


def reliability(answers: pd.DataFrame, bins: int = BINS) -> pd.DataFrame:
    """Accuracy against confidence in `bins` bins of equal width; bins without an answer are left out.

    Columns: `confidence` and `accuracy` (means, 0 to 1), `share` of the answers.
    """
    # A bin holds its upper end: (0, 0.1], (0.1, 0.2], ...
    number = np.clip(np.ceil(answers["confidence"].to_numpy(dtype=float) * bins).astype(int), 1, bins)
    groups = answers.astype({"correct": float}).groupby(number)
    return pd.DataFrame(
        {
            "confidence": groups["confidence"].mean(),
            "accuracy": groups["correct"].mean(),
            "share": groups.size() / len(answers),
        }
    )


def expected_calibration_error(answers: pd.DataFrame, bins: int = BINS) -> float:
    """Mean distance of accuracy and confidence, weighted by the share of each bin (0 to 1).

    ECE of Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 3; of the predicted class.
    """
    table = reliability(answers, bins)
    return float((table["share"] * (table["accuracy"] - table["confidence"]).abs()).sum())
