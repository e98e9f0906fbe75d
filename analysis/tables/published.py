"""The table that compares runs with published results."""

from __future__ import annotations

import pandas as pd

from common.metrics import label
from common.statistics import LEVEL
from common.tables import PERCENT, Table, mean_std_cell, signed, signed_interval


def reference_table(data: pd.DataFrame, source: str, best_note: str) -> Table:
    """The frame of `compare_reference` as a table; `source` is the name of the reference file."""
    rows = data.to_dict("records")
    constant = [key for key in ("subset", "metric") if data[key].nunique() == 1]
    shared = " ".join(label(rows[0][key]) if key == "metric" else rows[0][key] for key in constant)
    caption = f"{shared}: comparison with {source}" if constant else f"comparison with {source}"
    verdicts = {None: "–", True: "yes", False: "no"}
    shown = pd.DataFrame(
        {
            "arm": data["arm"],
            "init": data["init"],
            "at": data["epoch"],
            "subset": data["subset"],
            "metric": data["metric"],
            "ours": [mean_std_cell(row["mean"], row["std"], row["metric"], row["n"]) for row in rows],
            "reference": [
                mean_std_cell(row["reference_mean"], row["reference_std"], row["metric"], row["reference_n"])
                for row in rows
            ],
            "difference": [signed(row["difference"], row["metric"]) for row in rows],
            PERCENT: [signed_interval(row["low"], row["high"], row["metric"]) for row in rows],
            "within noise": [verdicts[row["within_noise"]] for row in rows],
        }
    )
    return Table(
        name="reference",
        caption=caption[0].upper() + caption[1:],
        notes=(
            best_note,
            "mean ± std (n seeds); both std with ddof 1, a population std of the reference is converted. "
            "difference: ours − reference.",
            f"within noise: whether Welch's {PERCENT} interval of the difference contains 0. With few seeds "
            "it is wide: not significantly different does not mean equal.",
            f"Not corrected for {len(data)} comparisons: if there were no differences, about "
            f"{(1 - LEVEL) * len(data):.1f} of them would be outside the noise.",
        ),
        data=data.assign(level=LEVEL),
        shown=shown,
        groups=tuple(data["arm"] + "/" + data["init"]),
        wide=tuple(constant),
    )
