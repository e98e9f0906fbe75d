"""The weights that come with the project."""

import json
from pathlib import Path

import pytest
import torch
from fairseq.models.roberta import RobertaModel

import fairseq_plugin  # noqa: F401  lets fairseq read safetensors
from common.files import sha256

FOLDER = Path(__file__).parents[1] / "pretrained" / "roberta_small_fr"
SYMBOLS = 32_000
PARAMETERS = 22_829_056
HEAD = 512 * 512 + 512 + 2 * 512 + SYMBOLS
"""Of the language model: dense, norm, a bias for each type."""


@pytest.fixture(scope="module")
def hub():
    model = RobertaModel.from_pretrained(str(FOLDER), "model.safetensors", data_name_or_path=".", bpe=None)
    return model.eval()


def test_it_is_small_enough_to_be_cloned():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 50e6


def test_its_sizes_are_those_of_the_architecture(hub):
    assert len(hub.task.source_dictionary) == SYMBOLS
    assert sum(parameter.numel() for parameter in hub.parameters()) == PARAMETERS + HEAD


def test_it_knows_which_words_keep_company(hub):
    dictionary = hub.task.source_dictionary
    pieces = ["<s>", "▁l", "'", "auteur", "▁de", "▁ce", "<mask>", "</s>"]
    tokens_1L = torch.tensor([[dictionary.index(piece) for piece in pieces]])
    assert dictionary.unk() not in tokens_1L
    with torch.no_grad():
        scores_1LV, _ = hub.model(tokens_1L)
    assert dictionary[int(scores_1LV[0, pieces.index("<mask>")].argmax())] == "▁livre"


def test_its_manifests_lead_to_one_another():
    """What the second stage began with came from the first; both are of this project."""
    general, reviews = (
        json.loads((FOLDER / f"pretrain-{name}-manifest.json").read_text()) for name in ("general", "reviews")
    )
    dictionary = sha256(FOLDER / "dict.txt")
    for manifest in (general, reviews):
        assert manifest["status"] == "finished"
        assert manifest["data"]["sha256"]["dict.txt"] == dictionary
    assert reviews["checkpoint"]["path"] == "pretrained/general/model.pt"


@pytest.mark.parametrize("arm", ["fairseq", "fairseq,lr=1e-4"])
def test_what_is_shown_of_it_began_with_it(arm):
    runs = list(
        (FOLDER.parents[1] / "results/cls-books/runs" / arm / "pretrained").glob("seed*/manifest.json")
    )
    assert len(runs) == 3
    for path in runs:
        manifest = json.loads(path.read_text())
        assert manifest["checkpoint"]["sha256"] == sha256(FOLDER / "model.safetensors")
        assert manifest["data"]["sha256"]["input0/dict.txt"] == sha256(FOLDER / "dict.txt")
