"""The method frozen: its head against Transformers and scikit-learn, kept vectors, the use of its runs."""

import contextlib
import csv
import errno
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from roberta_small import TextClassifier
from roberta_small.common import manifest, predictions
from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import Labels
from roberta_small.common.run import read_thresholds
from roberta_small.eval import SentenceClassifier
from roberta_small.experiments import provenance
from roberta_small.experiments.__main__ import main as experiments
from roberta_small.experiments.methods import Command
from roberta_small.experiments.methods.frozen.fit import Encoder, require_examples
from roberta_small.experiments.methods.frozen.method import METHOD as FROZEN
from roberta_small.export.__main__ import main as export
from roberta_small.preprocess.__main__ import main as preprocess
from tests.support import preloaded, tiny_models, tiny_tokenizers

KINDS = {
    "classification": lambda text, i: ["bad", "good", "mixed"][i % 3],
    "multi-label": lambda text, i: json.dumps(["un"] * ("un" in text.split()) + ["even"] * (i % 2)),
    "regression": lambda text, i: f"{len(text) / 7:.2f}",
}


FITTED = "/pretrained/seed0/checkpoint_best.pt --reset"
"""The end of the path of a fitted head in the command of a run that starts from it."""


def write(path, kind, count=90):
    texts = [f"{text} {i}" for i, text in enumerate(tiny_tokenizers.lines(count))]
    with open(path, "w", newline="", encoding="utf-8") as stream:
        rows = [(text, KINDS[kind](text, i)) for i, text in enumerate(texts)]
        csv.writer(stream).writerows([("text", "label"), *rows])


@pytest.fixture(scope="module", autouse=True)
def here(tmp_path_factory):
    """The working folder of all tests."""
    folder = tmp_path_factory.mktemp("frozen")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RS_CACHE", str(folder / "cache"))
        patch.setattr("sys.executable", preloaded.python())
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def encoder(here):
    """A tiny random BERT."""
    tiny_models.write(here / "bert", "bert", "encoder")
    return here / "bert"


def train(encoder, *words, kind):
    """Prepare a table of a kind of labels, train, and return the folder of the run."""
    write(f"{kind}.csv", kind)
    options = ["--tokenizer", str(encoder), "--task", kind, "--valid", "0.2", "--test", "0.2"]
    assert preprocess(["prepare", f"{kind}.csv", *options, "--out", f"data/{kind}"]) == 0
    options = ["--data", f"data/{kind}", "--pretrained", str(encoder), "--device", "cpu", "--out", kind]
    assert experiments(["train", "--method", "frozen", *options, *words]) == 0
    return Path(kind, "frozen/pretrained/seed0")


@pytest.fixture(scope="module")
def run(encoder):
    """The run of a classifier of `data/classification`."""
    return train(encoder, kind="classification")


def test_the_head_is_a_regression_of_the_mean_vectors(encoder, run):
    data = Path("data/classification/text")
    texts = {split: (data / f"{split}.input0").read_text().splitlines() for split in ("train", "test")}
    tokenizer, bert = AutoTokenizer.from_pretrained(encoder), AutoModel.from_pretrained(encoder).eval()

    @torch.inference_mode()
    def vectors(texts):
        inputs = tokenizer(texts, padding=True, truncation=True, max_length=32, return_tensors="pt")
        mask_BL1 = inputs["attention_mask"][..., None]
        return ((bert(**inputs)[0] * mask_BL1).sum(1) / mask_BL1.sum(1)).double().numpy()

    train_NC, test_NC = vectors(texts["train"]), vectors(texts["test"])
    mean_C = train_NC.mean(axis=0)
    length = np.sqrt(((train_NC - mean_C) ** 2).sum(axis=1).mean())
    chosen = json.loads((run / "model.json").read_text())
    labels = (data / "train.label").read_text().split()
    model = LogisticRegression(C=chosen["C"], tol=1e-8, max_iter=5000)
    model.fit((train_NC - mean_C) / length, labels)
    wanted_NK = model.predict_proba((test_NC - mean_C) / length)
    classifier = SentenceClassifier.from_run(run, precision="fp32")
    columns = [classifier.classes.index(name) for name in model.classes_]
    found_NK = classifier.probabilities(texts["test"])
    assert found_NK[:, columns] == pytest.approx(wanted_NK, abs=1e-4)
    written = predictions.to_arrays(predictions.read(run / "predictions-test.jsonl"))
    assert written.outputs == pytest.approx(found_NK, abs=1e-4)
    # The run as others read it.
    assert export(["transformers", str(run), "--out", "folder"]) == 0
    assert export(["onnx", str(run), "--out", "model.onnx"]) == 0
    again_NK = SentenceClassifier.from_run("model.onnx").probabilities(texts["test"])
    assert again_NK == pytest.approx(found_NK, abs=1e-4)
    network = AutoModelForSequenceClassification.from_pretrained("folder", trust_remote_code=True).eval()
    inputs = AutoTokenizer.from_pretrained("folder")(texts["test"], padding=True, return_tensors="pt")
    with torch.inference_mode():
        theirs_NK = network(**inputs).logits.softmax(-1).numpy()
    assert theirs_NK == pytest.approx(found_NK, abs=1e-4)


@pytest.mark.parametrize("kind", ["multi-label", "regression"])
def test_other_kinds_of_labels_and_the_first_token(encoder, kind):
    run = train(encoder, "--", "--pooling", "first", kind=kind)
    texts = Path(f"data/{kind}/text/test.input0").read_text().splitlines()
    found_NK = SentenceClassifier.from_run(run, precision="fp32").probabilities(texts)
    arrays = predictions.to_arrays(predictions.read(run / "predictions-test.jsonl"))
    assert found_NK == pytest.approx(arrays.outputs, abs=1e-3)
    assert manifest.read(run)["command"][-3:] == ["--", "--pooling", "first"]
    assert set(read_thresholds(run)) == ({"un", "even"} if kind == "multi-label" else set())
    assert export(["transformers", str(run), "--out", f"{kind}-folder"]) == 0
    config = json.loads(Path(f"{kind}-folder/config.json").read_text())
    assert (config["pooling"], config["pooler_activation"]) == ("first", "linear")
    assert export(["fairseq", f"{kind}-folder", "--out", f"{kind}-back/model.pt"]) == 0
    again_NK = SentenceClassifier.from_run(f"{kind}-back/model.pt", precision="fp32").probabilities(texts)
    assert again_NK == pytest.approx(found_NK, abs=1e-3)


def test_no_text_is_read_twice_and_a_changed_file_is_read_again(run, capfd):
    read, known = [], manifest.read(run)
    words = ["data/classification", *known["recipe_flags"]]
    found = Encoder.of("cpu", "fp32", known["checkpoint"]["path"], words)
    before, files = found.vectors(), sorted(found.cache.glob("*.npz"))
    with pytest.MonkeyPatch.context() as patch:
        original = Encoder.read
        patch.setattr(Encoder, "read", lambda self, rows: read.append(len(rows)) or original(self, rows))
        assert all(np.array_equal(found.vectors()[split], before[split]) for split in before)
        assert not read
        files[0].write_bytes(files[0].read_bytes()[:-1] + b"!")
        after = found.vectors()
    assert sum(read) > 0
    assert f"{files[0].name}: does not have its checksum" in capfd.readouterr().out
    assert all(after[split] == pytest.approx(before[split], abs=1e-6) for split in before)


def test_a_class_without_training_examples_is_an_error():
    labels = Labels.single(["a", "b", "strange"])
    with pytest.raises(UserError, match="data: no training example of the class 'strange'"):
        require_examples(np.array([0, 1, 1]), labels, "data")
    require_examples(np.array([0, 1, 2]), labels, "data")


def test_a_folder_that_cannot_be_written_is_no_obstacle(run, encoder, capfd, monkeypatch):
    def refuse(path, content):
        raise PermissionError(errno.EACCES, "denied", str(path))

    monkeypatch.setattr("roberta_small.experiments.methods.frozen.fit.atomic_write", refuse)
    words = ["data/classification", *manifest.read(run)["recipe_flags"], "--max-positions", "9"]
    found = Encoder.of("cpu", "fp32", manifest.read(run)["checkpoint"]["path"], words)
    assert [len(one) for one in found.vectors().values()] == [54, 18, 18]
    assert "the vectors are not kept" in capfd.readouterr().out


def test_fine_tuning_starts_from_the_fitted_head(run, capsys):
    options = ["--data", "data/classification", "--inits", f"probed={run}", "--seeds", "1", "--dry-run"]
    assert experiments(["train", *options, "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert f"--restore-file {run}/checkpoint_best.pt" in printed
    assert "--head linear" in printed


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ([], ["baselines: tfidf, ngrams", "--out runs\n", f"/frozen{FITTED}"]),
        (["--recipe", "reference"], ["baselines: tfidf, frozen, ngrams", "model.pt --reset"]),
        (["--", "--head", "dense"], ["baselines: tfidf, frozen, ngrams", "--head dense"]),
        (["--grid", "max-positions=8,16"], ["--max-length 8\n", f"/frozen,max-positions=8{FITTED}"]),
        (["--recipe", "mine.txt"], ["--max-length 12 -- --pooling first\n", f"/frozen{FITTED}"]),
    ],
)
def test_a_file_with_an_encoder_has_the_linear_classifier(encoder, capsys, words, facts):
    """Fine-tuning starts from it in the recipe for own data; else it is a baseline."""
    write("reviews.csv", "classification")
    Path("mine.txt").write_text("--base own-data\n--max-positions 12\n--pooling first\n")
    options = ["--data", "reviews.csv", "--pretrained", str(encoder), "--dry-run", "--device", "cpu"]
    assert experiments(["train", *options, *words]) == 0
    printed = capsys.readouterr().out
    assert all(fact in printed for fact in facts)
    assert ("--method frozen" in printed) is ("/frozen" in facts[-1])


def test_the_memory_of_a_run_is_that_of_its_encoder_before_the_fit(encoder, monkeypatch):
    write("reviews.csv", "classification")
    options = ["--data", "reviews.csv", "--pretrained", str(encoder), "--dry-run", "--device", "cpu"]
    sizes = []
    machine = provenance.machine
    monkeypatch.setattr(provenance, "machine", lambda *args: sizes.append(args[-1]) or machine(*args))
    assert experiments(["train", *options, "--out", "unwritten"]) == 0
    assert min(sizes) > 1000


def test_nothing_is_fitted_for_a_class_without_training_examples(encoder, run, capsys):
    shutil.copytree("data/classification", "more", ignore=shutil.ignore_patterns("*.json"))
    with open("more/label/dict.txt", "a", encoding="utf-8") as stream:
        stream.write("other 0\n")
    options = ["--data", "more", "--pretrained", str(encoder), "--inits", "pretrained", "--dry-run"]
    assert experiments(["train", *options, "--recipe", "own-data", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "--head linear" in printed
    assert "--method frozen" not in printed


def test_runs_from_an_encoder_start_from_the_fitted_head(encoder, capfd):
    write("reviews.csv", "classification")
    options = ["--data", "reviews.csv", "--pretrained", str(encoder), "--no-baselines", "--out", "started"]
    options += ["--device", "cpu", "--seeds", "1", "--epochs", "1", "--lr", "1e-12"]
    command = ["train", *options, "--", "--precision", "fp32", "--dropout", "0"]
    assert experiments(command) == 0
    fitted, tuned = Path("started/frozen/pretrained/seed0"), Path("started/fairseq/pretrained/seed1")
    wanted, found = (
        SentenceClassifier.from_run(path, precision="fp32").probabilities(["un livre et deux films"])
        for path in (fitted, tuned)
    )
    assert found == pytest.approx(wanted, abs=1e-5)
    # A run that is finished needs no fit; one that has to start does, and fails without it.
    shutil.rmtree(fitted)
    assert experiments(command) == 0
    assert not fitted.exists()
    shutil.rmtree(tuned)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FROZEN, "command", lambda *args, **keys: Command(("false",), ("false",)))
        assert experiments(command) == 1
    assert "seed1  FAILED: started/frozen/pretrained/seed0/checkpoint_best.pt" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--method frozen: needs a pretrained encoder; name one with --pretrained or --inits"),
        (["--inits", "random"], "--inits random: .* needs pretrained weights"),
        (
            ["--pretrained", "x", "--", "--lr", "1"],
            "after --: --lr: the method frozen accepts only --pooling and",
        ),
        (["--pretrained", "x", "--lr", "1"], "unrecognized arguments: --lr 1; the method frozen has no such"),
    ],
)
def test_what_has_no_effect_is_an_error(words, message, capsys):
    write("reviews.csv", "classification")
    with contextlib.suppress(SystemExit):  # of argparse
        assert experiments(["train", "--method", "frozen", "--data", "reviews.csv", *words]) in (1, 2)
    assert re.search(message, capsys.readouterr().err)


def test_the_estimator_has_the_method(encoder):
    texts = [f"{text} {i}" for i, text in enumerate(tiny_tokenizers.lines(60))]
    labels = ["neg", "pos"] * 30
    fitted = TextClassifier(str(encoder), method="frozen", folder="fitted", device="cpu").fit(texts, labels)
    assert fitted.predict_proba(texts[:3]).sum(axis=1) == pytest.approx(np.ones(3))
    assert (fitted.runs_ / "frozen/pretrained/seed0/checkpoint_best.pt").is_file()
    with pytest.raises(UserError, match="method='frozen': epochs= has no effect"):
        TextClassifier(str(encoder), method="frozen", epochs=3).fit(texts, labels)
    with pytest.raises(UserError, match="needs a pretrained encoder; name it with pretrained="):
        TextClassifier(method="frozen").fit(texts, labels)
    with pytest.raises(UserError, match="method='linear': choose"):
        TextClassifier(method="linear").fit(texts, labels)
