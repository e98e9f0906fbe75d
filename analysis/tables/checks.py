"""Tables beside other sources: published results, and the answers to each example."""

from __future__ import annotations

import math

import pandas as pd

from common.data_folder import Overlap
from common.metrics import number
from common.statistics import DRAWS, LEVEL, SEED
from common.tables import PERCENT, Table, interval, p_value, signed, signed_interval, whole

from ..long_table import GROUP, RUN

ACCURACY = "accuracy"
SUMMED = {
    "logged": "logged",
    "accuracy": "accuracy",
    "unseen accuracy": "unseen_accuracy",
    "seen accuracy": "seen_accuracy",
}
LOGGED_TOLERANCE = 0.1
"""Points of accuracy that a checkpoint's predictions may be away from its log before it is said: precision of
the forward pass moves single answers."""
LOG_PRECISION = 1e-4
"""Points: logs are in single precision, which makes 0.1 a little more at times."""


def reference_table(data: pd.DataFrame, source: str, best_note: str) -> Table:
    """The frame of `reference.compare_reference` as a table; `source` is the file's name."""
    rows = data.to_dict("records")
    verdicts = {None: "–", True: "yes", False: "no"}
    shown = pd.DataFrame(
        {
            "arm": data["arm"],
            "init": data["init"],
            "at": data["epoch"],
            "subset": data["subset"],
            "metric": data["metric"],
            "ours": [_mean_std(row["mean"], row["std"], row["n"], row["metric"]) for row in rows],
            "reference": [
                _mean_std(row["reference_mean"], row["reference_std"], row["reference_n"], row["metric"])
                for row in rows
            ],
            "difference": [signed(row["difference"], row["metric"]) for row in rows],
            PERCENT: [signed_interval(row["low"], row["high"], row["metric"]) for row in rows],
            "within noise": [verdicts[row["within_noise"]] for row in rows],
        }
    )
    return Table(
        name="reference",
        caption=f"Ours beside {source}",
        notes=(
            best_note,
            "mean ± std (n seeds); both std with ddof 1, a reference's population std is converted. "
            "difference: ours − reference.",
            f"within noise: whether Welch's {PERCENT} interval of the difference, from means, std and n, "
            "holds 0. With few seeds it is wide: yes says that these runs cannot tell the two apart, not "
            "that they agree.",
            f"Not corrected for {len(data)} rows: where all agree, about {(1 - LEVEL) * len(data):.1f} of "
            "them say no.",
        ),
        data=data.assign(level=LEVEL),
        shown=shown,
    )


def accuracy_table(
    data: pd.DataFrame, logged: pd.DataFrame | None, split: str, overlap: Overlap | None
) -> Table:
    """The frame of `answers.accuracies`, beside what the logs say of each run's best checkpoint (the frame of
    `best.at_best`, None where they do not know).
    """
    if logged is None:
        data = data.assign(logged=math.nan)
    else:
        data = data.merge(logged.rename(columns={"value": "logged"}), on=RUN, how="left")
    rows = data.to_dict("records")
    shown = pd.DataFrame(
        {
            "arm": data["arm"],
            "init": data["init"],
            "seed": data["seed"].astype(str),
            "logged": [number(x, ACCURACY) for x in data["logged"]],
            "examples": data["n"].map(whole),
            "accuracy": [number(x, ACCURACY) for x in data["accuracy"]],
            PERCENT: [interval(row["low"], row["high"], ACCURACY) for row in rows],
        }
    )
    if overlap is not None:
        shown["unseen"] = data["unseen_n"].map(whole)
        shown["unseen accuracy"] = [number(x, ACCURACY) for x in data["unseen_accuracy"]]
        shown[f"unseen {PERCENT}"] = [
            interval(row["unseen_low"], row["unseen_high"], ACCURACY) for row in rows
        ]
        shown["seen accuracy"] = [number(x, ACCURACY) for x in data["seen_accuracy"]]
    notes = [
        f"From the prediction files of {split}; {PERCENT}: Wilson's interval. logged: accuracy at the "
        "best checkpoint in the logs. std: ddof 1.",
    ]
    if overlap is not None:
        notes.append(
            f"unseen: without the {len(overlap.lines):,} examples of {overlap.split} whose text stands in "
            f"{overlap.other} ({overlap.notion} duplicates of the audit); seen: those alone."
        )
    away = data[(data["accuracy"] - data["logged"]).abs() > LOGGED_TOLERANCE + LOG_PRECISION]
    if len(away):
        names = ", ".join(f"{row.arm}/{row.init}/seed{row.seed}" for row in away.itertuples())
        notes.append(
            f"More than {LOGGED_TOLERANCE} points from the log (another checkpoint or other data?): {names}."
        )
    return Table(
        name="accuracy",
        caption=f"Accuracy (%) on {split}, counted from the predictions",
        notes=tuple(notes),
        data=data.assign(split=split, level=LEVEL),
        shown=_with_sums(shown, data),
    )


def answers_table(data: pd.DataFrame, split: str) -> Table:
    """The frames of `answers.compare_answers`, one below the other."""
    rows = data.to_dict("records")
    shown = pd.DataFrame(
        {
            "A": data["a"],
            "B": data["b"],
            "seed": data["seed"].astype(str),
            "examples": data["n"].map(whole),
            "only A right": data["only_a"].map(whole),
            "only B right": data["only_b"].map(whole),
            "p McNemar": data["p_mcnemar"].map(p_value),
            "Holm": data["p_mcnemar_holm"].map(p_value),
            "A − B": [signed(x, ACCURACY) for x in data["difference"]],
            f"bootstrap {PERCENT}": [signed_interval(row["low"], row["high"], ACCURACY) for row in rows],
        }
    )
    return Table(
        name="examples",
        caption=f"Accuracy (%) on {split}, example by example: A against B",
        notes=(
            "p McNemar: exact, two-sided, of two runs rather than two recipes; "
            "Holm: over the seeds of each two groups.",
            f"bootstrap: percentiles of {DRAWS:,} test sets drawn from the examples, the same for A and B, "
            f"seed {SEED}; mean: of the accuracies of all seeds.",
            "This speaks of other test sets with these very runs; the comparison over seeds, of other runs.",
        ),
        data=data.assign(split=split, level=LEVEL, draws=DRAWS),
        shown=shown,
    )


def _with_sums(shown: pd.DataFrame, data: pd.DataFrame) -> pd.DataFrame:
    """Below the rows of each arm and init, mean and std over its seeds."""
    parts = []
    for group, runs in data.groupby(GROUP):
        sums = {
            heading: _mean_std(runs[column].mean(), runs[column].std(ddof=1), runs[column].count(), ACCURACY)
            for heading, column in SUMMED.items()
            if heading in shown
        }
        last = dict(zip(GROUP, group, strict=True), seed="mean ± std (n)", **sums)
        parts += [shown.loc[runs.index], pd.DataFrame([last])]
    return pd.concat(parts, ignore_index=True).fillna("")


def _mean_std(mean: float, std: float, n: float, metric: str) -> str:
    seeds = "–" if math.isnan(n) else f"{n:.0f}"
    return f"{number(mean, metric)} ± {number(std, metric)} ({seeds})"
