"""Everything that figures and the report show, worked out once from the runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from common.data_folder import Overlap, read_overlap
from common.metrics import ACCURACIES, Direction, in_percent, lower_is_better

from ..long_table import GROUP
from ..read.load import read_runs
from ..read.runs import Run
from ..stats.best import TieRule, at_best, best_checkpoints
from ..stats.compare import compare_groups
from ..stats.predictions import accuracies, compare_answers, find_size, read_answers
from ..stats.reference import compare_reference, read_reference
from ..stats.spread import BEST, expected_best_of_seeds, scores, spread_over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TEST = "test"


@dataclass(frozen=True)
class Rule:
    """The conventions behind the numbers: the options of `python -m analysis tables`."""

    metric: str = "accuracy"
    by: str = "accuracy"
    subset: str = "valid"
    ties: TieRule = "latest"
    direction: Direction = "auto"
    ddof: int = 1

    @property
    def choice(self) -> dict[str, str]:
        """How the best checkpoint is chosen, as `best_checkpoints` takes it."""
        return {"by": self.by, "subset": self.subset, "ties": self.ties, "direction": self.direction}


@dataclass(frozen=True)
class Findings:
    """Frames of the modules named; None or empty where there is nothing to say."""

    rule: Rule
    runs: Sequence[Run]
    table: pd.DataFrame
    """The long table."""
    best: pd.DataFrame
    values: pd.DataFrame
    """`spread.scores` on test."""
    spread: pd.DataFrame
    expected: pd.DataFrame
    answers: pd.DataFrame
    """`answers.read_answers` on test."""
    test_size: int | None
    overlap: Overlap | None
    reference: pd.DataFrame | None
    reference_name: str = ""
    left_out: Sequence[Run] = ()
    """Runs of the folder that are not finished, of which nothing else here speaks."""

    @property
    def groups(self) -> list[str]:
        """`arm/init`, in order."""
        return list(dict.fromkeys(f"{run.arm}/{run.init}" for run in self.runs))

    @cached_property
    def comparison(self) -> pd.DataFrame | None:
        """`compare.compare_groups` of each two groups at their best checkpoints; None for a single group."""
        rule = self.rule
        groups = _groups(self.values[self.values["at"] == BEST])
        if len(groups) < 2:
            return None
        return compare_groups(
            self.values, groups, at=[BEST], detect=1.0 if in_percent(rule.metric) else 0.01,
            lower=lower_is_better(rule.metric, "auto" if rule.by != rule.metric else rule.direction),
        )  # fmt: skip

    @cached_property
    def accuracies(self) -> pd.DataFrame | None:
        """`answers.accuracies` where accuracy is the metric and there are prediction files."""
        return accuracies(self.answers, self.overlap) if self._has_accuracy else None

    @cached_property
    def examples(self) -> pd.DataFrame | None:
        """`answers.compare_answers` of each two groups with pairs of runs, where there are prediction files.

        Raises `UserError` where two runs answered other examples.
        """
        pairs = combinations(_groups(self.answers), 2) if self._has_accuracy else ()
        frames = [compare_answers(self.answers, a, b) for a, b in pairs]
        frames = [frame for frame in frames if len(frame)]
        return pd.concat(frames, ignore_index=True) if frames else None

    @property
    def _has_accuracy(self) -> bool:
        return self.rule.metric in ACCURACIES and len(self.answers) > 0


def gather(
    runs: Sequence[Run],
    rule: Rule,
    *,
    test_size: int | None = None,
    audit: str | os.PathLike[str] | None = None,
    reference: str | os.PathLike[str] | None = None,
    left_out: Sequence[Run] = (),
) -> Findings:
    """Read the logs of these runs, their prediction files, the audit and the published results.

    The size of the test set is `test_size`, else the audit's, else what `sizes.find_size` knows. Raises
    `UserError` as the readers do.
    """
    # The small files first: what is wrong with them is then said before the logs are read.
    overlap = read_overlap(audit) if audit else None
    published = read_reference(reference) if reference else None
    table = read_runs(runs)
    best = best_checkpoints(table, rule.metric, **rule.choice)
    values = scores(table, best, rule.metric)
    size = test_size or (overlap.size if overlap else find_size(runs, TEST))
    return Findings(
        rule=rule,
        runs=runs,
        table=table,
        best=best,
        values=values,
        spread=spread_over_seeds(values, rule.metric, ddof=rule.ddof, test_size=size),
        expected=expected_best_of_seeds(best, lower=lower_is_better(rule.by, rule.direction)),
        answers=read_answers(runs, TEST),
        test_size=size,
        overlap=overlap,
        reference=None if published is None else compare_reference(table, best, published),
        reference_name=Path(reference).name if reference else "",
        left_out=left_out,
    )


def logged_accuracy(findings: Findings) -> pd.DataFrame | None:
    """Accuracy on test at the best checkpoints in the logs; None where no log has it."""
    table = findings.table
    known = ((table["subset"] == TEST) & (table["metric"] == "accuracy")).any()
    return at_best(table, findings.best, "accuracy", TEST) if known else None


def figures(findings: Findings, chance: float | None = None) -> Iterator[tuple[str, Figure]]:
    """The name and the drawing of each figure that the findings allow."""
    from ..figures.curves import draw_curves
    from ..figures.predictions import draw_confusion, draw_reliability
    from ..figures.seeds import draw_expected, draw_seeds

    rule = findings.rule
    yield (
        f"{rule.metric}_per_epoch",
        draw_curves(findings.table, rule.metric, ddof=rule.ddof, chance=chance, reference=findings.reference),
    )
    if BEST in set(findings.spread["at"]):
        yield f"{rule.metric}_seeds", draw_seeds(findings.values, findings.spread, rule.metric)
    if len(findings.expected) and findings.expected["seeds"].max() > 1:
        yield (
            f"{rule.metric}_expected",
            draw_expected(findings.expected, rule.metric, rule.by, subset=rule.subset),
        )
    if len(findings.answers):
        yield "confusion", draw_confusion(findings.answers)
        yield "reliability", draw_reliability(findings.answers)


def _groups(frame: pd.DataFrame) -> list[str]:
    return [
        f"{arm}/{init}"
        for arm, init in frame[GROUP].drop_duplicates().sort_values(GROUP).itertuples(index=False)
    ]
