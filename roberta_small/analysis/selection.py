"""The runs that a query selects, their long table, and the frames computed from it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from roberta_small.analysis.predictions import find_size, read_predictions
from roberta_small.analysis.published import compare_reference, read_reference, with_published
from roberta_small.analysis.query import DEFAULT_METRIC, Query, Study
from roberta_small.analysis.read.long_table import REPORTED, read_runs
from roberta_small.analysis.read.runs import LoggedRun, describe, find_runs, select_finished
from roberta_small.analysis.scoring import (
    best_checkpoints,
    choose_subsets,
    diverged,
    expected_best_of_seeds,
    scores,
    spread_over_seeds,
)
from roberta_small.common.data_folder import Overlap, read_overlap
from roberta_small.common.errors import UserError
from roberta_small.common.files import escaped
from roberta_small.common.label_kinds import KINDS
from roberta_small.common.metrics import measures_quality
from roberta_small.common.tables import Table

logger = logging.getLogger(__name__)


def choose_metrics(query: Query, runs: Sequence[LoggedRun]) -> tuple[str, str]:
    """The metric that is reported, and the one that selects: by default that of the runs' checkpoint_best.pt.

    Warns if the runs selected by other or by different metrics, and about a metric of speed, sizes or the
    optimizer.
    """
    recorded = sorted({run.selected_by for run in runs if run.selected_by})
    kinds = {run.label_kind for run in runs}
    metric = query.metric or (KINDS[kinds.pop()].metric if len(kinds) == 1 else DEFAULT_METRIC)
    by = query.by or metric
    if query.metric is None and query.by is None and len(recorded) == 1:
        by = recorded[0]
    for name in dict.fromkeys([metric, by]):
        if not measures_quality(name):
            logger.warning("%s describes speed, sizes or the optimizer, not the quality of a model", name)
    if recorded and recorded != [by]:
        logger.warning(
            "checkpoint_best.pt of the runs was selected by %s, the best checkpoint here by %s (--by)",
            " or ".join(recorded), by,
        )  # fmt: skip
    return metric, by


@dataclass(frozen=True)
class Selection:
    """The runs that a query selects, their long table, and the frames of the functions named here.

    A frame is computed at its first use; then `UserError` is raised as by its function.
    """

    study: Study
    runs: Sequence[LoggedRun]
    table: pd.DataFrame
    left_out: Sequence[LoggedRun] = ()
    """Runs of the selected groups that are not finished; everything else excludes them."""
    published: pd.DataFrame | None = None
    """The frame of `read_reference`."""

    @classmethod
    def of(
        cls,
        runs: Sequence[LoggedRun],
        query: Query,
        study: Study | None = None,
        left_out: Sequence[LoggedRun] = (),
    ) -> Selection:
        """Read the logs of these runs and decide metrics and splits; the default study has their groups.

        Raises `UserError` as `Study.of` and the readers.
        """
        study = study or Study.of(query, (run.group for run in runs))
        # Small files first: errors in them are reported before the slow reading of logs.
        published = read_reference(query.reference) if query.reference else None
        if query.audit:
            read_overlap(query.audit, query.split or REPORTED)
        metric, by = choose_metrics(query, runs)
        table = read_runs(runs, query.accuracies)
        choose_on, split = choose_subsets(table, query.choose_on, query.split)
        study = replace(study, metric=metric, by=by, choose_on=choose_on, split=split)
        return cls(study, runs, table, left_out, published)

    @cached_property
    def best(self) -> pd.DataFrame:
        """`best_checkpoints`."""
        study = self.study
        return best_checkpoints(
            self.table, study.metric, ties=study.query.ties, by=study.by, subset=study.choose_on,
            direction=study.query.direction, reported=study.split,
        )  # fmt: skip

    @cached_property
    def values(self) -> pd.DataFrame:
        """`scores` of the metric on the reported split."""
        return scores(self.table, self.best, self.study.metric, self.study.split)

    @property
    def values_for_marks(self) -> pd.DataFrame | None:
        """`values`, if there is a baseline: without one, runs need no finite score."""
        return None if self.study.query.baseline is None else self.values

    @cached_property
    def diverged(self) -> list[str]:
        """The runs that `values` excludes."""
        return diverged(self.table, self.values, self.study.metric, self.study.split)

    @cached_property
    def spread(self) -> pd.DataFrame:
        """`spread_over_seeds`, in the order of the study."""
        study = self.study
        return study.sorted(
            spread_over_seeds(self.values, study.metric, ddof=study.query.ddof, test_size=self.test_size)
        )

    @cached_property
    def expected(self) -> pd.DataFrame:
        """`expected_best_of_seeds`, in the order of the study."""
        return self.study.sorted(expected_best_of_seeds(self.best, lower=self.study.selects_lowest))

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """`read_predictions` on the reported split."""
        return read_predictions(self.runs, self.study.split)

    @cached_property
    def overlap(self) -> Overlap | None:
        """The duplicates in the audit; None without an audit."""
        return self.overlap_of(self.study.split)

    def overlap_of(self, split: str) -> Overlap | None:
        """The duplicates of a split in the audit; None without an audit."""
        query = self.study.query
        return read_overlap(query.audit, split, notion=query.duplicates) if query.audit else None

    @cached_property
    def test_size(self) -> int | None:
        """The number of examples of the reported split, if it is known."""
        if self.study.query.test_size:
            return self.study.query.test_size
        return self.overlap.size if self.overlap else find_size(self.runs, self.study.split)

    @cached_property
    def reference(self) -> pd.DataFrame | None:
        """`compare_reference`, in the order of the study; None without published results."""
        if self.published is None:
            return None
        name = escaped(str(self.study.query.reference))
        return self.study.sorted(compare_reference(self.table, self.best, self.published, name=name))

    @property
    def reference_name(self) -> str:
        """The name of the file of published results."""
        return escaped(Path(self.study.query.reference or "").name)

    def beside_published(self, table: Table, wide: Sequence[str] = ()) -> Table:
        """`with_published` of a table of the metric; the table itself without published results."""
        if self.reference is None:
            return table
        return with_published(
            table, self.reference, self.reference_name, self.study.metric, self.study.split, wide
        )


def select(
    source: str | os.PathLike[str], query: Query, *, pattern: str | None = None, folders: bool = False
) -> Selection:
    """The finished runs below a folder, or in an archive, that the query selects.

    Prints a summary of the runs on standard error. For `folders` see `Study.of`. Raises `UserError` as
    `find_runs`, `Study.of` and `Selection.of`, and if the baseline has no finished run.
    """
    found = found_runs(source, pattern)
    study = Study.of(query, (run.group for run in found), folders=folders)
    selected = [run for run in found if run.group in study.selected]
    runs = select_finished(selected, query.include_unfinished)
    if query.baseline is not None and all(run.group != query.baseline for run in runs):
        raise UserError(
            f"--baseline: '{query.baseline}' has no finished run; finish one or choose another group"
        )
    return Selection.of(runs, query, study, [run for run in selected if run not in runs])


def found_runs(
    source: str | os.PathLike[str], pattern: str | None = None, prefix: str = ""
) -> list[LoggedRun]:
    """`find_runs`; prints a summary after `prefix` on standard error."""
    runs = find_runs(source, pattern)
    print(prefix + "\n".join(describe(runs)), file=sys.stderr)
    return runs
