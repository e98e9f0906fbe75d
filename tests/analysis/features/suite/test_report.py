"""The report of a suite: findings, tables, figures and provenance in one file."""

import re
from pathlib import Path

import pytest

from roberta_small.analysis.__main__ import main
from tests.support.analysis.html_page import Page
from tests.support.analysis.run_trees import write_manifest, write_run

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """Two data sets, two seeds: `tuned` is better on books, `plain` on films, `extra` is only on books."""
    monkeypatch.chdir(tmp_path)
    more = {"recipe_flags": ["--best-checkpoint-metric", "accuracy", "--num-classes", "2"]}
    scores = {"books": {"plain": 60.0, "tuned": 90.0, "extra": 99.0}, "films": {"plain": 70.0, "tuned": 65.0}}
    for name, values in scores.items():
        for init, base in values.items():
            for seed in (1, 2):
                write_run(f"runs/{name}", init, seed, [50.0], [base + seed], **more)
    return Path("runs")


def report(*words, source="runs"):
    assert main(["report", source, "--out", "results/report.html", *words]) == 0
    text = Path("results/report.html").read_text(encoding="utf-8")
    return text, Page(text)


def findings(page):
    return page.sections[0].items


def test_findings_name_the_best_method_of_each_data_set_and_over_all(suite):
    first, second, third, *_ = findings(report()[1])
    assert "fairseq/extra" in first
    assert "books" in first
    assert "films" not in first
    assert "fairseq/plain" in second
    assert "films" in second
    # Middle half of 61, 62, 71, 72 and of 66, 67, 91, 92: 66.5 and 79.
    assert "fairseq/tuned" in third
    assert "79.00" in third
    assert "1.50" in third


def test_equally_probable_methods_have_no_finding_on_pairs(suite):
    assert not any("probability" in sentence for sentence in findings(report()[1]))


def test_the_clearest_of_several_pairs(suite):
    more = {"recipe_flags": ["--best-checkpoint-metric", "accuracy", "--num-classes", "2"]}
    for name in ("books", "films"):
        for seed in (1, 2):
            write_run(suite / name, "worst", seed, [50.0], [10.0 + seed], **more)
    (pair,) = [sentence for sentence in findings(report()[1]) if "probability" in sentence]
    assert re.search("fairseq/(plain|tuned) .* than .* fairseq/worst .* 1.00", pair)
    assert "3 pairs" in pair


def test_the_lowest_loss_is_the_best(suite, capsys):
    for name in ("books", "films"):
        for init, loss in (("plain", 0.5), ("tuned", 0.7)):
            for seed in (1, 2):
                values = [loss + seed / 100]
                write_run(f"losses/{name}", init, seed, values, values, metric="loss")
    best, rank, pair = findings(report("--metric", "loss", source="losses")[1])
    assert all("fairseq/plain" in sentence for sentence in (best, rank))
    assert re.search("fairseq/plain .* than .* fairseq/tuned", pair)


def test_tables_figures_and_cautions(suite):
    _, page = report("--label", "fairseq/tuned=Tuned", "--label", "fairseq/extra=Extra")
    assert [row[0] for row in page.tables["suite"][1:]] == ["Extra", "fairseq/plain", "Tuned"]
    assert {"suite", "aggregates", "improvement"} == set(page.tables)
    assert [tag for tag, _ in page.elements].count("img") == 2
    assert any("Extra (films)" in item for item in findings(page))
    *others, provenance = page.sections
    assert not any("fairseq/tuned" in section.text for section in others)
    assert "fairseq/tuned" in provenance.text


def test_provenance_names_data_set_and_group(suite):
    run = suite / "books" / "fairseq" / "tuned" / "seed1"
    write_manifest(run, "fairseq", "tuned", 1, data={"path": EVIL}, command=["./train.sh", EVIL])
    text, page = report()
    provenance = page.sections[-1].text
    assert "books: fairseq/tuned" in provenance
    assert "films: fairseq/tuned" in provenance
    assert EVIL not in text


def test_the_report_is_reproducible_and_loads_nothing(suite):
    text, page = report()
    assert report()[0] == text
    loading = [
        value for _, attributes in page.elements for name, value in attributes.items() if name == "src"
    ]
    assert all(value.startswith("data:image/svg+xml;") for value in loading)
    assert not re.search(r"https?://(?!www\.w3\.org)", text)
