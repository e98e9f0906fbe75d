"""What each run answered to each example: accuracy on a part of them, and two groups example by example.

answers     group, arm, init, seed, index, gold, predicted, confidence, correct
            one row for each run and example with a known class; index is the 0-based line of the split, gold
            and predicted are categorical, confidence is the probability of the predicted class
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common import manifest, predictions
from common.binary_index import read_header
from common.data_folder import Overlap
from common.errors import UserError
from common.files import sha256
from common.predictions import Prediction
from common.statistics import DRAWS, LEVEL, SEED, wilson_interval

from ..long_table import RUN
from ..read.runs import Run
from .compare import bootstrap_examples, holm, mcnemar

logger = logging.getLogger(__name__)

COLUMNS = ["group", *RUN, "index", "gold", "predicted", "confidence", "correct"]


def read_answers(runs: Iterable[Run], split: str = "test") -> pd.DataFrame:
    """The answers of the runs that have a prediction file for `split`; empty where none has.

    The categories of `gold` and `predicted` are all classes, in the order of the label dictionary.
    A file without one known class is left out with a warning. Raises `UserError` as `predictions.read`.
    """
    frames, classes = [], {}
    for run in runs:
        path = run.path / predictions.file_name(split)
        if not path.exists():
            continue
        known = [answer for answer in predictions.read(path) if answer.true_class is not None]
        if not known:
            logger.warning("%s: the true class is null on every line, not used", path)
            continue
        classes |= dict.fromkeys(known[0].probabilities)
        frames.append(_frame(run, known))
    if not frames:
        return pd.DataFrame(columns=COLUMNS)
    kind = pd.CategoricalDtype(list(classes))
    return pd.concat(frames, ignore_index=True).astype({"gold": kind, "predicted": kind})


def accuracies(
    answers: pd.DataFrame, overlap: Overlap | None = None, *, level: float = LEVEL
) -> pd.DataFrame:
    """Accuracy in percent of each run, on all examples and on those outside `overlap`.

    Columns: `arm`, `init`, `seed`, `n`, `accuracy`, `low`, `high` (Wilson's interval), and with `overlap` the
    same four for the examples that are not in it (`unseen_n`, ...) and for those that are (`seen_n`,
    `seen_accuracy`).

    Raises `UserError` where a run answered a line beyond the end of the audited split.
    """
    rows = []
    for names, run in answers.groupby(RUN):
        row = {**dict(zip(RUN, names, strict=True)), **_accuracy(run["correct"], "", level)}
        if overlap is not None:
            if (last := run["index"].max()) >= overlap.size:
                raise UserError(
                    f"{'/'.join(map(str, names[:2]))}/seed{names[2]} answered line {last} (from 0) of "
                    f"{overlap.split}, but the audit knows {overlap.size:,} lines; audit the same text"
                )
            seen = run["index"].isin(overlap.lines)
            row |= _accuracy(run.loc[~seen, "correct"], "unseen_", level)
            in_it = _accuracy(run.loc[seen, "correct"], "seen_", level)
            row |= {name: in_it[name] for name in ("seen_n", "seen_accuracy")}
        rows.append(row)
    return pd.DataFrame(rows)


def compare_answers(
    answers: pd.DataFrame, a: str, b: str, *, level: float = LEVEL, draws: int = DRAWS, seed: int = SEED
) -> pd.DataFrame:
    """Two groups example by example, for each seed that both have; a last row for their mean.

    Where none is in both and a group is a single run (a baseline without random numbers), that run is set
    against each of the other group, whose seed is named.

    Columns: `a`, `b`, `seed` (int, or "mean"), `n` (examples), `only_a`, `only_b` (right where the other is
    wrong), `p_mcnemar` (exact; empty for the mean), `p_mcnemar_holm` (over the seeds), `difference` of
    accuracy in points, `low`, `high` (paired bootstrap over the examples, `draws` test sets).

    Empty where nothing can be paired. Raises `UserError` where two runs answered other examples.
    """
    rows, differences = [], []
    for run_seed, seeds in _partners(answers, (a, b)).items():
        right_a, right_b = _aligned(answers, (a, b), seeds)
        only_a, only_b, p = mcnemar(right_a, right_b)
        differences.append(right_a.astype(float) - right_b)
        rows.append({"seed": run_seed, "only_a": only_a, "only_b": only_b, "p_mcnemar": p})
    if not rows:
        return pd.DataFrame()
    if len({len(difference) for difference in differences}) > 1:
        raise UserError(f"the seeds of {a} and {b} answered different examples; predict one test set")
    adjusted = holm([row["p_mcnemar"] for row in rows])
    rows = [{**row, "p_mcnemar_holm": p} for row, p in zip(rows, adjusted, strict=True)]
    if len(rows) > 1:
        rows.append({"seed": "mean"})
        differences.append(np.mean(differences, axis=0))
    for row, difference in zip(rows, differences, strict=True):
        low, high = bootstrap_examples(100 * difference, level, draws=draws, seed=seed)
        row |= {"n": len(difference), "difference": 100 * difference.mean(), "low": low, "high": high}
    columns = ["seed", "n", "only_a", "only_b", "p_mcnemar", "p_mcnemar_holm", "difference", "low", "high"]
    frame = pd.DataFrame(rows).reindex(columns=columns).astype({"only_a": "Int64", "only_b": "Int64"})
    frame.insert(0, "a", a)
    frame.insert(1, "b", b)
    return frame


def _frame(run: Run, answers: list[Prediction]) -> pd.DataFrame:
    names = {"group": f"{run.arm}/{run.init}", "arm": run.arm, "init": run.init, "seed": run.seed}
    predicted = [answer.predicted for answer in answers]
    columns = {
        "index": [answer.index for answer in answers],
        "gold": [answer.true_class for answer in answers],
        "predicted": predicted,
        "confidence": [answer.probabilities[name] for answer, name in zip(answers, predicted, strict=True)],
    }
    frame = pd.DataFrame(columns)
    return frame.assign(correct=frame["gold"] == frame["predicted"], **names)[COLUMNS]


def _accuracy(correct: pd.Series, prefix: str, level: float) -> dict[str, float]:
    share = correct.mean() if len(correct) else np.nan
    low, high = wilson_interval(share, len(correct), level)
    return {
        f"{prefix}n": len(correct),
        f"{prefix}accuracy": 100 * share,
        f"{prefix}low": 100 * low,
        f"{prefix}high": 100 * high,
    }


def _partners(answers: pd.DataFrame, groups: tuple[str, str]) -> dict[int, tuple[int, int]]:
    """The seed that names a pair -> the seed of its run in each group."""
    one, other = (sorted(set(answers.loc[answers["group"] == group, "seed"])) for group in groups)
    if common := [seed for seed in one if seed in other]:
        return {seed: (seed, seed) for seed in common}
    if len(other) == 1:
        return {seed: (seed, other[0]) for seed in one}
    if len(one) == 1:
        return {seed: (one[0], seed) for seed in other}
    return {}


def _aligned(
    answers: pd.DataFrame, groups: tuple[str, str], seeds: tuple[int, int]
) -> list[NDArray[np.bool_]]:
    """(examples,) right or wrong, for the run of its seed in each group, in the same order."""
    one, other = (
        answers[(answers["group"] == group) & (answers["seed"] == seed)].sort_values("index")
        for group, seed in zip(groups, seeds, strict=True)
    )
    same = len(one) == len(other) and bool(
        (one[["index", "gold"]].to_numpy() == other[["index", "gold"]].to_numpy()).all()
    )
    if not same:
        raise UserError(
            f"{groups[0]} and {groups[1]}, seed {seeds[0]}: their predictions are for other examples or "
            "classes; predict the same split with both"
        )
    return [run["correct"].to_numpy(dtype=bool) for run in (one, other)]


def find_size(runs: Iterable[Run], subset: str = "test") -> int | None:
    """The examples of `subset`: as many as the runs' prediction files have, else as their data folder has.

    The data folder is the one that a run's manifest names, and counts only where its `label/<subset>.idx` is
    the file that the manifest recorded. None where no run has either. Raises `UserError` where runs differ.
    """
    sizes: dict[int, Run] = {}
    for run in runs:
        size = _from_predictions(run, subset) or _from_data(run, subset)
        if size:
            sizes.setdefault(size, run)
    if len(sizes) > 1:
        (one, run), (other, other_run), *_ = sizes.items()
        raise UserError(
            f"{run.name} has {one:,} {subset} examples and {other_run.name} {other:,}; give --test-size"
        )
    return next(iter(sizes), None)


def _from_predictions(run: Run, subset: str) -> int | None:
    path = run.path / predictions.file_name(subset)
    return len(predictions.read(path)) if path.exists() else None


def _from_data(run: Run, subset: str) -> int | None:
    data = (manifest.read(run.path) or {}).get("data", {})
    name = f"label/{subset}.idx"
    digest = (data.get("sha256") or {}).get(name)
    path = Path(data.get("path") or "") / name
    if digest is None or not path.is_file() or sha256(path) != digest:
        return None
    header = read_header(path)
    return None if header is None else header.sentences
