"""Figures of a suite: elements and positions."""

import numpy as np
import pandas as pd
import pytest

from roberta_small.analysis.features.suite.present import draw_by_data_set, draw_profiles
from roberta_small.analysis.features.suite.statistics import balance, profiles
from roberta_small.analysis.scoring import summarize
from roberta_small.analysis.style import paper


@pytest.fixture
def values():
    """`hf` has no run on the second data set."""
    rows = [
        ("books", "fairseq", 1, 60.0), ("books", "fairseq", 2, 64.0), ("books", "hf", 1, 70.0),
        ("films", "fairseq", 1, 80.0), ("films", "fairseq", 2, 82.0),
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["data_set", "arm", "seed", "value"]).assign(init="random")
    return frame.assign(group=frame["arm"] + "/random")


def test_scores_by_data_set(values):
    summary = summarize(values, ["data_set", "arm", "init"], "value")
    figure = draw_by_data_set(values, summary, "accuracy", ["films", "books"])
    (panel,) = figure.axes
    small = [line for line in panel.get_lines() if line.get_alpha() == 0.45]
    points = {tuple(point) for line in small for point in zip(*line.get_data(), strict=True)}
    # films: line 0; books: two lines below, after a gap
    assert points == {(80.0, 0.0), (82.0, 0.0), (60.0, 1.5), (64.0, 1.5), (70.0, 2.5)}
    means = {
        (x, y) for container in panel.containers for x, y in zip(*container.lines[0].get_data(), strict=True)
    }
    assert means == {(81.0, 0.0), (62.0, 1.5), (70.0, 2.5)}
    bars = [bar for container in panel.containers for bar in container.lines[2][0].get_segments()]
    assert sorted(np.ptp(bar[:, 0]) / 2 for bar in bars) == pytest.approx([0, np.sqrt(2), np.sqrt(8)])
    assert [text.get_text() for text in panel.get_yticklabels()] == ["films", "books"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fairseq/random", "hf/random"]


def test_profiles(values):
    figure = draw_profiles(profiles(balance(values)), "accuracy (%) on test")
    (panel,) = figure.axes
    (line,) = panel.get_lines()
    assert line.get_drawstyle() == "steps-post"
    x, y = line.get_data()
    assert list(x[1:]) == [60.0, 64.0, 80.0, 82.0]
    assert x[0] < 60
    assert list(y) == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert len(panel.collections) == 1
    single = values[values["seed"] == 1]
    assert draw_profiles(profiles(balance(single)), "accuracy").legends[0].get_title().get_text() == ""


def test_the_width_of_a_paper(values):
    with paper("one-column"):
        figure = draw_profiles(profiles(balance(values)), "accuracy")
        assert figure.get_figwidth() == 3.25
