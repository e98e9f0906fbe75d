"""Rescaled embeddings: the model computes the same scores, and updates change the embeddings more."""

import pytest
import torch
from fairseq.models.roberta.model import RobertaModel

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.checkpoints import fp16
from roberta_small.fairseq_plugin.checkpoints.fp16 import EMBEDDINGS, NORM, scale_embeddings
from roberta_small.fairseq_plugin.checkpoints.loading import SUFFIX, load_checkpoint
from roberta_small.fairseq_plugin.models.roberta import RobertaSmall
from tests.support import networks
from tests.support.networks import HEAD

SCALE = 0.25
TOKENS_BL = torch.tensor([[0, 5, 6, 7, 2], [0, 8, 9, 2, 1]])
# The error is due to the norm's epsilon, 1e-5; the variance is 0.3 before and 0.02 after rescaling.
TOLERANCE = {"rtol": 1e-3, "atol": 1e-3}


def build(kind=RobertaSmall):
    model = networks.build(kind, 3, encoder_layers=2, max_positions=16)
    with torch.no_grad():
        for name in EMBEDDINGS:
            model.get_parameter(name).mul_(20)
    return model


def scores(model):
    """Scores of the classifier (B, 3) and of the language model (B, L, V)."""
    sentences, _ = model(TOKENS_BL, features_only=True, classification_head_name=HEAD)
    return sentences, model(TOKENS_BL)[0]


@pytest.mark.parametrize("kind", [RobertaModel, RobertaSmall])
def test_rescaling_does_not_change_the_scores_of_either_head(kind):
    model, smaller = build(kind), build(kind)
    smaller.load_state_dict(scale_embeddings(model.state_dict(), SCALE))
    for name in EMBEDDINGS:
        torch.testing.assert_close(smaller.get_parameter(name), SCALE * model.get_parameter(name))
    for found, wanted in zip(scores(smaller), scores(model), strict=True):
        assert wanted.abs().max() > 0.1
        torch.testing.assert_close(found, wanted, **TOLERANCE)


def test_rescaling_copies_the_weights_and_keeps_them_tied_or_untied():
    weights = build().state_dict()
    before = {name: weight.clone() for name, weight in weights.items()}
    smaller = scale_embeddings(weights, SCALE)
    assert all(torch.equal(weights[name], before[name]) for name in before)
    assert smaller["encoder.lm_head.weight"] is smaller[EMBEDDINGS[0]]
    weights["encoder.lm_head.weight"] = weights["encoder.lm_head.weight"].clone()
    smaller = scale_embeddings(weights, SCALE)
    heads = [name for name in weights if "lm_head" in name]
    assert len(heads) == 6
    assert all(smaller[name] is weights[name] for name in heads)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_is_not_a_positive_number_is_an_error(scale):
    with pytest.raises(UserError, match=f"--embedding-scale {scale}"):
        scale_embeddings(build().state_dict(), scale)


def test_a_scale_for_which_epsilon_would_dominate_is_an_error():
    weights = build().state_dict()
    variance = sum(float(weights[name].var(1).mean()) for name in EMBEDDINGS)
    scale_embeddings(weights, 1.01 * (1e-5 / variance) ** 0.5)
    smallest = f"{(1e-5 / variance) ** 0.5:.2g}"
    with pytest.raises(UserError, match=rf"--embedding-scale 1e-06: .*{smallest}"):
        scale_embeddings(weights, 1e-6)


@pytest.mark.parametrize("name", [*EMBEDDINGS, NORM])
def test_a_model_that_rescaling_would_change_is_an_error(name):
    weights = build().state_dict()
    del weights[name]
    with pytest.raises(UserError, match=f"--embedding-scale: .*{name}"):
        scale_embeddings(weights, SCALE)


def test_the_fp16_export_rescales_embeddings(classifier, tmp_path):
    path = tmp_path / f"half{SUFFIX}"
    fp16.write(classifier, path, 0.25)
    found, wanted = load_checkpoint(path)["model"], load_checkpoint(classifier)["model"]
    for name, weight in scale_embeddings(wanted, SCALE).items():
        assert torch.equal(found[name], weight.half().float()), name
    assert found["encoder.lm_head.weight"] is found[EMBEDDINGS[0]]
    back = tmp_path / f"back{SUFFIX}"
    fp16.write(path, back, 4)
    for name, weight in load_checkpoint(back)["model"].items():
        torch.testing.assert_close(weight, wanted[name], rtol=2**-11, atol=2**-22)
