import hashlib
import json
import logging

import pandas as pd
import pytest
from scipy.stats import t

from roberta_small.analysis.__main__ import main
from roberta_small.analysis.features.pretraining.scores import draw_perplexity, draw_pretraining
from roberta_small.analysis.features.pretraining.tokens import (
    find_perplexities,
    find_tokens,
    pretrained_tokens,
    read_tokens,
)
from roberta_small.analysis.read.long_table import load_runs
from roberta_small.analysis.read.runs import find_runs
from roberta_small.analysis.scoring import best_checkpoints, scores, spread_over_seeds
from roberta_small.common.errors import UserError
from roberta_small.experiments.methods.pretrain import with_budget
from roberta_small.experiments.recipe import recipe as recipes
from tests.support.analysis.run_trees import write_events, write_manifest, write_run

FLAGS = ["--batch-size", "16", "--tokens-per-sample", "256", "--update-freq", "2"]


def pretrain(folder, updates, start=None, status="finished", flags=FLAGS):
    """A masked-LM run folder with its checkpoint; returns what a manifest records of the checkpoint."""
    write_manifest(
        folder, "pretrain", "random", 1, status, recipe_flags=[*flags, "--max-update", str(updates)],
        checkpoint=start,
    )  # fmt: skip
    return checkpoint(folder / "model.pt")


def checkpoint(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(str(path).encode())
    return {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


@pytest.fixture
def tree(tmp_path):
    """Two pre-trained inits of 819,200 and 8,192,000 tokens, random ones, and a bag of words."""
    for init, updates, shift in (("short", 100, 0.0), ("long", 1000, 6.0)):
        start = pretrain(tmp_path / init, updates)
        for seed in (1, 2, 3):
            score = 70.0 + shift + seed
            write_run(tmp_path / "runs", init, seed, [score], [score], checkpoint=start)
    for seed in (1, 2, 3):
        write_run(tmp_path / "runs", "random", seed, [60.0 + seed], [60.0 + seed], checkpoint=None)
    write_run(tmp_path / "runs", "tfidf", 0, [83.0], [83.0], arm="bow", checkpoint=None)
    return tmp_path / "runs"


def test_tokens_are_updates_times_a_full_batch(tree):
    assert find_tokens(find_runs(tree)) == {
        ("bow", "tfidf"): 0,
        ("fairseq", "random"): 0,
        ("fairseq", "short"): 100 * 16 * 256 * 2,
        ("fairseq", "long"): 1000 * 16 * 256 * 2,
    }


def test_a_file_of_tokens_wins_over_the_manifests(tree):
    tokens = find_tokens(find_runs(tree), {"short": 7, "other": 1})
    assert tokens["fairseq", "short"] == 7
    assert tokens["fairseq", "long"] == 8_192_000


def test_tokens_of_consecutive_pretrainings_are_added(tmp_path):
    first = pretrain(tmp_path / "first", 100)
    second = pretrain(tmp_path / "second", 50, start=first)
    warm = checkpoint(tmp_path / "warm" / "warm.pt")
    third = pretrain(tmp_path / "third", 10, start=warm)
    write_run(tmp_path / "runs", "second", 1, [1.0], [1.0], checkpoint=second)
    write_run(tmp_path / "runs", "third", 1, [1.0], [1.0], checkpoint=third)
    tokens = find_tokens(find_runs(tmp_path / "runs"))
    assert tokens == {("fairseq", "second"): 150 * 8192, ("fairseq", "third"): 10 * 8192}


def test_tokens_and_perplexity_of_an_intermediate_checkpoint(tmp_path, capsys):
    folder = tmp_path / "general"
    pretrain(folder, 1000, status="interrupted")
    rows = [(250, "ppl", 400.0), (500, "ppl", 150.0), (750, "ppl", 160.0)]
    write_events(folder / "tensorboard/valid", rows)
    pretrain(folder / "below", 1000)  # another run, whose perplexity is its own
    write_events(folder / "below/tensorboard/valid", [(250, "ppl", 3.0)])
    for name in ("checkpoint_1_250.pt", "checkpoint_2_750.pt"):
        start = checkpoint(folder / name)
        write_run(tmp_path / "runs", f"at-{name[13:16]}", 1, [70.0], [70.0], checkpoint=start)
    assert find_tokens(find_runs(tmp_path / "runs")) == {
        ("fairseq", "at-250"): 250 * 8192,
        ("fairseq", "at-750"): 750 * 8192,
    }
    pretrain(folder, 1000)
    write_run(tmp_path / "runs", "end", 1, [71.0], [71.0], checkpoint=checkpoint(folder / "model.pt"))
    bare = pretrain(tmp_path / "bare", 3000)
    write_run(tmp_path / "runs", "bare", 1, [72.0], [72.0], checkpoint=bare)
    words = [str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main(["tables", *words, "--table", "pretraining", "--format", "json"]) == 0
    assert main(["figures", *words, "--figure", "pretraining"]) == 0
    rows = json.loads(capsys.readouterr().out)["pretraining"]["rows"]
    found = [(row["init"], row["tokens"], row["perplexity"]) for row in rows]
    assert found == [
        ("at-250", 250 * 8192, 400.0),
        ("at-750", 750 * 8192, 160.0),
        ("end", 1000 * 8192, 150.0),  # the lowest: its update chose the checkpoint
        ("bare", 3000 * 8192, None),
    ]
    assert (tmp_path / "out/ppl_by_tokens.png").is_file()
    text = (tmp_path / "out/pretraining.md").read_text()
    (folder / "model.pt").write_bytes(b"trained again")
    assert set(find_perplexities(find_runs(tmp_path / "runs"))) == {
        ("fairseq", "at-250"),
        ("fairseq", "at-750"),
    }
    assert " 400 |" in text
    assert "perplexity:" in text


def test_the_logs_of_a_pretraining_are_read_once(tmp_path, caplog):
    folder = tmp_path / "general"
    pretrain(folder, 1000)
    write_events(folder / "tensorboard/valid", [(250, "ppl", 400.0), (500, "ppl", 95.0)])
    write_events(folder / "tensorboard/valid", [(500, "ppl", 90.0)], 1_800_000_000.0, ".resumed")
    for update in (250, 500):
        start = checkpoint(folder / f"checkpoint_1_{update}.pt")
        write_run(tmp_path / "runs", f"at-{update}", 1, [70.0], [70.0], checkpoint=start)
    with caplog.at_level(logging.WARNING):
        found = find_perplexities(find_runs(tmp_path / "runs"))
    assert found == {("fairseq", "at-250"): 400.0, ("fairseq", "at-500"): 90.0}
    assert len(caplog.messages) == 1


def test_perplexity_is_drawn_against_tokens():
    rows = [("a", "x", 100, 50.0), ("a", "y", 1000, 20.0), ("b", "x", 100, 70.0), ("a", "z", 10, None)]
    (panel,) = draw_perplexity(pd.DataFrame(rows, columns=["arm", "init", "tokens", "perplexity"])).axes
    assert (panel.get_xscale(), panel.get_yscale()) == ("log", "log")
    lines = {line.get_label(): line.get_xydata().tolist() for line in panel.lines}
    assert lines == {"a": [[100, 50.0], [1000, 20.0]], "b": [[100, 70.0]]}


def test_tokens_from_the_manifest_of_pretrain_sh():
    recipe, _ = with_budget(recipes.load("pretrain", ["--batch-size", "16"]), 10**7)
    content = {"arm": "pretrain", "status": "finished", "recipe_flags": list(recipe.words)}
    # 16 x 256 = 4,096 tokens an update, rounded up to whole updates
    assert pretrained_tokens(content) == -(-(10**7) // 4096) * 4096


@pytest.mark.parametrize(
    "changes",
    [
        {"arm": "fairseq"},
        {"status": "interrupted"},
        {"recipe_flags": FLAGS},
        {"recipe_flags": [*FLAGS, "--max-update", "many"]},
        {"recipe_flags": [*FLAGS, "--max-update", "5", "--max-epoch", "1"]},
    ],
)
def test_missing_flags_give_no_tokens(changes):
    content = {"arm": "pretrain", "status": "finished", "recipe_flags": [*FLAGS, "--max-update", "5"]}
    assert pretrained_tokens(content) == 5 * 8192
    assert pretrained_tokens(content | changes) is None


@pytest.mark.parametrize("damage", ["gone", "changed", "no manifest", "unfinished"])
def test_warning_for_checkpoints_with_unknown_tokens(tree, caplog, damage):
    folder = tree.parent / "short"
    if damage == "gone":
        (folder / "model.pt").unlink()
    elif damage == "changed":
        (folder / "model.pt").write_bytes(b"other")
    elif damage == "no manifest":
        (folder / "manifest.json").unlink()
    else:
        pretrain(folder, 100, status="failed")
    with caplog.at_level(logging.WARNING):
        tokens = find_tokens(find_runs(tree))
    assert ("fairseq", "short") not in tokens
    assert ("fairseq", "long") in tokens
    assert "fairseq/short (" in caplog.text
    assert "--tokens FILE" in caplog.text


def test_without_pretraining_is_an_error(runs):
    with pytest.raises(UserError, match="--tokens FILE"):
        find_tokens(find_runs(runs))


def test_a_file_of_tokens_is_read(tmp_path):
    path = tmp_path / "tokens.csv"
    path.write_text("init, tokens\nshort,1e6\n\nlong,10_000_000\nrandom,0\n")
    assert read_tokens(path) == {"short": 1_000_000, "long": 10_000_000, "random": 0}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", ("line 1", "init and tokens")),
        ("init;tokens\n", ("line 1", "init and tokens")),
        ("init\na\n", ("line 1", "column tokens")),
        ("init,tokens\na,1\na,2\n", ("line 3", "'a'")),
        ("init,tokens\na,many\n", ("line 2", "tokens 'many'")),
        ("init,tokens\na,1.5\n", ("line 2", "tokens '1.5'")),
        ("init,tokens\na,-1\n", ("line 2", "tokens '-1'")),
        ("init,tokens\na,nan\n", ("line 2", "tokens 'nan'")),
        ("init,tokens\na\n", ("line 2", "1 values", "2 columns")),
    ],
)
def test_errors_in_a_file_of_tokens_have_file_and_line(tmp_path, text, facts):
    path = tmp_path / "tokens.csv"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_tokens(path)
    assert str(caught.value).startswith(str(path))
    assert all(fact in str(caught.value) for fact in facts)


def test_the_table_is_ordered_by_tokens(tree, capsys):
    assert main(["tables", str(tree), "--table", "pretraining", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["pretraining"]["rows"]
    assert [(row["init"], row["tokens"], row["mean"]) for row in rows] == [
        ("tfidf", 0, 83.0),
        ("random", 0, 62.0),
        ("short", 819_200, 72.0),
        ("long", 8_192_000, 78.0),
    ]


def test_the_figure_has_a_curve_and_horizontal_lines(tree):
    table = load_runs(tree)
    values = scores(table, best_checkpoints(table), "accuracy")
    values = values[values["at"] == "best"]
    tokens = find_tokens(find_runs(tree))
    data = spread_over_seeds(values, "accuracy", test_size=2000)
    data["tokens"] = [tokens[group] for group in zip(data["arm"], data["init"], strict=True)]
    (panel,) = draw_pretraining(values, data, "accuracy").axes
    assert panel.get_xscale() == "log"
    panel.figure.draw_without_rendering()
    numbers = {tick.get_text() for tick in panel.get_xticklabels(which="both")}
    assert {"500k", "1M", "2M", "5M"} < numbers
    assert not any("10^" in number for number in numbers)
    lines = {line.get_label(): line for line in panel.lines}
    curve = lines["fairseq, pre-trained"]
    assert curve.get_xdata().tolist() == [819_200, 8_192_000]
    assert curve.get_ydata() == pytest.approx([72.0, 78.0])
    assert set(lines["fairseq/random"].get_ydata()) == {62.0}
    assert set(lines["bow/tfidf"].get_ydata()) == {83.0}
    assert lines["fairseq/random"].get_color() == curve.get_color() != lines["bow/tfidf"].get_color()
    half = t.ppf(0.975, 2) / 3**0.5  # the standard deviation of three seeds is 1
    bars = [segment[:, 1] for segment in panel.collections[0].get_segments()]
    assert bars[0] == pytest.approx([72.0 - half, 72.0 + half])
    random_band = [patch.get_bbox() for patch in panel.patches][1]
    assert (random_band.y0, random_band.y1) == pytest.approx((62.0 - half, 62.0 + half))


def test_of_each_init_only_the_chosen_setting(tree, tmp_path, capsys):
    start = json.loads((tree / "fairseq/long/seed1/manifest.json").read_text())["checkpoint"]
    for seed in (1, 2, 3):
        score = [90.0 + seed]
        write_run(tree, "long", seed, score, score, arm="fairseq,lr=1e-3", checkpoint=start)
    words = ["tables", str(tree), "--table", "pretraining", "--format", "json"]
    assert main([*words, "--best-settings"]) == 0
    rows = json.loads(capsys.readouterr().out)["pretraining"]["rows"]
    assert [(row["arm"], row["init"], row["mean"]) for row in rows][-2:] == [
        ("fairseq", "short", 72.0),
        ("fairseq", "long", 92.0),
    ]
    drawn = ["figures", str(tree), "--figure", "pretraining", "--best-settings"]
    assert main([*drawn, "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "accuracy_by_tokens.png").exists()
    label = ["--label", "fairseq,lr=1e-3/long=Long", "--order", "fairseq,lr=1e-3/long"]
    assert main([*words, "--best-settings", *label]) == 0
    row = json.loads(capsys.readouterr().out)["pretraining"]["rows"][0]
    assert (row["arm"], row["init"], row["group_label"]) == ("fairseq", "long", "Long")
    assert main(words) == 0
    rows = json.loads(capsys.readouterr().out)["pretraining"]["rows"]
    assert len(rows) == 5


def test_warning_for_several_recipes(tree, caplog):
    path = tree / "fairseq/long/seed1/manifest.json"
    path.write_text(path.read_text().replace('"reference"', '"tuned"'))
    with caplog.at_level(logging.WARNING):
        assert main(["tables", str(tree), "--table", "pretraining"]) == 0
    assert "fairseq: trained with several recipes (reference, tuned)" in caplog.text
