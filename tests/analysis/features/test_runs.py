"""Tables and their writers: hand-computed cells, formats, conventions, escapes, shapes."""

import io
import json
import math

import numpy as np
import pandas as pd
import pytest

from roberta_small.analysis.features.runs import list_runs, table1, table2
from roberta_small.analysis.read.long_table import load_runs, read_runs
from roberta_small.analysis.read.runs import find_runs
from roberta_small.common.tables import (
    Table,
    interval,
    mean_std_cell,
    p_value,
    render,
    signed,
    signed_interval,
    whole,
)
from tests.support.analysis.printed_tables import notes_with, rows_of
from tests.support.analysis.run_trees import write_events, write_run

BEST_TESTS = {"pretrained": [79.25, 78.5, 80.0], "random": [65.5, 66.75, 68.25]}


def test_table1_cells(runs):
    rows = rows_of(render([table1(load_runs(runs))]))
    assert rows[0] == ["arm", "init", "seed", "valid", "test", "epoch", "step", "ties"]
    assert ["fairseq", "pretrained", "2", "80.00", "78.50", "3", "675", "2"] in rows
    sums = [row for row in rows if row[2] == "mean ± std (n)"]
    assert sums[0][:5] == ["fairseq", "pretrained", "mean ± std (n)", "81.50 ± 1.80 (3)", "79.25 ± 0.75 (3)"]
    assert sums[1][4] == "66.83 ± 1.38 (3)"


@pytest.mark.parametrize("ddof", [0, 1])
def test_table1_sums_are_numpys_in_single_precision(runs, ddof):
    text = render([table1(load_runs(runs), ddof=ddof)], "csv")
    data = pd.read_csv(io.StringIO(text)).set_index(["init", "seed"])
    for init, tests in BEST_TESTS.items():
        assert data.loc[(init, "mean"), "test"] == pytest.approx(np.mean(tests), rel=2**-24)
        assert data.loc[(init, "std"), "test"] == pytest.approx(np.std(tests, ddof=ddof), rel=2**-24)
    assert set(data["ddof"]) == {ddof}
    assert set(data["tie_rule"]) == {"latest"}


def test_table1_lists_tied_steps_with_the_mean_rule(runs):
    rows = rows_of(render([table1(load_runs(runs), ties="mean")]))
    assert ["fairseq", "pretrained", "2", "80.00", "78.25", "–", "225, 675", "2"] in rows


def test_table2_cells(runs):
    rows = rows_of(render([table2(load_runs(runs), ddof=0)]))
    assert rows[0] == ["epoch", "fairseq/pretrained", "fairseq/random"]
    mean, std = np.mean([50.5, 66.75, 51.0]), np.std([50.5, 66.75, 51.0])
    assert rows[1] == ["1", "72.67 ± 3.86 (3)", f"{mean:.2f} ± {std:.2f} (3)"]
    assert len(rows) == 1 + 3


def test_table2_has_an_empty_cell_where_no_run_got_so_far(tmp_path):
    write_run(tmp_path, "pretrained", 1, [50.0], [51.0])
    write_run(tmp_path, "random", 1, [50.0, 60.0], [51.0, 61.0])
    assert rows_of(render([table2(load_runs(tmp_path))]))[-1] == ["2", "", "61.00 ± – (1)"]


def test_a_metric_between_0_and_1_has_four_decimals(tmp_path):
    write_run(tmp_path, "random", 1, [0.5], [0.625], metric="mcc")
    text = render([table1(load_runs(tmp_path), "mcc")])
    assert "0.6250" in text
    assert "%" not in text


def test_a_diverged_run_is_shown_and_not_averaged(runs):
    write_run(runs, "random", 4, [float("nan")], [50.0])
    rows = rows_of(render([table1(load_runs(runs))]))
    assert ["fairseq", "random", "4", "–", "–", "–", "–", "0"] in rows
    assert rows[-1][4] == "66.83 ± 1.38 (3)"


def test_special_characters_are_escaped():
    frame = pd.DataFrame({"init": [r"a_b|c\d~50%"]})
    table = Table("t", "R&D #1", (), frame, frame)
    latex = render([table], "latex")
    assert r"a\_b\textbar{}c\textbackslash{}d\textasciitilde{}50\%" in latex
    assert r"R\&D \#1" in latex
    assert r"a_b\|c" in render([table], "markdown")


def test_latex_reads_brackets_stars_and_quotes_as_text():
    """At the start of a row, [ and * would be arguments of the one before; a straight quote closes."""
    shown = pd.DataFrame({"[A]": ["[0, 1]", "*", "fine"], "B": ['the "best" one', "--l'ami 'x'", '5" [b]']})
    text = render([Table("t", 'Not "best"', (), shown, shown)], "latex")
    rows = [line.removesuffix(r"\\").split("&") for line in text.splitlines() if line.endswith(r"\\")]
    assert [first.strip() for first, _ in rows] == ["{}[A]", "{}[0, 1]", "{}*", "fine"]
    assert [second.strip() for _, second in rows[1:]] == ["the ``best'' one", "-{}-l'ami `x'", "5'' [b]"]
    assert r"\caption{Not ``best''}" in text


def test_listing(runs):
    write_run(runs, "random", 4, [50.0], [50.0], status="running")
    found = find_runs(runs)
    listing = list_runs(found, read_runs(found))
    rows = rows_of(render([listing]))
    assert rows[1][:9] == ["fairseq", "pretrained", "1", "reference", "finished", "3", "675", "135", "5.00"]
    assert rows[1][9:] == ["test valid", "manifest.json", str(runs / "fairseq" / "pretrained" / "seed1")]
    assert rows[-1][:9] == ["fairseq", "random", "4", "reference", "running", "1", "225", "–", "–"]


def test_table1_notes_the_selecting_metric_and_subset(tmp_path):
    run = write_run(tmp_path, "random", 1, [60.0, 61.0], [50.0, 52.0])
    for subset, losses in (("valid", [0.5, 0.7]), ("test", [0.8, 0.9])):
        rows = [(225 * epoch, "loss", loss) for epoch, loss in enumerate(losses, start=1)]
        write_events(run / "tensorboard" / subset, rows, suffix=".loss")
    table = load_runs(tmp_path)
    text = render([table1(table, by="loss")])
    rows = rows_of(text)
    assert rows[0][3:5] == ["loss on valid", "accuracy on test"]
    assert rows[1][3:7] == ["0.5000", "50.00", "1", "225"]
    assert notes_with(text, "lowest", "loss", "valid")
    text = render([table1(table, subset="test")])
    assert notes_with(text, "highest", "accuracy", "test")
    assert "biased upwards" in text
    assert notes_with(render([table1(table, direction="lowest")]), "lowest", "accuracy", "valid")


def test_json_has_no_infinity():
    frame = pd.DataFrame({"ppl": [np.inf, 2.0, np.nan]})
    rows = json.loads(render([Table("t", "", (), frame, frame)], "json"))["t"]["rows"]
    assert [row["ppl"] for row in rows] == [None, 2.0, None]


NAN = math.nan


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (p_value(0.0004), "<0.001"),
        (p_value(0.25), "0.250"),
        (p_value(NAN), "–"),
        (p_value(pd.NA), "–"),
        (whole(2687.0), "2,687"),
        (whole(math.inf), ">100,000"),
        (whole(pd.NA), "–"),
        (signed(1.283, "accuracy"), "+1.28"),
        (signed(-0.85, "accuracy"), "−0.85"),
        (signed(0.0, "accuracy"), "0.00"),
        (signed(0.01234, "mcc"), "+0.0123"),
        (signed(NAN, "mcc"), "–"),
        (mean_std_cell(67.233, 1.281, "accuracy"), "67.23 ± 1.28"),
        (mean_std_cell(67.233, NAN, "accuracy", 1), "67.23 ± – (1)"),
        (mean_std_cell(0.5, 0.01, "mcc", NAN), "0.5000 ± 0.0100 (–)"),
        (interval(65.86, 69.1, "accuracy"), "[65.86, 69.10]"),
        (interval(NAN, NAN, "accuracy"), "–"),
        (signed_interval(-1.0, 2.0, "accuracy"), "[−1.00, +2.00]"),
    ],
)
def test_cells(shown, text):
    assert shown == text
