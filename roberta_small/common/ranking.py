"""Which of several runs is the best one: by the validation set, the mean over the seeds first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from roberta_small.common.errors import UserError
from roberta_small.common.metrics import lower_is_better
from roberta_small.common.run import Run


@dataclass(frozen=True)
class Group:
    """Finished runs that differ in their seed only."""

    runs: tuple[Run, ...]
    """The one with the best validation first; on a tie, in the order of the seeds."""
    metric: str
    subset: str
    """The validation set."""
    scores: dict[str, float]
    """Subset -> mean over the runs at their best validation, the validation set first."""
    seconds: float
    """Mean time of a run."""

    @property
    def valid(self) -> float:
        """The score on the validation set."""
        return self.scores[self.subset]


def rank(runs: Iterable[Run]) -> list[Group]:
    """The groups of the runs, the best one first: by the validation set, on a tie the faster one.

    Raises `UserError` if the runs cannot be compared: if a manifest has no `best`, or if metric or validation
    set differ.
    """
    by_name: dict[str, list[tuple[Run, dict[str, Any]]]] = {}
    for run in runs:
        by_name.setdefault(run.group, []).append((run, run.read_manifest() or {}))
    contents = [content for members in by_name.values() for _, content in members]
    if any("best" not in content for content in contents):
        raise UserError("the manifest of a run has no best validation")
    if len({content["best"]["metric"] for content in contents}) > 1:
        raise UserError("the runs have different metrics")
    if len({content["best"]["labels"] or content["data"]["path"] for content in contents}) > 1:
        raise UserError("the runs have different validation sets")
    groups = [_group(members) for members in by_name.values()]
    return sorted(groups, key=lambda group: (_order(group.metric, group.valid), group.seconds))


def _group(members: list[tuple[Run, dict[str, Any]]]) -> Group:
    best = [content["best"] for _, content in members]
    metric, first = best[0]["metric"], best[0]["subset"]
    shared = [subset for subset in best[0]["scores"] if all(subset in one["scores"] for one in best)]
    shared.sort(key=lambda subset: subset != first)
    ordered = sorted(
        members,
        key=lambda member: (_order(metric, member[1]["best"]["scores"][first]), member[0].seed),
    )
    return Group(
        tuple(run for run, _ in ordered),
        metric,
        first,
        {subset: fmean(one["scores"][subset] for one in best) for subset in shared},
        fmean(content.get("seconds", 0.0) for _, content in members),
    )


def _order(metric: str, value: float) -> float:
    return value if lower_is_better(metric) else -value
