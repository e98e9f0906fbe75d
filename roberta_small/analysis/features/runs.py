"""Tables of runs: table 1 (best checkpoints), table 2 (after each epoch) and the list of runs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from roberta_small.analysis.presentation import Computed, with_means
from roberta_small.analysis.query import STD_NOTES, Query, Study, names_of
from roberta_small.analysis.read.long_table import GROUP, REPORTED, RUN, SELECTING, usual_or_only
from roberta_small.analysis.read.runs import LoggedRun
from roberta_small.analysis.scoring import TieRule, choose_subsets, per_epoch, summarize, validations
from roberta_small.analysis.selection import Selection
from roberta_small.common import archive
from roberta_small.common.files import escaped
from roberta_small.common.metrics import Direction, label, number
from roberta_small.common.tables import Mean, Table, mean_std_cell

MOST_COLUMNS = 4
"""Number of columns `mean ± std (n)` for which a page has room."""


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
    choose_on, split = choose_subsets(table, subset, reported)
    query = Query(ties=ties, direction=direction, ddof=ddof)
    study = Study(query, metric=metric, by=by or metric, choose_on=choose_on, split=split)
    return best_table(Selection(study, (), table))


def best_table(selection: Selection) -> Table:
    """Table 1 of the selected runs, see `table1`."""
    study, query, best = selection.study, selection.study.query, selection.best
    metric, by, subset, reported = study.metric, study.by, study.choose_on, study.split
    averaged = {"valid": ("valid", by, subset), "test": ("test", metric, reported)}
    summaries = {column: summarize(best, GROUP, column, ddof=query.ddof) for column in averaged}
    data = []
    for index, (group, runs) in enumerate(best.groupby(GROUP)):
        data.append(runs.astype({"seed": object}))
        for statistic in ("mean", "std"):
            values = {column: summary.at[index, statistic] for column, summary in summaries.items()}
            data.append(pd.DataFrame([dict(zip(GROUP, group, strict=True), seed=statistic, **values)]))
    steps = best["step"].astype("string").fillna(best["tied_steps"].str.replace(" ", ", "))
    shown = best[RUN].astype(str).assign(
        valid=[number(x, by) for x in best["valid"]], test=[number(x, metric) for x in best["test"]],
        epoch=[_dash(epoch) for epoch in best["epoch"]], step=steps.replace("", "–"),
        ties=best["ties"].astype(str),
    )  # fmt: skip
    shown, groups, means = with_means(shown, best, averaged, query.ddof)
    means, names = tuple(mean._replace(tested=mean.column == "test") for mean in means), {}
    if by == metric and subset == reported:  # both columns are the same
        shown = shown.drop(columns="valid")
        means = tuple(mean for mean in means if mean.column == "test")
        names = {"test": f"{metric} on {subset}"}
    elif (by, subset, reported) != (metric, SELECTING, REPORTED):
        names = {"valid": f"{by} on {subset}", "test": f"{metric} on {reported}"}
    columns = {} if reported == REPORTED else {"reported": reported}
    return Table(
        name="table1",
        caption=f"{reported.capitalize()} {label(metric)} of each run at its best validation",
        notes=(
            study.note,
            "ties: how many validations share the best value (1: no tie).",
            _std_note(query.ddof),
        ),
        data=pd.concat(data, ignore_index=True).assign(
            metric=metric, by=by, subset=subset, **columns, tie_rule=query.ties, ddof=query.ddof
        ),
        shown=shown.rename(columns=names),
        groups=groups,
        means=tuple(mean._replace(column=names.get(mean.column, mean.column)) for mean in means),
    )


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
    cells = [mean_std_cell(row.mean, row.std, metric, row.n) for row in data.itertuples()]
    data = data.assign(group=names_of(data), cell=cells)
    shown = data.pivot(index="epoch", columns="group", values="cell").fillna("")
    groups, epochs = list(dict.fromkeys(data["group"])), list(shown.index)
    as_rows = len(groups) > max(MOST_COLUMNS, len(epochs))
    if as_rows:
        names = data[GROUP].drop_duplicates().reset_index(drop=True)
        shown = names.join(shown[groups].T.add_prefix("epoch ").reset_index(drop=True))
    else:
        shown = shown[groups].reset_index().astype({"epoch": str}).rename_axis(columns=None)
    return Table(
        name="table2",
        caption=f"{subset.capitalize()} {label(metric)} after each epoch, mean ± std over seeds (n)",
        notes=(_std_note(ddof), "Epochs of runs without a manifest are counted by validations."),
        data=data.drop(columns=["group", "cell"]).assign(metric=metric, subset=subset, ddof=ddof),
        shown=shown,
        groups=tuple(groups) if as_rows else (),
        means=tuple(
            Mean(
                groups.index(row.group) if as_rows else epochs.index(row.epoch),
                f"epoch {row.epoch}" if as_rows else row.group,
                row.group, str(row.epoch), subset, metric, row.mean,
            )
            for row in data.itertuples()
        ),
    )  # fmt: skip


def list_runs(runs: Sequence[LoggedRun], table: pd.DataFrame) -> Table:
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
        row = {name: getattr(run, name) for name in (*RUN, "recipe", "status")}
        row |= {"epochs": int(validated.get(key, 0)), "updates": updates, "seconds": run.seconds}
        row |= {"updates_per_second": updates / run.seconds if run.seconds else None}
        row |= {"subsets": " ".join(subsets.get(key, ())), "named_by": run.named_by}
        rows.append(row | {"folder": escaped(archive.shown(run.place))})
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


def _std_note(ddof: int) -> str:
    return f"std: {STD_NOTES[ddof]} over seeds; n: seeds with a value."


def _dash(value: object, pattern: str = "{}") -> str:
    return "–" if pd.isna(value) else pattern.format(value)


def compute_table1(selection: Selection) -> Computed:
    """Table 1 beside published results; marks need scores only if there is a baseline."""
    table = best_table(selection)
    kept = {*RUN, *(mean.column for mean in table.means if mean.tested)}
    table = selection.beside_published(table, [column for column in table.shown if column not in kept])
    return Computed([table], selection.values_for_marks)


def compute_table2(selection: Selection) -> Computed:
    """Table 2 of the selected runs."""
    study = selection.study
    table = table2(selection.table, study.metric, subset=study.split, ddof=study.query.ddof)
    return Computed([table], selection.values_for_marks)
