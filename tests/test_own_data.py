"""From a CSV file to scores, tables and predictions."""

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from roberta_small.common import manifest
from tests.support import preloaded, tiny_tokenizers

ROOT = Path(__file__).parents[1]
SIZES = "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2"


@pytest.fixture
def reviews(tmp_path):
    texts = tiny_tokenizers.lines(120)
    with open(tmp_path / "reviews.csv", "w", newline="", encoding="utf-8") as stream:
        rows = [(f"{text}\n{i}", ("very bad", "good")[i % 2]) for i, text in enumerate(texts)]
        csv.writer(stream).writerows([("review", "stars"), *rows])
    return tmp_path


def run(here, *words):
    """Run a command of this project in the folder `here`; returns what it prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHON": preloaded.python(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=here, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.long
def test_a_csv_file_becomes_scores_tables_and_predictions(reviews):
    flags = [*SIZES.split(), "--max-epoch", "1", "--precision", "fp32"]
    command = [ROOT / "train.sh", "--data", "reviews.csv", "--seeds", "1", "--device", "cpu"]
    printed = run(reviews, *command, "--", *flags)
    assert "96 training examples" in printed
    recorded = manifest.read(reviews / "runs/fairseq/random/seed1")
    words = recorded["recipe_flags"]
    assert words[words.index("--max-update") + 1] == "12"
    run(reviews, ROOT / "train.sh", "--method", "tfidf", "--data", "reviews.csv")
    others = [manifest.read(path)["columns"] for path in (reviews / "runs").glob("tfidf/*/*")]
    assert [recorded["columns"], *others] == [{"text": "review", "label": "stars"}] * (1 + len(others))
    assert others
    assert [path.name for path in (reviews / "data").iterdir()] == [Path(recorded["data"]["path"]).name]

    # The commands at the end of the output.
    tables, curves, predict = [shlex.split(line) for line in printed.splitlines()[-3:]]
    assert {tables[0], predict[0]} == {"roberta-small"}
    assert curves == ["tensorboard", "--logdir", "runs"]
    program = [preloaded.python(), "-m", "roberta_small"]
    (test,) = re.findall(r"^random +1 +finished +1 +[\d.]+ +1 +([\d.]+)", printed, flags=re.MULTILINE)
    shown = json.loads(run(reviews, *program, *tables[1:], "--format", "json"))
    found = {(row["arm"], row["seed"]): row["test"] for row in shown["table1"]["rows"]}
    assert found["fairseq", 1] == pytest.approx(float(test), abs=0.01)
    assert ("tfidf", 0) in found
    run(reviews, *program, *predict[1:-1], "--format", "jsonl", "un livre captivant")
    one = "runs/fairseq/random/seed1"
    out = run(reviews, *program, "predict", "--checkpoint", one, "--format", "jsonl", "un livre captivant")
    shutil.move(reviews / "runs/fairseq/random/seed1", reviews / "moved")
    shutil.rmtree(reviews / "data")
    moved = run(
        reviews, *program, "predict", "--checkpoint", "moved", "--format", "jsonl", "un livre captivant"
    )
    assert moved == out
    assert set(json.loads(out)["probabilities"]) == {"very bad", "good"}


@pytest.mark.long
def test_training_without_a_test_set(reviews):
    """The plan, the runs and the tables have valid only, for every kind of training data."""
    flags = [*SIZES.split(), "--precision", "fp32"]
    command = [ROOT / "train.sh", "--data", "reviews.csv", "--test", "none"]
    printed = run(reviews, *command, "--seeds", "1", "--device", "cpu", "--epochs", "1", "--", *flags)
    assert "108 training examples" in printed
    words = manifest.read(reviews / "runs/fairseq/random/seed1")["recipe_flags"]
    assert words[words.index("--valid-subset") + 1] == "valid"
    printed = run(reviews, *command, "--method", "tfidf")
    assert "finished (skipped)" in printed  # the command before has fitted the same baseline
    assert "roberta-small predict --checkpoint runs/tfidf/tfidf/seed0 " in printed
    program = [preloaded.python(), "-m", "roberta_small"]
    shown = json.loads(run(reviews, *program, "tables", "runs", "--format", "json"))
    found = {row["arm"] for row in shown["table1"]["rows"] if row["seed"] is not None}
    assert found == {"fairseq", "ngrams", "tfidf"}
    logged = {path.name for path in (reviews / "runs/fairseq/random/seed1/tensorboard").iterdir()}
    assert "valid" in logged
    assert "test" not in logged
