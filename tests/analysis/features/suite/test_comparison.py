"""Several data sets: sources, tables, figures and errors."""

import json
from pathlib import Path

import pytest

from roberta_small.analysis.__main__ import main
from roberta_small.common.metrics import METRICS, Metric, register
from tests.support.analysis.run_trees import write_run

CLASSES = ["--num-classes", "2"]


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """Two data sets: `random` and `pretrained` with three seeds each, and `hf/random` on one of them."""
    monkeypatch.chdir(tmp_path)
    for name, base, classes in (("books", 60.0, "2"), ("packages", 20.0, "20")):
        more = {"recipe_flags": ["--best-checkpoint-metric", "accuracy", "--num-classes", classes]}
        for seed in (1, 2, 3):
            write_run(f"runs/{name}", "random", seed, [50.0, base + seed], [51.0, base + 2 * seed], **more)
            write_run(f"runs/{name}", "pretrained", seed, [70.0, 60.0], [base + 10 + seed, 1.0], **more)
    write_run("runs/books", "random", 1, [40.0, 50.0], [41.0, 52.0], arm="hf", **more | {"recipe_flags": []})
    return Path("runs")


def run(capsys, *words):
    code = main(["tables", *map(str, words), "--table", "suite"])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def tables(capsys, *words):
    code, out, _ = run(capsys, *words, "--format", "json")
    assert code == 0
    return json.loads(out)


def test_the_tables_of_a_suite(suite, capsys):
    found = tables(capsys, suite)
    assert list(found) == ["suite", "aggregates", "improvement"]
    cells = {(row["data_set"], row["arm"], row["init"]): row for row in found["suite"]["rows"]}
    assert len(cells) == 5
    books = cells["books", "fairseq", "random"]
    assert (books["n"], books["mean"], books["std"], books["chance"]) == (3, 64.0, 2.0, 50.0)
    # The best checkpoint is that of the first epoch on packages for `random`, as 50 > 23.
    assert cells["packages", "fairseq", "random"]["mean"] == 51.0
    assert cells["packages", "fairseq", "pretrained"]["chance"] == 5.0
    rows = {row["init"]: row for row in found["aggregates"]["rows"]}
    assert set(rows) == {"random", "pretrained"}
    assert (rows["random"]["rank"], rows["pretrained"]["rank"]) == (1.5, 1.5)
    # pretrained: 71, 72, 73 and 31, 32, 33; without the smallest and the largest one
    assert rows["pretrained"]["mean"] == 52.0
    assert rows["pretrained"]["iqm"] == 52.0
    notes = " ".join(found["aggregates"]["notes"])
    assert "hf/random (packages)" in notes
    assert "different chance levels" in notes
    (pair,) = found["improvement"]["rows"]
    assert (pair["a"], pair["b"], pair["probability"]) == ("fairseq/pretrained", "fairseq/random", 0.5)


def test_normalized(suite, capsys):
    found = tables(capsys, suite, "--normalize")
    rows = {row["init"]: row for row in found["aggregates"]["rows"]}
    expected = ((72 - 50) / 50 + (32 - 5) / 95) / 2
    assert rows["pretrained"]["mean"] == pytest.approx(expected, rel=1e-6)
    assert "different chance levels" not in " ".join(found["aggregates"]["notes"])
    given = tables(capsys, suite, "--normalize", "--chance", "packages=10", "books=60")
    rows = {row["init"]: row for row in given["aggregates"]["rows"]}
    assert rows["pretrained"]["mean"] == pytest.approx(((72 - 60) / 40 + (32 - 10) / 90) / 2, rel=1e-6)


def test_data_sets_in_several_places(suite, capsys):
    assert main(["collect", "runs", "--out", "suite.tar.xz"]) == 0
    assert main(["collect", "runs/books", "--out", "books.tar.xz"]) == 0
    whole = tables(capsys, suite)
    assert tables(capsys, "suite.tar.xz") == whole
    assert tables(capsys, "books=books.tar.xz", "packages=runs/packages") == whole
    reverse = tables(capsys, "packages=runs/packages", "books=books.tar.xz")
    assert reverse["suite"]["rows"][0]["data_set"] == "packages"


def test_names_and_order_of_groups(suite, capsys):
    groups = ("--groups", "fairseq/random", "fairseq/pretrained", "--label", "fairseq/random=From scratch")
    code, out, _ = run(capsys, suite, *groups, "--bold", "--digits", "1")
    assert code == 0
    first = next(line for line in out.splitlines() if "From scratch" in line)
    assert "64.0 ± 2.0 (3)" in first
    assert "hf" not in out
    assert "**72.0 ± 1.0 (3)**" in out


def test_tables_figures_and_report_are_written(suite, capsys):
    words = ["--figure-format", "png", "svg", "--width", "one-column"]
    for command, more in (("tables", []), ("figures", words)):
        assert main([command, str(suite), "--out", "results", *more]) == 0
    assert main(["report", str(suite), "--out", "results/report.html", "--title", "A <title>"]) == 0
    names = {path.name for path in Path("results").iterdir()}
    assert {"suite.md", "aggregates.tex", "improvement.csv", "report.html"} <= names
    assert {
        f"accuracy_{name}.{end}" for name in ("by_data_set", "profiles") for end in ("png", "svg")
    } <= names
    assert capsys.readouterr().err.count("wrote") == len(names)
    assert "A &lt;title&gt;" in Path("results/report.html").read_text(encoding="utf-8")


def test_a_loss_is_ranked_but_not_averaged(suite, capsys):
    for name in ("a", "b"):
        for arm, loss in (("fairseq", 0.5), ("hf", 0.7)):
            for seed in (1, 2):
                values = [loss + seed / 100]
                write_run(f"losses/{name}", "random", seed, values, values, arm=arm, metric="loss")
    found = tables(capsys, "losses", "--metric", "loss")
    assert main(["figures", "losses", "--metric", "loss", "--out", "results"]) == 0
    rows = {row["arm"]: row for row in found["aggregates"]["rows"]}
    assert (rows["fairseq"]["rank"], rows["hf"]["rank"]) == (1.0, 2.0)
    assert rows["fairseq"]["mean"] is None
    assert found["improvement"]["rows"][0]["probability"] == 1.0
    assert [path.name for path in Path("results").iterdir()] == ["loss_by_data_set.png"]
    assert run(capsys, "losses", "--metric", "loss", "--normalize")[0] == 1


def test_a_registered_metric_has_its_own_chance_level(suite, capsys):
    register(
        Metric(
            "kappa", higher_is_better=True, from_confusion=lambda m: m[..., 0, 0], chance=lambda classes: 0.0
        )
    )
    try:
        for name in ("a", "b"):
            for seed in (1, 2):
                write_run(
                    f"kappas/{name}", "random", seed, [0.4], [0.5], metric="kappa", recipe_flags=CLASSES
                )
        (row,) = tables(capsys, "kappas", "--metric", "kappa", "--normalize")["aggregates"]["rows"]
        assert row["iqm"] == pytest.approx(0.5)
    finally:
        del METRICS["kappa"]


def test_no_method_on_all_data_sets(suite, capsys):
    write_run("other", "random", 1, [60.0], [61.0], arm="lora", recipe_flags=CLASSES)
    (table,) = tables(capsys, "books=runs/books", "other=other").values()
    assert "lora/random (books)" in " ".join(table["notes"])


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
        (["runs", "--chance", "films=50"], "films"),
        (["runs", "--chance", "50"], "--chance 50"),
        (["runs", "--normalize", "--chance", "books=100"], "books=100"),
        (["runs", "--metric", "f2"], "data set books: "),
        (["runs", "--groups", "hf/random"], "packages"),
        (["runs", "--pair", "fairseq/random", "hf/random"], "hf/random"),
    ],
)
def test_mistakes(suite, capsys, words, message):
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "")
    assert message in err.splitlines()[-1]


def test_an_unknown_number_of_classes(suite, capsys):
    for name in ("a", "b"):
        write_run(f"plain/{name}", "random", 1, [60.0], [61.0])
    assert run(capsys, "plain")[0] == 0
    code, _, err = run(capsys, "plain", "--normalize")
    assert code == 1
    assert "--chance a=" in err
    predictions = '{"index": 0, "gold": "x", "probabilities": {"x": 0.5, "y": 0.25, "z": 0.25}}\n'
    for name in ("a", "b"):
        Path(f"plain/{name}/fairseq/random/seed1/predictions-test.jsonl").write_text(predictions)
    (row, _) = tables(capsys, "plain", "--normalize")["suite"]["rows"]
    assert row["chance"] == pytest.approx(100 / 3, rel=1e-6)


def test_runs_of_different_numbers_of_classes(suite, capsys):
    write_run("runs/books", "random", 4, [60.0], [61.0], recipe_flags=["--num-classes", "3"])
    code, _, err = run(capsys, "runs")
    assert code == 1
    assert "data set books" in err


def test_a_folder_of_data_sets_is_recognized(suite, capsys, caplog):
    assert main(["tables", "runs", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == tables(capsys, "runs")
    assert main(["tables", "runs", "--table", "table1"]) == 1  # two runs have the same name
    error = capsys.readouterr().err
    assert "runs/books" in error
    assert "`tables`" in error
    for name, arm in (("a", "fairseq"), ("b", "hf")):
        write_run(f"mixed/{name}", "random", 1, [60.0], [61.0], arm=arm)
    assert main(["tables", "mixed", "--table", "table1"]) == 0
    assert "`tables`" in caplog.text
    assert main(["tables", "runs", "--table", "table1", "suite"]) == 1
    assert "--table table1 suite" in capsys.readouterr().err
    assert main(["tables", "books=runs/books", "packages=runs/packages", "--table", "seeds"]) == 1
    assert main(["tables", "runs", "--chance", "books=half"]) == 2


def test_the_setting_is_selected_for_each_data_set(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, recipe, other in (("a", 60.0, 70.0), ("b", 80.0, 50.0)):
        for seed in (1, 2):
            write_run(f"runs/{name}", "random", seed, [recipe], [recipe + 1], recipe_flags=CLASSES)
            write_run(
                f"runs/{name}", "random", seed, [other], [other + 2], "fairseq,lr=1", recipe_flags=CLASSES
            )
    found = tables(capsys, "runs", "--best-settings", "--label", "fairseq/random=Random")
    rows = {(row["data_set"], row["group_label"]): row["mean"] for row in found["suite"]["rows"]}
    assert rows == {("a", "Random"): 72.0, ("b", "Random"): 81.0}
    notes = " ".join(found["suite"]["notes"])
    assert "a: Random lr=1; b: Random as the recipe" in notes
    assert len(tables(capsys, "runs")["suite"]["rows"]) == 4


def test_collect_keeps_the_folders_of_the_data_sets(suite):
    assert main(["collect", "runs", "--out", "copy"]) == 0
    manifests = {path.relative_to("runs") for path in suite.rglob("manifest.json")}
    assert {path.relative_to("copy") for path in Path("copy").rglob("manifest.json")} == manifests
    write_run("mixed", "random", 1, [60.0], [61.0], arm="alone")
    write_run("mixed/books", "random", 1, [60.0], [61.0])
    assert main(["collect", "mixed", "--out", "both"]) == 0
    assert len(list(Path("both").rglob("manifest.json"))) == 2
