"""`fused_adam` against fairseq's `adam`."""

import argparse
import copy

import pytest
import torch
from fairseq.optim.adam import Adam

from common.errors import UserError
from fairseq_plugin.optimizer import FairseqFusedAdam, FusedAdam, parse_betas

SETTINGS = {"lr": 1e-2, "betas": (0.9, 0.98), "eps": 1e-3, "weight_decay": 0.1}
# Float32 rounding over a hundred updates of parameters near 1.
TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def updates(model, optimizer, steps, first=0):
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(5, 8, generator=generator)
        for group in optimizer.param_groups:
            group["lr"] = SETTINGS["lr"] / (1 + step / 10)  # as a scheduler would
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("eps", [1e-3, 1e-6, 1e-8])
def test_a_hundred_updates_equal_fairseqs_adam(eps):
    settings = {**SETTINGS, "eps": eps}
    theirs, ours = network(), network()
    updates(theirs, Adam(theirs.parameters(), **settings), 100)
    updates(ours, FusedAdam(ours.parameters(), **settings), 100)
    for a, b in zip(theirs.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(b, a, **TOLERANCE)


def test_torchs_own_epsilon_would_not_agree():
    theirs, torchs = network(), network()
    updates(theirs, Adam(theirs.parameters(), **SETTINGS), 100)
    updates(torchs, torch.optim.AdamW(torchs.parameters(), **SETTINGS), 100)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(next(torchs.parameters()), next(theirs.parameters()), **TOLERANCE)


def test_resumes_bit_for_bit():
    whole, parts = network(), network()
    updates(whole, FusedAdam(whole.parameters(), **SETTINGS), 20)
    first = FusedAdam(parts.parameters(), **SETTINGS)
    updates(parts, first, 12)
    second = FusedAdam(parts.parameters(), **SETTINGS)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.param_groups[0]["eps"] == SETTINGS["eps"]
    updates(parts, second, 8, first=12)
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_parameter_without_gradient_stays():
    model = network()
    before = model[2].weight.detach().clone()
    model[2].weight.requires_grad_(False)
    updates(model, FusedAdam(model.parameters(), **SETTINGS), 3)
    assert torch.equal(model[2].weight, before)


def test_takes_fairseqs_flags():
    cfg = argparse.Namespace(lr=[0.5], adam_betas="(0.9, 0.98)", adam_eps=1e-6, weight_decay=0.01)
    config = FairseqFusedAdam(cfg, network().parameters()).optimizer_config
    assert config == {"lr": 0.5, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.01}


@pytest.mark.parametrize("betas", ["0.9", "(0.9,)", "__import__('os')", "(a, b)", None])
def test_wrong_betas_are_refused(betas):
    with pytest.raises(UserError, match="--adam-betas"):
        parse_betas(betas)
