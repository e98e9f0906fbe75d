"""Figures of seeds and of the best of n: elements and positions."""

import numpy as np
import pytest
from scipy import stats

from roberta_small.analysis.features.curves import draw_curves_of
from roberta_small.analysis.features.seeds import draw_expected, draw_seeds
from roberta_small.analysis.query import Query
from roberta_small.analysis.read.runs import find_runs
from roberta_small.analysis.selection import Selection
from roberta_small.analysis.style import styles, wrap
from tests.support.analysis.run_trees import write_run


def selection_of(root, **more):
    return Selection.of(find_runs(root), Query(**more))


def intervals(panel, linewidth):
    """The ends of the horizontal lines of this width, from the top down."""
    lines = [item for item in panel.collections if item.get_linewidth()[0] == linewidth]
    return [[x for x, _ in item.get_segments()[0]] for item in lines]


def test_seeds_means_and_both_intervals(runs):
    selection = selection_of(runs, test_size=2000)
    (panel,) = draw_seeds(selection.values, selection.spread, "accuracy").axes
    seeds = [line.get_xdata() for line in panel.get_lines() if line.get_markersize() == 7]
    np.testing.assert_allclose(seeds[0], [78.5, 79.25, 80.0])
    np.testing.assert_allclose(seeds[1], [65.5, 66.75, 68.25])
    expected = stats.t.interval(0.95, 2, np.mean(seeds[0]), stats.sem(seeds[0]))
    np.testing.assert_allclose(intervals(panel, 5)[0], expected)
    share = stats.binomtest(1585, 2000).proportion_ci(method="wilson")  # 79.25 %
    np.testing.assert_allclose(intervals(panel, 2)[0], [100 * share.low, 100 * share.high], atol=1e-9)
    assert [label.get_text() for label in panel.get_yticklabels()] == ["fairseq/pretrained", "fairseq/random"]


def test_the_baseline_has_a_line_at_its_mean(runs):
    selection = selection_of(runs)
    for baseline, means in (("fairseq/random", [np.mean([65.5, 66.75, 68.25])]), (None, [])):
        figure = draw_seeds(selection.values, selection.spread, "accuracy", baseline=baseline)
        dotted = [line for line in figure.axes[0].get_lines() if line.get_linestyle() == ":"]
        assert [line.get_xdata()[0] for line in dotted if len(line.get_xdata())] == pytest.approx(means)
        names = [text.get_text() for text in figure.legends[0].get_texts()]
        assert ("mean of the baseline" in names) == bool(means)


def test_the_legend_contains_only_what_is_drawn(tmp_path):
    write_run(tmp_path, "random", 1, [50.0, 60.0], [51.0, 61.0])
    selection = selection_of(tmp_path)
    figure = draw_seeds(selection.values, selection.spread, "accuracy")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one seed", "mean"]


def test_close_seeds_do_not_hide_each_other(tmp_path):
    scores = (50.0, 50.25, 50.5, 50.75, 90.0)  # exact in single precision
    for seed, test in enumerate(scores, start=1):
        write_run(tmp_path, "random", seed, [50.0], [test])
    selection = selection_of(tmp_path)
    (panel,) = draw_seeds(selection.values, selection.spread, "accuracy").axes
    (seeds,) = [line for line in panel.get_lines() if line.get_markersize() == 7]
    heights = dict(zip(seeds.get_xdata(), seeds.get_ydata(), strict=True))
    assert len({heights[x] for x in scores[:3]}) == 3
    assert heights[50.5] != heights[50.75]
    assert heights[90.0] == heights[50.0]


def test_the_expected_best_of_n(runs):
    selection = selection_of(runs)
    valid, test = draw_expected(selection.expected, "accuracy", "accuracy").axes
    random_valid, random_test = (panel.get_lines()[1].get_ydata() for panel in (valid, test))
    # Valid 62, 62.5 and 65: the mean of one, of the best of the three pairs, the best of all.
    np.testing.assert_allclose(random_valid, [np.mean([62, 65, 62.5]), np.mean([62.5, 65, 65]), 65])
    np.testing.assert_allclose(random_test[-1], 66.75)


@pytest.mark.parametrize("name", ["a-very-long-name_of.an/init", "x" * 70, "a b", "-", "no$dollars$here"])
def test_wrapped_names_are_complete(name):
    lines = wrap(name, 12).replace(r"\$", "$").split("\n")
    assert "".join(lines) == name
    assert max(map(len, lines)) <= 12


def test_twenty_groups_have_twenty_styles():
    assert len({tuple(style.values()) for style in styles(map(str, range(20))).values()}) == 20


def test_axes_end_where_the_metric_does(tmp_path):
    """Two seeds far apart: t interval and mean ± std would go far beyond 100 %."""
    for seed, value in ((1, 60.0), (2, 99.0)):
        write_run(tmp_path, "random", seed, [value] * 2, [value] * 2)
    selection = selection_of(tmp_path)
    figure = draw_seeds(selection.values, selection.spread, "accuracy")
    (panel,) = figure.axes
    assert intervals(panel, 5) == [[0.0, 100.0]]
    assert any("cut" in text.get_text() for text in figure.legends[0].get_texts())
    (curves,) = [figure for _, figure in draw_curves_of(selection)]
    for low, high in [panel.get_xlim(), *(panel.get_ylim() for panel in curves.axes)]:
        assert -6 < low < high < 106
