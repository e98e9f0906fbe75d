"""All statistics for the figures and the report, computed once from the runs."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from roberta_small.analysis.read.load import read_runs
from roberta_small.analysis.read.long_table import GROUP, REPORTED, SELECTING
from roberta_small.analysis.read.runs import Run
from roberta_small.analysis.stats.best import Choice, TieRule, at_best, best_checkpoints, choose_subsets
from roberta_small.analysis.stats.compare import against, compare_groups
from roberta_small.analysis.stats.predictions import (
    accuracies,
    compare_all_predictions,
    find_predictions,
    find_size,
    read_predictions,
)
from roberta_small.analysis.stats.reference import compare_reference, read_reference
from roberta_small.analysis.stats.spread import BEST, expected_best_of_seeds, scores, spread_over_seeds
from roberta_small.analysis.study import NO_STUDY, Study
from roberta_small.common.data_folder import Overlap, read_overlap
from roberta_small.common.errors import UserError
from roberta_small.common.files import escaped
from roberta_small.common.metrics import ACCURACIES, Direction, in_percent, lower_is_better

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)
RANDOM = "random"
"""The initialization that is the baseline of a report unless another one is given."""


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
    """The default of this and of `subset`: see `choose_subsets`."""


@dataclass(frozen=True)
class ResolvedRule(Rule):
    """A rule with the subsets that `choose_subsets` returned."""

    subset: str = SELECTING
    reported: str = REPORTED

    @property
    def choice(self) -> Choice:
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

    rule: ResolvedRule
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
    baseline: str | None = None
    """The group that every other group is compared with; None if a single group has values."""
    at: Sequence[str] | None = (BEST,)
    """Where groups are compared: epochs and `best`; None for everywhere."""
    all_pairs: bool = False
    """Whether all pairs of groups are compared, not those of the study or each with the baseline."""
    study: Study = NO_STUDY
    """Names and order of the groups, in which all frames are, and the pairs to compare."""

    @property
    def groups(self) -> list[str]:
        """`arm/init`, in order."""
        return self.study.ordered(run.group for run in self.runs)

    @cached_property
    def comparison(self) -> pd.DataFrame | None:
        """`compare_groups` of the compared pairs at the points in `at`; None for a single group.

        The p-values of the whole report are those of this frame: its rows are one family.
        """
        rule = self.rule
        pairs = self._compared(self._groups(self.values[self.values["at"] == BEST]))
        if not pairs:
            return None
        return compare_groups(
            self.values, [group for pair in pairs for group in pair], pairs=pairs, at=self.at,
            detect=1.0 if in_percent(rule.metric) else 0.01, lower=self.lower,
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

    @property
    def lower(self) -> bool:
        """Whether lower values of the metric are better."""
        rule = self.rule
        return lower_is_better(rule.metric, "auto" if rule.by != rule.metric else rule.direction)

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
        frame = compare_all_predictions(self.predictions, groups, self._compared(groups))
        return frame if len(frame) else None

    def _compared(self, groups: Sequence[str]) -> Sequence[tuple[str, str]]:
        """The pairs to compare of these groups, those with the baseline first."""
        if self.study.pairs and not self.all_pairs:
            return self.study.pairs
        baseline = self.baseline
        others = [group for group in groups if group != baseline]
        pairs = [(group, baseline) for group in others] if baseline is not None and baseline in groups else []
        return [*pairs, *combinations(others, 2)] if self.all_pairs else pairs

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
    all_pairs: bool = False,
    study: Study = NO_STUDY,
) -> Findings:
    """Read the logs and prediction files of these runs, the audit and the published results.

    The number of examples is `test_size`, or that of the audit, or `find_size`. The baseline is that of
    `study`, or `default_baseline`. Raises `UserError` as the readers, and if the baseline has no value.
    """
    study = study if study.known else study.resolve(run.group for run in runs)
    # Small files first: errors in them are reported before the slow reading of logs.
    overlap = read_overlap(audit, rule.reported or REPORTED) if audit else None
    published = read_reference(reference) if reference else None
    table = read_runs(runs)
    subset, reported = choose_subsets(table, rule.subset, rule.reported)
    rule = ResolvedRule(**{**vars(rule), "subset": subset, "reported": reported})
    if audit and overlap is not None and overlap.split != reported:
        overlap = read_overlap(audit, reported)
    if study.baseline and study.pairs and all(study.baseline not in pair for pair in study.pairs):
        logger.warning(
            "--pair: no pair has the baseline %s, so there are no differences to it", study.baseline
        )
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
        reference=None
        if published is None
        else study.sorted(compare_reference(table, best, published, name=escaped(str(reference)))),
        reference_name=escaped(Path(reference).name) if reference else "",
        left_out=left_out,
        baseline=_checked_baseline(values, rule, study) or default_baseline(values, study),
        at=at,
        all_pairs=all_pairs,
        study=study,
    )


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


def _checked_baseline(values: pd.DataFrame, rule: Rule, study: Study) -> str | None:
    """The baseline of the study. Raises `UserError` if it has no value at a best checkpoint."""
    known = study.ordered(values.loc[values["at"] == BEST, "group"])
    if study.baseline is not None and study.baseline not in known:
        raise UserError(
            f"--baseline: '{study.baseline}' has no {rule.metric} on {rule.reported} at its best checkpoint; "
            f"choose one of {', '.join(known) or 'no group, none has one'}"
        )
    return study.baseline


def logged_accuracy(findings: Findings) -> pd.DataFrame | None:
    """The logged accuracy on the reported subset at the best checkpoints; None if no log has it."""
    table, reported = findings.table, findings.rule.reported
    has_accuracy = ((table["subset"] == reported) & (table["metric"] == "accuracy")).any()
    return at_best(table, findings.best, "accuracy", reported) if has_accuracy else None


def figures(
    findings: Findings, chance: float | None = None, *, baseline: str | None = None
) -> Iterator[tuple[str, Figure]]:
    """(name, figure) for each figure that has data; `baseline` is marked (default: that of the study)."""
    from roberta_small.analysis.figures.curves import draw_curves
    from roberta_small.analysis.figures.predictions import (
        draw_confused_pairs,
        draw_confusion,
        draw_reliability,
        has_many_classes,
    )
    from roberta_small.analysis.figures.seeds import draw_expected, draw_seeds

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
            draw_seeds(
                findings.values,
                findings.spread,
                rule.metric,
                subset=rule.reported,
                baseline=baseline or study.baseline,
                study=study,
            ),
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
