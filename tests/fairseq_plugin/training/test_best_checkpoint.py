"""The best checkpoint in the tables of `analysis` is fairseq's `checkpoint_best.pt`."""

import shlex
import subprocess

import preloaded
import pytest
from data_folders import write_data
from training import ROOT

from analysis import best_checkpoints, load_runs
from fairseq_plugin.checkpoints.loading import load_checkpoint

TINY = shlex.split(
    "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 "
    "--max-positions 32 --num-workers 0 --max-epoch 4 --max-update 24 --total-num-update 24 "
    "--warmup-updates 2"
)


@pytest.mark.slow
@pytest.mark.parametrize("lr", ["3e-3", "1e-9"], ids=["learning", "all epochs tie"])
def test_the_best_checkpoint_of_the_tables_is_checkpoint_best(tmp_path, lr):
    data = write_data(tmp_path / "data", longest=28)
    words = ["--data", data, "--out", tmp_path / "runs", "--inits", "random", "--seeds", "1"]
    words += ["--device", "cpu", "--", *TINY, "--lr", lr]
    command = [preloaded.python(), "-m", "experiments", "train", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    best = best_checkpoints(load_runs(tmp_path / "runs")).iloc[0]
    file = load_checkpoint(tmp_path / "runs/fairseq/random/seed1/checkpoint_best.pt")
    assert best["step"] == file["optimizer_history"][-1]["num_updates"]
    assert best["valid"] == pytest.approx(file["extra_state"]["val_loss"], rel=1e-6)
    if lr == "1e-9":
        assert best["step"] == 24
        assert best["ties"] == 4
