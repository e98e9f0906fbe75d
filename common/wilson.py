"""The interval for a share of right answers."""

from __future__ import annotations

import math
from statistics import NormalDist


def wilson_interval(share: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """(low, high) for the share (0 to 1) of right answers, of which `n` were tried; NaN without any.

    Wilson's score interval (Wilson 1927; Brown, Cai and DasGupta 2001, equation 4). `share * n` need not be
    whole: a mean over seeds has a share too.
    """
    if not n > 0 or math.isnan(share):
        return math.nan, math.nan
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2) / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return middle - half, middle + half
