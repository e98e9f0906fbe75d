"""The report: numbers of the frames, no external files, escaping."""

import base64
import hashlib
import json
import re
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import sem, t, ttest_rel

from roberta_small.analysis.__main__ import main
from roberta_small.analysis.features.runs import table1
from roberta_small.analysis.published import HEADINGS
from roberta_small.analysis.query import Query, Study
from roberta_small.analysis.read.runs import find_runs
from roberta_small.analysis.report.comparisons import (
    baseline_of,
    compare_over_seeds,
    default_baseline,
    overview_table,
    warn_of_unused,
)
from roberta_small.analysis.report.elements import group_facts
from roberta_small.analysis.report.page import render_report
from roberta_small.analysis.selection import Selection
from roberta_small.common.errors import UserError
from roberta_small.common.tables import p_value, render
from tests.support.analysis.command_words import study_words
from tests.support.analysis.html_page import Page
from tests.support.analysis.log_trees import write_fairseq
from tests.support.analysis.prediction_files import write_predictions
from tests.support.analysis.printed_tables import failed, rows_of
from tests.support.analysis.run_trees import write_manifest, write_run

EVIL = "x</script><script>alert(1)</script><img src=http://evil.example onerror=alert(2)>\"'&$title"
AUDIT = {
    "splits": {"train": {"lines": 9}, "test": {"lines": 4, "labels": {"<0>": 4}}},
    "duplicates": {key: {"train": {"test": [0]}, "test": {"train": [3]}} for key in ("exact", "normalized")},
    "conflicts": [],
}
LOADING = {"src", "srcset", "poster", "action", "formaction", "background", "data"}


@pytest.fixture(autouse=True)
def blank_figures(monkeypatch):
    """To draw them takes half of the time of a report."""
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **options: file.write(b"<svg/>"))


def selection_of(root, **more):
    return Selection.of(find_runs(root), Query(**more))


def page_of(root, **more):
    selection = selection_of(root, **more)
    return Page(render_report(selection, baseline_of(selection))), selection


def test_tables_have_the_cells_of_the_markdown(runs):
    page, selection = page_of(runs)
    assert page.tables["table1"] == rows_of(render([table1(selection.table)]))
    assert {"table2", "seeds", "comparison", "plan", "expected"} <= set(page.tables)
    assert not [name for name, attributes in page.elements if attributes.get("class") == "cautions"]


def test_the_names_of_a_study_are_in_all_tables(runs):
    labels = {"fairseq/random": "Scratch <0>", "fairseq/pretrained": "Pre"}
    page, _ = page_of(runs, labels=labels, baseline="fairseq/random", bold=True)
    rows = page.tables["table1"]
    assert [row[0] for row in rows if row[1].startswith("mean")] == ["Pre", "Scratch <0>"]
    assert page.tables["table2"][0] == ["epoch", "Pre", "Scratch <0>"]
    assert re.match(r"79\.25\*+ ±", rows[4][3])
    assert [tag for tag, _ in page.elements].count("strong") >= 2
    assert [row[0] for row in page.tables["overview"][1:]] == ["Pre", "Scratch <0>"]
    *others, _ = page.sections
    assert not any("fairseq/" in section.text for section in others)


def headings(text):
    return [int(level) for level in re.findall(r"<h([1-6])\b", text)]


def test_the_page_begins_with_one_table_and_one_figure_and_loads_nothing(runs):
    text = render_report(selection_of(runs, test_size=2000), "fairseq/random")
    page = Page(text)
    results, *others = page.sections
    assert results.tag == "section"  # always open
    assert {section.tag for section in others} == {"details"}
    assert results.tables == ["overview"]
    assert (results.tags.count("figure"), results.tags.count("img")) == (1, 1)
    # Headings are in order: none skips a level.
    levels = headings(text)
    assert levels[:2] == [1, 2]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    # Every section that can be closed begins with a line on how to read it, and has a link to it.
    assert all(section.tags[:3] == ["summary", "h2", "p"] for section in others)
    links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert links == [f"#{section.target}" for section in others]
    for _, attributes in page.elements:
        for name, value in attributes.items():
            assert name not in LOADING or (value or "").startswith("data:"), (name, value)
            assert not name.startswith("on")
            assert name != "href" or value.startswith(("#", "data:"))
    assert len(page.ids) == len(set(page.ids))
    # Only the script of the page itself is allowed.
    policy = next(a["content"] for t, a in page.elements if t == "meta" and "http-equiv" in a)
    digest = base64.b64encode(hashlib.sha256(page.scripts[0].encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_the_overview_has_the_numbers_of_the_comparison(runs):
    page, _ = page_of(runs, baseline="fairseq/random")
    heading, pretrained, baseline = page.tables["overview"]
    a, b = [79.25, 78.5, 80.0], [65.5, 66.75, 68.25]
    test = ttest_rel(a, b)
    low, high = test.confidence_interval(0.95)
    assert pretrained[:4] == ["fairseq/pretrained", "79.25", "[77.39, 81.11]", "3"]
    assert pretrained[4:] == [f"+12.42 [+{low:.2f}, +{high:.2f}]", f"{test.pvalue:.3f}"]
    low, high = t.interval(0.95, 2, np.mean(b), sem(b))
    assert baseline == ["fairseq/random", "66.83", f"[{low:.2f}, {high:.2f}]", "3", "baseline", ""]
    assert heading[5] == "p"  # one test needs no correction


def four_groups(runs):
    for seed in (1, 2, 3):
        write_run(runs, "near", seed, [60.0], [64.0 + 1.5 * seed])
        write_run(runs, "far", seed, [60.0], [70.0 + 1.1 * seed**1.5])
    write_run(runs, "tfidf", 0, [70.0], [70.0], arm="bow")
    return runs


def test_overview_and_comparison_have_the_same_p_values(runs):
    """Three tests against the baseline; a single run cannot be tested."""
    page, selection = page_of(four_groups(runs), baseline="fairseq/random")
    compared = compare_over_seeds(selection, "fairseq/random")
    expected = dict(zip(compared["a"], compared["p_t_holm"].map(p_value), strict=True))
    assert compared["p_t"].notna().sum() == 3
    overview = {row[0]: row[5] for row in page.tables["overview"][1:]}
    assert overview.pop("fairseq/random") == ""
    assert overview == expected | {"bow/tfidf": "not tested"}
    heading, *rows = page.tables["comparison"]
    assert {row[0]: row[heading.index("t Holm")] for row in rows} == expected
    # Marks of other tables, too: those of the best checkpoints agree, epochs are not in the family.
    marks = {row[1]: re.findall(r"\*+", row[4]) for row in page.tables["table1"] if row[2][:4] == "mean"}
    assert {name for name, mark in marks.items() if mark} == {
        group.split("/")[1] for group, p in compared.set_index("a")["p_t_holm"].items() if p <= 0.05
    }
    assert not any("*" in cell for row in page.tables["table2"] for cell in row)


@pytest.mark.parametrize(
    ("options", "family", "baseline"),
    [
        (
            {},
            {("bow/tfidf", "R"), *((f"fairseq/{init}", "R") for init in ("far", "near", "pretrained"))},
            "R",
        ),
        ({"pairs": (("fairseq/far", "fairseq/near"),)}, {("fairseq/far", "fairseq/near")}, "fairseq/near"),
        ({"all_pairs": True}, 10, "R"),
    ],
)
def test_which_pairs_are_compared(runs, options, family, baseline):
    selection = selection_of(four_groups(runs), **options)
    compared = compare_over_seeds(selection, baseline_of(selection))
    pairs = [
        tuple("R" if name == "fairseq/random" else name for name in pair)
        for pair in compared[["a", "b"]].itertuples(index=False, name=None)
    ]
    assert baseline_of(selection) == baseline.replace("R", "fairseq/random")
    if isinstance(family, int):
        assert len(set(map(frozenset, pairs))) == len(pairs) == family
        assert all(b == "R" for a, b in pairs[:4])
    else:
        assert set(pairs) == family


def test_the_default_baseline_has_random_weights_and_several_seeds(runs):
    values = selection_of(four_groups(runs)).values
    assert default_baseline(values) == "fairseq/random"
    without = values[values["init"] != "random"]
    assert default_baseline(without) == "fairseq/far"  # not bow/tfidf, a single run
    assert default_baseline(without, Study(Query(order=("fairseq/near",)))) == "fairseq/near"
    assert default_baseline(values[values["group"] == "fairseq/random"]) is None
    pairs = [("fairseq/far", "fairseq/near"), ("bow/tfidf", "fairseq/near"), ("bow/tfidf", "fairseq/far")]
    assert default_baseline(values, Study(Query(pairs=tuple(pairs)))) == "fairseq/near"


def test_a_baseline_in_no_pair_is_a_warning(runs, caplog):
    pairs = [("fairseq/far", "fairseq/near")]
    selection = selection_of(four_groups(runs), baseline="fairseq/random", pairs=tuple(pairs))
    warn_of_unused(selection)
    assert "fairseq/random" in caplog.text
    compared = compare_over_seeds(selection, "fairseq/random")
    assert list(compared["a"]) == ["fairseq/far"]
    assert "difference" not in overview_table(selection, "fairseq/random", compared).data


def test_the_baseline_on_the_command_line(runs, tmp_path, capsys):
    words = ["report", str(four_groups(runs)), "--out", str(tmp_path / "report.html")]
    assert main(words) == 0
    assert "baseline: fairseq/random" in capsys.readouterr().err
    assert main([*words, "--baseline", "fairseq/near"]) == 0
    assert "baseline:" not in capsys.readouterr().err
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert [row[0] for row in page.tables["overview"] if row[4] == "baseline"] == ["fairseq/near"]
    assert {row[1] for row in page.tables["comparison"][1:]} == {"fairseq/near"}
    assert main([*words, "--all-pairs", "--pair", "fairseq/near", "fairseq/random"]) == 2


def test_a_baseline_without_a_value_is_an_error(runs, tmp_path, capsys):
    write_run(runs, "broken", 1, [50.0], [float("nan")])
    out = tmp_path / "report.html"
    err = failed(capsys, "report", runs, "--baseline", "fairseq/broken", "--out", out)
    assert "--baseline: 'fairseq/broken'" in err
    assert not out.exists()


def test_names_from_files_are_escaped(tmp_path, monkeypatch):
    monkeypatch.undo()  # names are also in figures
    for seed in (1, 2):
        write_run(
            tmp_path, "random", seed, [50.0, 60.0 + seed], [51.0, 61.0], recipe=EVIL, command=["train", EVIL],
            packages={EVIL: EVIL}, data={"path": EVIL},
        )  # fmt: skip
    run = tmp_path / "fairseq" / "evil" / "seed1"
    write_run(tmp_path, "evil", 1, [50.0], [51.0])
    write_manifest(run, "fairseq", EVIL, 1)
    page, _ = page_of(tmp_path)
    assert [tag for tag, _ in page.elements].count("script") == 1
    sources = [attributes["src"] for tag, attributes in page.elements if tag == "img"]
    assert sources
    assert all(source.startswith("data:image/svg+xml;") for source in sources)
    assert EVIL in {row[1] for row in page.tables["table1"]}


def test_facts_of_manifests_are_listed_once_per_group(tmp_path):
    for seed, cpu in ((1, "A"), (2, "A"), (3, "B")):
        write_run(
            tmp_path, "random", seed, [50.0], [50.0], seconds=60.0 * seed, hardware={"cpu": cpu},
            command=["fairseq-train", "two words"], started=f"2026-01-0{seed}T10:00:00+00:00",
            ended=f"2026-01-0{seed}T11:30:00+00:00",
        )  # fmt: skip
    (group,) = group_facts(find_runs(tmp_path))
    facts = group.facts
    assert facts["seeds"] == "1, 2, 3"
    assert facts["hardware"] == "A (2 runs); B (1 run)"
    assert facts["time"] == "1.0, 2.0, 3.0 min"
    assert facts["trained"] == "2026-01-01 10:00 to 2026-01-03 11:30 UTC"
    assert group.commands["fairseq/random/seed1"] == "fairseq-train 'two words'"


def test_runs_without_manifest_say_where_their_logs_are(tmp_path):
    write_fairseq(tmp_path / "tb" / "bert" / "1")
    write_fairseq(tmp_path / "tb" / "bert" / "2")
    (group,) = group_facts(find_runs(tmp_path))
    assert group.facts == {
        "seeds": "1, 2",
        "status": "no manifest",
        "logs": f"{tmp_path / 'tb' / 'bert'} (named by the path)",
    }
    assert not group.commands


def test_the_report_contains_audit_reference_and_predictions(runs, tmp_path, monkeypatch):
    monkeypatch.undo()  # the figures are the same each time, too
    for init, seed in (("random", 1), ("random", 2), ("pretrained", 1)):
        write_predictions(runs / "fairseq" / init / f"seed{seed}", "0101", "0111")
    write_run(runs, "random", 9, [50.0], [50.0], status="failed")
    audit = tmp_path / "audit.json"
    audit.write_text(json.dumps(AUDIT), encoding="utf-8")
    published = tmp_path / "published.csv"
    published.write_text(
        "arm,init,epoch,subset,metric,mean,std,n\nfairseq,random,best,test,accuracy,70,1,3\n", "utf-8"
    )
    output = tmp_path / "report.html"
    words = ["report", str(runs), "--audit", str(audit), "--reference", str(published), "--title", "<Title>"]
    assert main([*words, "--out", str(output)]) == 0
    text = output.read_text(encoding="utf-8")
    page = Page(text)
    assert page.tables["audit_splits"][2][2] == "<0>: 4"
    assert page.tables["audit_duplicates"][1] == ["train", "test", "1", "1"]
    assert page.tables["reference"][1][6] == "70.00 ± 1.00 (3)"
    assert page.tables["overview"][0][-3:] == list(HEADINGS)
    ends = {row[0]: row[-3:] for row in page.tables["overview"][1:]}
    assert ends == {"fairseq/random": ["70.00 ± 1.00 (3)", "−3.17", "no"], "fairseq/pretrained": ["", "", ""]}
    assert {"accuracy", "examples"} <= set(page.tables)
    assert "fairseq/random/seed9 (failed)" in text
    assert "<title>&lt;Title&gt;</title>" in text
    again = tmp_path / "again.html"
    main([*words, "--out", str(again)])
    assert again.read_bytes() == output.read_bytes()
    assert len(text) < 2_000_000


def test_a_file_that_is_no_audit_is_a_clear_error(runs, tmp_path):
    path = tmp_path / "audit.json"
    path.write_text('{"splits": {"test": 3}}', encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(str(path))):
        selection_of(runs, audit=path)


PARTIAL = {"splits": {"test": {"lines": 4}}, "duplicates": {"exact": {"test": {"train": [3]}}}}
"""It says enough of test and train for the scores, and not what the tables of the report need."""


@pytest.mark.parametrize(("command", "content"), [("report", PARTIAL), ("figures", [])])
def test_an_insufficient_audit_is_an_error_before_logs_are_read(
    runs, tmp_path, monkeypatch, command, content
):
    monkeypatch.setattr(
        "roberta_small.analysis.selection.read_runs", lambda *_: pytest.fail("the logs were read")
    )
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert main([command, str(runs), "--audit", str(path), "--out", str(tmp_path / "report.html")]) == 1


def test_excluded_runs_and_duplicates_are_listed_first(runs, tmp_path):
    write_run(runs, "random", 9, [50.0], [float("nan")])
    write_run(runs, "random", 10, [50.0], [50.0], status="failed")
    audit = tmp_path / "audit.json"
    audit.write_text(json.dumps(AUDIT), encoding="utf-8")
    out = tmp_path / "report.html"
    words = ["--audit", str(audit), *study_words(tmp_path, '[labels]\n"fairseq/random" = "R"\n')]
    assert main(["report", str(runs), *words, "--out", str(out)]) == 0
    unfinished, diverged, overlap, *_ = Page(out.read_text(encoding="utf-8")).sections[0].items
    assert "R/seed10 (failed)" in unfinished
    assert "R/seed9" in diverged
    assert "1 of the 4 test examples (25.0 %)" in overlap
