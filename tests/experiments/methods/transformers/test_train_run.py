"""Runs of the methods transformers and lora, from the command line to analysis and eval."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import RobertaForSequenceClassification

from roberta_small.analysis import best_checkpoints, load_runs
from roberta_small.common import manifest, predictions
from roberta_small.eval.__main__ import main as evaluate
from roberta_small.experiments.__main__ import main as experiments
from roberta_small.experiments.methods.lora import adapters
from tests.support.data_folders import write_data
from tests.support.method_runs import RECIPE, batch_of, command, measured
from tests.support.training import INPUT, OURS, SIZES, SLOW, STEPS, build_trainer, save

TRANSFORMERS = ("train", "--method", "transformers")
LORA = ("train", "--method", "lora")
RUNS = {"transformers": ("random", "pretrained"), "lora": ("pretrained",)}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A folder with finished runs of both methods."""
    root = tmp_path_factory.mktemp("swept")
    data = write_data(root / "data")
    (root / "tiny.txt").write_text(RECIPE)
    _, trainer = build_trainer([data, *OURS, *INPUT, *STEPS, *SIZES, *SLOW])
    save(trainer, root / "pre.pt")
    shutil.copy(data / "input0/dict.txt", root / "dict.txt")
    assert command(*TRANSFORMERS, *options(root), "--inits", "random", "pretrained") == 0
    assert command(*LORA, *options(root), "--merge", "--lr", "2e-2") == 0
    return root


def options(root):
    return [
        *("--data", root / "data", "--pretrained", root / "pre.pt", "--recipe", root / "tiny.txt"),
        *("--seeds", "1", "--jobs", "1", "--out", root / "runs", "--device", "cpu"),
    ]


def runs(root):
    return [root / "runs" / arm / init / "seed1" for arm, inits in RUNS.items() for init in inits]


def logits_of(root, model, split="test"):
    with torch.no_grad():
        return model(**batch_of(root / "data", split)).logits


def written(run, split="test"):
    rows = predictions.read(run / predictions.file_name(split))
    return np.array([list(row.probabilities.values()) for row in rows]), [row.true_class for row in rows]


def test_manifests_describe_the_runs(swept):
    for run in runs(swept):
        content = manifest.read(run)
        assert content["status"] == "finished"
        assert (content["arm"], content["init"]) == run.parts[-3:-1]
        assert (content["checkpoint"] is None) == (content["init"] == "random")
        assert len(content["data"]["sha256"]) == 14
        assert content["precision"] == "fp32"
        assert content["packages"]["transformers"]
        for key, value in measured(run).items():
            assert content[key] == value
        assert content["peak_memory_bytes"] > 1 << 20
    full, lora = (manifest.read(run) for run in runs(swept)[1:])
    head = 16 * 16 + 16 + 16 * 2 + 2
    adapters = 2 * 2 * 8 * (16 + 16)
    assert lora["trainable_parameters"] == head + adapters
    assert lora["parameters"] == full["parameters"] + adapters
    assert full["trainable_parameters"] == full["parameters"]
    assert {"--lora-rank", "--lora-dropout"} <= set(lora["recipe_flags"])


def test_analysis_reads_both_methods_into_one_table(swept):
    table = load_runs(swept / "runs")
    for subset in ("valid", "test"):
        for metric in ("accuracy", "macro_f1", "mcc", "loss"):
            rows = table[(table["subset"] == subset) & (table["metric"] == metric)]
            assert len(rows) == 3 * len(runs(swept)), (subset, metric)
    assert set(table["step"]) >= {6, 12, 18}
    best = best_checkpoints(table).set_index(["arm", "init"])
    for run in runs(swept):
        p_NK, gold = written(run)
        accuracy = 100 * np.mean(p_NK.argmax(axis=1) == np.array(gold, dtype=int))
        assert best.loc[run.parts[-3:-1], "test"] == pytest.approx(accuracy)


def test_saved_models_reproduce_the_written_predictions(swept):
    full, _, lora = runs(swept)
    models = [
        (full, RobertaForSequenceClassification.from_pretrained(full / "model")),
        (lora, adapters.adapted_classifier(lora)),
        (lora, adapters.merged_classifier(lora)),
        (lora, RobertaForSequenceClassification.from_pretrained(lora / "merged")),
    ]
    for run, model in models:
        p_NK = torch.softmax(logits_of(swept, model), -1)
        assert p_NK.std() > 2e-5
        np.testing.assert_allclose(p_NK, written(run)[0], atol=1e-5)
    assert models[0][1].config.id2label == {0: "0", 1: "1"}
    base = RobertaForSequenceClassification.from_pretrained(lora / "base")
    assert np.abs(torch.softmax(logits_of(swept, base), -1).numpy() - written(lora)[0]).max() > 1e-3


def test_eval_reproduces_the_predictions_from_the_checkpoints(swept, tmp_path):
    shutil.copytree(swept / "runs", tmp_path / "runs")
    before = [written(run)[0] for run in runs(swept)]
    assert evaluate(["evaluate", "--checkpoint", str(tmp_path / "runs"), "--write-predictions"]) == 0
    for run, wanted in zip(runs(swept), before, strict=True):
        copied = tmp_path / "runs" / Path(*run.parts[-3:])
        np.testing.assert_allclose(written(copied)[0], wanted, atol=1e-5)


def test_finished_runs_are_skipped_and_another_recipe_is_an_error(swept, capfd):
    checkpoints = [run / "checkpoint_best.pt" for run in runs(swept)]
    before = [path.stat().st_mtime_ns for path in checkpoints]
    assert command(*TRANSFORMERS, *options(swept), "--inits", "random", "pretrained") == 0
    assert [path.stat().st_mtime_ns for path in checkpoints] == before
    capfd.readouterr()
    assert command(*TRANSFORMERS, *options(swept), "--", "--dropout", "0.3") == 1
    assert re.search("--dropout not set.*--dropout 0.3", capfd.readouterr().err)
    assert command(*LORA, *options(swept), "--rank", "3") == 1
    assert re.search("--lora-rank 8.*--lora-rank 3", capfd.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["--target-modules", "q_proj"], ["--target-modules q_proj", "dense, key, query, value"]),
        (["--", "--encoder-layers", "3"], ["--encoder-layers 3", "--encoder-layers 2", "pre.pt"]),
        (["--", "--tokens-per-sample", "3"], ["--tokens-per-sample"]),
    ],
)
def test_mistakes_are_reported_before_anything_starts(swept, capfd, tmp_path, arguments, facts):
    assert command(*LORA, *options(swept), "--out", tmp_path / "new", *arguments) == 1
    captured = capfd.readouterr().err.strip().splitlines()
    assert len(captured) == 1
    assert all(fact in captured[0] for fact in facts), captured
    assert not (tmp_path / "new").exists()


def test_a_grid_value_equal_to_the_default_of_lora_is_not_a_setting(swept, capfd):
    """LoRA's default learning rate needs no flag; the command printed for a run plans that run again."""
    start = [*LORA, *options(swept), "--seeds", "5", "--dry-run"]
    assert command(*start, "--grid", "lr=1e-3,1e-4") == 0
    shown = [line for line in capfd.readouterr().out.splitlines() if line.startswith("roberta-small train")]
    assert ["lr=1e-4" in line for line in shown] == [False, True]
    for line in shown:
        assert experiments([*shlex.split(line)[1:], "--dry-run"]) == 0
        assert line in capfd.readouterr().out
    assert command(*start, "--grid", "lr=1e-3", "--", "--lr", "1e-2") == 1
    assert re.search("--lr.*--grid", capfd.readouterr().err)
