"""The best checkpoint of each run, the scores of runs, and their statistics over seeds.

Frame of scores: group, arm, init, seed, at, value. `group` is arm/init, `at` is an epoch ("1", "2", ...) or
"best" (the best checkpoint), `value` is finite.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd
from tqdm import tqdm

from roberta_small.analysis.read.long_table import GROUP, REPORTED, RUN, usual_or_only, validated, values_of
from roberta_small.common.errors import UserError, count, enumerate_some
from roberta_small.common.metrics import ACCURACIES, Direction, cut, lower_is_better
from roberta_small.common.statistics import Values, bootstrap_interval, mean_std, t_interval, wilson_interval

logger = logging.getLogger(__name__)

TieRule = Literal["latest", "earliest", "mean"]
TIE_RULES: tuple[TieRule, ...] = get_args(TieRule)
BEST = "best"
COLUMNS = ["group", *RUN, "at", "value"]


def best_checkpoints(
    table: pd.DataFrame,
    metric: str = "accuracy",
    *,
    ties: TieRule = "latest",
    by: str | None = None,
    subset: str | None = None,
    direction: Direction = "auto",
    reported: str | None = None,
) -> pd.DataFrame:
    """The best validation of each run that logged `by` on `subset`, ordered by arm, init and seed.

    The checkpoint is selected by the metric `by` (default: `metric`) on `subset`; its `metric` on `reported`
    is reported. For the default subsets see `choose_subsets`. Whether the highest or the lowest value is
    best: see `lower_is_better`. A value on the subset that selects is optimistic.

    Columns: `arm`, `init`, `seed`, `valid` (float, the best value of `by`), `test` (float, `metric` on
    `reported` at the same step), `epoch`, `step`, `ties` (nullable int; `ties` is the number of validations
    with the best value: 1 without a tie) and `tied_steps` (str, their steps separated by spaces).

    `ties` selects among equally good validations: the latest, as fairseq does
    (`checkpoint_utils.save_checkpoint` compares with >=, so `checkpoint_best.pt` is the last of them), the
    earliest, or the mean of their test values (`epoch` and `step` are then missing if there are several).
    Values are compared as logged, in single precision or as rounded by the trainer.

    NaN is never best: a run with nothing else has `ties` 0, no step and NaN values. A missing test value at
    the best step is NaN, with a warning.

    Raises `UserError`, listing the existing metrics, if no run has `by` on `subset` or `metric` on
    `reported`.
    """
    if ties not in TIE_RULES:
        raise ValueError(f"ties is {ties!r}, not one of {TIE_RULES}")
    by = by or metric
    subset, reported = choose_subsets(table, subset, reported)
    selecting, test = values_of(table, subset, by), values_of(table, reported, metric)
    extreme = "min" if lower_is_better(by, direction) else "max"
    best_of_run = selecting.groupby(RUN)["value"].transform(extreme)
    tied = selecting[selecting["value"] == best_of_run].rename(columns={"value": "valid"})
    tied = tied.merge(
        test[[*RUN, "step", "value"]].rename(columns={"value": "test"}), on=[*RUN, "step"], how="left"
    )
    by_run = tied.groupby(RUN)  # in the order of steps
    settled = by_run.head(1) if ties == "earliest" else by_run.tail(1)
    statistics = by_run.agg(
        ties=("step", "size"),
        tied_steps=("step", lambda steps: " ".join(map(str, steps))),
        mean_test=("test", lambda values: values.mean(skipna=False)),
    )
    settled = settled.merge(statistics.reset_index(), on=RUN)
    if ties == "mean":
        settled["test"] = settled["mean_test"]
        settled[["epoch", "step"]] = settled[["epoch", "step"]].where(settled["ties"] == 1)
    columns = [*RUN, "valid", "test", "epoch", "step", "ties", "tied_steps"]
    best = selecting[RUN].drop_duplicates().merge(settled[columns], on=RUN, how="left")
    best = best.fillna({"ties": 0, "tied_steps": ""}).astype(
        {"ties": "Int64", "step": "Int64", "epoch": "Int64"}
    )
    _warn(f"excluded, no {by} on {subset}", _missing(table[RUN], best[RUN]))
    _warn(f"without a best checkpoint because {by} on {subset} is always NaN", best[best["ties"] == 0])
    without = best[best["valid"].notna() & best["test"].isna()]
    _warn(f"without {metric} on {reported} at the best step (see --choose-on {reported})", without)
    return best


def choose_subsets(
    table: pd.DataFrame, subset: str | None = None, reported: str | None = None
) -> tuple[str, str]:
    """The subset that selects the best checkpoint, and the one that is reported.

    Defaults are valid and test. If a single subset was evaluated, it has both roles, with a warning.
    """
    logged = table["subset"].unique()
    only = usual_or_only(REPORTED, logged)
    if reported is None and subset in (None, only) and only == validated(logged):
        logger.warning(
            "%s is the only evaluated subset: it selects the best checkpoint and is reported, which is "
            "optimistic", only,
        )  # fmt: skip
    return subset or validated(logged), reported or only


def at_best(table: pd.DataFrame, best: pd.DataFrame, metric: str, subset: str) -> pd.DataFrame:
    """`metric` on `subset` at the best checkpoint of each run of `best_checkpoints`.

    Columns: `arm`, `init`, `seed`, `value`, which is the mean over the tied steps with the tie rule "mean".
    Runs without a value are excluded. Raises `UserError` as `values_of`.
    """
    steps = best["step"].astype("string").fillna(best["tied_steps"].astype("string"))
    chosen = best[RUN].assign(step=steps.str.split(" ")).explode("step")
    chosen = chosen[chosen["step"].fillna("") != ""].astype({"step": "int64"})
    rows = chosen.merge(values_of(table, subset, metric), on=[*RUN, "step"])
    return rows.groupby(RUN)["value"].mean().dropna().reset_index()


def _missing(runs: pd.DataFrame, present: pd.DataFrame) -> pd.DataFrame:
    """The arm, init and seed of the runs that are not present."""
    found = runs.drop_duplicates().merge(present, on=RUN, how="left", indicator=True)
    return found.loc[found["_merge"] == "left_only", RUN]


def _names(runs: pd.DataFrame) -> list[str]:
    return [f"{arm}/{init}/seed{seed}" for arm, init, seed in runs[RUN].itertuples(index=False, name=None)]


def _warn(what: str, runs: pd.DataFrame) -> None:
    if len(runs):
        logger.warning("%s %s: %s", count(len(runs), "run"), what, enumerate_some(_names(runs)))


def scores(table: pd.DataFrame, best: pd.DataFrame, metric: str, subset: str | None = None) -> pd.DataFrame:
    """`metric` on `subset` of each run after each epoch and at its best checkpoint.

    The default of `subset` is test, or the only evaluated one. `best` is the frame of `best_checkpoints`.
    Columns as above, epochs in order and "best" last. Values that are not finite (diverged runs) are
    excluded, see `diverged`. Raises `UserError` as `at_validations`, and if no value is finite.
    """
    subset = subset or usual_or_only(REPORTED, table["subset"].unique())
    epochs = at_validations(table, subset, metric).sort_values([*GROUP, "epoch", "seed"])
    epochs = epochs.assign(at=epochs["epoch"].astype(str))[[*RUN, "at", "value"]]
    rows = pd.concat([epochs, at_best(table, best, metric, subset).assign(at=BEST)], ignore_index=True)
    rows = rows[np.isfinite(rows["value"])]
    if rows.empty:
        raise UserError(
            f"'{metric}' on the subset '{subset}' is NaN or infinite in every run; check their train.log"
        )
    return rows.assign(group=rows["arm"] + "/" + rows["init"])[COLUMNS].reset_index(drop=True)


def diverged(table: pd.DataFrame, values: pd.DataFrame, metric: str, subset: str = "test") -> list[str]:
    """Names of the runs that logged `metric` on `subset` without a best value in the frame of scores.

    Statistics exclude these runs, so tables list them.
    """
    logged = table.loc[(table["metric"] == metric) & (table["subset"] == subset), RUN]
    return _names(_missing(logged, values.loc[values["at"] == BEST, RUN]))


def select_points(values: pd.DataFrame, at: Sequence[str] | None) -> pd.DataFrame:
    """The rows of `scores` at these points (epochs as text, or `best`); all rows for None.

    Raises `UserError` for a point that no group has.
    """
    points = list(dict.fromkeys(values["at"]))
    for point in at or ():
        if point not in points:
            raise UserError(f"--at {point}: no such epoch; available: {', '.join(points)}")
    return values if at is None else values[values["at"].isin(at)]


def spread_over_seeds(
    values: pd.DataFrame, metric: str = "accuracy", *, ddof: int = 1, test_size: int | None = None
) -> pd.DataFrame:
    """Statistics of scores over seeds, one row for each arm, init and point (epoch or "best").

    Columns: `arm`, `init`, `at`, `n` (seeds), `mean`, `std` (with `ddof`), `median`, `min`, `max`; intervals
    of the mean over seeds, `t_low`, `t_high` (Student; always with ddof 1, `cut`) and `bootstrap_low`,
    `bootstrap_high` (percentiles of resamples); with accuracy as metric and a `test_size`,
    `examples_low`, `examples_high` (Wilson's interval for a run with this mean) and `wider`, the wider one of
    t and Wilson ("seeds" or "examples").
    """
    counts = test_size if metric in ACCURACIES and test_size else 0
    rows = []
    groups = values.groupby([*GROUP, "at"], sort=False)
    for (arm, init, at), group in tqdm(groups, desc="intervals", delay=1, leave=False, disable=None):
        x = group["value"].to_numpy(dtype=float)
        mean, std = mean_std(x, ddof)
        low, high = wilson_interval(mean / 100, counts)
        ends = {"t": cut(*t_interval(x), metric), "bootstrap": bootstrap_interval(x)}
        ends["examples"] = 100 * low, 100 * high
        widths = [ends[name][1] - ends[name][0] for name in ("t", "examples")]
        wider = "seeds" if widths[0] > widths[1] else "examples"
        row = {"arm": arm, "init": init, "at": at, "n": len(x), "mean": mean, "std": std}
        row |= {"median": np.median(x), "min": x.min(), "max": x.max()}
        for name, (low, high) in ends.items():
            row |= {f"{name}_low": low, f"{name}_high": high}
        rows.append(row | {"wider": None if np.isnan(widths).any() else wider})
    return pd.DataFrame(rows).sort_values(GROUP, kind="stable", ignore_index=True)


def summarize(values: pd.DataFrame, by: list[str], column: str, *, ddof: int = 1) -> pd.DataFrame:
    """n, mean and standard deviation of `column` for each group of `by`, in the order of the groups.

    Columns: those of `by`, then `n` (int, values that are not NaN), `mean` and `std` (float), as defined by
    `common.statistics.mean_std`; computed by pandas for all groups at once.
    """
    groups = values.groupby(by)[column]
    statistics = {"n": groups.count(), "mean": groups.mean(), "std": groups.std(ddof=ddof)}
    return pd.DataFrame(statistics).reset_index()


def validations(table: pd.DataFrame) -> pd.DataFrame:
    """The `arm`, `init`, `seed` and `step` of each validation, see `validated`."""
    subset = validated(table["subset"].unique())
    return table.loc[table["subset"] == subset, [*RUN, "step"]].drop_duplicates()


def at_validations(table: pd.DataFrame, subset: str, metric: str) -> pd.DataFrame:
    """The rows of `metric` on `subset` that were logged at a validation: one per run and epoch.

    Values at other steps are excluded: they are not known to be at the end of an epoch (for example if the
    log of `valid` is corrupt). Without any at a validation, those after the last are used, with a warning.
    Raises `UserError` as `values_of`, and if no row is left.
    """
    logged, validated_at = values_of(table, subset, metric), validations(table)
    rows = logged.merge(validated_at, on=[*RUN, "step"])
    if rows.empty:
        last = validated_at.groupby(RUN, as_index=False)["step"].max().rename(columns={"step": "last"})
        rows = logged.merge(last, on=RUN).query("step > last")
        rows = rows.drop(columns="last").drop_duplicates([*RUN, "epoch"], keep="last")
        if rows.empty:
            raise UserError(
                f"'{metric}' on the subset '{subset}' was never logged at the step of a validation"
            )
        logger.warning("%s on %s was logged only after the last validation", metric, subset)
    return rows


def per_epoch(
    table: pd.DataFrame, metric: str = "accuracy", *, subset: str | None = None, ddof: int = 1
) -> pd.DataFrame:
    """`summarize` over the seeds of each arm, init and epoch; the default of `subset` is that of `scores`.

    Raises `UserError` as `at_validations`.
    """
    subset = subset or usual_or_only(REPORTED, table["subset"].unique())
    return summarize(at_validations(table, subset, metric), [*GROUP, "epoch"], "value", ddof=ddof)


def expected_best(chosen_by: Values, reported: Values, *, lower: bool = False) -> Values:
    """(N,) expected `reported` value of the run with the best `chosen_by` among n of N runs, for n = 1..N.

    Both arrays are (N,) without NaN. With the same array twice, the expected best value.

    The mean over all subsets of n runs, without replacement, which is unbiased (Tang et al. 2020, "Showing
    Your Work Doesn't Always Work"): the i-th worst run is best in C(i-1, n-1) of the C(N, n) subsets.
    Drawing with replacement (Dodge et al. 2019) is biased downwards. Runs with equal `chosen_by` are best
    equally often.
    """
    total = len(chosen_by)
    order = np.argsort(-chosen_by if lower else chosen_by, kind="stable")
    # Runs with equal `chosen_by` share the mean of their `reported` values.
    shared = pd.Series(reported).groupby(np.asarray(chosen_by)).transform("mean").to_numpy()[order]
    return np.array(
        [
            sum(math.comb(rank, n - 1) / math.comb(total, n) * value for rank, value in enumerate(shared))
            for n in range(1, total + 1)
        ]
    )


def expected_best_of_seeds(best: pd.DataFrame, *, lower: bool = False) -> pd.DataFrame:
    """`expected_best` for each arm and init of `best_checkpoints`, one row for each number of seeds tried.

    Columns: `arm`, `init`, `seeds_tried`, `seeds` (their total number), `valid` (expected best), `test`
    (expected `test` of the run with the best `valid`). Runs that lack one of them are excluded.
    """
    frames = [pd.DataFrame(columns=[*GROUP, "seeds_tried", "seeds", "valid", "test"])]
    for (arm, init), runs in best.dropna(subset=["valid", "test"]).groupby(GROUP):
        valid, test = (runs[column].to_numpy(dtype=float) for column in ("valid", "test"))
        columns = {"arm": arm, "init": init, "seeds_tried": np.arange(1, len(runs) + 1), "seeds": len(runs)}
        columns |= {"valid": expected_best(valid, valid, lower=lower)}
        columns |= {"test": expected_best(valid, test, lower=lower)}
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames[1:] or frames, ignore_index=True)
