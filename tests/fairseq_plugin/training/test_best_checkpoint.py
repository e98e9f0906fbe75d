"""The best checkpoint in the tables of `analysis` is fairseq's `checkpoint_best.pt`."""

import json
import shlex

import pytest

from roberta_small.analysis import best_checkpoints, load_runs
from roberta_small.analysis.__main__ import main as analysis
from roberta_small.experiments.__main__ import main as experiments
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from tests.support.data_folders import write_data

pytestmark = pytest.mark.usefixtures("fast_processes")

TINY = shlex.split(
    "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 "
    "--max-positions 32 --num-workers 0 --max-epoch 4 --max-update 24 --total-num-update 24 "
    "--warmup-updates 2"
)
LONGER = shlex.split("--max-epoch 8 --max-update 48 --total-num-update 48")


@pytest.mark.long
@pytest.mark.parametrize(
    ("metric", "flags"),
    [
        ("accuracy", ["--lr", "1e-9"]),
        ("macro_f1", ["--lr", "3e-3", *LONGER, "--patience", "1", "--class-weights", "balanced"]),
    ],
    ids=["all epochs tie", "early stopping"],
)
def test_the_best_checkpoint_of_the_tables_is_checkpoint_best(tmp_path, capfd, metric, flags):
    data, runs = write_data(tmp_path / "data", longest=28, seed=3), tmp_path / "runs"
    words = ["train", "--data", str(data), "--out", str(runs), "--inits", "random", "--seeds", "1"]
    flags = [*TINY, *flags, "--best-checkpoint-metric", metric]
    assert experiments([*words, "--device", "cpu", "--", *flags]) == 0
    out = capfd.readouterr().out
    best = best_checkpoints(load_runs(runs), "accuracy", by=metric).iloc[0]
    run = runs / "fairseq/random/seed1"
    file, last = (load_checkpoint(run / f"checkpoint_{name}.pt") for name in ("best", "last"))
    assert best["step"] == file["optimizer_history"][-1]["num_updates"]
    assert best["valid"] == pytest.approx(file["extra_state"]["val_loss"], rel=1e-6)
    if metric == "accuracy":
        assert (best["step"], best["ties"]) == (24, 4)
    else:
        assert all(fact in out for fact in ("--patience", f"best valid {metric}", "class weights: 0 1, 1 1"))
        recorded = json.loads((run / "manifest.json").read_text())
        assert recorded["status"] == "finished"
        assert "--maximize-best-checkpoint-metric" in recorded["recipe_flags"]
        assert '{"0": 1.0, "1": 1.0}' in recorded["recipe_flags"]
        updates = last["optimizer_history"][-1]["num_updates"]
        assert updates == 48 or last["extra_state"]["early_stopping"]["num_runs"] == 1
        assert analysis(["tables", str(runs)]) == 0
        out, err = capfd.readouterr()
        assert f"{metric} on valid" in out
        assert "warning" not in err
