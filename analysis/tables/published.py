"""Runs compared with published results: a table of its own, and columns for tables of groups."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from roberta_small.analysis.stats.reference import EQUAL_STD, EXACT, WELCH
from roberta_small.analysis.stats.spread import BEST
from roberta_small.common.metrics import label
from roberta_small.common.statistics import LEVEL
from roberta_small.common.tables import PERCENT, Table, mean_std_cell, signed, signed_interval

logger = logging.getLogger(__name__)

VERDICTS = {None: "–", True: "yes", False: "no"}
HEADINGS = ("published", "ours − published", "within noise")
"""The columns that `with_published` adds to `Table.shown`."""
ADDED = {
    "published_mean": "reference_mean",
    "published_std": "reference_std",
    "published_n": "reference_n",
    "published_source": "source",
    "published_difference": "difference",
    "published_low": "low",
    "published_high": "high",
    "published_test": "test",
    "within_noise": "within_noise",
}
"""The columns that it adds to `Table.data`, and those of `compare_reference` from which they are."""
TESTS = {
    WELCH: "with published std and n, Welch's",
    EQUAL_STD: "with only n published, Student's, which assumes that the published runs have our std",
    EXACT: "with only a mean published, the one-sample t interval of our mean, which takes the published "
    "value as exact and is therefore too narrow",
}
STD_NOTE = "mean ± std (n seeds); both std with ddof 1, a population std of the reference is converted."


def reference_table(data: pd.DataFrame, source: str, best_note: str) -> Table:
    """The frame of `compare_reference` as a table; `source` is the name of the reference file."""
    rows = data.to_dict("records")
    constant = [key for key in ("subset", "metric") if data[key].nunique() == 1]
    shared = " ".join(label(rows[0][key]) if key == "metric" else rows[0][key] for key in constant)
    caption = f"{shared}: comparison with {source}" if constant else f"comparison with {source}"
    shown = pd.DataFrame(
        {
            "arm": data["arm"],
            "init": data["init"],
            "at": data["epoch"],
            "subset": data["subset"],
            "metric": data["metric"],
            "ours": [mean_std_cell(row["mean"], row["std"], row["metric"], row["n"]) for row in rows],
            "reference": [_published(row) for row in rows],
            "difference": [signed(row["difference"], row["metric"]) for row in rows],
            PERCENT: [signed_interval(row["low"], row["high"], row["metric"]) for row in rows],
            "within noise": [VERDICTS[row["within_noise"]] for row in rows],
        }
    )
    return Table(
        name="reference",
        caption=caption[0].upper() + caption[1:],
        notes=(best_note, STD_NOTE, "difference: ours − reference.", *_verdict_notes(rows)),
        data=data.assign(level=LEVEL),
        shown=shown,
        groups=tuple(data["arm"] + "/" + data["init"]),
        wide=tuple(constant),
    )


def with_published(
    table: Table,
    comparison: pd.DataFrame,
    source: str,
    metric: str,
    subset: str,
    *,
    wide: Sequence[str] = (),
) -> Table:
    """The table with the published value, the difference and the verdict beside each mean of a group.

    `comparison` is the frame of `compare_reference`, `source` the name of the reference file. The means are
    those of `metric` on `subset` in `Table.means`, one in a row of a group. The columns in `wide` make room
    for the new ones: with their notes, they are only in wide tables. Without a published value for a mean,
    the table is unchanged, with a warning.
    """
    chosen = comparison[(comparison["metric"] == metric) & (comparison["subset"] == subset)]
    published = {(f"{row['arm']}/{row['init']}", row["epoch"]): row for row in chosen.to_dict("records")}
    of_row = {
        mean.row: published[mean.group, mean.at]
        for mean in table.means
        if (mean.metric, mean.subset) == (metric, subset) and (mean.group, mean.at) in published
    }
    if not of_row:
        logger.warning(
            "%s: no published %s on %s for a mean of the table %s", source, label(metric), subset, table.name
        )
        return table
    hidden = tuple(
        note for note in table.notes if note.startswith(tuple(f"{name.split()[0]}:" for name in wide))
    )
    cells = [_cells(of_row[row]) if row in of_row else ("", "", "") for row in range(len(table.shown))]
    return replace(
        table,
        shown=table.shown.assign(**dict(zip(HEADINGS, zip(*cells, strict=True), strict=True))),
        data=_with_columns(table.data, published),
        notes=(
            *(note for note in table.notes if note not in hidden),
            f"published: {source}, {STD_NOTE}",
            *_verdict_notes(list(of_row.values())),
        ),
        wide=(*table.wide, *wide),
        wide_notes=(*hidden, *table.wide_notes),
    )


def _published(row: Mapping) -> str:
    """The published mean, with std and number of seeds as far as they are known."""
    return mean_std_cell(row["reference_mean"], row["reference_std"], row["metric"], row["reference_n"])


def _cells(row: Mapping) -> tuple[str, str, str]:
    """The cells of `HEADINGS`."""
    return _published(row), signed(row["difference"], row["metric"]), VERDICTS[row["within_noise"]]


def _with_columns(data: pd.DataFrame, published: Mapping[tuple[str, str], Mapping]) -> pd.DataFrame:
    """The data of a table with the columns `ADDED`, empty in rows that are no means of a group."""
    places = data["at"] if "at" in data else [BEST] * len(data)
    means = data["seed"] == "mean" if "seed" in data else [True] * len(data)
    rows = [
        published.get((group, at), {}) if is_mean else {}
        for group, at, is_mean in zip(data["arm"] + "/" + data["init"], places, means, strict=True)
    ]
    empty = {"source": "", "test": None, "within_noise": None}
    return data.assign(
        **{
            added: [row.get(column, empty.get(column, math.nan)) for row in rows]
            for added, column in ADDED.items()
        }
    )


def _verdict_notes(rows: Sequence[Mapping]) -> tuple[str, ...]:
    """What `within noise` means for the tests of these rows of `compare_reference`."""
    tests = [row["test"] for row in rows if row["test"] is not None]
    if not tests:
        return ("within noise: not decided, because single or equal seeds have no interval.",)
    used = "; ".join(text for test, text in TESTS.items() if test in tests)
    return (
        f"within noise: whether the {PERCENT} interval of the difference contains 0 ({used}). With few seeds "
        "it is wide: not significantly different does not mean equal.",
        f"Not corrected for {len(tests)} comparisons: if there were no differences, about "
        f"{(1 - LEVEL) * len(tests):.1f} of them would be outside the noise.",
    )
