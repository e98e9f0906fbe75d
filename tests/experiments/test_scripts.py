"""train.sh and pretrain.sh with the real fairseq-train, on generated data."""

import json
import os
import random
import shutil
import subprocess

import pytest
from fairseq import options
from fairseq_cli.preprocess import main as fairseq_preprocess

from roberta_small.common.data_folder import Header
from roberta_small.common.files import ROOT
from tests.support import preloaded

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


def preprocess(source, target, pairs):
    """fairseq-preprocess on lines of text; `pairs` maps a subset to its lines."""
    source.mkdir()
    for subset, lines in pairs.items():
        (source / subset).write_text("".join(f"{line}\n" for line in lines))
    prefixes = [f"--{subset}pref={source / subset}" for subset in pairs]
    parser = options.get_preprocessing_parser()
    fairseq_preprocess(parser.parse_args(["--only-source", *prefixes, "--destdir", str(target)]))


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


@pytest.mark.parametrize("word", ["--word-dropot", "--max-epoc"])
def test_a_wrong_flag_after_the_dashes_ends_before_a_run_starts(shell, word):
    for part in ("input0", "label"):
        (shell.here / "bin" / part).mkdir(parents=True)
        for name in ("train.bin", "train.idx", "valid.bin", "valid.idx", "test.bin", "test.idx"):
            (shell.here / "bin" / part / name).write_text(name)
    (shell.here / "bin/input0/dict.txt").write_text("livre 3\n")
    (shell.here / "bin/label/dict.txt").write_text("1 9\n0 9\n")
    (shell.here / "bin/label/train.idx").write_bytes(Header(code=8, sentences=18).pack())
    words = ["--data", "bin", "--inits", "random", "--seeds", "1", "--device", "cpu"]
    done = shell("train.sh", *words, "--", word, "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert word in done.stderr
    assert {path.name for path in shell.here.iterdir()} == {"bin"}


@pytest.mark.slow
def test_pretrain_then_fine_tune_with_fairseq(shell):
    chance = random.Random(0)
    labels = [chance.randrange(2) for _ in range(40)]
    texts = [
        " ".join(chance.choices(["bon", "beau", "le"] if y else ["nul", "laid", "le"], k=9)) for y in labels
    ]
    parts = {"train": slice(0, 24), "valid": slice(24, 32), "test": slice(32, 40)}
    preprocess(shell.here / "t", shell.here / "d é/input0", {k: texts[part] for k, part in parts.items()})
    preprocess(shell.here / "l", shell.here / "d é/label", {k: labels[part] for k, part in parts.items()})

    lengths = ["--tokens-per-sample", "16", "--max-positions", "32", "--batch-size", "4"]
    done = shell(
        "pretrain.sh",
        "--",
        *TINY,
        *lengths,
        RS_DATA="d é/input0",
        RS_OUT="pré",
        RS_TOKENS="640",
        RS_DEVICE="cpu",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (shell.here / "pré/dict.txt").read_bytes() == (shell.here / "d é/input0/dict.txt").read_bytes()
    assert "perplexity" in done.stdout

    flags = ["--max-positions", "32", "--max-epoch", "3", "--max-update", "9", "--total-num-update", "9"]
    flags += ["--warmup-updates", "1", "--lr", "1e-3"]
    environ = {
        "RS_DATA": "d é",
        "RS_PRETRAINED": "pré/model.pt",
        "RS_INITS": "pretrained",
        "RS_SEEDS": "1",
        "RS_DEVICE": "cpu",
    }
    done = shell("train.sh", "--", *TINY, *flags, **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    run = shell.here / "runs/fairseq/pretrained/seed1"
    content = json.loads((run / "manifest.json").read_text())
    assert content["status"] == "finished"
    assert content["checkpoint"]["path"] == "pré/model.pt"
    assert "pré/model.pt" in (run / "train.log").read_text()
    assert "update 9/9" in done.stdout
    assert "accuracy" in done.stdout
