"""The best checkpoint in the tables of `analysis` is fairseq's `checkpoint_best.pt`."""

import json
import shlex
import subprocess

import pytest

from roberta_small.analysis import best_checkpoints, load_runs
from roberta_small.analysis.__main__ import main as analysis
from roberta_small.experiments.__main__ import main as experiments
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from tests.support import preloaded
from tests.support.data_folders import write_data
from tests.support.training import ROOT

pytestmark = pytest.mark.usefixtures("fast_processes")

TINY = shlex.split(
    "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 "
    "--max-positions 32 --num-workers 0 --max-epoch 4 --max-update 24 --total-num-update 24 "
    "--warmup-updates 2"
)


@pytest.mark.long
@pytest.mark.parametrize("lr", ["3e-3", "1e-9"], ids=["learning", "all epochs tie"])
def test_the_best_checkpoint_of_the_tables_is_checkpoint_best(tmp_path, lr):
    data = write_data(tmp_path / "data", longest=28)
    words = ["--data", data, "--out", tmp_path / "runs", "--inits", "random", "--seeds", "1"]
    words += ["--device", "cpu", "--", *TINY, "--lr", lr]
    command = [preloaded.python(), "-m", "roberta_small.experiments", "train", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    best = best_checkpoints(load_runs(tmp_path / "runs")).iloc[0]
    file = load_checkpoint(tmp_path / "runs/fairseq/random/seed1/checkpoint_best.pt")
    assert best["step"] == file["optimizer_history"][-1]["num_updates"]
    assert best["valid"] == pytest.approx(file["extra_state"]["val_loss"], rel=1e-6)
    if lr == "1e-9":
        assert best["step"] == 24
        assert best["ties"] == 4


@pytest.mark.long
def test_early_stopping_and_another_metric_from_training_to_tables(tmp_path, capfd):
    metric = "macro_f1"
    data, runs = write_data(tmp_path / "data", longest=28, seed=3), tmp_path / "runs"
    words = ["train", "--data", str(data), "--inits", "random", "--seeds", "1", "2", "--out", str(runs)]
    flags = [*TINY, "--lr", "3e-3", "--max-epoch", "8", "--max-update", "48", "--total-num-update", "48"]
    flags += ["--best-checkpoint-metric", metric, "--patience", "1", "--class-weights", "balanced"]
    assert experiments([*words, "--device", "cpu", "--", *flags]) == 0
    out = capfd.readouterr().out
    assert all(fact in out for fact in ("--patience", f"best valid {metric}", "class weights: 0 1, 1 1"))
    best = best_checkpoints(load_runs(runs), "accuracy", by=metric)
    for row in best.itertuples():
        run = runs / f"fairseq/random/seed{row.seed}"
        file = load_checkpoint(run / "checkpoint_best.pt")
        last = load_checkpoint(run / "checkpoint_last.pt")
        updates = last["optimizer_history"][-1]["num_updates"]
        assert row.step == file["optimizer_history"][-1]["num_updates"]
        assert row.valid == pytest.approx(file["extra_state"]["val_loss"], rel=1e-6)
        recorded = json.loads((run / "manifest.json").read_text())
        assert recorded["status"] == "finished"
        assert "--maximize-best-checkpoint-metric" in recorded["recipe_flags"]
        assert '{"0": 1.0, "1": 1.0}' in recorded["recipe_flags"]
        assert updates == 48 or last["extra_state"]["early_stopping"]["num_runs"] == 1
    assert analysis(["tables", str(runs)]) == 0
    out, err = capfd.readouterr()
    assert f"{metric} on valid" in out
    assert "warning" not in err
