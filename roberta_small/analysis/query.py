"""One query: the conventions of tables, figures and reports, decided once, and the frames they are made of.

Query           the conventions, made from the options of a command or in Python
ResolvedQuery   the same when everything is decided that depends on the runs and their logs
Selection       the runs that a query selects, their long table, and the frames computed from it
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from roberta_small.analysis.compare import Pairing
from roberta_small.analysis.predictions import find_size, read_predictions
from roberta_small.analysis.published import compare_reference, read_reference, with_published
from roberta_small.analysis.read.long_table import REPORTED, SELECTING, Scale, read_runs
from roberta_small.analysis.read.runs import (
    LoggedRun,
    describe,
    find_runs,
    inferred,
    mixed_precision,
    select_finished,
)
from roberta_small.analysis.scoring import (
    TieRule,
    best_checkpoints,
    choose_subsets,
    diverged,
    expected_best_of_seeds,
    scores,
    spread_over_seeds,
)
from roberta_small.analysis.study import NO_STUDY, Study
from roberta_small.common.data_folder import Overlap, read_overlap
from roberta_small.common.errors import UserError
from roberta_small.common.files import escaped
from roberta_small.common.label_kinds import KINDS
from roberta_small.common.metrics import Direction, in_percent, label, lower_is_better, measures_quality
from roberta_small.common.tables import Table

logger = logging.getLogger(__name__)

DEFAULT_METRIC = "accuracy"
TIE_NOTES = {
    "latest": "the latest of equal ones, as fairseq's checkpoint_best.pt",
    "earliest": "the earliest of equal ones",
    "mean": "of equal ones, the mean of their test values",
}
STD_NOTES = {0: "population standard deviation (ddof 0)", 1: "sample standard deviation (ddof 1)"}
CHOSEN_ON_TEST = "A score selected on the test set is biased upwards."
CHOSEN_ON_REPORTED = (
    "The values on {0} are optimistic, because {0} was also used for the selection; evaluate the best "
    "checkpoints on a test set."
)


@dataclass(frozen=True)
class Query:
    """What is computed from runs, and by which conventions; each field is an option of the same meaning.

    None is decided by `with_metrics` and `resolve`.
    """

    metric: str | None = None
    """The metric that is reported."""
    by: str | None = None
    """The metric that selects the best checkpoint."""
    subset: str | None = None
    """The subset on which it selects (--choose-on)."""
    ties: TieRule = "latest"
    direction: Direction = "auto"
    """Of the metric `by`."""
    reported: str | None = None
    """The subset that is reported (--split)."""
    ddof: int = 1
    include_unfinished: bool = False
    accuracies: Scale = "auto"
    """How runs without manifest logged accuracy."""
    study: Study = NO_STUDY
    """Names, order and selection of the groups, and the pairs and points to compare."""
    test_size: int | None = None
    """Number of examples of `reported`; None: that of the audit, or `find_size`."""
    audit: str | os.PathLike[str] | None = None
    reference: str | os.PathLike[str] | None = None
    duplicates: str = "exact"
    """The notion of duplicates in the audit that are excluded from accuracies."""
    pairing: Pairing = "auto"
    detect: float | None = None
    """The smallest difference to detect; None: 1 point, or 0.01."""
    all_pairs: bool = False
    """Compare all pairs of groups in a report, not those of the study or each with the baseline."""
    best_settings: bool = False
    """Use only the setting that validation selects for each method and init."""
    chance: float | None = None
    """Chance level, drawn in figures."""
    data_set: str | None = None
    """The hub's name of the data set of a model-index."""

    def with_metrics(self, runs: Iterable[LoggedRun]) -> Query:
        """The query with both metrics, so that by default tables describe the runs' checkpoint_best.pt.

        Warns if the runs selected by other or by different metrics, and about a metric of speed, sizes or the
        optimizer.
        """
        runs = list(runs)
        recorded = sorted({run.selected_by for run in runs if run.selected_by})
        kinds = {run.label_kind for run in runs}
        metric = self.metric or (KINDS[kinds.pop()].metric if len(kinds) == 1 else DEFAULT_METRIC)
        by = self.by or metric
        if self.metric is None and self.by is None and len(recorded) == 1:
            by = recorded[0]
        for name in dict.fromkeys([metric, by]):
            if not measures_quality(name):
                logger.warning("%s describes speed, sizes or the optimizer, not the quality of a model", name)
        if recorded and recorded != [by]:
            logger.warning(
                "checkpoint_best.pt of the runs was selected by %s, the best checkpoint here by %s (--by)",
                " or ".join(recorded), by,
            )  # fmt: skip
        return replace(self, metric=metric, by=by)

    def resolve(self, table: pd.DataFrame) -> ResolvedQuery:
        """The query with the subsets of `choose_subsets` for this long table."""
        subset, reported = choose_subsets(table, self.subset, self.reported)
        metric = self.metric or DEFAULT_METRIC
        decided = {"metric": metric, "by": self.by or metric, "subset": subset, "reported": reported}
        return ResolvedQuery(**{**vars(self), **decided, "split": self.reported})


@dataclass(frozen=True)
class ResolvedQuery(Query):
    """A query in which nothing is open."""

    metric: str = DEFAULT_METRIC
    by: str = DEFAULT_METRIC
    subset: str = SELECTING
    reported: str = REPORTED
    split: str | None = None
    """The subset that was requested; None if `reported` is the default."""

    @property
    def directions(self) -> dict[str, Direction]:
        """The direction of `metric`: that of the query if this metric also selects."""
        return {self.metric: self.direction if self.by == self.metric else "auto"}

    @property
    def lower(self) -> bool:
        """Whether lower values of `metric` are better."""
        return lower_is_better(self.metric, self.directions[self.metric])

    @property
    def selects_lowest(self) -> bool:
        """Whether the lowest value of `by` is best."""
        return lower_is_better(self.by, self.direction)

    @property
    def difference(self) -> float:
        """The smallest difference to detect."""
        return self.detect or (1.0 if in_percent(self.metric) else 0.01)

    @property
    def std_note(self) -> str:
        """How standard deviations are computed."""
        return STD_NOTES[self.ddof]

    @property
    def note(self) -> str:
        """A note on how best checkpoints are selected."""
        extreme = "lowest" if self.selects_lowest else "highest"
        warning = ""
        if self.subset == REPORTED:
            warning = f" {CHOSEN_ON_TEST}"
        elif self.subset == self.reported:
            warning = f" {CHOSEN_ON_REPORTED.format(self.reported)}"
        rule = f"{TIE_NOTES[self.ties]} (tie rule {self.ties})"
        return f"Best: {extreme} {label(self.by)} on {self.subset}; {rule}.{warning}"


@dataclass(frozen=True)
class Selection:
    """The runs that a query selects, their long table, and the frames of the functions named here.

    A frame is computed at its first use; then `UserError` is raised as by its function.
    """

    query: ResolvedQuery
    runs: Sequence[LoggedRun]
    table: pd.DataFrame
    left_out: Sequence[LoggedRun] = ()
    """Runs of the selected groups that are not finished; everything else excludes them."""
    published: pd.DataFrame | None = None
    """The frame of `read_reference`."""

    @classmethod
    def of(cls, runs: Sequence[LoggedRun], query: Query, left_out: Sequence[LoggedRun] = ()) -> Selection:
        """Read the logs of these runs and decide what is open in the query.

        Raises `UserError` as the readers.
        """
        # Small files first: errors in them are reported before the slow reading of logs.
        published = read_reference(query.reference) if query.reference else None
        if query.audit:
            read_overlap(query.audit, query.reported or REPORTED)
        if not query.study.known:
            query = replace(query, study=query.study.resolve(run.group for run in runs))
        query = query.with_metrics(runs)
        table = read_runs(runs, query.accuracies)
        return cls(query.resolve(table), runs, table, left_out, published)

    @property
    def study(self) -> Study:
        """That of the query."""
        return self.query.study

    @cached_property
    def best(self) -> pd.DataFrame:
        """`best_checkpoints`."""
        query = self.query
        return best_checkpoints(
            self.table, query.metric, ties=query.ties, by=query.by, subset=query.subset,
            direction=query.direction, reported=query.reported,
        )  # fmt: skip

    @cached_property
    def values(self) -> pd.DataFrame:
        """`scores` of the metric on the reported subset."""
        return scores(self.table, self.best, self.query.metric, self.query.reported)

    @cached_property
    def diverged(self) -> list[str]:
        """The runs that `values` excludes."""
        return diverged(self.table, self.values, self.query.metric, self.query.reported)

    @cached_property
    def spread(self) -> pd.DataFrame:
        """`spread_over_seeds`, in the order of the study."""
        query = self.query
        data = spread_over_seeds(self.values, query.metric, ddof=query.ddof, test_size=self.test_size)
        return self.study.sorted(data)

    @cached_property
    def expected(self) -> pd.DataFrame:
        """`expected_best_of_seeds`, in the order of the study."""
        data = expected_best_of_seeds(self.best, lower=self.query.selects_lowest)
        return self.study.sorted(data)

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """`read_predictions` on the reported subset."""
        return read_predictions(self.runs, self.query.reported)

    @cached_property
    def overlap(self) -> Overlap | None:
        """The duplicates in the audit; None without an audit."""
        query = self.query
        return read_overlap(query.audit, query.reported, notion=query.duplicates) if query.audit else None

    @cached_property
    def test_size(self) -> int | None:
        """The number of examples of the reported subset, if it is known."""
        if self.query.test_size:
            return self.query.test_size
        return self.overlap.size if self.overlap else find_size(self.runs, self.query.reported)

    @cached_property
    def reference(self) -> pd.DataFrame | None:
        """`compare_reference`, in the order of the study; None without published results."""
        if self.published is None:
            return None
        name = escaped(str(self.query.reference))
        data = compare_reference(self.table, self.best, self.published, name=name)
        return self.study.sorted(data)

    @property
    def reference_name(self) -> str:
        """The name of the file of published results."""
        return escaped(Path(self.query.reference or "").name)

    def beside_published(self, table: Table, wide: Sequence[str] = ()) -> Table:
        """`with_published` of a table of the metric; the table itself without published results."""
        if self.reference is None:
            return table
        query = self.query
        return with_published(
            table, self.reference, self.reference_name, query.metric, query.reported, wide=wide
        )


def select(
    source: str | os.PathLike[str], query: Query, *, pattern: str | None = None, folders: bool = False
) -> Selection:
    """The finished runs below a folder, or in an archive, that the query selects.

    Prints a summary of the runs on standard error. For `folders` see `Study.resolve`. Raises `UserError` as
    `find_runs`, `Study.resolve` and `Selection.of`, and if the baseline has no finished run.
    """
    found = found_runs(source, pattern)
    study = query.study.resolve((run.group for run in found), folders=folders)
    selected = study.select(found)
    runs = select_finished(selected, query.include_unfinished)
    if study.baseline is not None and all(run.group != study.baseline for run in runs):
        raise UserError(
            f"--baseline: '{study.baseline}' has no finished run; finish one or choose another group"
        )
    left_out = [run for run in selected if run not in runs]
    return Selection.of(runs, replace(query, study=study), left_out)


def found_runs(
    source: str | os.PathLike[str], pattern: str | None = None, prefix: str = ""
) -> list[LoggedRun]:
    """`find_runs`; prints a summary after `prefix` on standard error."""
    runs = find_runs(source, pattern)
    lines = [describe(runs), *inferred(runs), *mixed_precision(runs)]
    print(prefix + "\n".join(lines), file=sys.stderr)
    return runs
