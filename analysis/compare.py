"""Two groups of runs against each other: by how much they differ, and whether the seeds can tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Literal, get_args

import pandas as pd
from tqdm import tqdm

from common.errors import UserError

from .intervals import LEVEL
from .power import ALPHA, POWER, seeds_needed, std_factors
from .significance import beats, holm, paired, unpaired

Pairing = Literal["auto", "paired", "unpaired"]
PAIRINGS: tuple[Pairing, ...] = get_args(Pairing)
TESTS = ("p_t", "p_rank", "p_permutation")


def compare_groups(
    values: pd.DataFrame,
    groups: Sequence[str],
    *,
    at: Sequence[str] | None = None,
    pairing: Pairing = "auto",
    level: float = LEVEL,
    lower: bool = False,
    detect: float = 1.0,
    alpha: float = ALPHA,
    power: float = POWER,
) -> pd.DataFrame:
    """Each two of `groups` compared on `scores` at each of `at` (epochs and "best"; None: all there are).

    Runs are paired by seed where at least two seeds are in both groups (`pairing` "auto" or "paired"); then
    only these runs count, and `dropped_a`, `dropped_b` (str) name the other seeds. Else all runs count,
    unpaired.

    Columns: `a`, `b`, `at`, `design` ("paired", "unpaired"), `n_a`, `n_b`, `mean_a`, `mean_b`, `dropped_a`,
    `dropped_b`; the fields of `significance.Difference` (`difference` is mean_a - mean_b, `low` and `high`
    its interval); `p_t_holm`, `p_rank_holm`, `p_permutation_holm` (each test is one family over all rows);
    `correlation` of the pairs; `p_a_beats_b`; `detect`, `seeds_needed` to find a difference of `detect` with
    this `power`, `seeds_more` (beyond those there are); `std_low`, `std_high` (factors for the ends of the
    95 % interval of `std`), `seeds_needed_low`, `seeds_needed_high` (with these ends).

    Raises `UserError` for an unknown group or point, fewer than two groups, and with "paired" where fewer
    than two seeds match.
    """
    _check(values, groups, at)
    points = list(dict.fromkeys(values["at"])) if at is None else list(dict.fromkeys(at))
    rows = []
    pairs = list(combinations(dict.fromkeys(groups), 2))
    for a, b in tqdm(pairs, desc="comparing", delay=1, leave=False):
        for point in points:
            here = values[values["at"] == point]
            by_seed = [here[here["group"] == group].set_index("seed")["value"] for group in (a, b)]
            row = _compare_two(*by_seed, (a, b, point), pairing, level, lower)
            row |= _plan(row, detect, alpha, power)
            rows.append(row)
    frame = pd.DataFrame(rows)
    for test in TESTS:
        frame[f"{test}_holm"] = holm(frame[test].to_list())
    return frame


def _compare_two(
    a: pd.Series, b: pd.Series, names: tuple[str, str, str], pairing: Pairing, level: float, lower: bool
) -> dict[str, object]:
    """One row: the scores of both groups have their seeds as index."""
    matched = sorted(set(a.index) & set(b.index))
    if pairing == "paired" and len(matched) < 2:
        raise UserError(
            f"{names[0]} and {names[1]} have {len(matched)} seeds in common at {names[2]}; pairs need two: "
            "leave out --pairing paired"
        )
    pairs = pairing != "unpaired" and len(matched) >= 2
    dropped = [sorted(set(group.index) - set(matched)) if pairs else [] for group in (a, b)]
    if pairs:
        a, b = a[matched], b[matched]
    x, y = a.to_numpy(dtype=float), b.to_numpy(dtype=float)
    return {
        "a": names[0],
        "b": names[1],
        "at": names[2],
        "design": "paired" if pairs else "unpaired",
        "n_a": len(x),
        "n_b": len(y),
        "mean_a": x.mean() if len(x) else math.nan,
        "mean_b": y.mean() if len(y) else math.nan,
        "dropped_a": " ".join(map(str, dropped[0])),
        "dropped_b": " ".join(map(str, dropped[1])),
        **vars((paired if pairs else unpaired)(x, y, level)),
        "correlation": a.corr(b) if pairs and len(x) > 2 and a.nunique() > 1 < b.nunique() else math.nan,
        "p_a_beats_b": beats(x, y, lower=lower),
    }


def _plan(row: dict, detect: float, alpha: float, power: float) -> dict[str, float]:
    """How many seeds, and how far the standard deviation that they rest on can be trusted."""
    is_paired, smaller = row["design"] == "paired", min(row["n_a"], row["n_b"])
    freedom = row["n_a"] - 1 if is_paired else row["n_a"] + row["n_b"] - 2
    known = row["std"] > 0
    low, high = std_factors(freedom) if known else (math.nan, math.nan)
    needed, needed_low, needed_high = (
        seeds_needed(detect, row["std"] * factor, paired=is_paired, alpha=alpha, power=power)
        for factor in (1.0, low, high)
    )
    return {
        "detect": detect,
        "seeds_needed": needed,
        "seeds_needed_low": needed_low,
        "seeds_needed_high": needed_high,
        "seeds_more": max(0.0, needed - smaller) if known else math.nan,
        "std_low": low,
        "std_high": high,
    }


def _check(values: pd.DataFrame, groups: Sequence[str], at: Sequence[str] | None) -> None:
    known = list(dict.fromkeys(values["group"]))
    if len(set(groups)) < 2:
        raise UserError(f"--groups: name two groups or more, of {', '.join(known)}")
    for group in groups:
        if group not in known:
            raise UserError(
                f"--groups: no finished run of '{group}' has the metric, only {', '.join(known) or 'none'}"
            )
    points = list(dict.fromkeys(values["at"]))
    for point in at or ():
        if point not in points:
            raise UserError(f"--at {point}: no such epoch, only {', '.join(points)}")
