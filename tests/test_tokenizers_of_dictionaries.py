"""GPT-2's BPE, words and characters: from a file to runs, predictions, scores, Transformers and back."""

import csv
import random
import subprocess

import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from roberta_small.common.predictions import read
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.__main__ import main as evaluate
from roberta_small.export.__main__ import main as export
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from roberta_small.preprocess.__main__ import main as preprocess
from tests.support import preloaded, tiny_models, tiny_tokenizers
from tests.support.tiny_runs import make_run
from tests.support.training import build_trainer, save

LETTERS = "ACDEFGHIKLMNPQRSTVWY"


def write_rows(path, texts):
    rows = [(f"{text}", ("bad", "good")[i % 2]) for i, text in enumerate(texts)]
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("text", "label"), *rows])


def bpe(folder):
    """(options, texts): a dictionary in another order than GPT-2's numbers, as fairseq's is."""
    texts = [f"{text} {i}" for i, text in enumerate(tiny_tokenizers.lines(60))]
    model = ByteLevelBPETokenizer()
    model.train_from_iterator(texts, vocab_size=300)
    model.save_model(str(folder))
    (folder / "vocab.json").rename(folder / "encoder.json")
    (folder / "merges.txt").rename(folder / "vocab.bpe")
    numbers = sorted(model.get_vocab().values(), key=lambda number: (number % 7, number))
    (folder / "dict.txt").write_text("".join(f"{number} 1\n" for number in numbers))
    return ["--tokenizer", str(folder)], texts


def words(folder):
    texts = [f"{text} nouveau{i}" for i, text in enumerate(tiny_tokenizers.lines(60))]
    (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in tiny_tokenizers.WORDS), "utf-8")
    return ["--tokenizer", "words", "--dict", str(folder / "dict.txt")], texts


def characters(folder):
    draw = random.Random(1)
    texts = ["".join(draw.choices(LETTERS, k=draw.randint(3, 40))) for _ in range(60)]
    (folder / "dict.txt").write_text("".join(f"{letter} 1\n" for letter in LETTERS))
    return ["--tokenizer", "characters", "--dict", str(folder / "dict.txt")], texts


def test_a_language_model_of_fairseq_with_the_files_of_gpt2_is_fine_tuned(tmp_path, monkeypatch):
    """As fairseq's own roberta.base: model.pt, dict.txt, encoder.json and vocab.bpe in one folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "roberta").mkdir()
    options, texts = bpe(tmp_path / "roberta")
    write_rows("texts.csv", texts)
    assert preprocess(["prepare", "texts.csv", *options, "--out", "data"]) == 0
    task = "--task masked_lm --criterion masked_lm --arch roberta --tokens-per-sample 32 --batch-size 4"
    task = [*task.split(), *tiny_models.FLAGS, "--optimizer", "adam", "--cpu"]
    _, trainer = build_trainer([tmp_path / "data/input0", *task])
    save(trainer, tmp_path / "roberta/model.pt")
    words = ["train", "--data", "texts.csv", "--pretrained", "roberta/model.pt", "--inits", "pretrained"]
    words += ["--seeds", "1", "--epochs", "1", "--no-baselines", "--device", "cpu", "--out", "runs"]
    command = [preloaded.python(), "-m", "roberta_small.experiments", *words, "--", "--min-updates", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    classifier = SentenceClassifier.from_run("runs/fairseq/pretrained/seed1")
    ids = classifier.text_input.encode([texts[0]]).rows[0]
    own = ByteLevelBPETokenizer("roberta/encoder.json", "roberta/vocab.bpe")
    numbers = [line.split()[0] for line in (tmp_path / "roberta/dict.txt").read_text().splitlines()]
    assert [int(numbers[i - 4]) for i in ids[1:-1]] == own.encode(texts[0]).ids
    (found,) = classifier.predict([texts[0]])
    assert sorted(found.probabilities) == ["bad", "good"]


@pytest.mark.parametrize("kind", [bpe, words, characters])
def test_from_a_file_to_transformers_and_back(tmp_path, kind):
    (tmp_path / "tokenizer").mkdir()
    options, texts = kind(tmp_path / "tokenizer")
    write_rows(tmp_path / "texts.csv", texts)
    data, run = tmp_path / "data", tmp_path / "run"
    assert preprocess(["prepare", str(tmp_path / "texts.csv"), *options, "--out", str(data)]) == 0
    make_run(data, run, "--keep-eos", updates=2)

    classifier = SentenceClassifier.from_run(run)
    asked = [*texts[:3], "", f"{texts[3]} " * 20]
    wanted_NK = classifier.probabilities(asked)
    assert len({round(float(row[0]), 6) for row in wanted_NK}) > 3
    assert evaluate(["evaluate", "--checkpoint", str(run), "--write-predictions"]) == 0
    of_test = (data / "text/test.input0").read_text(encoding="utf-8").splitlines()
    for text, stored in zip(of_test, read(run / "predictions-test.jsonl"), strict=True):
        (found,) = classifier.predict([text])
        assert found.probabilities == pytest.approx(stored.probabilities, abs=1e-4)

    assert export(["transformers", str(run), "--out", str(tmp_path / "folder")]) == 0
    network = AutoModelForSequenceClassification.from_pretrained(tmp_path / "folder").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "folder")
    inputs = tokenizer(asked, padding=True, truncation=True, return_tensors="pt")
    inputs.pop("token_type_ids", None)
    with torch.no_grad():
        logits_NK = network(**inputs).logits
    torch.testing.assert_close(logits_NK.softmax(-1).double(), torch.from_numpy(wanted_NK), atol=1e-5, rtol=0)

    back = tmp_path / "back/model.pt"
    assert export(["fairseq", str(tmp_path / "folder"), "--out", str(back)]) == 0
    again = SentenceClassifier.from_run(back)
    assert again.classes == classifier.classes
    assert again.probabilities(asked) == pytest.approx(wanted_NK, abs=1e-5)
    symbols = again.text_input.encoder.dictionary.with_mask().symbols
    assert symbols == classifier.text_input.encoder.dictionary.with_mask().symbols
    weights = (load_checkpoint(path)["model"] for path in (run / "checkpoint_best.pt", back))
    one, other = (content["encoder.sentence_encoder.embed_tokens.weight"] for content in weights)
    assert torch.equal(one, other)
