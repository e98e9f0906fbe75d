"""The best checkpoint of each run: selected on one subset (valid), reported on another one (test)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal, TypedDict, get_args

import pandas as pd

from roberta_small.analysis.read.long_table import REPORTED, RUN, SELECTING, usual_or_only, values_of
from roberta_small.common.errors import count, enumerate_some
from roberta_small.common.metrics import Direction, lower_is_better

logger = logging.getLogger(__name__)

TieRule = Literal["latest", "earliest", "mean"]
TIE_RULES: tuple[TieRule, ...] = get_args(TieRule)


class Choice(TypedDict):
    """The keyword arguments of `best_checkpoints` that select the best checkpoint."""

    by: str
    subset: str
    ties: TieRule
    direction: Direction
    reported: str


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
    best = selecting[RUN].drop_duplicates().merge(_settle_ties(tied, ties), on=RUN, how="left")
    best = best.fillna({"ties": 0, "tied_steps": ""}).astype(
        {"ties": "Int64", "step": "Int64", "epoch": "Int64"}
    )
    _warn(f"excluded, no {by} on {subset}", _without(table, best))
    _warn(f"without a best checkpoint because {by} on {subset} is always NaN", best[best["ties"] == 0])
    without = best[best["valid"].notna() & best["test"].isna()]
    _warn(f"without {metric} on {reported} at the best step", without)
    return best


def choose_subsets(
    table: pd.DataFrame, subset: str | None = None, reported: str | None = None
) -> tuple[str, str]:
    """The subset that selects the best checkpoint, and the one that is reported.

    Defaults are valid and test. If a single subset was evaluated, it has both roles, with a warning.
    """
    logged = table["subset"].unique()
    only = usual_or_only(REPORTED, logged)
    if reported is None and subset in (None, only) and only == usual_or_only(SELECTING, logged):
        logger.warning(
            "%s is the only evaluated subset: it selects the best checkpoint and is reported, which is "
            "optimistic", only,
        )  # fmt: skip
    return subset or usual_or_only(SELECTING, logged), reported or only


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


def _settle_ties(tied: pd.DataFrame, rule: TieRule) -> pd.DataFrame:
    """One row per run from its equally good validations, which are in the order of their steps."""
    runs = tied.groupby(RUN)
    ties = runs.agg(
        ties=("step", "size"),
        tied_steps=("step", lambda steps: " ".join(map(str, steps))),
        mean_test=("test", lambda values: values.mean(skipna=False)),
    )
    best = runs.head(1) if rule == "earliest" else runs.tail(1)
    best = best.merge(ties.reset_index(), on=RUN)
    if rule == "mean":
        best["test"] = best["mean_test"]
        best[["epoch", "step"]] = best[["epoch", "step"]].where(best["ties"] == 1)
    return best[[*RUN, "valid", "test", "epoch", "step", "ties", "tied_steps"]]


def _without(table: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    """The runs of the table that are not in `best`."""
    runs = table[RUN].drop_duplicates().merge(best[RUN], on=RUN, how="left", indicator=True)
    return runs[runs["_merge"] == "left_only"]


def _warn(what: str, runs: pd.DataFrame) -> None:
    if len(runs):
        names = enumerate_some(f"{arm}/{init}/seed{seed}" for arm, init, seed in _names(runs))
        logger.warning("%s %s: %s", count(len(runs), "run"), what, names)


def _names(runs: pd.DataFrame) -> Iterable[tuple[str, str, int]]:
    return runs[RUN].itertuples(index=False, name=None)
