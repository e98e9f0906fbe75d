"""The hyperparameter settings tried with a method, the one that validation selects, and their tables.

In the arm `fairseq,lr=1e-4` of a grid (see `common.run`), the part before the first comma is the family (the
method) and the part after it the setting; the setting of the unchanged recipe is "".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import pandas as pd

from roberta_small.analysis.compare import compare_groups
from roberta_small.analysis.features.comparison import comparison_table, examples_tables
from roberta_small.analysis.features.seeds import spread_table
from roberta_small.analysis.predictions import find_size
from roberta_small.analysis.presentation import Computed
from roberta_small.analysis.query import Study, names_of
from roberta_small.analysis.read.long_table import GROUP, REPORTED
from roberta_small.analysis.read.runs import LoggedRun
from roberta_small.analysis.scoring import BEST, spread_over_seeds
from roberta_small.analysis.selection import Selection
from roberta_small.common.cli import flags_of
from roberta_small.common.errors import UserError
from roberta_small.common.metrics import ACCURACIES, cut, cut_notes, label
from roberta_small.common.run import split_arm
from roberta_small.common.statistics import LEVEL, mean_std, t_interval
from roberta_small.common.tables import PERCENT, Mean, Table, mean_std_cell, signed, signed_interval

FEW_SEEDS = 5
AS_RECIPE = "as the recipe"
FAMILY = ["family", "init"]


def flag_values(setting: str) -> dict[str, str]:
    """The setting `lr=1e-4` as `{"lr": "1e-4"}`; a flag without a value has an empty one."""
    parts = (part.partition("=") for part in setting.split(",") if part)
    return {flag: value for flag, _, value in parts}


def find_settings(runs: Iterable[LoggedRun]) -> pd.DataFrame:
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
        recipe = flags_of(map(str, (run.read_manifest() or {}).get("recipe_flags") or ()))
        values = {flag: (*recipe[f"--{flag}"], "")[1] for flag in flags if f"--{flag}" in recipe}
        values |= flag_values(setting)
        row = {"arm": arm, "init": init, "family": family, "setting": setting, "values": values}
        known = ", ".join(f"{flag}={value}" for flag, value in sorted(values.items()))
        row |= {"label": setting or (f"{AS_RECIPE} ({known})" if known else AS_RECIPE)}
        # The recipe first, then by the values of the flags, numbers before text.
        numbers = [(number_of(value), value) for _, value in sorted(values.items())]
        order = [(number is None, number or 0.0, value) for number, value in numbers]
        ordered.append((family, init, setting != "", order, row))
    ordered.sort(key=lambda entry: entry[:-1])
    return pd.DataFrame([row for *_, row in ordered])


def choose_settings(
    settings: pd.DataFrame, best: pd.DataFrame, *, lower: bool = False, ddof: int = 1, metric: str = ""
) -> pd.DataFrame:
    """Select, for each family and init, the setting with the best mean over seeds on validation.

    `settings` is the frame of `find_settings`, `best` that of `best_checkpoints`, whose column `valid` is
    averaged (`lower`: the lowest mean is best). Test scores are not used. Of equal means the first setting is
    selected: the recipe, then the smallest values.

    Columns: those of `settings`; `n` (seeds), `valid_mean`, `valid_std`, `test_mean`, `test_std` (with
    `ddof`); `chosen`; `behind`, the mean difference on valid between the chosen setting and this one over the
    `pairs` common seeds, with its t interval `low`, `high`. Settings without values are excluded;
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
    by_seed = {group: runs.set_index("seed")["valid"] for group, runs in known.groupby(GROUP)}
    chosen = frame[frame["chosen"]].set_index(FAMILY)["arm"].to_dict()
    behind = []
    for row in frame[[*GROUP, "family"]].itertuples(index=False):
        better = by_seed[chosen[row.family, row.init], row.init]
        differences = (better - by_seed[row.arm, row.init]).dropna().to_numpy(dtype=float)
        differences = -differences if lower else differences
        low, high = cut(*t_interval(differences), metric, better.mean(), better.mean())
        mean = differences.mean() if len(differences) else float("nan")
        behind.append({"pairs": len(differences), "behind": mean, "low": low, "high": high})
    return frame.join(pd.DataFrame(behind, index=frame.index))


def number_tried(settings: pd.DataFrame) -> pd.Series:
    """The number of settings of the family and init of each row of `settings`."""
    return settings.groupby(FAMILY)["arm"].transform("size")


def varied_flags(settings: pd.DataFrame) -> list[str]:
    """The flags that occur in settings, in alphabetical order."""
    return sorted({flag for setting in settings["setting"] for flag in flag_values(setting)})


def number_of(text: str) -> float | None:
    """The value of a flag as a number; None if it is not a number."""
    try:
        return float(text)
    except ValueError:
        return None


def chosen_settings(selection: Selection) -> pd.DataFrame:
    """`choose_settings` of the selected runs."""
    study = selection.study
    return choose_settings(
        find_settings(selection.runs), selection.best, lower=study.selects_lowest, ddof=study.query.ddof,
        metric=study.by,
    )  # fmt: skip


def settings_table(data: pd.DataFrame, study: Study, *, size: int | None) -> Table:
    """The frame of `choose_settings` as a table; `size` is the number of validation examples, if known."""
    metric, by, subset, reported = study.metric, study.by, study.choose_on, study.split
    rows = data.to_dict("records")
    tried = number_tried(data)
    unused = f"; {'the test set' if reported == REPORTED else reported} is not used"
    unused = "" if subset == reported else unused

    def cells(column: str, metric: str) -> list[str]:
        return [mean_std_cell(row[f"{column}_mean"], row[f"{column}_std"], metric) for row in rows]

    shown = pd.DataFrame(
        {
            "arm": data["family"],
            "init": data["init"],
            "setting": data["label"],
            "n": data["n"].astype(str),
            f"{label(by)} on {subset}": cells("valid", by),
            "behind": ["–" if row["chosen"] else signed(row["behind"], by).removeprefix("+") for row in rows],
            PERCENT: ["–" if row["chosen"] else signed_interval(row["low"], row["high"], by) for row in rows],
            f"{label(metric)} on {reported}": cells("test", metric),
            "best": [
                "" if not row["chosen"] else "chosen" if n > 1 else "the only one"
                for row, n in zip(rows, tried, strict=True)
            ],
        }
    )
    return Table(
        name="settings",
        caption=f"Settings, chosen on {subset}",
        notes=(
            study.note,
            f"chosen: the best mean over seeds of {label(by)} on {subset}{unused}. "
            "Of equal means the recipe itself counts, then the smallest values.",
            f"Cells are mean ± std over n seeds; std: {study.std_note}.",
            f"The mean of the chosen setting on {subset} is biased upwards by the selection"
            f"{'' if subset == reported else f'; the mean on {reported} is not'}.",
            *_uncertainty_notes(data, subset, size),
        ),
        data=data.drop(columns="values").assign(
            metric=metric, by=by, subset=subset, ddof=study.query.ddof, level=LEVEL
        ),
        shown=shown,
        groups=tuple(names_of(data)),
        wide=("behind", PERCENT),
        wide_notes=(
            f"behind: difference to the chosen setting on {subset}, over the seeds of both; "
            f"{PERCENT}: its t interval.",
            *cut_notes(data["low"], data["high"], by, difference=True),
        ),
        means=tuple(
            Mean(
                index, f"{label(measured)} on {split}", f"{row['arm']}/{row['init']}", BEST, split, measured,
                row[f"{key}_mean"], tested=key == "test",
            )
            for index, row in enumerate(rows)
            for key, measured, split in (("valid", by, subset), ("test", metric, reported))
        ),
    )  # fmt: skip


def chosen_table(
    spread: pd.DataFrame, names: dict[tuple[str, str], str], study: Study, *, test_size: int | None
) -> Table:
    """The frame of `spread_over_seeds` for the chosen settings and the unchanged recipes.

    `names` maps (arm, init) to the name of the setting, in the order of the rows.
    """
    spread = pd.DataFrame(list(names), columns=GROUP).merge(spread, on=GROUP)
    table = spread_table(spread, study, test_size=test_size)
    roles = [names[arm, init] for arm, init in zip(spread["arm"], spread["init"], strict=True)]
    shown = table.shown.copy()
    shown.insert(2, "setting", roles)
    return replace(
        table,
        name="best_settings",
        caption=f"{study.split.capitalize()} {label(study.metric)} over seeds at the chosen settings, "
        "beside the recipe's own",
        data=table.data.assign(role=roles),
        shown=shown,
    )


def _uncertainty_notes(data: pd.DataFrame, subset: str, size: int | None) -> list[str]:
    grid = data[number_tried(data) > 1]
    if grid.empty:
        return ["No method and initialization has more than one setting, so nothing was chosen."]
    notes = []
    fewest = int(grid["n"].min())
    if fewest < FEW_SEEDS:
        notes.append(
            f"Some settings have only {fewest} seed{'s' * (fewest > 1)}: their means are uncertain, and "
            "other seeds could lead to another choice."
        )
    if grid.groupby(FAMILY)["n"].nunique().max() > 1:
        notes.append("Settings have different numbers of seeds: run the same seeds for a fair choice.")
    others = grid[~grid["chosen"]]
    near = others[~(others["low"] > 0)]
    if len(near):
        notes.append(
            f"{len(near)} of {len(others)} other settings do not differ significantly from the chosen one on "
            f"{subset} (the interval contains 0 or is undefined)."
        )
    if size:
        notes.append(
            f"All seeds are evaluated on the same {size:,} examples of {subset}; more seeds do not "
            "reduce the uncertainty due to their number."
        )
    return notes


def compute(selection: Selection) -> Computed:
    """All settings; the chosen ones beside the recipes; their comparisons, or those of the query."""
    study, query, runs = selection.study, selection.study.query, selection.runs
    data = chosen_settings(selection)
    tried = number_tried(data)
    grid = set(data.loc[tried > 1, GROUP].itertuples(index=False, name=None))
    size = find_size([run for run in runs if (run.arm, run.init) in grid], study.choose_on)
    tables = [settings_table(data, study, size=size)]

    shown = data[data["chosen"] | (data["setting"] == "")]
    names = {
        (row.arm, row.init): f"chosen: {row.label}" if row.chosen and tried[row.Index] > 1 else row.label
        for row in shown.itertuples()
    }
    values = selection.values
    at_best = values[values["at"] == BEST].merge(shown[GROUP], on=GROUP)
    size = selection.test_size if study.metric in ACCURACIES else query.test_size
    spread = spread_over_seeds(at_best, study.metric, ddof=query.ddof, test_size=size)
    tables.append(chosen_table(spread, names, study, test_size=size))

    scored = set(at_best["group"])
    groups = study.ordered(group for group in names_of(shown[shown["chosen"]]) if group in scored)
    if pairs := query.pairs or list(combinations(groups, 2)):
        differences = compare_groups(
            values, pairs=pairs, at=study.points(), lower=study.lower, metric=study.metric
        )
        tables.append(comparison_table(differences, study))
        tables += examples_tables(selection.predictions, pairs, study.split)
    return Computed(tables, values)
