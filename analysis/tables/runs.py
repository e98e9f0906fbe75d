"""Tables of runs: table 1 (best checkpoints), table 2 (after each epoch) and the list of runs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from roberta_small.analysis.read.long_table import GROUP, REPORTED, RUN, SELECTING, usual_or_only
from roberta_small.analysis.read.runs import Run
from roberta_small.analysis.stats.best import TieRule, best_checkpoints, choose_subsets
from roberta_small.analysis.stats.spread import BEST, per_epoch, summarize, validations
from roberta_small.common import archive
from roberta_small.common.files import escaped
from roberta_small.common.metrics import Direction, label, lower_is_better, number
from roberta_small.common.tables import Mean, Table, mean_std_cell

TIE_NOTES = {
    "latest": "the latest of equal ones, as fairseq's checkpoint_best.pt",
    "earliest": "the earliest of equal ones",
    "mean": "of equal ones, the mean of their test values",
}
CHOSEN_ON_TEST = "A score selected on the test set is biased upwards."
CHOSEN_ON_REPORTED = (
    "The values on {0} are optimistic, because {0} was also used for the selection; evaluate the best "
    "checkpoints on a test set."
)
MOST_COLUMNS = 4
"""Number of columns `mean ± std (n)` for which a page has room."""
STD_NOTES = {0: "population standard deviation (ddof 0)", 1: "sample standard deviation (ddof 1)"}


def table1(
    table: pd.DataFrame,
    metric: str = "accuracy",
    *,
    ties: TieRule = "latest",
    ddof: int = 1,
    by: str | None = None,
    subset: str | None = None,
    direction: Direction = "auto",
    reported: str | None = None,
) -> Table:
    """Each run at its best validation, with mean and standard deviation over the seeds of each arm and init.

    `data` has the columns of `best_checkpoints` and `metric`, `by`, `subset`, `tie_rule` and `ddof`; in the
    rows of statistics, `seed` is "mean" or "std". If a subset other than test is reported, the column
    `reported` is its name. Raises `UserError` as `best_checkpoints`.
    """
    by = by or metric
    subset, reported = choose_subsets(table, subset, reported)
    best = best_checkpoints(
        table, metric, ties=ties, by=by, subset=subset, direction=direction, reported=reported
    )
    metric_of = {"valid": by, "test": metric}
    summaries = {column: summarize(best, GROUP, column, ddof=ddof) for column in ("valid", "test")}
    data, groups, means = [], [], []
    lines: list[dict[str, str]] = []
    for index, (group, runs) in enumerate(best.groupby(GROUP)):
        data.append(runs.astype({"seed": object}))
        lines.extend(_best_cells(run, metric_of) for run in runs.to_dict("records"))
        for statistic in ("mean", "std"):
            values = {column: summary.at[index, statistic] for column, summary in summaries.items()}
            data.append(pd.DataFrame([dict(zip(GROUP, group, strict=True), seed=statistic, **values)]))
        cells = {
            column: _mean_std(summary.loc[index], metric_of[column]) for column, summary in summaries.items()
        }
        means += [
            Mean(
                len(lines), column, "/".join(group), BEST, {"valid": subset, "test": reported}[column],
                metric_of[column], summary.at[index, "mean"], tested=column == "test",
            )
            for column, summary in summaries.items()
        ]  # fmt: skip
        lines.append(dict(zip(GROUP, group, strict=True), seed="mean ± std (n)", **cells))
        groups += ["/".join(group)] * (len(runs) + 1)
    shown, names = pd.DataFrame(lines).fillna(""), {}
    if by == metric and subset == reported != REPORTED:  # both columns are the same
        shown = shown.drop(columns="valid")
        means = [mean for mean in means if mean.column == "test"]
        names = {"test": f"{metric} on {subset}"}
    elif (by, subset, reported) != (metric, SELECTING, REPORTED):
        names = {"valid": f"{by} on {subset}", "test": f"{metric} on {reported}"}
    columns = {} if reported == REPORTED else {"reported": reported}
    return Table(
        name="table1",
        caption=f"{reported.capitalize()} {label(metric)} of each run at its best validation",
        notes=(
            best_note(by, subset=subset, ties=ties, direction=direction, reported=reported),
            "ties: how many validations share the best value (1: no tie).",
            _std_note(ddof),
        ),
        data=pd.concat(data, ignore_index=True).assign(
            metric=metric, by=by, subset=subset, **columns, tie_rule=ties, ddof=ddof
        ),
        shown=shown.rename(columns=names),
        groups=tuple(groups),
        means=tuple(mean._replace(column=names.get(mean.column, mean.column)) for mean in means),
    )


def best_note(
    by: str, *, subset: str, ties: TieRule, direction: Direction = "auto", reported: str = REPORTED
) -> str:
    """A note on how best checkpoints were selected."""
    extreme = "lowest" if lower_is_better(by, direction) else "highest"
    warning = ""
    if subset == REPORTED:
        warning = f" {CHOSEN_ON_TEST}"
    elif subset == reported:
        warning = f" {CHOSEN_ON_REPORTED.format(reported)}"
    return f"Best: {extreme} {label(by)} on {subset}; {TIE_NOTES[ties]} (tie rule {ties}).{warning}"


def table2(
    table: pd.DataFrame, metric: str = "accuracy", *, subset: str | None = None, ddof: int = 1
) -> Table:
    """Mean and standard deviation over seeds after each epoch, with a column for each arm and init.

    More groups than `MOST_COLUMNS` and than epochs are rows, with a column for each epoch.

    The default of `subset` is that of `scores`. `data` has the columns of `per_epoch`, `metric`, `subset` and
    `ddof`. Raises `UserError` as `per_epoch`.
    """
    subset = subset or usual_or_only(REPORTED, table["subset"].unique())
    data = per_epoch(table, metric, subset=subset, ddof=ddof)
    cells = data.assign(
        column=data["arm"] + "/" + data["init"], cell=[_mean_std(row, metric) for _, row in data.iterrows()]
    )
    value_of = dict(zip(zip(cells["column"], cells["epoch"], strict=True), data["mean"], strict=True))
    groups, epochs = list(dict.fromkeys(cells["column"])), sorted(set(cells["epoch"]))
    cell_of = dict(zip(value_of, cells["cell"], strict=True))
    as_rows = len(groups) > max(MOST_COLUMNS, len(epochs))
    if as_rows:
        shown = pd.DataFrame(
            {
                **data[GROUP].drop_duplicates().to_dict("list"),
                **{
                    f"epoch {epoch}": [cell_of.get((group, epoch), "") for group in groups]
                    for epoch in epochs
                },
            }
        )
    else:
        shown = pd.DataFrame(
            {
                "epoch": [str(epoch) for epoch in epochs],
                **{group: [cell_of.get((group, epoch), "") for epoch in epochs] for group in groups},
            }
        )
    return Table(
        name="table2",
        caption=f"{subset.capitalize()} {label(metric)} after each epoch, mean ± std over seeds (n)",
        notes=(_std_note(ddof), "Epochs of runs without a manifest are counted by validations."),
        data=data.assign(metric=metric, subset=subset, ddof=ddof),
        shown=shown,
        groups=tuple(groups) if as_rows else (),
        means=tuple(
            Mean(
                groups.index(group) if as_rows else epochs.index(epoch),
                f"epoch {epoch}" if as_rows else group,
                group, str(epoch), subset, metric, value,
            )
            for (group, epoch), value in value_of.items()
        ),
    )  # fmt: skip


def list_runs(runs: Sequence[Run], table: pd.DataFrame) -> Table:
    """Each run with its status, number of validations, last step, training time and subsets.

    `named_by` is the source of arm, init and seed: the manifest, a pattern or the path.
    """
    last_steps = table.groupby(RUN)["step"].max()
    validated = validations(table).groupby(RUN)["step"].nunique()
    subsets = table.groupby(RUN)["subset"].unique()
    rows = []
    for run in runs:
        key = (run.arm, run.init, run.seed)
        updates = int(last_steps.get(key, 0))
        rows.append(
            {
                "arm": run.arm,
                "init": run.init,
                "seed": run.seed,
                "recipe": run.recipe,
                "status": run.status,
                "epochs": int(validated.get(key, 0)),
                "updates": updates,
                "seconds": run.seconds,
                "updates_per_second": updates / run.seconds if run.seconds else None,
                "subsets": " ".join(subsets.get(key, ())),
                "named_by": run.named_by,
                "folder": escaped(archive.shown(run.place)),
            }
        )
    data = pd.DataFrame(rows).astype({"seconds": float, "updates_per_second": float})
    shown = data.assign(
        recipe=data["recipe"].fillna("–"),
        seconds=[_dash(value, "{:.0f}") for value in data["seconds"]],
        updates_per_second=[_dash(value, "{:.2f}") for value in data["updates_per_second"]],
    ).astype(str)
    return Table(
        name="runs",
        caption="Runs",
        notes=("epochs: validations so far. seconds: time spent training.",),
        data=data,
        shown=shown.rename(columns={"updates_per_second": "updates/s", "named_by": "named by"}),
    )


def _best_cells(run: dict, metric_of: dict[str, str]) -> dict[str, str]:
    """The cells of a run in table 1; without a single selected step, all tied steps are listed."""
    tied = run["tied_steps"].replace(" ", ", ")
    return {
        **{key: str(run[key]) for key in RUN},
        "valid": number(run["valid"], metric_of["valid"]),
        "test": number(run["test"], metric_of["test"]),
        "epoch": _dash(run["epoch"]),
        "step": (tied or "–") if pd.isna(run["step"]) else str(run["step"]),
        "ties": str(run["ties"]),
    }


def _mean_std(row: pd.Series, metric: str) -> str:
    return mean_std_cell(row["mean"], row["std"], metric, row["n"])


def _std_note(ddof: int) -> str:
    return f"std: {STD_NOTES[ddof]} over seeds; n: seeds with a value."


def _dash(value: object, pattern: str = "{}") -> str:
    return "–" if pd.isna(value) else pattern.format(value)
