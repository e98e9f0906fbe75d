"""The report of a suite, a single HTML file: main findings, scores by data set and over all, provenance."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from roberta_small.analysis.features.suite.comparison import Suite
from roberta_small.analysis.features.suite.present import NORMALIZED, exclusions
from roberta_small.analysis.presentation import present
from roberta_small.analysis.report.elements import (
    Section,
    bullets,
    chosen,
    drawings,
    group_facts,
    listed,
    page,
    provenance,
    table,
    top_section,
)
from roberta_small.analysis.study import names_of
from roberta_small.common.errors import count
from roberta_small.common.files import atomic_write
from roberta_small.common.metrics import label, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTIONS = {
    "by_data_set": "Each run at its best checkpoint as a small mark, and the mean and standard deviation "
    "of each method.",
    "profiles": "Performance profiles: for each score, the fraction of runs above it. A curve that is above "
    "another one everywhere belongs to the better method.",
}


def write_suite_report(suite: Suite, path: str | os.PathLike[str], title: str | None = None) -> Path:
    """Write the report to `path`, atomically; the bytes are reproducible.

    Raises `UserError` if `path` cannot be written.
    """
    path = Path(path)
    atomic_write(path, render_suite_report(suite, title))
    return path


def render_suite_report(suite: Suite, title: str | None = None) -> str:
    """The HTML of the report, see `write_suite_report`."""
    query, study = suite.query, suite.query.study
    tables = present(suite.tables(), study, wide=True, directions=query.directions)
    written = {one.name: table(one) for one in tables}
    drawn = drawings(_by_kind(suite.figures(), query.metric), CAPTIONS)
    excluded = [study.relabel(note) for note in exclusions(suite.balanced)]
    cautions = bullets(excluded, prefix="Caution:", style="cautions")
    top = [
        top_section("findings", "Main findings", [*bullets(suite_findings(suite)), *cautions]),
        top_section("results", "Results", chosen(written, "suite") + chosen(drawn, "by_data_set")),
    ]
    runs = count(sum(map(len, suite.runs.values())), "run")
    lede = f"{runs} on {count(len(suite.runs), 'data set')}: {', '.join(suite.runs)}."
    default = f"{label(query.metric)} on {count(len(suite.runs), 'data set')}"
    return page(title or default[0].upper() + default[1:], lede, top, _sections(suite, written, drawn))


def _by_kind(figures: Iterable[tuple[str, Figure]], metric: str) -> Iterator[tuple[str, Figure]]:
    for name, figure in figures:
        yield name.removeprefix(f"{metric}_"), figure


def _sections(suite: Suite, tables: dict[str, str], drawn: dict[str, str]) -> Iterator[Section]:
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
            for data_set, runs in suite.runs.items()
            for group in group_facts(runs)
        ],
    )


def suite_findings(suite: Suite) -> list[str]:
    """The main findings, a sentence each."""
    sentences = [*_best_by_data_set(suite), *_best_over_all(suite), *_most_probable(suite)]
    return [suite.query.study.relabel(sentence) for sentence in sentences]


def _best_by_data_set(suite: Suite) -> list[str]:
    """Which groups have the best mean on which data sets."""
    data = suite.summary.assign(group=names_of(suite.summary))
    best_of: dict[str, list[str]] = {}
    for name in suite.runs:
        means = data.loc[data["data_set"] == name].set_index("group")["mean"].dropna()
        if len(means) > 1:
            best = means.min() if suite.query.lower else means.max()
            for group in means.index[means == best]:
                best_of.setdefault(group, []).append(name)
    query = suite.query
    what = f"the {'lowest' if query.lower else 'highest'} mean {query.reported} {label(query.metric)}"
    return [f"{group} has {what} on {listed(names)}." for group, names in best_of.items()]


def _best_over_all(suite: Suite) -> list[str]:
    """The group with the best interquartile mean, or rank for a metric without a common scale."""
    data = suite.aggregates
    if data is None or len(data) < 2:
        return []
    over = f"Over the {count(len(suite.balanced.data_sets), 'data set')}"
    if data["iqm"].isna().all():
        best = data.loc[data["rank"].idxmin()]
        return [f"{over}, {best['arm']}/{best['init']} has the best average rank, {best['rank']:.2f}."]
    best = data.loc[data["iqm"].idxmin() if suite.query.lower else data["iqm"].idxmax()]
    name = NORMALIZED if suite.query.normalize else suite.query.metric
    scale = "normalized score" if suite.query.normalize else label(suite.query.metric)
    extreme = "lowest" if suite.query.lower else "highest"
    return [
        f"{over}, {best['arm']}/{best['init']} has the {extreme} interquartile mean "
        f"({scale} {number(best['iqm'], name)}) and an average rank of {best['rank']:.2f}."
    ]


def _most_probable(suite: Suite) -> list[str]:
    """The pair of methods whose P(A > B) is farthest from 0.5; nothing if all are 0.5."""
    data = suite.improvement
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
