"""The hyperparameter settings tried with a method, and the one that validation selects.

In the arm `fairseq,lr=1e-4` of a grid (see `common.run`), the part before the first comma is the family (the
method) and the part after it the setting; the setting of the unchanged recipe is "".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.read.runs import Run
from roberta_small.common import manifest
from roberta_small.common.cli import flags_of
from roberta_small.common.errors import UserError
from roberta_small.common.run import split_arm
from roberta_small.common.statistics import LEVEL, mean_std, t_interval

AS_RECIPE = "as the recipe"
FAMILY = ["family", "init"]


def flag_values(setting: str) -> dict[str, str]:
    """The setting `lr=1e-4` as `{"lr": "1e-4"}`; a flag without a value has an empty one."""
    parts = (part.partition("=") for part in setting.split(",") if part)
    return {flag: value for flag, _, value in parts}


def find_settings(runs: Iterable[Run]) -> pd.DataFrame:
    """One row for each arm and init, ordered by family, init and setting, the recipe first.

    Columns: `arm`, `init`, `family`, `setting`, `values` (flag -> value, for all flags that occur in some
    setting; values of the recipe are from the manifest, or missing), `label` (as displayed: `lr=1e-4`, or
    `as the recipe (lr=1e-5)`).
    """
    groups = {(run.arm, run.init): run for run in runs}
    flags = sorted({flag for arm, _ in groups for flag in flag_values(split_arm(arm)[1])})
    ordered = []
    for (arm, init), run in groups.items():
        family, setting = split_arm(arm)
        values = recipe_values(run, flags) | flag_values(setting)
        row = {"arm": arm, "init": init, "family": family, "setting": setting, "values": values}
        row |= {"label": setting or _recipe_label(values)}
        ordered.append((family, init, _order(setting, values), row))
    ordered.sort(key=lambda entry: entry[:-1])
    return pd.DataFrame([row for *_, row in ordered])


def recipe_values(run: Run, flags: Sequence[str]) -> dict[str, str]:
    """Flag -> value in the recipe of a run; flags that it does not set are missing."""
    return values_in((manifest.read(run.path) or {}).get("recipe_flags") or (), flags)


def values_in(words: Iterable[object], flags: Sequence[str]) -> dict[str, str]:
    """Flag (without dashes) -> its last value in the words of a command line."""
    groups = flags_of(map(str, words))
    return {flag: (*groups[f"--{flag}"], "")[1] for flag in flags if f"--{flag}" in groups}


def choose_settings(
    settings: pd.DataFrame, best: pd.DataFrame, *, lower: bool = False, ddof: int = 1, level: float = LEVEL
) -> pd.DataFrame:
    """Select, for each family and init, the setting with the best mean over seeds on validation.

    `settings` is the frame of `find_settings`, `best` that of `best_checkpoints`, whose column `valid` is
    averaged (`lower`: the lowest mean is best). Test scores are not used. Of equal means the first setting is
    selected: the recipe, then the smallest values.

    Columns: those of `settings`; `n` (seeds), `valid_mean`, `valid_std`, `test_mean`, `test_std` (with
    `ddof`); `chosen`; `behind`, the mean difference on valid between the chosen setting and this one over the
    `pairs` common seeds, with its t interval `low`, `high` at `level`. Settings without values are excluded;
    raises `UserError` if there are no others.
    """
    known = best.dropna(subset="valid")
    rows = []
    for (arm, init), runs in known.groupby(GROUP):
        row = {"arm": arm, "init": init, "n": len(runs)}
        for column in ("valid", "test"):
            row[f"{column}_mean"], row[f"{column}_std"] = mean_std(runs[column], ddof)
        rows.append(row)
    if not rows:
        raise UserError("no run can be selected: all validation values are NaN; check the runs' train.log")
    frame = settings.merge(pd.DataFrame(rows), on=GROUP)
    frame["chosen"] = False
    for _, rows in frame.groupby(FAMILY, sort=False):
        mean = rows["valid_mean"].round(9)  # so that rounding errors of the sum do not break ties
        frame.loc[mean.idxmin() if lower else mean.idxmax(), "chosen"] = True
    behind = _behind(frame, known, lower, level)
    return frame.join(pd.DataFrame(behind, index=frame.index))


def number_tried(settings: pd.DataFrame) -> pd.Series:
    """The number of settings of the family and init of each row of `settings`."""
    return settings.groupby(FAMILY)["arm"].transform("size")


def varied_flags(settings: pd.DataFrame) -> list[str]:
    """The flags that occur in settings, in alphabetical order."""
    return sorted({flag for setting in settings["setting"] for flag in flag_values(setting)})


def number_of(text: str | None) -> float | None:
    """The value of a flag as a number; None if it is not a number."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _behind(frame: pd.DataFrame, best: pd.DataFrame, lower: bool, level: float) -> list[dict[str, float]]:
    """For each row, how far it is behind the chosen setting of its family and init, paired by seed."""
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
    flags = ", ".join(f"{flag}={value}" for flag, value in sorted(values.items()))
    return f"{AS_RECIPE} ({flags})" if flags else AS_RECIPE


def _order(setting: str, values: Mapping[str, str]) -> tuple:
    """Sort key: the recipe first, then by the values of the flags, numbers before text."""
    keys = []
    for _, value in sorted(values.items()):
        number = number_of(value)
        keys.append((number is None, number or 0.0, value))
    return (setting != "", keys)
