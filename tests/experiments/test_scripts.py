"""train.sh and pretrain.sh with the real fairseq-train, on generated data."""

import json
import os
import shutil
import subprocess

import pytest

from roberta_small.common.files import ROOT
from roberta_small.experiments.__main__ import main
from tests.support import preloaded
from tests.support.data_folders import write_data

SIZES = ["--encoder-layers", "1", "--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "32"]
TINY = [*SIZES, "--encoder-attention-heads", "2", "--log-interval", "5"]


@pytest.fixture
def shell(tmp_path):
    """Run a script of a clone from another folder; both paths contain a space."""
    clone, here = tmp_path / "my clone", tmp_path / "là bas"
    clone.mkdir()
    here.mkdir()
    for name in ("train.sh", "pretrain.sh"):
        shutil.copy(ROOT / name, clone / name)
    (clone / "roberta_small").symlink_to(ROOT / "roberta_small")

    def run(script, *words, **environ):
        environ = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "PYTHON": preloaded.python()} | environ
        return subprocess.run([clone / script, *words], cwd=here, env=environ, capture_output=True, text=True)

    run.here = here
    return run


def test_the_scripts_work_from_another_folder(shell):
    done = shell("train.sh", "--help")
    assert done.returncode == 0
    assert "usage: roberta-small train" in done.stdout
    (shell.here / "random.py").write_text("raise SystemExit('the wrong module')")
    done = shell("train.sh", "--data", "d é", RS_INITS="random")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: d é: ")
    assert done.stderr.count("\n") == 1


def test_a_wrong_interpreter_is_an_error(shell):
    done = shell("pretrain.sh", PYTHON="false")
    assert done.returncode == 1
    assert "false" in done.stderr
    assert "3.11" in done.stderr


def test_a_wrong_flag_after_the_dashes_ends_before_a_run_starts(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "bin")
    words = ["--data", "bin", "--inits", "random", "--seeds", "1", "--device", "cpu"]
    assert main(["train", *words, "--", "--word-dropot", "1"]) == 1
    out, error = capfd.readouterr()
    assert out == ""
    assert "--word-dropot" in error
    assert {path.name for path in tmp_path.iterdir()} == {"bin"}


@pytest.mark.long
def test_pretrain_then_fine_tune_with_fairseq(shell):
    write_data(shell.here / "d é", sizes={"train": 24, "valid": 8, "test": 8})
    lengths = ["--tokens-per-sample", "16", "--max-positions", "32", "--batch-size", "4"]
    environ = {"RS_DATA": "d é/input0", "RS_OUT": "pré", "RS_TOKENS": "640", "RS_DEVICE": "cpu"}
    done = shell("pretrain.sh", "--", *TINY, *lengths, **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (shell.here / "pré/dict.txt").read_bytes() == (shell.here / "d é/input0/dict.txt").read_bytes()
    assert "perplexity" in done.stdout

    flags = ["--max-positions", "32", "--max-epoch", "3", "--max-update", "9", "--total-num-update", "9"]
    flags += ["--warmup-updates", "1", "--lr", "1e-3"]
    environ = {"RS_DATA": "d é", "RS_PRETRAINED": "pré/model.pt", "RS_INITS": "pretrained"}
    done = shell("train.sh", "--", *TINY, *flags, **environ, RS_SEEDS="1", RS_DEVICE="cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    run = shell.here / "runs/fairseq/pretrained/seed1"
    content = json.loads((run / "manifest.json").read_text())
    assert content["status"] == "finished"
    assert content["checkpoint"]["path"] == "pré/model.pt"
    assert "pré/model.pt" in (run / "train.log").read_text()
    assert "update 9/9" in done.stdout
    assert "accuracy" in done.stdout
