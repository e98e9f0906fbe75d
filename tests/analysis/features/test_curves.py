"""Learning curves: elements, numbers and reproducible bytes."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from roberta_small.analysis.features.curves import draw_curves, draw_lines
from roberta_small.analysis.published import compare_reference, read_reference
from roberta_small.analysis.read.long_table import load_runs
from roberta_small.analysis.scoring import best_checkpoints
from roberta_small.analysis.style import save_figure
from tests.support.analysis.run_trees import write_run


def thick_lines(panel):
    return {line.get_label(): line for line in panel.get_lines() if line.get_linewidth() > 2}


def test_means_seeds_bands_and_legend(runs):
    figure = draw_curves(load_runs(runs), ddof=0, chance=50.0)
    valid, test = figure.axes
    assert [panel.get_title() for panel in (valid, test)] == ["fairseq: valid", "fairseq: test"]
    lines = thick_lines(test)
    assert set(lines) == {"pretrained (3 seeds)", "random (3 seeds)"}
    mean, std = np.mean([50.5, 66.75, 51.0]), np.std([50.5, 66.75, 51.0])
    np.testing.assert_allclose(lines["random (3 seeds)"].get_ydata()[0], mean)
    heights = test.collections[1].get_paths()[0].vertices[:, 1]
    assert all(np.isclose(heights, edge).any() for edge in (mean - std, mean + std))
    assert sum(line.get_linewidth() < 0.9 for line in test.get_lines()) == 6
    colors = {line.get_color() for line in lines.values()}
    styles = {line.get_linestyle() for line in lines.values()}
    assert len(colors) == len(styles) == 2
    (legend,) = figure.subfigs[0].legends
    assert "± std (ddof 0)" in legend.get_title().get_text()
    assert [text.get_text() for text in legend.get_texts()] == [*lines, "chance (50)"]


def test_a_row_an_arm_on_one_scale(runs):
    write_run(runs, "random", 1, [10.0, 20.0], [11.0, 21.0], arm="hf")
    figure = draw_curves(load_runs(runs))
    assert [panel.get_title() for panel in figure.axes] == [
        "fairseq: valid", "fairseq: test", "hf: valid", "hf: test",
    ]  # fmt: skip
    assert len({panel.get_ylim() for panel in figure.axes}) == 1
    fairseq, hf = (thick_lines(figure.axes[index]) for index in (1, 3))
    assert fairseq["random (3 seeds)"].get_color() != hf["random (1 seed)"].get_color()


PUBLISHED = """arm,init,epoch,subset,metric,mean,std,n,ddof
fairseq,random,1,test,accuracy,51.5,2,3,0
fairseq,random,2,test,accuracy,60,,,
fairseq,random,best,test,accuracy,61,,,
fairseq,pretrained,best,test,accuracy,79.3,0.6,3,0
"""


@pytest.mark.parametrize(("ddof", "deviation"), [(0, 2.0), (1, 2.0 * np.sqrt(3 / 2))])
def test_published_results_are_drawn(runs, tmp_path, ddof, deviation):
    write_run(runs, "random", 1, [10.0, 20.0], [11.0, 21.0], arm="hf")
    (tmp_path / "published.csv").write_text(PUBLISHED)
    table = load_runs(runs)
    published = compare_reference(
        table, best_checkpoints(table, "accuracy"), read_reference(tmp_path / "published.csv")
    )
    _, test, *hf = draw_curves(table, ddof=ddof, reference=published).axes
    curve, bars = next(
        (lines, bars) for lines, _, (bars,) in test.containers if list(lines.get_xdata()) == [1, 2]
    )
    assert list(curve.get_ydata()) == [51.5, 60]
    assert bars.get_segments()[0][:, 1] == pytest.approx([51.5 - deviation, 51.5 + deviation])
    (line,) = (line for line in test.get_lines() if line.get_label() == "pretrained, published: best")
    assert list(line.get_ydata()) == [79.3, 79.3]
    assert curve.get_color() == thick_lines(test)["random (3 seeds)"].get_color()
    assert not any(panel.containers for panel in hf)


@pytest.mark.parametrize("values", [[50.0], [float("nan")]])
def test_one_run_with_one_epoch(tmp_path, values):
    write_run(tmp_path, "random", 1, values, values)
    figure = draw_curves(load_runs(tmp_path))
    figure.canvas.draw()
    ticks = [tick for tick in figure.axes[0].get_xticks() if np.isclose(tick, round(tick))]
    assert len(ticks) == len(figure.axes[0].get_xticks())


@pytest.mark.parametrize("fmt", ["png", "svg", "pdf"])
def test_the_same_bytes_twice(tmp_path, fmt):
    write_run(tmp_path, "random", 1, [50.0, 60.0], [51.0, 61.0])
    contents = [
        save_figure(draw_curves(load_runs(tmp_path)), tmp_path / folder, "curves", fmt).read_bytes()
        for folder in ("one", "two")
    ]
    assert contents[0] == contents[1]
    assert len(contents[0]) > 1000


def test_numbers_of_lines_do_not_hide_each_other():
    panel = Figure(figsize=(6.4, 4.4), layout="constrained").subplots()
    panel.set_ylim(60, 85)
    rows = [("a", "x", 80.5), ("a", "y", 70.0), ("b", "x", 80.3), ("b", "y", 80.4)]
    draw_lines(panel, pd.DataFrame(rows, columns=["arm", "init", "mean"]), "accuracy")
    panel.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in panel.texts]
    assert [text.get_text() for text in panel.texts] == ["80.50", "70.00", "80.30", "80.40"]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
