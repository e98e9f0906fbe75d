"""Settings of an arm: which were tried, and which one validation chooses.

In the arm `fairseq,lr=1e-4` of a grid (see `common.run`), the text before the first comma is the family and
the text after it the setting; the setting of the recipe itself is "".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from common import manifest
from common.cli import flags_of
from common.errors import UserError
from common.run import split_arm
from common.statistics import LEVEL, t_interval

from ..long_table import GROUP
from ..read.runs import Run

AS_RECIPE = "as the recipe"
FAMILY = ["family", "init"]


def flag_values(setting: str) -> dict[str, str]:
    """`{"lr": "1e-4"}` of `lr=1e-4`; a part without a value has an empty one."""
    parts = (part.partition("=") for part in setting.split(",") if part)
    return {flag: value for flag, _, value in parts}


def find_settings(runs: Iterable[Run]) -> pd.DataFrame:
    """One row for each arm and init, ordered by family, init, and setting, the recipe itself first.

    Columns: `arm`, `init`, `family`, `setting`, `values` (flag -> value, for every flag that some setting
    names; those of the recipe from the manifest, missing where it does not say), `label` (for a reader:
    `lr=1e-4`, or `as the recipe (lr=1e-5)`).
    """
    groups = {(run.arm, run.init): run for run in runs}
    flags = sorted({flag for arm, _ in groups for flag in flag_values(split_arm(arm)[1])})
    rows = []
    for (arm, init), run in groups.items():
        family, setting = split_arm(arm)
        values = recipe_values(run, flags) | flag_values(setting)
        row = {"arm": arm, "init": init, "family": family, "setting": setting, "values": values}
        rows.append(row | {"label": setting or _recipe_label(values)})
    rows.sort(key=lambda row: (row["family"], row["init"], _order(row["setting"], row["values"])))
    return pd.DataFrame(rows)


def recipe_values(run: Run, flags: Sequence[str]) -> dict[str, str]:
    """What the recipe that a run was trained with says of these flags; others are missing."""
    return values_in((manifest.read(run.path) or {}).get("recipe_flags") or (), flags)


def values_in(words: Iterable[object], flags: Sequence[str]) -> dict[str, str]:
    """Flag (without dashes) -> its value in a command line's words, the last one where it stands twice."""
    groups = flags_of(map(str, words))
    return {flag: (*groups[f"--{flag}"], "")[1] for flag in flags if f"--{flag}" in groups}


def choose_settings(
    settings: pd.DataFrame, best: pd.DataFrame, *, lower: bool = False, ddof: int = 1, level: float = LEVEL
) -> pd.DataFrame:
    """For each family and init, the setting with the best mean over seeds of what validation chose by.

    `settings` is the frame of `find_settings`, `best` that of `best_checkpoints`, whose column `valid`
    chooses (`lower`: the lowest mean). Test takes no part. Of equal means the first counts: the recipe
    itself, then the smallest values.

    Columns: those of `settings`; `n` (seeds), `valid_mean`, `valid_std`, `test_mean`, `test_std` (with
    `ddof`); `chosen`; `behind`, the mean by which the chosen setting is better on valid over the `pairs`
    seeds that both have, with its t interval `low`, `high` at `level`. Settings without a value are left out;
    raises `UserError` where that are all.
    """
    known = best.dropna(subset="valid")
    sums = known.groupby(GROUP).agg(
        n=("valid", "size"),
        valid_mean=("valid", "mean"),
        valid_std=("valid", lambda x: x.std(ddof=ddof)),
        test_mean=("test", "mean"),
        test_std=("test", lambda x: x.std(ddof=ddof)),
    )
    frame = settings.merge(sums.reset_index(), on=GROUP)
    if frame.empty:
        raise UserError("no run has a number to choose by: all are NaN; look at the runs' train.log")
    frame["chosen"] = False
    for _, rows in frame.groupby(FAMILY, sort=False):
        mean = rows["valid_mean"].round(9)  # 1/3 + 2/3 in another order is not a better mean
        frame.loc[mean.idxmin() if lower else mean.idxmax(), "chosen"] = True
    behind = _behind(frame, known, lower, level)
    return frame.join(pd.DataFrame(behind, index=frame.index))


def varied_flags(settings: pd.DataFrame) -> list[str]:
    """The flags that settings name, in alphabetical order."""
    return sorted({flag for setting in settings["setting"] for flag in flag_values(setting)})


def number_of(text: str | None) -> float | None:
    """A value as a number; None where it is none."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _behind(frame: pd.DataFrame, best: pd.DataFrame, lower: bool, level: float) -> list[dict[str, float]]:
    """For each row the chosen setting of the same family and init against it, pairs of equal seed."""
    by_seed = {group: rows.set_index("seed")["valid"] for group, rows in best.groupby(GROUP)}
    chosen = frame[frame["chosen"]].set_index(FAMILY)["arm"].to_dict()
    found = []
    for row in frame[[*GROUP, "family"]].itertuples(index=False):
        better = by_seed[chosen[row.family, row.init], row.init]
        differences = (better - by_seed[row.arm, row.init]).dropna().to_numpy(dtype=float)
        differences = -differences if lower else differences
        low, high = t_interval(differences, level)
        mean = differences.mean() if len(differences) else float("nan")
        found.append({"pairs": len(differences), "behind": mean, "low": low, "high": high})
    return found


def _recipe_label(values: Mapping[str, str]) -> str:
    said = ", ".join(f"{flag}={value}" for flag, value in sorted(values.items()))
    return f"{AS_RECIPE} ({said})" if said else AS_RECIPE


def _order(setting: str, values: Mapping[str, str]) -> tuple:
    """The recipe itself, then by the values of the flags: numbers as numbers, before text."""
    keys = []
    for _, value in sorted(values.items()):
        number = number_of(value)
        keys.append((number is None, number or 0.0, value))
    return (setting != "", keys)
