"""The baselines beside a classifier on a file of labelled text, and the best run of all."""

import csv
import json

import pytest

from roberta_small.common import manifest
from roberta_small.eval.__main__ import main as evaluate
from roberta_small.experiments.__main__ import main
from roberta_small.experiments.settings import OWN_DATA
from tests.support import fake_trainer, tiny_tokenizers
from tests.support.labelled_files import write_csv

SMALL = ["--seeds", "1", "2", "--recipe", "quick.txt", "--device", "cpu", "--test", "none"]


@pytest.fixture
def train(here, capfd):
    """Run the command with the fake trainer, which reaches 70 % of valid; returns exit code and output."""
    rows = [
        (f"{'good' if i % 2 else 'bad'} {line}", "pos" if i % 2 else "neg")
        for i, line in enumerate(tiny_tokenizers.lines(80))
    ]
    write_csv("reviews.csv", rows)

    def run(*words):
        code = main(["train", "--data", "reviews.csv", *words], trainer=fake_trainer.COMMAND)
        return code, capfd.readouterr().out

    return run


def test_the_best_of_all_methods_is_named_and_predicts(train, here, capfd):
    code, out = train(*SMALL)
    assert code == 0
    table = out[out.index("All methods") :].splitlines()
    assert [line.split()[0] for line in table[2:6]] == ["tfidf", "ngrams", "fairseq", "majority"]
    assert "100.00" in table[2]
    assert "[" in table[4]
    assert out.rstrip().splitlines()[-1].strip().startswith("roberta-small predict --checkpoint runs ")
    recorded, fitted = (
        manifest.read(here / "runs" / run) for run in ("fairseq/random/seed2", "tfidf/tfidf/seed0")
    )
    assert recorded["columns"] == fitted["columns"] == {"text": "text", "label": "label"}
    best = fitted["best"]
    assert best["scores"]["valid"] == 100
    fake, flags = recorded["best"], recorded["recipe_flags"]
    assert flags[flags.index("--valid-subset") + 1] == "valid"
    assert (fake["scores"]["valid"], fake["epoch"], fake["metric"]) == (70, 2, "accuracy")
    assert fake["labels"] == best["labels"]
    evaluate(["predict", "--checkpoint", "runs", "such a good line", "a bad one"])
    printed = capfd.readouterr()
    assert [json.loads(line)["label"] for line in printed.out.splitlines()] == ["pos", "neg"]
    assert "tfidf/tfidf/seed0" in printed.err

    # Without a test set, the last command is for a file without labels.
    command = out.rstrip().splitlines()[-1].split()
    assert command[-4:] == ["--input", "test.csv", "--out", "predictions.csv"]
    write_csv("test.csv", [(17, "such a good line"), (4, "a bad one")], header=("id", "text"))
    assert evaluate(command[1:]) == 0
    with open("predictions.csv", newline="", encoding="utf-8") as stream:
        rows = [(row["id"], row["prediction"]) for row in csv.DictReader(stream)]
    assert rows == [("17", "pos"), ("4", "neg")]

    code, out = train(*SMALL)
    assert code == 0
    assert out.count("finished (skipped)") == 4
    assert "All methods" in out
    code, out = train("--method", "tfidf", "--test", "none")  # the baseline
    assert (code, out.count("finished (skipped)")) == (0, 1)
    assert "roberta-small predict --checkpoint runs/tfidf/tfidf/seed0 " in out
    code, out = train(*SMALL, "--no-baselines", "--out", "alone", "--dry-run")
    assert code == 0
    assert "baselines: " not in out


def test_a_file_has_its_own_recipe_and_a_folder_that_of_the_reports(train, here):
    _, out = train("--dry-run", "--seeds", "1")
    (command,) = [line for line in out.splitlines() if line.startswith("fairseq-train ")]
    assert "--pooling mean" in command
    folder = next((here / "data").iterdir())
    assert main(["train", "--data", str(folder), "--seeds", "1"], trainer=fake_trainer.COMMAND) == 0
    assert manifest.read(here / "runs/fairseq/random/seed1")["recipe"] == "reference"
    assert [path.name for path in (here / "runs").iterdir()] == ["fairseq"]
    assert train("--no-baselines", "--seeds", "2")[0] == 0
    assert manifest.read(here / "runs/fairseq/random/seed2")["recipe"] == OWN_DATA


def test_sentence_pairs_have_the_baselines(here):
    lines = tiny_tokenizers.lines(60)
    rows = [(line, line[::-1], "ab"[i % 2]) for i, line in enumerate(lines)]
    write_csv("pairs.csv", rows, header=("text", "text2", "label"))
    words = ["train", "--data", "pairs.csv", "--pair-column", "text2", *SMALL]
    assert main(words, trainer=fake_trainer.COMMAND) == 0
    for run in ("tfidf/tfidf/seed0", "ngrams/random/seed1"):
        assert manifest.read(here / "runs" / run)["status"] == "finished"
