"""All statistics for the figures and the report, computed once from the runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from common.data_folder import Overlap, read_overlap
from common.files import escaped
from common.metrics import ACCURACIES, Direction, in_percent, lower_is_better

from ..read.load import read_runs
from ..read.long_table import GROUP, REPORTED
from ..read.runs import Run
from ..stats.best import TieRule, at_best, best_checkpoints, choose_subsets
from ..stats.compare import compare_groups
from ..stats.predictions import (
    accuracies,
    compare_all_predictions,
    find_predictions,
    find_size,
    read_predictions,
)
from ..stats.reference import compare_reference, read_reference
from ..stats.spread import BEST, expected_best_of_seeds, scores, spread_over_seeds
from ..study import NO_STUDY, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rule:
    """The conventions of the statistics: the options of `python -m analysis tables`."""

    metric: str = "accuracy"
    by: str = "accuracy"
    subset: str | None = None
    ties: TieRule = "latest"
    direction: Direction = "auto"
    ddof: int = 1
    reported: str | None = None
    """The default of this and of `subset`: see `choose_subsets`; in `Findings` both are known."""

    @property
    def choice(self) -> dict[str, str]:
        """The keyword arguments of `best_checkpoints`."""
        return {
            "by": self.by,
            "subset": self.subset,
            "ties": self.ties,
            "direction": self.direction,
            "reported": self.reported,
        }


@dataclass(frozen=True)
class Findings:
    """The frames of the functions named here; None or empty if there are no data for them."""

    rule: Rule
    runs: Sequence[Run]
    table: pd.DataFrame
    """The long table."""
    best: pd.DataFrame
    values: pd.DataFrame
    """`scores` on the reported subset."""
    spread: pd.DataFrame
    expected: pd.DataFrame
    predictions: pd.DataFrame
    """`read_predictions` on the reported subset."""
    test_size: int | None
    overlap: Overlap | None
    reference: pd.DataFrame | None
    reference_name: str = ""
    left_out: Sequence[Run] = ()
    """Runs of the folder that are not finished; all other fields exclude them."""
    at: Sequence[str] | None = (BEST,)
    """Where groups are compared: epochs and `best`; None for everywhere."""
    study: Study = NO_STUDY
    """Names and order of the groups, in which all frames are, and the pairs to compare (default: all)."""

    @property
    def groups(self) -> list[str]:
        """`arm/init`, in order."""
        return self.study.ordered(run.group for run in self.runs)

    @cached_property
    def comparison(self) -> pd.DataFrame | None:
        """`compare_groups` of the pairs of groups; None for a single group."""
        rule, pairs = self.rule, self.study.pairs or None
        groups = self._groups(self.values[self.values["at"] == BEST])
        if pairs:
            groups = list(dict.fromkeys(group for pair in pairs for group in pair))
        elif len(groups) < 2:
            return None
        return compare_groups(
            self.values, groups, pairs=pairs, at=self.at, detect=1.0 if in_percent(rule.metric) else 0.01,
            lower=lower_is_better(rule.metric, "auto" if rule.by != rule.metric else rule.direction),
        )  # fmt: skip

    @cached_property
    def accuracies(self) -> pd.DataFrame | None:
        """`accuracies`; None if accuracy is not the metric or there are no prediction files."""
        return accuracies(self.predictions, self.overlap) if self._has_accuracy else None

    @cached_property
    def examples(self) -> pd.DataFrame | None:
        """`compare_all_predictions`; None if accuracy is not the metric or there are no pairs of runs.

        Raises `UserError` if paired runs have predictions for different examples.
        """
        if not self._has_accuracy:
            return None
        groups = self._groups(self.predictions)
        frame = compare_all_predictions(self.predictions, groups, self.study.pairs or None)
        return frame if len(frame) else None

    def _groups(self, frame: pd.DataFrame) -> list[str]:
        names = frame[GROUP].drop_duplicates().sort_values(GROUP).itertuples(index=False)
        return self.study.ordered(f"{arm}/{init}" for arm, init in names)

    @property
    def _has_accuracy(self) -> bool:
        return self.rule.metric in ACCURACIES and len(self.predictions) > 0


def gather(
    runs: Sequence[Run],
    rule: Rule,
    *,
    test_size: int | None = None,
    audit: str | os.PathLike[str] | None = None,
    reference: str | os.PathLike[str] | None = None,
    left_out: Sequence[Run] = (),
    at: Sequence[str] | None = (BEST,),
    study: Study = NO_STUDY,
) -> Findings:
    """Read the logs and prediction files of these runs, the audit and the published results.

    The number of examples is `test_size`, or that of the audit, or `find_size`. Raises `UserError` as the
    readers.
    """
    study = study if study.known else study.resolve(run.group for run in runs)
    # Small files first: errors in them are reported before the slow reading of logs.
    overlap = read_overlap(audit, rule.reported or REPORTED) if audit else None
    published = read_reference(reference) if reference else None
    table = read_runs(runs)
    subset, reported = choose_subsets(table, rule.subset, rule.reported)
    rule = replace(rule, subset=subset, reported=reported)
    if overlap is not None and overlap.split != reported:
        overlap = read_overlap(audit, reported)
    best = best_checkpoints(table, rule.metric, **rule.choice)
    values = study.sorted(scores(table, best, rule.metric, reported))
    predictions = read_predictions(runs, reported)
    if predictions.empty and any(find_predictions(run, REPORTED) for run in runs):
        logger.warning("predictions of %s exist, but the report is on %s", REPORTED, reported)
    size = test_size or (overlap.size if overlap else find_size(runs, reported))
    return Findings(
        rule=rule,
        runs=runs,
        table=table,
        best=best,
        values=values,
        spread=study.sorted(spread_over_seeds(values, rule.metric, ddof=rule.ddof, test_size=size)),
        expected=study.sorted(expected_best_of_seeds(best, lower=lower_is_better(rule.by, rule.direction))),
        predictions=study.sorted(predictions),
        test_size=size,
        overlap=overlap,
        reference=None if published is None else study.sorted(compare_reference(table, best, published)),
        reference_name=escaped(Path(reference).name) if reference else "",
        left_out=left_out,
        at=at,
        study=study,
    )


def logged_accuracy(findings: Findings) -> pd.DataFrame | None:
    """The logged accuracy on the reported subset at the best checkpoints; None if no log has it."""
    table, reported = findings.table, findings.rule.reported
    has_accuracy = ((table["subset"] == reported) & (table["metric"] == "accuracy")).any()
    return at_best(table, findings.best, "accuracy", reported) if has_accuracy else None


def figures(findings: Findings, chance: float | None = None) -> Iterator[tuple[str, Figure]]:
    """(name, figure) for each figure that has data."""
    from ..figures.curves import draw_curves
    from ..figures.predictions import (
        draw_confused_pairs,
        draw_confusion,
        draw_reliability,
        has_many_classes,
    )
    from ..figures.seeds import draw_expected, draw_seeds

    rule, study = findings.rule, findings.study
    yield (
        f"{rule.metric}_per_epoch",
        draw_curves(
            findings.table,
            rule.metric,
            ddof=rule.ddof,
            chance=chance,
            reference=findings.reference,
            reported=rule.reported,
            study=study,
        ),
    )
    if BEST in set(findings.spread["at"]):
        yield (
            f"{rule.metric}_seeds",
            draw_seeds(findings.values, findings.spread, rule.metric, subset=rule.reported, study=study),
        )
    if len(findings.expected) and findings.expected["seeds"].max() > 1:
        yield (
            f"{rule.metric}_expected",
            draw_expected(
                findings.expected,
                rule.metric,
                rule.by,
                subset=rule.subset,
                reported=rule.reported,
                study=study,
            ),
        )
    if len(findings.predictions):
        yield "confusion", draw_confusion(findings.predictions, study=study)
        if has_many_classes(findings.predictions):
            yield "confused_pairs", draw_confused_pairs(findings.predictions, study=study)
        yield "reliability", draw_reliability(findings.predictions, study=study)
