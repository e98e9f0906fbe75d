"""Statistics of prediction files: accuracy with intervals, paired comparisons, the size of the test set.

Frame of predictions, one row for each run and labelled example:

    group, arm, init, seed      group is arm/init
    index                       0-based line of the split
    key                         of its text, empty if it is not known (`common.predictions`)
    label, predicted            true and predicted class, categorical
    confidence                  probability of the predicted class
    correct                     bool
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roberta_small.analysis.compare import holm
from roberta_small.analysis.read.discovery import readable
from roberta_small.analysis.read.long_table import RUN
from roberta_small.analysis.read.runs import LoggedRun
from roberta_small.common import predictions as prediction_files
from roberta_small.common.data_folder import Overlap, keys_digest, read_header
from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from roberta_small.common.predictions import Prediction
from roberta_small.common.statistics import DRAWS, LEVEL, SEED, Interval, Values, wilson_interval

logger = logging.getLogger(__name__)

BOOTSTRAP, WILSON = "bootstrap", "Wilson"
"""The methods of `examples_interval`."""
COLUMNS = ["group", *RUN, "index", "key", "label", "predicted", "confidence", "correct"]


def read_predictions(runs: Iterable[LoggedRun], split: str = "test") -> pd.DataFrame:
    """The frame of predictions of all runs with a prediction file for `split`; empty if there is none.

    The categories of `label` and `predicted` are all classes in the order of the label dictionary. Files
    without labels, and those of several classes per text or of numbers, are skipped with a warning. Raises
    `UserError` as `common.predictions.read`, and for a file that cannot be read.
    """
    rows, classes, others = [], dict[str, None](), list[Path]()
    for run in runs:
        if (path := find_predictions(run, split)) is None:
            continue
        with readable():
            found = prediction_files.read(path)
        single = [prediction for prediction in found if isinstance(prediction, Prediction)]
        labelled = [prediction for prediction in single if prediction.true_class is not None]
        if not single:
            others.append(path)
        elif not labelled:
            logger.warning("%s: skipped, the true class is null on every line", path)
        else:
            classes |= dict.fromkeys(labelled[0].probabilities)
        names = run.group, run.arm, run.init, run.seed
        for one in labelled:
            name = one.predicted
            end = one.true_class, name, one.probabilities[name], name == one.true_class
            rows.append((*names, one.index, one.key or "", *end))
    if others:
        logger.warning(
            "%s: not used here: accuracy by example, confusion matrices and reliability are for one class "
            "per text; roberta-small evaluate --from-predictions scores %s",
            others[0],
            "it" if len(others) == 1 else f"this and {len(others) - 1} more",
        )
    categories = pd.CategoricalDtype(list(classes))
    return pd.DataFrame(rows, columns=COLUMNS).astype({"label": categories, "predicted": categories})


def find_predictions(run: LoggedRun, split: str) -> Path | None:
    """The prediction file of a run; None if there is none, or with a warning if it is no regular file."""
    path = run.folder / prediction_files.file_name(split)
    if not path.exists():
        return None
    if not path.is_file():
        logger.warning("%s: skipped, not a regular file", path)
        return None
    return path


def accuracies(predictions: pd.DataFrame, overlap: Overlap | None = None) -> pd.DataFrame:
    """Accuracy in percent of each run, on all examples and with and without those in `overlap`.

    Columns: `arm`, `init`, `seed`, `n`, `accuracy`, `low`, `high` (Wilson's interval). With `overlap` also
    `unseen_n`, `unseen_accuracy`, `unseen_low`, `unseen_high` (examples outside it), `seen_n` and
    `seen_accuracy` (examples in it).

    Raises `UserError` if the predictions are for other texts than those of the audited split.
    """
    rows = []
    for names, run in predictions.groupby(RUN):
        row = {**dict(zip(RUN, names, strict=True)), **_accuracy(run["correct"], "")}
        if overlap is not None:
            last, own = run["index"].max(), keys_digest(run.sort_values("index")["key"].to_list())
            same = len(run) < overlap.size or prediction_files.may_be_same([own], [overlap.texts])
            if last >= overlap.size or not same:
                raise UserError(
                    f"{'/'.join(map(str, names[:2]))}/seed{names[2]} has predictions up to line {last} "
                    f"(0-based) of {overlap.split}, but the audited split has {overlap.size:,} lines, or "
                    "other texts; use the audit.json of the data that were predicted"
                )
            seen = run["index"].isin(overlap.lines)
            row |= _accuracy(run.loc[~seen, "correct"], "unseen_")
            seen_row = _accuracy(run.loc[seen, "correct"], "seen_")
            row |= {name: seen_row[name] for name in ("seen_n", "seen_accuracy")}
        rows.append(row)
    return pd.DataFrame(rows)


def compare_predictions(predictions: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    """Two groups compared example by example, for each common seed, and in the last row for their mean.

    If no seed is common and one group is a single run (a baseline without random numbers), this run is
    compared with each run of the other group; `seed` is then that of the other group.

    Columns: `a`, `b`, `seed` (int, or "mean"), `n` (examples), `only_a`, `only_b` (examples that only one of
    them gets right), `p_mcnemar` (exact; empty for the mean), `p_mcnemar_holm` (over the seeds), `difference`
    of accuracy in points, `low`, `high` (paired bootstrap over the examples). If a row has
    another interval, see `examples_interval`, there is a column `interval`: "bootstrap" or "Wilson".

    Examples are paired by their key and label if all are known, else by their index.

    Empty if nothing can be paired. Raises `UserError` if the runs have different examples or labels.
    """
    rows: list[dict[str, object]] = []
    differences, p_values = [], []
    if not (pairs := _pair_seeds(predictions, (a, b))):
        return pd.DataFrame()
    runs = dict.fromkeys(run for seeds in pairs.values() for run in zip((a, b), seeds, strict=True))
    correct = _aligned(predictions, list(runs))
    for run_seed, seeds in pairs.items():
        correct_a, correct_b = correct[a, seeds[0]], correct[b, seeds[1]]
        only_a, only_b, p = mcnemar(correct_a, correct_b)
        differences.append(correct_a.astype(float) - correct_b)
        p_values.append(p)
        rows.append({"seed": run_seed, "only_a": only_a, "only_b": only_b, "p_mcnemar": p})
    rows = [{**row, "p_mcnemar_holm": p} for row, p in zip(rows, holm(p_values), strict=True)]
    if len(rows) > 1:
        rows.append({"seed": "mean"})
        differences.append(np.mean(differences, axis=0))
    for row, difference in zip(rows, differences, strict=True):
        (low, high), method = examples_interval(100 * difference)
        row |= {"a": a, "b": b, "n": len(difference), "difference": 100 * difference.mean()}
        row |= {"low": low, "high": high, "interval": method}
    columns = ["a", "b", "seed", "n", "only_a", "only_b", "p_mcnemar", "p_mcnemar_holm", "difference"]
    columns += ["low", "high", *(["interval"] if any(row["interval"] == WILSON for row in rows) else [])]
    return pd.DataFrame(rows).reindex(columns=columns).astype({"only_a": "Int64", "only_b": "Int64"})


def mcnemar(correct_a: NDArray[np.bool_], correct_b: NDArray[np.bool_]) -> tuple[int, int, float]:
    """(examples only A gets right, only B gets right, p) of McNemar's exact test (McNemar 1947).

    Both arrays are (N,), whether each example is predicted correctly. Under the null hypothesis, either
    classifier is equally likely to be the one that is right.
    """
    from scipy.stats import binomtest

    only_a, only_b = int((correct_a & ~correct_b).sum()), int((~correct_a & correct_b).sum())
    p = binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    return only_a, only_b, float(p)


def examples_interval(differences: Values) -> tuple[Interval, str]:
    """The interval over test examples of the mean of `differences` (N,), in points, and its method.

    The method is `BOOTSTRAP`, see `bootstrap_examples`. If all differences are equal, the bootstrap interval
    has no width and the method is `WILSON`: Wilson's interval limits the fraction of other examples in the
    population, whose differences are between -100 and 100.
    """
    if np.ptp(differences) > 0:
        return bootstrap_examples(differences), BOOTSTRAP
    equal, _ = wilson_interval(1.0, len(differences))
    middle, margin = float(equal * differences[0]), 100 * (1 - equal)
    return (middle - margin, middle + margin), WILSON


def bootstrap_examples(differences: Values) -> Interval:
    """Paired bootstrap of the mean of `differences` (N,): percentiles over `DRAWS` resampled test sets.

    Each resampled test set is the same for both systems (Koehn 2004; Berg-Kirkpatrick et al. 2012).
    """
    random = np.random.default_rng(SEED)
    # Drawing counts of the few distinct differences is equivalent to drawing every example.
    levels, counts = np.unique(differences, return_counts=True)
    drawn = random.multinomial(len(differences), counts / len(differences), size=DRAWS)
    low, high = np.quantile(drawn @ levels / len(differences), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _accuracy(correct: pd.Series, prefix: str) -> dict[str, float]:
    fraction = correct.mean() if len(correct) else np.nan
    low, high = wilson_interval(fraction, len(correct))
    found = {"accuracy": 100 * fraction, "low": 100 * low, "high": 100 * high}
    return {f"{prefix}{name}": value for name, value in {"n": len(correct), **found}.items()}


def _pair_seeds(predictions: pd.DataFrame, groups: tuple[str, str]) -> dict[int, tuple[int, int]]:
    """The seed shown for each pair of runs -> the seeds of both runs."""
    one, other = (sorted(set(predictions.loc[predictions["group"] == group, "seed"])) for group in groups)
    if common := [seed for seed in one if seed in other]:
        return {seed: (seed, seed) for seed in common}
    if len(other) == 1:
        return {seed: (seed, other[0]) for seed in one}
    if len(one) == 1:
        return {seed: (one[0], seed) for seed in other}
    return {}


def _aligned(
    predictions: pd.DataFrame, runs: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], NDArray[np.bool_]]:
    """Whether each run (group and seed) predicts each example correctly, (N,) in the same order for all."""
    frames = [
        predictions[(predictions["group"] == group) & (predictions["seed"] == seed)] for group, seed in runs
    ]
    keyed = [(frame["key"] != "").all() for frame in frames]
    identity = ["key", "label"] if all(keyed) else ["index", "label"]
    frames = [frame.astype({"label": str}).sort_values([*identity, "index"]) for frame in frames]
    reference = keyed.index(True) if any(keyed) else 0
    first = frames[reference]
    for run, frame in zip(runs, frames, strict=True):
        same = len(frame) == len(first) and (first[identity].to_numpy() == frame[identity].to_numpy()).all()
        if not same or not prediction_files.may_be_same(first["key"], frame["key"]):
            names = " and ".join(f"{group}/seed{seed}" for group, seed in (runs[reference], run))
            raise UserError(
                f"{names} are not compared example by example, because texts or labels of their predictions "
                "differ; train both with the same --data and --data-seed, or predict the same data with "
                "both: roberta-small evaluate --checkpoint RUNS --data BIN --write-predictions"
            )
    return {run: frame["correct"].to_numpy(dtype=bool) for run, frame in zip(runs, frames, strict=True)}


def find_size(runs: Iterable[LoggedRun], subset: str = "test") -> int | None:
    """Number of examples of `subset`, from the prediction files or else the data folders of the runs.

    The data folder in the manifest is used only if its `label/<subset>.idx` (numeric labels:
    `input0/<subset>.idx`) is readable and still has the recorded SHA-256.
    None if no run has either. Raises `UserError` if runs differ.
    """
    sizes: dict[int, LoggedRun] = {}
    for run in runs:
        size = 0
        if (path := find_predictions(run, subset)) is not None:
            with readable():
                size = len(prediction_files.read(path))
        if not size:
            data = (run.read_manifest() or {}).get("data", {})
            recorded, root = data.get("sha256") or {}, Path(data.get("path") or "")
            names = (f"{part}/{subset}.idx" for part in ("label", "input0"))
            name = next((name for name in names if name in recorded), "")
            unchanged = name and os.path.isfile(root / name) and os.access(root / name, os.R_OK)
            if unchanged and sha256(root / name) == recorded[name] and (header := read_header(root / name)):
                size = header.sentences
        if size:
            sizes.setdefault(size, run)
    if len(sizes) > 1:
        (one, run), (other, other_run), *_ = sizes.items()
        raise UserError(
            f"{run.name} has {one:,} {subset} examples and {other_run.name} {other:,}; give --test-size"
        )
    return next(iter(sizes), None)
