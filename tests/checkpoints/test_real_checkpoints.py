"""Real checkpoints that others trained: conversion, ids, fine-tuning, prediction, export and the way back."""

import csv

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models.roberta.model import RobertaModel, base_architecture
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from roberta_small.common import manifest, predictions
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.__main__ import main as evaluation
from roberta_small.eval.network import build_encoder, read_checkpoint
from roberta_small.experiments.__main__ import main as experiments
from roberta_small.export.__main__ import main as export
from roberta_small.export.transformers.networks import source_of
from roberta_small.export.transformers.to_fairseq import convert_back
from roberta_small.preprocess.sample import Writer
from roberta_small.preprocess.tokenization.choice import locate
from roberta_small.preprocess.tokenization.transformers_encoder import TransformersEncoder
from tests.support import encoded, packages

pytestmark = pytest.mark.checkpoints
TEXTS = 1000
TOLERANCE = 2e-5


def reviews(count=TEXTS):
    """French reviews with their labels, some of them with unusual characters."""
    writer = Writer("texts for real checkpoints")
    odd = ["", "Œuvre à 5 € — l'été…", "中文 и 😀", "a\u00a0b \u200b c", "mot " * 700, "UN LIVRE, OUI !"]
    opinions = ("Très mauvais livre, à éviter.", "Excellent livre, à lire absolument.")
    texts = [*odd, *(f"{opinions[n % 2]} {writer.review(n % 2)}" for n in range(len(odd), count))]
    return [(text, "good" if number % 2 else "bad") for number, text in enumerate(texts)]


def padded(rows, padding, longest):
    rows = [torch.as_tensor(np.asarray(row[:longest])) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding)


def checked_ids(source, tokenizer, texts):
    """The encoder of a checkpoint and the ids of the texts, which are those of the library tokenizer."""
    encoder = TransformersEncoder(str(source))
    wanted = [tokenizer(text, verbose=False)["input_ids"] for text in texts]
    rows = encoded.rows(encoder, texts)
    assert [[encoder.order[i] for i in [encoder.init_token, *row]] for row in rows] == wanted
    return encoder, wanted


def fine_tuned(folder, checkpoint, rows, *flags):
    """The accuracy on test after an epoch, the run and its predictions through the command line."""
    with open(folder / "data.csv", "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("text", "label"), *(row for row in rows if row[0].strip())])
    words = ["train", "--data", "data.csv", "--pretrained", str(checkpoint), "--inits", "pretrained"]
    words += ["--no-baselines", "--seeds", "1", "--", "--max-epoch", "1", "--batch-size", "16", *flags]
    assert experiments(words) == 0
    run = folder / "runs/fairseq/pretrained/seed1"
    assert manifest.read(run)["status"] == "finished"
    assert evaluation(["evaluate", "--checkpoint", str(run), "--write-predictions"]) == 0
    found = predictions.read(run / predictions.file_name("test"))
    return 100 * sum(one.predicted == one.true_class for one in found) / len(found), run


def there_and_back(folder, run, texts):
    """Export the run and convert it back; the largest difference of a probability on the way."""
    assert export(["transformers", str(run), "--out", "exported"]) == 0
    wanted_NK = SentenceClassifier.from_run(run, precision="fp32").probabilities(texts)
    model = AutoModelForSequenceClassification.from_pretrained(
        folder / "exported", trust_remote_code=True
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / "exported")
    with torch.inference_mode():
        inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        found_NK = model(**inputs).logits.softmax(-1).numpy()
    convert_back(folder / "exported", folder / "back/model.pt")
    again_NK = SentenceClassifier.from_run(folder / "back/model.pt", precision="fp32").probabilities(texts)
    return float(max(np.abs(found_NK - wanted_NK).max(), np.abs(again_NK - wanted_NK).max()))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RS_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize(("chain", "file"), [("heavy", "checkpoint_vh.pt"), ("light", "checkpoint_vl.pt")])
def test_sapiens(here, figures, chain, file):
    """A RoBERTa that fairseq trained in 2021 with a criterion and names of its own."""
    source = packages.sapiens()
    rows = packages.germlines()[chain == "light"]
    sequences = [sequence for sequence, _ in rows][:TEXTS]
    dictionary = Dictionary.load(str(source / "dict.txt"))
    encoder = locate(str(source)).transformers_encoder()
    wanted = [dictionary.encode_line(" ".join(one), add_if_not_exist=False).numpy() for one in sequences]
    found = encoded.rows(encoder, sequences)
    assert all(np.array_equal(*pair) for pair in zip(found, wanted, strict=True))

    dictionary.add_symbol("<mask>")
    state = torch.load(source / file, weights_only=False, map_location="cpu")
    arguments = state["args"]
    base_architecture(arguments)
    task = type("Task", (), {"source_dictionary": dictionary, "max_positions": lambda self: 144})()
    stock = RobertaModel.build_model(arguments, task)
    weights = dict(state["model"])
    stock.upgrade_state_dict(weights)
    stock.load_state_dict(weights)
    rows_L = [np.concatenate([[0], row]) for row in wanted[:200]]
    ids_BL = padded(rows_L, 1, 144)
    network = build_encoder(read_checkpoint(source / file), torch.device("cpu"), "fp32")
    with torch.inference_mode():
        reference_BLV, found_BLV = (
            stock.eval()(ids_BL)[0],
            source_of(read_checkpoint(source / file)).model()(ids_BL)[0],
        )
        reference_BLC, found_BLC = (one(ids_BL, features_only=True)[0] for one in (stock, network))
    real_BL = ids_BL != 1
    assert (found_BLV - reference_BLV)[real_BL].abs().max() < TOLERANCE
    difference = float((found_BLC - reference_BLC)[real_BL].abs().max())
    assert difference < TOLERANCE

    accuracy, run = fine_tuned(here, source / file, rows, "--lr", "5e-4", "--batch-size", "8")
    assert accuracy > 75
    apart = there_and_back(here, run, sequences[:200])
    assert apart < 1e-4
    figures[f"sapiens, {chain} chains"] = {
        "ids equal": f"{len(sequences)} of {len(sequences)}", "accuracy after an epoch": accuracy,
        "largest difference of a hidden state": difference,
        "largest difference of a probability there and back": apart,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["minilm", "e5"])
def test_sentence_encoders(here, figures, name):
    """BERT encoders with WordPiece and with XLM-R's Unigram tokenizer, which are pooled by the mean."""
    source = getattr(packages, name)()
    rows = reviews()
    texts = [text for text, _ in rows]
    own = AutoTokenizer.from_pretrained(source)
    encoder, wanted = checked_ids(source, own, texts)

    convert_back(source, here / "converted/model.pt")
    checkpoint = read_checkpoint(here / "converted/model.pt")
    assert checkpoint.arguments.pooling == "mean"
    model = AutoModel.from_pretrained(source).eval()
    theirs_BL = padded([*wanted[:40], wanted[4]], own.pad_token_id, 512)
    mask_BL = theirs_BL != own.pad_token_id
    ours_BL = torch.from_numpy(np.argsort(encoder.order))[theirs_BL]
    network = build_encoder(checkpoint, torch.device("cpu"), "fp32")
    with torch.inference_mode():
        reference_NC = model(input_ids=theirs_BL, attention_mask=mask_BL.long())[0][mask_BL]
        found_NC = network(ours_BL, features_only=True)[0][mask_BL]
    difference = float((found_NC - reference_NC).abs().max())
    assert difference < TOLERANCE

    accuracy, run = fine_tuned(here, source, rows, "--lr", "1e-4", "--max-positions", "64", "--keep-eos")
    flags = manifest.read(run)["recipe_flags"]
    assert flags[flags.index("--pooling") + 1] == "mean"
    figures[name] = {
        "ids equal": f"{len(texts)} of {len(texts)}", "largest difference of a hidden state": difference,
        "accuracy after an epoch": accuracy,
    }  # fmt: skip
    assert accuracy > 90
    difference = there_and_back(here, run, [text for text in texts if text][:60])
    assert difference < 1e-4
    figures[name]["largest difference of a probability there and back"] = difference


@pytest.mark.parametrize("language", packages.CATEGORIUM)
def test_a_classifier_of_27_classes(here, figures, language):
    """BERT with a classification head, from TensorFlow's weights; its vocabulary is that of the language."""
    source = packages.categorium(language)
    convert_back(source, here / "converted/model.pt")
    texts = [text for text, _ in reviews(300)]
    model = AutoModelForSequenceClassification.from_pretrained(source).eval()
    tokenizer = AutoTokenizer.from_pretrained(source)
    differences = []
    classifier = SentenceClassifier.from_run(here / "converted/model.pt", precision="fp32")
    found_NK = classifier.probabilities(texts)
    with torch.inference_mode():
        for text, found_K in zip(texts, found_NK, strict=True):
            inputs = tokenizer(text, truncation=True, max_length=512, return_tensors="pt")
            differences.append(float(np.abs(model(**inputs).logits.softmax(-1)[0].numpy() - found_K).max()))
    assert len(classifier.classes) == 27
    assert max(differences) < TOLERANCE
    rows = reviews()
    texts = [text for text, _ in rows]
    checked_ids(source, tokenizer, texts)
    accuracy, run = fine_tuned(here, source, rows, "--lr", "1e-4", "--max-positions", "64", "--keep-eos")
    assert accuracy > 60 or language != "fr"  # the texts are French
    apart = there_and_back(here, run, [text for text in texts if text][:60])
    assert apart < 1e-4
    figures[f"categorium, {language}"] = {
        "largest difference of a probability": max(differences), "ids equal": f"{len(texts)} of {len(texts)}",
        "accuracy after an epoch": accuracy, "largest difference of a probability there and back": apart,
    }  # fmt: skip
