"""The weights that come with the project."""

import json
from pathlib import Path

import pytest
import torch
from fairseq.models.roberta import RobertaModel

import roberta_small.fairseq_plugin  # noqa: F401  lets fairseq read safetensors
from roberta_small.common import archive
from roberta_small.common.files import sha256
from roberta_small.eval.network import build_encoder, read_checkpoint

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "roberta_small/pretrained/roberta_small_fr"
DISTILLED = ROOT / "pretrained" / "roberta_small_fr_v3"
RESULTS = ROOT / "results"
SYMBOLS = 32_000
PARAMETERS = 22_829_056
X10 = "fairseq,embedding-lr-factor=10"
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


@pytest.mark.parametrize(
    ("pieces", "word"),
    [
        ("▁l ' auteur ▁de ▁ce <mask>", "▁livre"),
        ("▁Le ▁président ▁de ▁la <mask> .", "▁République"),
        ("▁Je ▁ne <mask> ▁pas .", "▁suis"),
    ],
)
def test_it_knows_which_words_keep_company(hub, pieces, word):
    """Of the words that are not in the sentence already, which it likes to repeat."""
    dictionary, sentence = hub.task.source_dictionary, ["<s>", *pieces.split(), "</s>"]
    tokens_L = torch.tensor([dictionary.index(piece) for piece in sentence])
    assert dictionary.unk() not in tokens_L
    with torch.no_grad():
        scores_1LV, _ = hub.model(tokens_L[None])
    scores_V = scores_1LV[0, sentence.index("<mask>")].index_fill(0, tokens_L, -torch.inf)
    assert dictionary[int(scores_V.argmax())] == word


def test_its_manifests_lead_to_one_another():
    """What a stage began with came from the one before it; all are of this project."""
    start_of = {
        "general": "pretrained/warm.pt",
        "reviews": "pretrained/general/model.pt",
        "more": "pretrained/first/model.safetensors",
        "more-reviews": "pretrained/more/model.pt",
    }
    dictionary = sha256(FOLDER / "dict.txt")
    for stage, start in start_of.items():
        manifest = json.loads((FOLDER / f"pretrain-{stage}-manifest.json").read_text())
        assert manifest["status"] == "finished"
        assert manifest["data"]["sha256"]["dict.txt"] == dictionary
        assert manifest["checkpoint"]["path"] == start


def starts_of(study: str, arm: str) -> list[str]:
    """Return the checksum of what each run began with; its data have the dictionary of the weights."""
    runs = archive.opened(RESULTS / study / "runs.tar.xz") / arm / "pretrained"
    manifests = [json.loads(path.read_text()) for path in runs.glob("seed*/manifest.json")]
    for manifest in manifests:
        assert manifest["data"]["sha256"]["input0/dict.txt"] == sha256(FOLDER / "dict.txt")
    return [manifest["checkpoint"]["sha256"] for manifest in manifests]


@pytest.mark.parametrize("arm", ["fairseq", "fairseq,lr=1e-4", X10, f"{X10},lr=1e-4"])
def test_what_is_shown_of_it_began_with_it(arm):
    assert starts_of("cls-books", arm) == 5 * [sha256(FOLDER / "model.safetensors")]


@pytest.mark.parametrize("arm", ["fairseq", "fairseq,lr=1e-4", "tuned", "hf", "lora", "lora,lr=3e-3"])
def test_what_is_shown_of_the_first_weights_began_with_what_it_went_on_from(arm):
    more = json.loads((FOLDER / "pretrain-more-manifest.json").read_text())
    assert starts_of("first-weights", arm) == 3 * [more["checkpoint"]["sha256"]]


def test_the_distilled_weights_are_the_encoder_alone():
    checkpoint = read_checkpoint(DISTILLED / "model.safetensors")
    assert not any("lm_head" in name or "classification_heads" in name for name in checkpoint.weights)
    encoder = build_encoder(checkpoint, torch.device("cpu"), "fp32").encoder.sentence_encoder
    assert sum(parameter.numel() for parameter in encoder.parameters()) == PARAMETERS
    assert (DISTILLED / "dict.txt").read_bytes() == (FOLDER / "dict.txt").read_bytes()
    assert sum(path.stat().st_size for path in DISTILLED.iterdir()) < 50e6


def test_the_manifests_of_the_distilled_weights_lead_to_the_runs():
    first, second = (
        json.loads((DISTILLED / f"{name}-manifest.json").read_text())
        for name in ("distill", "distill-reviews")
    )
    for manifest in (first, second):
        assert (manifest["status"], manifest["recipe"]) == ("finished", "distill")
        assert manifest["data"]["sha256"]["dict.txt"] == sha256(DISTILLED / "dict.txt")
        assert manifest["teacher"] == first["teacher"]
    assert first["checkpoint"] is None
    for study, digest in (
        ("general", second["checkpoint"]["sha256"]),
        ("runs", sha256(DISTILLED / "model.safetensors")),
    ):
        runs = archive.opened(RESULTS / "distilled" / f"{study}.tar.xz") / "fairseq/distilled"
        found = [json.loads(path.read_text()) for path in runs.glob("seed*/manifest.json")]
        assert [run["checkpoint"]["sha256"] for run in found] == 5 * [digest]
