"""What a report computes beyond a selection: the comparisons, which are one family of tests."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import pandas as pd

from roberta_small.analysis.compare import against, compare_groups
from roberta_small.analysis.predictions import accuracies, compare_all_predictions, find_predictions
from roberta_small.analysis.query import Query, ResolvedQuery, Selection
from roberta_small.analysis.read.long_table import GROUP, REPORTED
from roberta_small.analysis.read.runs import LoggedRun
from roberta_small.analysis.scoring import BEST
from roberta_small.analysis.study import NO_STUDY, Study
from roberta_small.common.errors import UserError
from roberta_small.common.metrics import ACCURACIES

logger = logging.getLogger(__name__)
RANDOM = "random"
"""The initialization that is the baseline of a report unless another one is given."""


@dataclass(frozen=True)
class Findings:
    """A selection with the comparisons of its groups; None if there are no data for them."""

    selection: Selection
    baseline: str | None = None
    """The group that every other group is compared with; None if a single group has values."""

    @property
    def query(self) -> ResolvedQuery:
        """That of the selection."""
        return self.selection.query

    @property
    def groups(self) -> list[str]:
        """`arm/init`, in order."""
        return self.query.study.ordered(run.group for run in self.selection.runs)

    @cached_property
    def comparison(self) -> pd.DataFrame | None:
        """`compare_groups` of the compared pairs at the points of the study; None for a single group.

        The p-values of the whole report are those of this frame: its rows are one family.
        """
        query, values = self.query, self.selection.values
        pairs = self._compared(self._groups(values[values["at"] == BEST]))
        if not pairs:
            return None
        return compare_groups(
            values, [group for pair in pairs for group in pair], pairs=pairs, at=query.study.points(),
            detect=query.difference, lower=query.lower,
        )  # fmt: skip

    @cached_property
    def differences(self) -> pd.DataFrame | None:
        """`against` the baseline at the best checkpoints; None if nothing is compared with it there."""
        if self.comparison is None or self.baseline is None:
            return None
        frame = against(self.comparison[self.comparison["at"] == BEST], self.baseline)
        return frame if len(frame) else None

    @property
    def family(self) -> int:
        """The number of tests in Holm's correction."""
        return 0 if self.comparison is None else int(self.comparison["p_t"].notna().sum())

    @cached_property
    def accuracies(self) -> pd.DataFrame | None:
        """`accuracies`; None if accuracy is not the metric or there are no prediction files."""
        return accuracies(self.selection.predictions, self.selection.overlap) if self._has_accuracy else None

    @cached_property
    def examples(self) -> pd.DataFrame | None:
        """`compare_all_predictions`; None if accuracy is not the metric or there are no pairs of runs.

        Raises `UserError` if paired runs have predictions for different examples.
        """
        if not self._has_accuracy:
            return None
        groups = self._groups(self.selection.predictions)
        frame = compare_all_predictions(self.selection.predictions, groups, self._compared(groups))
        return frame if len(frame) else None

    def _compared(self, groups: Sequence[str]) -> Sequence[tuple[str, str]]:
        """The pairs to compare of these groups, those with the baseline first."""
        if self.query.study.pairs and not self.query.all_pairs:
            return self.query.study.pairs
        baseline = self.baseline
        others = [group for group in groups if group != baseline]
        pairs = [(group, baseline) for group in others] if baseline is not None and baseline in groups else []
        return [*pairs, *combinations(others, 2)] if self.query.all_pairs else pairs

    def _groups(self, frame: pd.DataFrame) -> list[str]:
        names = frame[GROUP].drop_duplicates().sort_values(GROUP).itertuples(index=False)
        return self.query.study.ordered(f"{arm}/{init}" for arm, init in names)

    @property
    def _has_accuracy(self) -> bool:
        return self.query.metric in ACCURACIES and len(self.selection.predictions) > 0


def gather(runs: Sequence[LoggedRun], query: Query, left_out: Sequence[LoggedRun] = ()) -> Findings:
    """Read the logs and prediction files of these runs, the audit and the published results of the query.

    The baseline is that of the study, or `default_baseline`. Raises `UserError` as the readers, and if the
    baseline has no value.
    """
    return findings_of(Selection.of(runs, query, left_out))


def findings_of(selection: Selection) -> Findings:
    """The findings of a selection, see `gather`."""
    study, reported = selection.study, selection.query.reported
    if study.baseline and study.pairs and all(study.baseline not in pair for pair in study.pairs):
        logger.warning(
            "--pair: no pair has the baseline %s, so there are no differences to it", study.baseline
        )
    if (
        reported != REPORTED
        and selection.predictions.empty
        and any(find_predictions(run, REPORTED) for run in selection.runs)
    ):
        logger.warning("predictions of %s exist, but the report is on %s", REPORTED, reported)
    return Findings(selection, _checked_baseline(selection) or default_baseline(selection.values, study))


def default_baseline(values: pd.DataFrame, study: Study = NO_STUDY) -> str | None:
    """The group that most pairs of the study have second; without pairs, one of random weights, or the first.

    Groups with several runs are preferred, because others have no test over seeds. `values` is the frame of
    `scores`. None if fewer than two groups have values at their best checkpoints.
    """
    if study.pairs:
        return Counter(second for _, second in study.pairs).most_common(1)[0][0]
    runs = values[values["at"] == BEST].groupby("group", sort=False)["seed"].nunique()
    if len(runs) < 2:
        return None
    return min(
        study.ordered(runs.index), key=lambda group: (runs[group] < 2, not group.endswith(f"/{RANDOM}"))
    )


def _checked_baseline(selection: Selection) -> str | None:
    """The baseline of the study. Raises `UserError` if it has no value at a best checkpoint."""
    study, query, values = selection.study, selection.query, selection.values
    known = study.ordered(values.loc[values["at"] == BEST, "group"])
    if study.baseline is not None and study.baseline not in known:
        raise UserError(
            f"--baseline: '{study.baseline}' has no {query.metric} on {query.reported} at its best "
            f"checkpoint; choose one of {', '.join(known) or 'no group, none has one'}"
        )
    return study.baseline
