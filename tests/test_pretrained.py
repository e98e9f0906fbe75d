"""The weights that come with the project."""

import json
from pathlib import Path

import pytest
import torch

from roberta_small.common import archive
from roberta_small.common.files import SHIPPED, sha256
from roberta_small.eval.network import build_encoder, read_checkpoint

ROOT = Path(__file__).parents[1]
V2 = ROOT / "results/pretraining/roberta_small_fr_v2"
RESULTS = ROOT / "results"
PARAMETERS = 22_829_056
X10 = "fairseq,embedding-lr-factor=10"
V2_WEIGHTS = "f18045ec7a3433d1091a3b96a1844e56937b4d0c54dd299e7c9a9d7b3ef9130e"
"""SHA-256 of the weights of v2, from which the committed runs started."""


def test_the_manifests_of_v2_lead_to_one_another():
    """What a stage began with came from the one before it; all are of this project."""
    start_of = {
        "general": "pretrained/warm.pt",
        "reviews": "pretrained/general/model.pt",
        "more": "pretrained/first/model.safetensors",
        "more-reviews": "pretrained/more/model.pt",
    }
    dictionary = sha256(SHIPPED / "dict.txt")
    for stage, start in start_of.items():
        manifest = json.loads((V2 / f"pretrain-{stage}-manifest.json").read_text())
        assert manifest["status"] == "finished"
        assert manifest["data"]["sha256"]["dict.txt"] == dictionary
        assert manifest["checkpoint"]["path"] == start


def starts_of(study: str, arm: str) -> list[str]:
    """Return the checksum of what each run began with; its data have the dictionary of the weights."""
    runs = archive.opened(RESULTS / study / "runs.tar.xz") / arm / "pretrained"
    manifests = [json.loads(path.read_text()) for path in runs.glob("seed*/manifest.json")]
    for manifest in manifests:
        assert manifest["data"]["sha256"]["input0/dict.txt"] == sha256(SHIPPED / "dict.txt")
    return [manifest["checkpoint"]["sha256"] for manifest in manifests]


@pytest.mark.parametrize("arm", ["fairseq", "fairseq,lr=1e-4", X10, f"{X10},lr=1e-4"])
def test_what_is_shown_of_it_began_with_it(arm):
    assert starts_of("cls-books", arm) == 5 * [V2_WEIGHTS]


@pytest.mark.parametrize("arm", ["fairseq", "fairseq,lr=1e-4", "tuned", "hf", "lora", "lora,lr=3e-3"])
def test_what_is_shown_of_the_first_weights_began_with_what_it_went_on_from(arm):
    more = json.loads((V2 / "pretrain-more-manifest.json").read_text())
    assert starts_of("first-weights", arm) == 3 * [more["checkpoint"]["sha256"]]


def test_the_distilled_weights_are_the_encoder_alone():
    checkpoint = read_checkpoint(SHIPPED / "model.safetensors")
    assert not any("lm_head" in name or "classification_heads" in name for name in checkpoint.weights)
    encoder = build_encoder(checkpoint, torch.device("cpu"), "fp32").encoder.sentence_encoder
    assert sum(parameter.numel() for parameter in encoder.parameters()) == PARAMETERS
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 50e6


def test_the_manifests_of_the_distilled_weights_lead_to_the_runs():
    first, second = (
        json.loads((SHIPPED / f"{name}-manifest.json").read_text()) for name in ("distill", "distill-reviews")
    )
    for manifest in (first, second):
        assert (manifest["status"], manifest["recipe"]) == ("finished", "distill")
        assert manifest["data"]["sha256"]["dict.txt"] == sha256(SHIPPED / "dict.txt")
        assert manifest["teacher"] == first["teacher"]
    assert first["checkpoint"] is None
    for study, digest in (
        ("general", second["checkpoint"]["sha256"]),
        ("runs", sha256(SHIPPED / "model.safetensors")),
    ):
        runs = archive.opened(RESULTS / "distilled" / f"{study}.tar.xz") / "fairseq/distilled"
        found = [json.loads(path.read_text()) for path in runs.glob("seed*/manifest.json")]
        assert [run["checkpoint"]["sha256"] for run in found] == 5 * [digest]
