"""Published results, compared with the runs: a table of their own, and columns for tables of groups.

A reference file is CSV, a Markdown table or JSON (a list of objects), according to its suffix `.csv`, `.md`
or `.json`. It has one row for each published number:

    arm, init   names as in the run folders: fairseq, pretrained
    epoch       1, 2, ... or "best" (the best checkpoint)
    subset      valid, test, ...
    metric      accuracy, macro_f1, ... in the unit of the logs
    mean        over seeds
    std         over seeds, or empty
    n           number of seeds, or empty
    ddof        convention of std, optional: 0 population, 1 sample (default)
    source      where the number was published, optional
"""

from __future__ import annotations

import csv
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pandas as pd

from roberta_small.analysis.compare import holm
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.scoring import BEST, scores
from roberta_small.common.errors import UserError, count, enumerate_some
from roberta_small.common.files import read_json, read_lines
from roberta_small.common.metrics import cut, cut_notes, label
from roberta_small.common.statistics import LEVEL, mean_std, one_std_interval, welch_interval
from roberta_small.common.tables import PERCENT, Table, mean_std_cell, signed, signed_interval

logger = logging.getLogger(__name__)

KEY = [*GROUP, "epoch", "subset", "metric"]
REQUIRED = [*KEY, "mean"]
OPTIONAL = {"std": math.nan, "n": math.nan, "ddof": 1, "source": ""}
WELCH, EQUAL_STD, EXACT = "Welch", "equal std", "one-sample"
"""The tests of `compare_reference`."""
Row = tuple[str, dict[str, str]]
"""Place in the file, and the cells by column."""

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


def read_reference(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The rows of a reference file, with the columns above.

    `mean`, `std` and `n` are float (NaN if empty), `ddof` is int, the others are str. Raises `UserError` with
    file and line for another suffix, a missing or unknown column, an invalid value or a repeated result.
    """
    path = Path(path)
    if path.suffix not in (".csv", ".md", ".json"):
        raise UserError(f"{path}: not a reference file; its suffix must be one of .csv, .md, .json")
    rows, places = [], dict[tuple[str, ...], str]()
    for place, cells in _rows_of_json(path) if path.suffix == ".json" else _rows_of_table(path):
        row = _check(f"{path}, {place}", cells)
        key = tuple(cells[column] for column in KEY)
        if key in places:
            raise UserError(f"{path}, {place}: {' '.join(key)} is already on {places[key]}; keep one of them")
        places[key] = place
        rows.append(row)
    if not rows:
        raise UserError(f"{path}: no results; write one row for each, with {', '.join(REQUIRED)}")
    return pd.DataFrame(rows)


def compare_reference(
    table: pd.DataFrame,
    best: pd.DataFrame,
    reference: pd.DataFrame,
    *,
    name: str | os.PathLike[str] = "the reference",
) -> pd.DataFrame:
    """Each row of the reference compared with the runs of the same arm, init, epoch, subset and metric.

    Columns: `arm`, `init`, `epoch`, `subset`, `metric`, `n`, `mean`, `std` (of the runs), `reference_n`,
    `reference_mean`, `reference_std`, `source`, `difference` (runs - reference), `test`, its `low`,
    `high` and `p`, `p_holm` (Holm's correction over all rows) and `within_noise`: whether the interval
    contains 0, None without an interval. Both std have ddof 1: a population std of the reference is
    multiplied by sqrt(n / (n - 1)).

    `test` is `WELCH` if the std of at least two published runs is known. If only their number is known, it is
    `EQUAL_STD`: they are assumed to have the std of the runs. If that is not known either, it is `EXACT`: a
    one-sample t test against the published mean. The values are NaN, and `test` is None, for a single run,
    and without any variance.

    Rows without matching runs are excluded with a warning; raises `UserError` with `name`, that of the file,
    if no row matches.
    """
    ours = [
        scores(table, best, metric, subset).assign(subset=subset, metric=metric)
        for subset, metric in reference[["subset", "metric"]].drop_duplicates().itertuples(index=False)
        if ((table["subset"] == subset) & (table["metric"] == metric)).any()
    ]
    values = pd.concat(ours) if ours else pd.DataFrame(columns=[*GROUP, "at", "subset", "metric", "value"])
    by_key = {key: group["value"] for key, group in values.groupby([*GROUP, "at", "subset", "metric"])}
    rows, unmatched = [], []
    for row in reference.to_dict("records"):
        key = tuple(row[column] for column in KEY)
        if key in by_key:
            rows.append(_compare(row, by_key[key]))
        else:
            unmatched.append(f"{' '.join(key)} ({_missing(row, table)})")
    if not rows:
        raise UserError(
            f"{name}: no run matches a row ({' '.join(KEY)}): {enumerate_some(unmatched)}; name them as the "
            "runs do (roberta-small runs)"
        )
    if unmatched:
        logger.warning(
            "%s: %s excluded, no run matches: %s",
            name, count(len(unmatched), "row"), enumerate_some(unmatched),
        )  # fmt: skip
    frame = pd.DataFrame(rows)
    frame.insert(frame.columns.get_loc("p") + 1, "p_holm", holm(frame["p"].to_list()))
    return frame


def _missing(row: dict, table: pd.DataFrame) -> str:
    """The first part of the key of a published result that the runs do not have."""
    for name, columns in (("group", GROUP), ("subset", ["subset"]), ("metric", ["metric"])):
        wanted = [row[column] for column in columns]
        table = table[(table[columns] == wanted).all(axis=1)]
        if table.empty:
            return f"no {name} {'/'.join(wanted)}"
    return f"no value at epoch {row['epoch']}"


def _compare(row: dict, values: pd.Series) -> dict[str, object]:
    n, (mean, std) = len(values), mean_std(values)
    reference_n, reference_std = row["n"], row["std"]
    if row["ddof"] == 0:
        reference_std *= math.sqrt(reference_n / (reference_n - 1)) if reference_n > 1 else math.nan
    if reference_n > 1 and not math.isnan(reference_std):
        test = WELCH
        low, high, p = welch_interval(mean, std, n, row["mean"], reference_std, reference_n)
    else:
        test, other_n = (EXACT, math.inf) if math.isnan(reference_n) else (EQUAL_STD, reference_n)
        low, high, p = one_std_interval(mean, std, n, row["mean"], other_n)
    found: dict[str, object] = {column: row[column] for column in KEY}
    found |= {"n": n, "mean": mean, "std": std}
    found |= {"reference_n": reference_n, "reference_mean": row["mean"], "reference_std": reference_std}
    found |= {"source": row["source"], "difference": mean - row["mean"]}
    within = None if math.isnan(low) else low <= 0 <= high
    low, high = cut(low, high, row["metric"], mean, row["mean"])
    found |= {"test": None if within is None else test, "low": low, "high": high}
    return found | {"p": p, "within_noise": within}


def _check(where: str, cells: dict[str, str]) -> dict[str, object]:
    """The cells of one row, converted to their types."""
    for column in REQUIRED:
        if not cells.get(column):
            raise UserError(f"{where}: missing {column}; each row needs {', '.join(REQUIRED)}")
    for column in cells:
        if column not in REQUIRED and column not in OPTIONAL:
            raise UserError(f"{where}: unknown column '{column}'; known: {', '.join([*REQUIRED, *OPTIONAL])}")
    if cells["epoch"] != BEST and not re.fullmatch("[1-9][0-9]*", cells["epoch"]):
        raise UserError(f"{where}: epoch is '{cells['epoch']}', not 1, 2, ... or best")
    numbers = dict.fromkeys(("mean", "std", "n"), math.nan)
    for column, least in zip(numbers, (-math.inf, 0, 1), strict=True):
        if not (text := cells.get(column)):
            continue
        with suppress(ValueError):
            numbers[column] = float(text)
        if not math.isfinite(numbers[column]) or numbers[column] < least:
            bound = f" of {least} or more" if least > -math.inf else ""
            raise UserError(f"{where}: {column} is '{text}', not a number{bound}")
    if numbers["n"] % 1 > 0:
        raise UserError(f"{where}: n is '{cells['n']}', not an integer")
    if (ddof := cells.get("ddof") or "1") not in ("0", "1"):
        raise UserError(f"{where}: ddof is '{ddof}', not 0 (population) or 1 (sample)")
    row = {column: cells[column] for column in KEY}
    return {**row, **numbers, "ddof": int(ddof), "source": cells.get("source") or ""}


def _rows_of_table(path: Path) -> Iterator[Row]:
    """The rows of a CSV file, or of the only Markdown table in a file."""
    rows: Iterator[tuple[str, list[str]]]
    if path.suffix == ".md":  # other text and the rule below the heading are skipped
        lines = enumerate(map(str.strip, read_lines(path)), start=1)
        rows = (
            (f"line {number}", [cell.strip() for cell in line.strip("|").split("|")])
            for number, line in lines
            if line.startswith("|") and not re.fullmatch(r"[|:\- ]+", line)
        )
    else:
        reader = csv.reader(read_lines(path))
        try:
            rows = iter([(f"line {reader.line_num}", cells) for cells in reader if cells])
        except csv.Error as error:  # such as an unclosed quote
            raise UserError(f"{path}, line {reader.line_num}: not CSV ({error}); correct the row") from None
    _, heading = next(rows, ("", []))
    heading = [cell.strip().removeprefix("\ufeff") for cell in heading]  # byte order mark of spreadsheets
    for column in REQUIRED:
        if column not in heading:
            raise UserError(f"{path}: missing column '{column}'; the heading needs {', '.join(REQUIRED)}")
    for place, cells in rows:
        if len(cells) != len(heading):
            raise UserError(
                f"{path}, {place}: {len(cells)} cells for {len(heading)} columns; correct the row"
            )
        yield place, dict(zip(heading, (cell.strip() for cell in cells), strict=True))


def _rows_of_json(path: Path) -> Iterator[Row]:
    content = read_json(path, "correct it")
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise UserError(f"{path}: not a list of objects with {', '.join(REQUIRED)}")
    for number, row in enumerate(content, start=1):
        for key, cell in row.items():
            if isinstance(cell, dict | list):
                raise UserError(f"{path}, entry {number}: {key} is not a number or a string; correct it")
        yield f"entry {number}", {key: "" if cell is None else str(cell) for key, cell in row.items()}


def reference_table(data: pd.DataFrame, source: str, best_note: str) -> Table:
    """The frame of `compare_reference` as a table; `source` is the name of the reference file."""
    rows = data.to_dict("records")
    constant = [key for key in ("subset", "metric") if data[key].nunique() == 1]
    shared = " ".join(label(rows[0][key]) if key == "metric" else rows[0][key] for key in constant)
    caption = f"{shared}: comparison with {source}" if constant else f"comparison with {source}"
    shown = pd.DataFrame(
        {
            **data[KEY].rename(columns={"epoch": "at"}),
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
    table: Table, comparison: pd.DataFrame, source: str, metric: str, subset: str, wide: Sequence[str]
) -> Table:
    """The table with the published value, the difference and the verdict beside each mean of a group.

    `comparison` is the frame of `compare_reference`. The means are those of `metric` on `subset` in
    `Table.means`. The columns in `wide` make room for the new ones: with their notes, they are only in wide
    tables. Without a published value for a mean, the table is unchanged, with a warning.
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
    cells = [("", "", "")] * len(table.shown)
    for place, row in of_row.items():
        difference = signed(row["difference"], row["metric"])
        cells[place] = _published(row), difference, VERDICTS[row["within_noise"]]
    # In the data, rows that are no means of a group have empty columns.
    data = table.data
    points = data["at"] if "at" in data else [BEST] * len(data)
    is_mean = data["seed"] == "mean" if "seed" in data else [True] * len(data)
    rows = [
        published.get((group, at), {}) if mean else {}
        for group, at, mean in zip(data["arm"] + "/" + data["init"], points, is_mean, strict=True)
    ]
    empty = {"source": "", "test": None, "within_noise": None}
    added = {
        name: [row.get(column, empty.get(column, math.nan)) for row in rows] for name, column in ADDED.items()
    }
    return replace(
        table,
        shown=table.shown.assign(**dict(zip(HEADINGS, zip(*cells, strict=True), strict=True))),
        data=data.assign(**added),
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


def _verdict_notes(rows: Sequence[Mapping]) -> tuple[str, ...]:
    """What `within noise` means for the tests of these rows of `compare_reference`."""
    tests = [row["test"] for row in rows if row["test"] is not None]
    if not tests:
        return ("within noise: not decided, because single or equal seeds have no interval.",)
    noted = [cut_notes([row["low"]], [row["high"]], row["metric"], difference=True) for row in rows]
    used = "; ".join(text for test, text in TESTS.items() if test in tests)
    return (
        f"within noise: whether the {PERCENT} interval of the difference contains 0 ({used}). With few seeds "
        "it is wide: not significantly different does not mean equal.",
        f"Not corrected for {len(tests)} comparisons: if there were no differences, about "
        f"{(1 - LEVEL) * len(tests):.1f} of them would be outside the noise.",
        *dict.fromkeys(note for notes in noted for note in notes),
    )
