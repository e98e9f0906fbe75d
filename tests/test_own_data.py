"""From a CSV file to a table of results and predictions, with each kind of tokenizer."""

import csv
import json
import subprocess
from pathlib import Path

import preloaded
import pytest
import tiny_tokenizers

from common import manifest
from eval.__main__ import main as evaluate
from preprocess.__main__ import main as preprocess

ROOT = Path(__file__).parents[1]
SIZES = "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2"


def train(*words):
    command = [preloaded.python(), "-m", "experiments", "train", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture
def reviews(tmp_path):
    texts = tiny_tokenizers.lines(120)
    with open(tmp_path / "reviews.csv", "w", newline="", encoding="utf-8") as stream:
        rows = [(f"{text}\n{i}", ("very bad", "good")[i % 2]) for i, text in enumerate(texts)]
        csv.writer(stream).writerows([("review", "stars"), *rows])
    return tmp_path / "reviews.csv"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["train", "camembert"])
def test_a_csv_file_becomes_runs_and_predictions(reviews, tmp_path, capsys, family):
    make = tiny_tokenizers.FAMILIES.get(family)
    tokenizer = str(make(tmp_path / family)) if make else family
    data, out = tmp_path / "data", tmp_path / "runs"
    assert preprocess(["dataset", str(reviews), "--tokenizer", tokenizer, "--out", str(data)]) == 0
    flags = ["--", *SIZES.split(), "--max-epoch", "1", "--precision", "fp32"]
    printed = train(
        "--data", data, "--inits", "random", "--seeds", "1", "--out", out, "--device", "cpu", *flags
    )
    assert "96 training examples" in printed
    recorded = manifest.read(out / "fairseq/random/seed1")
    words = recorded["recipe_flags"]
    assert words[words.index("--max-update") + 1] == "12"
    if family == "camembert":
        assert words[words.index("--init-token") + 1] == "5"
        assert words[words.index("--separator-token") + 1] == "6"
    capsys.readouterr()
    run = str(out / "fairseq/random/seed1")
    assert evaluate(["predict", "--checkpoint", run, "--format", "jsonl", "un livre captivant"]) == 0
    prediction = json.loads(capsys.readouterr().out)
    assert set(prediction["probabilities"]) == {"very bad", "good"}
