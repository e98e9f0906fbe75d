"""Several data sets: sources, statistics, tables, the figure and errors."""

import io
import math
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata, trim_mean, ttest_rel
from statsmodels.stats.multitest import multipletests

from roberta_small.analysis.__main__ import main
from roberta_small.analysis.features.suite import Suite, aggregate, comparable, draw, mean_ranks
from roberta_small.analysis.query import NO_STUDY
from tests.support.analysis.printed_tables import failed, parsed, printed
from tests.support.analysis.run_trees import write_run

X = np.array([
    [80.4, 79.6, 81.9, 80.3], [78.4, 81.1, 83.9, 82.8], [77.9, 76.2, 78.1, 80.1],
    [73.0, 79.3, 76.3, 77.8], [78.4, 79.1, 81.2, 83.1],
])  # fmt: skip
Y = np.array([
    [78.6, 83.1, 77.0, 80.1], [81.7, 79.3, 76.8, 76.2], [77.6, 79.7, 76.0, 78.4],
    [78.5, 80.6, 79.6, 80.1], [77.0, 78.6, 81.4, 83.5],
])  # fmt: skip
"""(5 runs, 4 data sets)."""
RLIABLE = {"x": (79.48, 78.46, 80.49), "y": (79.05, 78.13, 80.08)}
"""Interquartile means with their intervals by rliable 1.2.0, with 20,000 samples; it cannot be installed with
pandas 3 on Python 3.11."""


def frame(**matrices):
    """The frame of a suite: a group `NAME/random` for each (R, T) matrix; NaN is a missing run."""
    rows = [
        {
            "data_set": f"data{task}", "group": f"{name}/random", "arm": name, "init": "random",
            "seed": run + 1, "value": float(value),
        }
        for name, matrix in matrices.items()
        for (run, task), value in np.ndenumerate(np.asarray(matrix))
        if not math.isnan(value)
    ]  # fmt: skip
    return pd.DataFrame(rows).sort_values("data_set", kind="stable", ignore_index=True)


def aggregated(scale=True, **matrices):
    return aggregate(comparable(frame(**matrices))[0], scale=scale).set_index("arm")


def test_the_interquartile_mean_is_that_of_rliable():
    data = aggregated(x=X, y=Y)
    for name, matrix in (("x", X), ("y", Y)):
        value, low, high = RLIABLE[name]
        assert data.at[name, "iqm"] == pytest.approx(value, abs=1e-9)
        assert data.at[name, "iqm"] == pytest.approx(trim_mean(matrix.ravel(), 0.25))
        assert data.at[name, "mean"] == pytest.approx(matrix.mean())
        # The bootstrap distributions are the same, the samples are not.
        assert data.at[name, "iqm_low"] == pytest.approx(low, abs=0.08)
        assert data.at[name, "iqm_high"] == pytest.approx(high, abs=0.08)


def test_the_interval_is_that_of_all_resamples():
    """Two runs on two data sets have 16 equally probable resamples."""
    x = np.array([[60.0, 81.0], [70.0, 88.0]])
    all_means = [
        trim_mean([x[i, 0], x[j, 0], x[k, 1], x[m, 1]], 0.25) for i, j, k, m in product(range(2), repeat=4)
    ]
    row = aggregated(x=x).iloc[0]
    assert (row["iqm_low"], row["iqm_high"]) == (min(all_means), max(all_means))


def test_a_single_run_has_no_interval_and_a_loss_no_mean():
    data = aggregated(x=X[:1], y=Y)
    assert math.isnan(data.at["x", "iqm_low"])
    assert data.at["y", "iqm_low"] < data.at["y", "iqm_high"]
    data = aggregated(scale=False, x=X, y=Y)
    assert data[["mean", "iqm", "iqm_low"]].isna().all(axis=None)
    assert data["rank"].notna().all()


def test_ranks():
    means = np.array([[90.0, 60.0, 1.0], [80.0, 60.0, 2.0], [70.0, 50.0, 3.0]])
    assert mean_ranks(means) == pytest.approx(rankdata(-means, axis=0).mean(axis=1))
    assert mean_ranks(means) == pytest.approx([(1 + 1.5 + 3) / 3, (2 + 1.5 + 2) / 3, (3 + 3 + 1) / 3])
    assert mean_ranks(means, lower=True) == pytest.approx([(3 + 2.5 + 1) / 3, (2 + 2.5 + 2) / 3, 5 / 3])


def test_only_the_same_seeds_of_groups_with_runs_everywhere_are_compared():
    nan = math.nan
    found, notes = comparable(
        frame(
            whole=[[1.0, 2.0], [3.0, 4.0]],
            partial=[[5.0, 6.0], [7.0, nan], [nan, 8.0]],
            missing=[[9.0, nan]],
            disjoint=[[1.0, nan], [nan, 2.0]],
        )
    )
    assert list(found) == ["whole/random", "partial/random", "disjoint/random"]
    assert "missing/random (data1)" in notes[0]
    assert "partial/random seed 2, 3" in notes[1]
    data = aggregate(found).set_index("arm")
    # Ranks and means are those of all runs, as in the table of scores: 1 and 8 of 2 and 3, 6 and 7, 1 and 2.
    assert data["rank"].to_dict() == {"whole": 2.0, "partial": 1.0, "disjoint": 3.0}
    assert data["mean"].to_dict() == {"whole": 2.5, "partial": 6.5, "disjoint": 1.5}
    assert data["n"].to_dict() == {"whole": 2, "partial": 1, "disjoint": 0}
    assert data["iqm"].fillna(-1).to_dict() == {"whole": 2.5, "partial": 5.5, "disjoint": -1}


def test_scores_by_data_set_in_the_figure():
    """`hf` has no run on the second data set."""
    values = frame(fairseq=[[80.0, 60.0], [82.0, 64.0]], hf=[[math.nan, 70.0]])
    ((_, figure),) = draw(Suite(NO_STUDY, values))
    (panel,) = figure.axes
    small = [line for line in panel.get_lines() if line.get_alpha() == 0.45]
    points = {tuple(point) for line in small for point in zip(*line.get_data(), strict=True)}
    # data0: line 0; data1: two lines below, after a gap
    assert points == {(80.0, 0.0), (82.0, 0.0), (60.0, 1.5), (64.0, 1.5), (70.0, 2.5)}
    means = {
        (x, y) for container in panel.containers for x, y in zip(*container.lines[0].get_data(), strict=True)
    }
    assert means == {(81.0, 0.0), (62.0, 1.5), (70.0, 2.5)}
    assert [text.get_text() for text in panel.get_yticklabels()] == ["data0", "data1"]


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """Two data sets: `random` and `pretrained` with three seeds each, and `hf/random` on one of them."""
    monkeypatch.chdir(tmp_path)
    for name, base in (("books", 60.0), ("packages", 20.0)):
        for seed in (1, 2, 3):
            write_run(f"runs/{name}", "random", seed, [50.0, base + seed], [51.0, base + 2 * seed])
            write_run(f"runs/{name}", "pretrained", seed, [70.0, 60.0], [base + 10 + seed, 1.0])
    write_run("runs/books", "random", 1, [40.0, 50.0], [41.0, 52.0], arm="hf")
    return Path("runs")


def tables(capsys, *words):
    return parsed(capsys, "tables", *words)


def test_the_tables_of_a_suite(suite, capsys):
    found = tables(capsys, suite)
    assert list(found) == ["suite", "aggregates"]
    assert main(["tables", "runs", "--table", "suite", "aggregates"]) == 0
    assert capsys.readouterr().out.count("over 2 data sets") == 1  # each table once
    cells = {(row["data_set"], row["arm"], row["init"]): row for row in found["suite"]["rows"]}
    assert len(cells) == 5
    books = cells["books", "fairseq", "random"]
    assert (books["n"], books["mean"], books["std"]) == (3, 64.0, 2.0)
    # The best checkpoint is that of the first epoch on packages for `random`, as 50 > 23.
    assert cells["packages", "fairseq", "random"]["mean"] == 51.0
    rows = {row["init"]: row for row in found["aggregates"]["rows"]}
    assert set(rows) == {"random", "pretrained"}
    assert (rows["random"]["rank"], rows["pretrained"]["rank"]) == (1.5, 1.5)
    # pretrained: 71, 72, 73 and 31, 32, 33; without the smallest and the largest one
    assert (rows["pretrained"]["mean"], rows["pretrained"]["iqm"]) == (52.0, 52.0)
    assert "hf/random (packages)" in " ".join(found["aggregates"]["notes"])


def test_data_sets_in_several_places(suite, capsys):
    assert main(["collect", "runs", "--out", "suite.tar.xz"]) == 0
    assert main(["collect", "runs/books", "--out", "books.tar.xz"]) == 0
    whole = tables(capsys, suite)
    assert tables(capsys, "suite.tar.xz") == whole
    assert tables(capsys, "books=books.tar.xz", "packages=runs/packages") == whole
    reverse = tables(capsys, "packages=runs/packages", "books=books.tar.xz")
    assert reverse["suite"]["rows"][0]["data_set"] == "packages"


def test_names_and_order_of_groups(suite, capsys):
    Path("study.toml").write_text(
        'groups = ["fairseq/random", "fairseq/pretrained"]\nbold = true\ndigits = 1\n'
        '[labels]\n"fairseq/random" = "From scratch"\n'
    )
    out = printed(capsys, "tables", suite, "--study", "study.toml")
    first = next(line for line in out.splitlines() if "From scratch" in line)
    assert "64.0 ± 2.0 (3)" in first
    assert "hf" not in out
    assert "**72.0 ± 1.0 (3)**" in out


def test_tables_and_figure_are_written(suite, capsys):
    assert main(["tables", "runs", "--out", "results"]) == 0
    assert main(["figures", "runs", "--out", "results", "--figure-format", "png", "svg"]) == 0
    names = {path.name for path in Path("results").iterdir()}
    assert {"suite.md", "aggregates.tex", "accuracy_by_data_set.png", "accuracy_by_data_set.svg"} <= names
    assert capsys.readouterr().err.count("wrote") == len(names)


def test_a_loss_is_ranked_but_not_averaged(suite, capsys):
    for name in ("a", "b"):
        for arm, loss in (("fairseq", 0.5), ("hf", 0.7)):
            for seed in (1, 2):
                values = [loss + seed / 100]
                write_run(f"losses/{name}", "random", seed, values, values, arm=arm, metric="loss")
    rows = {row["arm"]: row for row in tables(capsys, "losses", "--metric", "loss")["aggregates"]["rows"]}
    assert (rows["fairseq"]["rank"], rows["hf"]["rank"]) == (1.0, 2.0)
    assert rows["fairseq"]["mean"] is None


def test_no_method_on_all_data_sets(suite, capsys):
    write_run("other", "random", 1, [60.0], [61.0], arm="lora")
    (table,) = tables(capsys, "books=runs/books", "other=other").values()
    assert "lora/random (books)" in " ".join(table["notes"])


def test_one_table_of_a_suite_is_csv(suite, capsys):
    out = printed(capsys, "tables", suite, "--table", "suite", "--format", "csv")
    assert len(pd.read_csv(io.StringIO(out))) == 5
    Path("study.toml").write_text('[captions]\nsuite = "Our methods"\n')
    assert "Our methods" in printed(capsys, "tables", suite, "--table", "suite", "--study", "study.toml")


def test_the_comparisons_of_all_data_sets_are_one_family(suite, capsys):
    of = {
        "pretrained": {"books": [71.0, 72.0, 73.0], "packages": [31.0, 32.0, 33.0]},
        "other": {"books": [71.0, 72.5, 73.0], "packages": [84.0, 86.0, 88.0]},
    }
    random = {"books": [62.0, 64.0, 66.0], "packages": [51.0] * 3}
    for name, values in of["other"].items():
        for seed, value in enumerate(values, start=1):
            write_run(f"runs/{name}", "other", seed, [70.0], [value])
    rows = parsed(capsys, "compare", "runs", "--baseline", "fairseq/random")["comparison"]["rows"]
    found = {(row["a"].removeprefix("fairseq/"), row["at"]): row for row in rows}
    assert found["hf/random", "packages"]["p_t"] is None  # no run
    p = [ttest_rel(values[name], random[name]).pvalue for values in of.values() for name in random]
    tested = [found[init, name] for init in of for name in random]
    assert [row["p_t"] for row in tested] == pytest.approx(p, rel=1e-4)
    corrected = multipletests(p, method="holm")[1]
    assert [row["p_t_holm"] for row in tested] == pytest.approx(corrected, rel=1e-4)
    out = printed(capsys, "tables", suite, "--baseline", "fairseq/random", "--table", "suite")
    lines = {init: next(line for line in out.splitlines() if f" {init} " in line) for init in of}
    marks = [cell.count("*") for init in of for cell in lines[init].split("|")[3:5]]
    assert marks == [sum(one <= level for level in (0.05, 0.01, 0.001)) for one in corrected]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing"], "missing"),
        (["runs/books"], "NAME=runs/books"),
        (["runs/books/fairseq"], "runs/books/fairseq"),
        (["books=runs/books"], "single"),
        (["books=runs/books", "films=missing"], "data set films: missing"),
        (["books=runs/books", "books=runs/packages"], "books"),
        (["books=runs/books", "films=./runs/books"], "books and films"),
        (["arm=runs/books", "films=runs/packages"], "'arm'"),
        (["runs", "--at", "1"], "--at"),
        (["runs", "--metric", "f2"], "data set books: "),
        (["runs", "--groups", "hf/random"], "packages"),
    ],
)
def test_mistakes(suite, capsys, words, message):
    code = main(["tables", *words, "--table", "suite"])
    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert message in err.splitlines()[-1]


def test_a_folder_of_data_sets_is_recognized(suite, capsys, caplog):
    assert main(["tables", "runs", "--table", "table1"]) == 1  # two runs have the same name
    error = capsys.readouterr().err
    assert "runs/books" in error
    assert "`tables`" in error
    for name, arm in (("a", "fairseq"), ("b", "hf")):
        write_run(f"mixed/{name}", "random", 1, [60.0], [61.0], arm=arm)
    assert main(["tables", "mixed", "--table", "table1"]) == 0
    assert "`tables`" in caplog.text
    assert "--table table1 suite" in failed(capsys, "tables", "runs", "--table", "table1", "suite")
    assert main(["tables", "books=runs/books", "packages=runs/packages", "--table", "seeds"]) == 1


def test_the_setting_is_selected_for_each_data_set(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, recipe, other in (("a", 60.0, 70.0), ("b", 80.0, 50.0)):
        for seed in (1, 2):
            write_run(f"runs/{name}", "random", seed, [recipe], [recipe + 1])
            write_run(f"runs/{name}", "random", seed, [other], [other + 2], "fairseq,lr=1")
    found = tables(capsys, "runs", "--best-settings")
    assert {row["data_set"]: row["mean"] for row in found["suite"]["rows"]} == {"a": 72.0, "b": 81.0}
    notes = " ".join(found["suite"]["notes"])
    assert "a: fairseq/random lr=1; b: fairseq/random as the recipe" in notes
    assert len(tables(capsys, "runs")["suite"]["rows"]) == 4


def test_collect_keeps_the_folders_of_the_data_sets(suite):
    assert main(["collect", "runs", "--out", "copy"]) == 0
    manifests = {path.relative_to("runs") for path in suite.rglob("manifest.json")}
    assert {path.relative_to("copy") for path in Path("copy").rglob("manifest.json")} == manifests
    write_run("mixed", "random", 1, [60.0], [61.0], arm="alone")
    write_run("mixed/books", "random", 1, [60.0], [61.0])
    assert main(["collect", "mixed", "--out", "both"]) == 0
    assert len(list(Path("both").rglob("manifest.json"))) == 2
