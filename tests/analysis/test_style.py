"""Figures with the names and order of a study, colors that follow the group, sizes and fonts for a paper."""

import struct

import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from roberta_small.analysis.__main__ import main
from roberta_small.analysis.query import WIDTHS, Query, Study
from roberta_small.analysis.read.runs import find_runs
from roberta_small.analysis.report.page import figures
from roberta_small.analysis.selection import Selection
from roberta_small.analysis.style import grid, group_styles, paper, styles
from tests.support.analysis.command_words import study_words
from tests.support.analysis.prediction_files import write_predictions
from tests.support.analysis.run_trees import write_run

GROUPS = ("bow/tfidf", "fairseq/pretrained", "fairseq/random", "hf/random")


@pytest.fixture
def four(runs):
    """Four groups of three methods, with predictions."""
    write_run(runs, "tfidf", 0, [82.0], [83.0], arm="bow")
    for seed in (1, 2):
        write_run(runs, "random", seed, [50.0, 62.0 + seed], [51.0, 63.0], arm="hf")
    for run in runs.glob("*/*/seed*"):
        write_predictions(run, "0101", "0100")
    return runs


def selection_of(root, **more):
    runs, query = find_runs(root), Query(test_size=2000, **more)
    study = Study.of(query, (run.group for run in runs))
    return Selection.of([run for run in runs if run.group in study.selected], query, study)


def colors_of(selection):
    """Group -> its colors in all figures."""
    found = {}
    for name, figure in figures(selection):
        for panel in figure.axes:
            for line in panel.get_lines():
                label = line.get_label().removesuffix(" seeds)").removesuffix(" seed)")
                group = label.rpartition(" (")[0] or label
                if group in found or group in selection.study.query.labels.values():
                    found.setdefault(group, set()).add(to_hex(line.get_color()))
        if name.endswith("_seeds"):
            (panel,) = figure.axes
            names = [text.get_text() for text in panel.get_yticklabels()]
            dots = [line for line in panel.get_lines() if line.get_markersize() == 7]
            for group, line in zip(names, dots, strict=True):
                found.setdefault(group, set()).add(to_hex(line.get_color()))
    return found


LABELS = dict(zip(GROUPS, ("Bag", "Pre", "Rand", "Other"), strict=True))


def test_a_group_has_one_color_in_all_figures_whatever_else_is_shown(four):
    everything = colors_of(selection_of(four, labels=LABELS))
    assert set(everything) == set(LABELS.values())
    assert all(len(colors) == 1 for colors in everything.values()), everything
    assert len(set.union(*everything.values())) == 4
    for group in GROUPS[:2]:
        others = colors_of(selection_of(four, labels=LABELS, exclude=(group,), order=GROUPS[::-1]))
        assert others == {name: color for name, color in everything.items() if name != LABELS[group]}


def test_a_method_or_setting_has_the_style_of_its_first_group():
    study = Study.of(Query(), ["fairseq/random", "fairseq,lr=1/random", "hf/random"])
    style_of = list(styles("01234").values())
    found = group_styles(["hf", "fairseq"], study, lambda group: group.split("/")[0])
    assert found == {"hf": style_of[2], "fairseq": style_of[0]}
    assert group_styles(["z", "a"], study) == {"z": style_of[4], "a": style_of[3]}


def test_labelled_groups_share_the_panels_in_the_order_of_the_study(four):
    groups = ("hf/random", "bow/tfidf", "fairseq/random")
    drawn = dict(figures(selection_of(four, labels=LABELS, groups=groups)))
    curves = drawn["accuracy_per_epoch"]
    assert [panel.get_title() for panel in curves.axes] == ["valid", "test"]
    (legend,) = curves.subfigs[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["Other (2 seeds)", "Rand (3 seeds)", "Bag"]
    (seeds,) = drawn["accuracy_seeds"].axes
    assert [text.get_text() for text in seeds.get_yticklabels()] == ["Other", "Bag", "Rand"]
    titles = [panel.get_title().split(" (")[0] for panel in drawn["confusion"].axes[:3]]
    assert titles == ["Other", "Bag", "Rand"]


@pytest.mark.parametrize("width", WIDTHS)
def test_figures_for_a_paper_have_the_width_of_a_column_and_readable_fonts(four, width):
    with paper(width):
        for name, figure in figures(selection_of(four, labels=LABELS, chance=50.0)):
            assert figure.get_figwidth() == WIDTHS[width], name
            assert figure.get_figheight() <= 9, name
            figure.draw_without_rendering()
            sizes = {text.get_fontsize() for text in figure.findobj(Text) if text.get_text()}
            assert 6.5 <= min(sizes) <= max(sizes) <= 8, (name, sizes)
            assert legends_fit(figure), name
    assert grid(2, (4.0, 3.0)) == (2, (8.0, 3.0))


def legends_fit(figure):
    legends = [legend for part in (figure, *figure.subfigs) for legend in part.legends]
    return all(
        figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
        for box in (x.get_window_extent() for x in legends)
    )


def test_width_and_format_of_figures(runs, tmp_path):
    study = study_words(tmp_path, 'width = "one-column"\n')
    words = ["figures", str(runs), "--figure", "seeds", "--out", str(tmp_path / "out"), *study]
    assert main([*words, "--figure-format", "png", "pdf", "svg"]) == 0
    png = (tmp_path / "out" / "accuracy_seeds.png").read_bytes()
    assert struct.unpack(">I", png[16:20])[0] == 3.25 * 200
    pdf = (tmp_path / "out" / "accuracy_seeds.pdf").read_bytes()
    assert b"/MediaBox [ 0 0 234 " in pdf  # 3.25 * 72 points
    assert b"/Type3" not in pdf
    assert b'width="234pt"' in (tmp_path / "out" / "accuracy_seeds.svg").read_bytes()


@pytest.mark.parametrize("width", [None, "one-column"])
def test_a_legend_of_many_groups_does_not_cover_the_panels(runs, width):
    names = {f"fairseq/init{number}": f"Initialization number {number}, 1e-4" for number in range(14)}
    for name in names:
        write_run(runs, name.partition("/")[2], 1, [50.0, 60.0], [50.0, 60.0])
    selection = selection_of(runs, labels=names)
    with paper(width):
        _, figure = next(figures(selection))
        figure.draw_without_rendering()
        (legend,) = figure.subfigs[0].legends
        bottom = min(panel.get_window_extent().y0 for panel in figure.axes)
        assert legend.get_window_extent().y1 < bottom
        assert all(panel.get_window_extent().height > 1.2 * figure.dpi for panel in figure.axes)
