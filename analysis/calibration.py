"""Which classes are confused, and whether confidence is earned: more than right and wrong.

`answers` is the frame of `answers.read_answers`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

BINS = 10


def confusion(answers: pd.DataFrame) -> pd.DataFrame:
    """(C, C) float: mean count a run, a row for each true class and a column for each predicted one."""
    classes = list(answers["gold"].cat.categories)
    counts = pd.crosstab(answers["gold"].astype(str), answers["predicted"].astype(str))
    return counts.reindex(index=classes, columns=classes, fill_value=0) / answers["seed"].nunique()


def reliability(answers: pd.DataFrame, bins: int = BINS) -> pd.DataFrame:
    """Accuracy against confidence in `bins` bins of equal width; bins without an answer are left out.

    Columns: `confidence` and `accuracy` (means, 0 to 1), `share` of the answers.
    """
    # A bin holds its upper end: (0, 0.1], (0.1, 0.2], ... But that of C equally probable classes, 1/C, is
    # where confidence begins, and would often be alone in the bin below.
    first = bins // len(answers["gold"].cat.categories) + 1
    number = np.clip(np.ceil(answers["confidence"].to_numpy(dtype=float) * bins).astype(int), first, bins)
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
