"""The report of a suite, a single HTML file: main findings, scores by data set and over all, provenance."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from roberta_small.analysis.read.runs import Run
from roberta_small.analysis.report.elements import (
    Section,
    bullets,
    chosen,
    drawings,
    page,
    provenance,
    table,
    top_section,
)
from roberta_small.analysis.report.provenance import group_facts
from roberta_small.analysis.report.summary import listed
from roberta_small.analysis.stats.suite import Balanced
from roberta_small.analysis.study import Study, names_of
from roberta_small.analysis.tables.suite import NORMALIZED, exclusions
from roberta_small.common.errors import count
from roberta_small.common.files import atomic_write
from roberta_small.common.metrics import label, number
from roberta_small.common.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTIONS = {
    "by_data_set": "Each run at its best checkpoint as a small mark, and the mean and standard deviation "
    "of each method.",
    "profiles": "Performance profiles: for each score, the fraction of runs above it. A curve that is above "
    "another one everywhere belongs to the better method.",
}


@dataclass(frozen=True)
class Scored:
    """What the command `suite` has computed."""

    runs: Mapping[str, Sequence[Run]]
    """The runs of each data set."""
    metric: str
    split: str
    summary: pd.DataFrame
    """data_set, arm, init, n, mean, std."""
    balanced: Balanced
    aggregates: pd.DataFrame | None
    """The frame of `stats.suite.aggregate`; None if nothing is comparable on all data sets."""
    improvement: pd.DataFrame | None
    """The frame of `stats.suite.compare_pairs`; None for fewer than two groups."""
    normalized: bool
    lower: bool
    """Whether lower values are better."""
    study: Study


def write_suite_report(
    scored: Scored,
    tables: Sequence[Table],
    draw: Callable[[], Iterable[tuple[str, Figure]]],
    path: str | os.PathLike[str],
) -> Path:
    """Write the report to `path`, atomically; the bytes are reproducible.

    `tables` are those of the command as the study presents them; `draw` yields its (name, figure) pairs.
    Raises `UserError` if `path` cannot be written.
    """
    path = Path(path)
    atomic_write(path, render_suite_report(scored, tables, draw))
    return path


def render_suite_report(
    scored: Scored, tables: Sequence[Table], draw: Callable[[], Iterable[tuple[str, Figure]]]
) -> str:
    """The HTML of the report, see `write_suite_report`."""
    written = {one.name: table(one) for one in tables}
    drawn = drawings(lambda: _by_kind(draw(), scored.metric), CAPTIONS)
    excluded = [scored.study.relabel(note) for note in exclusions(scored.balanced)]
    cautions = bullets(excluded, prefix="Caution:", style="cautions")
    top = [
        top_section("findings", "Main findings", [*bullets(suite_findings(scored)), *cautions]),
        top_section("results", "Results", chosen(written, "suite") + chosen(drawn, "by_data_set")),
    ]
    runs = count(sum(map(len, scored.runs.values())), "run")
    lede = f"{runs} on {count(len(scored.runs), 'data set')}: {', '.join(scored.runs)}."
    title = f"{label(scored.metric)} on {count(len(scored.runs), 'data set')}"
    return page(title[0].upper() + title[1:], lede, top, _sections(scored, written, drawn))


def _by_kind(figures: Iterable[tuple[str, Figure]], metric: str) -> Iterator[tuple[str, Figure]]:
    for name, figure in figures:
        yield name.removeprefix(f"{metric}_"), figure


def _sections(scored: Scored, tables: dict[str, str], drawn: dict[str, str]) -> Iterator[Section]:
    yield Section(
        "aggregates",
        "Over all data sets",
        "Only methods with runs on all data sets. The intervals describe other seeds, not other data sets.",
        chosen(tables, "aggregates") + chosen(drawn, "profiles"),
        is_open=True,
    )
    yield Section(
        "improvement",
        "Pairs of methods",
        "0.5: neither is better. The probability does not depend on the size of a difference.",
        chosen(tables, "improvement"),
    )
    yield Section(
        "provenance",
        "Provenance",
        "What the manifests of the runs record: data, weights, software, hardware and commands.",
        [
            provenance(replace(group, name=f"{data_set}: {group.name}"))
            for data_set, runs in scored.runs.items()
            for group in group_facts(runs)
        ],
    )


def suite_findings(scored: Scored) -> list[str]:
    """The main findings, a sentence each."""
    sentences = [*_best_by_data_set(scored), *_best_over_all(scored), *_most_probable(scored)]
    return [scored.study.relabel(sentence) for sentence in sentences]


def _best_by_data_set(scored: Scored) -> list[str]:
    """Which groups have the best mean on which data sets."""
    data = scored.summary.assign(group=names_of(scored.summary))
    best_of: dict[str, list[str]] = {}
    for name in scored.runs:
        means = data.loc[data["data_set"] == name].set_index("group")["mean"].dropna()
        if len(means) > 1:
            best = means.min() if scored.lower else means.max()
            for group in means.index[means == best]:
                best_of.setdefault(group, []).append(name)
    what = f"the {'lowest' if scored.lower else 'highest'} mean {scored.split} {label(scored.metric)}"
    return [f"{group} has {what} on {listed(names)}." for group, names in best_of.items()]


def _best_over_all(scored: Scored) -> list[str]:
    """The group with the best interquartile mean, or rank for a metric without a common scale."""
    data = scored.aggregates
    if data is None or len(data) < 2:
        return []
    over = f"Over the {count(len(scored.balanced.data_sets), 'data set')}"
    if data["iqm"].isna().all():
        best = data.loc[data["rank"].idxmin()]
        return [f"{over}, {best['arm']}/{best['init']} has the best average rank, {best['rank']:.2f}."]
    best = data.loc[data["iqm"].idxmin() if scored.lower else data["iqm"].idxmax()]
    name = NORMALIZED if scored.normalized else scored.metric
    scale = "normalized score" if scored.normalized else label(scored.metric)
    extreme = "lowest" if scored.lower else "highest"
    return [
        f"{over}, {best['arm']}/{best['init']} has the {extreme} interquartile mean "
        f"({scale} {number(best['iqm'], name)}) and an average rank of {best['rank']:.2f}."
    ]


def _most_probable(scored: Scored) -> list[str]:
    """The pair of methods whose P(A > B) is farthest from 0.5; nothing if all are 0.5."""
    data = scored.improvement
    if data is None:
        return []
    row = data.loc[(data["probability"] - 0.5).abs().idxmax()]
    better, worse, probability = row["a"], row["b"], row["probability"]
    if probability < 0.5:
        better, worse, probability = worse, better, 1 - probability
    if probability == 0.5:
        return []
    of_several = f", the clearest of {len(data)} pairs" if len(data) > 1 else ""
    return [
        f"A run of {better} is better than a run of {worse} with probability {probability:.2f}, "
        f"averaged over the data sets{of_several}."
    ]
