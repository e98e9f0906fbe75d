"""Tables of hyperparameter settings, and of scores by tokens of pre-training."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from roberta_small.analysis.stats.best_settings import FAMILY, number_tried
from roberta_small.analysis.stats.spread import BEST
from roberta_small.analysis.study import names_of
from roberta_small.analysis.tables.runs import STD_NOTES
from roberta_small.analysis.tables.seeds import spread_table
from roberta_small.common.metrics import label
from roberta_small.common.statistics import LEVEL
from roberta_small.common.tables import PERCENT, Mean, Table, mean_std_cell, signed, signed_interval

FEW_SEEDS = 5
PERPLEXITY = (
    "perplexity: on the held-out text of pre-training, as logged. That of masked tokens and that of "
    "next tokens are not comparable."
)


def settings_table(
    data: pd.DataFrame, metric: str, by: str, subset: str, best_note: str, *, ddof: int, size: int | None,
    reported: str = "test",
) -> Table:  # fmt: skip
    """The frame of `choose_settings` as a table; `size` is the number of examples of `subset`, if known."""
    rows = data.to_dict("records")
    tried = number_tried(data)
    shown = pd.DataFrame(
        {
            "arm": data["family"],
            "init": data["init"],
            "setting": data["label"],
            "n": data["n"].astype(str),
            f"{label(by)} on {subset}": [_cell(row, "valid", by) for row in rows],
            "behind": ["–" if row["chosen"] else signed(row["behind"], by).removeprefix("+") for row in rows],
            PERCENT: ["–" if row["chosen"] else signed_interval(row["low"], row["high"], by) for row in rows],
            f"{label(metric)} on {reported}": [_cell(row, "test", metric) for row in rows],
            "best": [
                "" if not row["chosen"] else "chosen" if n > 1 else "the only one"
                for row, n in zip(rows, tried, strict=True)
            ],
        }
    )
    return Table(
        name="settings",
        caption=f"Settings, chosen on {subset}",
        notes=(
            best_note,
            f"chosen: the best mean over seeds of {label(by)} on {subset}{_test_note(subset, reported)}. "
            "Of equal means the recipe itself counts, then the smallest values.",
            f"Cells are mean ± std over n seeds; std: {STD_NOTES[ddof]}.",
            f"The mean of the chosen setting on {subset} is biased upwards by the selection"
            f"{'' if subset == reported else f'; the mean on {reported} is not'}.",
            *_uncertainty_notes(data, subset, size),
        ),
        data=data.drop(columns="values").assign(metric=metric, by=by, subset=subset, ddof=ddof, level=LEVEL),
        shown=shown,
        groups=tuple(data["arm"] + "/" + data["init"]),
        wide=("behind", PERCENT),
        wide_notes=(
            f"behind: difference to the chosen setting on {subset}, over the seeds of both; "
            f"{PERCENT}: its t interval.",
        ),
        means=tuple(
            Mean(
                index, f"{label(measured)} on {split}", f"{row['arm']}/{row['init']}", BEST, split, measured,
                row[f"{key}_mean"], tested=key == "test",
            )
            for index, row in enumerate(rows)
            for key, measured, split in (("valid", by, subset), ("test", metric, reported))
        ),
    )  # fmt: skip


def chosen_table(
    spread: pd.DataFrame, names: dict[tuple[str, str], str], metric: str, best_note: str, *,
    ddof: int, test_size: int | None, subset: str = "test",
) -> Table:  # fmt: skip
    """The frame of `spread_over_seeds` for the chosen settings and the unchanged recipes.

    `names` maps (arm, init) to the name of the setting, in the order of the rows.
    """
    place = {group: index for index, group in enumerate(names)}
    order = [place[arm, init] for arm, init in zip(spread["arm"], spread["init"], strict=True)]
    spread = spread.assign(order=order).sort_values("order", ignore_index=True).drop(columns="order")
    table = spread_table(spread, metric, subset, best_note, ddof=ddof, test_size=test_size)
    roles = [names[arm, init] for arm, init in zip(spread["arm"], spread["init"], strict=True)]
    shown = table.shown.copy()
    shown.insert(2, "setting", roles)
    return replace(
        table,
        name="best_settings",
        caption=f"{subset.capitalize()} {label(metric)} over seeds at the chosen settings, beside the "
        "recipe's own",
        data=table.data.assign(role=roles),
        shown=shown,
    )


def pretraining_table(
    spread: pd.DataFrame, metric: str, best_note: str, *, ddof: int, test_size: int | None,
    subset: str = "test",
) -> Table:  # fmt: skip
    """The frame of `spread_over_seeds` with `tokens` and `perplexity` (NaN if unknown), by arm and tokens.

    If arms lack their setting, a column `group` has the whole name.
    """
    spread = spread.sort_values(["arm", "tokens", "init"], ignore_index=True)
    groups = names_of(spread)
    table = spread_table(spread, metric, subset, best_note, ddof=ddof, test_size=test_size)
    shown = table.shown.copy()
    shown.insert(2, "tokens", [f"{tokens:,}" for tokens in spread["tokens"]])
    known = spread["perplexity"].notna()
    if known.any():
        shown.insert(3, "perplexity", spread["perplexity"].map("{:.4g}".format).where(known, "–"))
    return replace(
        table,
        name="pretraining",
        caption=f"{subset.capitalize()} {label(metric)} over seeds, by tokens of pre-training",
        notes=(
            "tokens: from --tokens, otherwise updates times batch size, up to the update of the "
            "checkpoint (for the checkpoint with the lowest validation loss: of the whole "
            "pre-training); 0: no pre-training.",
            *([PERPLEXITY] if known.any() else []),
            *table.notes,
        ),
        shown=shown,
        groups=tuple(groups),
        means=tuple(mean._replace(group=group) for mean, group in zip(table.means, groups, strict=True)),
    )


def _uncertainty_notes(data: pd.DataFrame, subset: str, size: int | None) -> list[str]:
    """Notes on the uncertainty of the selection."""
    grid = data[number_tried(data) > 1]
    if grid.empty:
        return ["No method and initialization has more than one setting, so nothing was chosen."]
    notes = []
    fewest = int(grid["n"].min())
    if fewest < FEW_SEEDS:
        notes.append(
            f"Some settings have only {fewest} seed{'s' * (fewest > 1)}: their means are uncertain, and "
            "other seeds could lead to another choice."
        )
    if grid.groupby(FAMILY)["n"].nunique().max() > 1:
        notes.append("Settings have different numbers of seeds: run the same seeds for a fair choice.")
    others = grid[~grid["chosen"]]
    near = others[~(others["low"] > 0)]
    if len(near):
        notes.append(
            f"{len(near)} of {len(others)} other settings do not differ significantly from the chosen one on "
            f"{subset} (the interval contains 0 or is undefined)."
        )
    if size:
        notes.append(
            f"All seeds are evaluated on the same {size:,} examples of {subset}; more seeds do not "
            "reduce the uncertainty due to their number."
        )
    return notes


def _test_note(subset: str, reported: str) -> str:
    if subset == reported:
        return ""
    return f"; {'the test set' if reported == 'test' else reported} is not used"


def _cell(row: dict, column: str, metric: str) -> str:
    return mean_std_cell(row[f"{column}_mean"], row[f"{column}_std"], metric)
