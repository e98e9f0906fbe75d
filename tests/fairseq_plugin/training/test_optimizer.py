"""`fused_adam` against fairseq's `adam`."""

import argparse
import copy
import gc
import weakref

import pytest
import torch
from fairseq.optim.adam import Adam
from fairseq.utils import clip_grad_norm_

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.training import optimizer as optimizer_module
from roberta_small.fairseq_plugin.training.optimizer import FairseqFusedAdam, FusedAdam, parse_betas

SETTINGS = {"lr": 1e-2, "betas": (0.9, 0.98), "eps": 1e-3, "weight_decay": 0.1}
# Float32 rounding over a hundred updates of parameters near 1.
TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}


def flags(lr, embedding_lr_factor=1.0):
    return argparse.Namespace(
        lr=[lr],
        adam_betas="(0.9, 0.98)",
        adam_eps=1e-6,
        weight_decay=0.01,
        embedding_lr_factor=embedding_lr_factor,
    )


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


def test_a_parameter_without_gradient_is_not_updated():
    model = network()
    before = model[2].weight.detach().clone()
    model[2].weight.requires_grad_(False)
    updates(model, FusedAdam(model.parameters(), **SETTINGS), 3)
    assert torch.equal(model[2].weight, before)


@pytest.mark.parametrize("betas", ["0.9", "(0.9,)", "__import__('os')", "(a, b)", None])
def test_invalid_betas_are_an_error(betas):
    with pytest.raises(UserError, match="--adam-betas"):
        parse_betas(betas)


def embedding_network(sparse):
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(20, 6)
    head = torch.nn.Linear(6, 2)

    def loss(step):
        tokens = torch.randint(20, (7,), generator=torch.Generator().manual_seed(step))
        tokens = torch.cat([tokens, tokens[:2]])  # a token that occurs twice
        return head(torch.nn.functional.embedding(tokens, embedding.weight, sparse=sparse)).pow(2).sum()

    return torch.nn.ModuleList([embedding, head]), loss


def marked(model):
    """Mark the token embeddings of `embedding_network`'s model, as models of the plugin do."""
    model[0].weight.is_token_embedding = True
    return model


def test_embeddings_with_a_factor_equal_fairseqs_adam_at_that_learning_rate():
    lr, factor = 1e-3, 10.0
    ours, loss = embedding_network(sparse=True)
    optimizer = FairseqFusedAdam(flags(lr, factor), marked(ours).parameters())
    theirs, their_loss = embedding_network(sparse=False)
    settings = {"betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.01}
    peers = [Adam(theirs[0].parameters(), lr=0, **settings), Adam(theirs[1].parameters(), lr=0, **settings)]
    for step in range(50):
        scheduled = lr / (1 + step)
        optimizer.set_lr(scheduled)
        assert optimizer.get_lr() == scheduled  # the value that is logged
        optimizer.zero_grad()
        loss(step).backward()
        optimizer.step()
        for peer, times in zip(peers, (factor, 1.0), strict=True):
            peer.param_groups[0]["lr"] = scheduled * times
            peer.zero_grad()
        their_loss(step).backward()
        for peer in peers:
            peer.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, **TOLERANCE)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_invalid_factors_are_an_error(factor):
    with pytest.raises(UserError, match=f"--embedding-lr-factor {factor}"):
        FairseqFusedAdam(flags(0.1, factor), network().parameters())


def test_a_factor_for_a_model_without_marked_embeddings_is_an_error():
    with pytest.raises(UserError, match=r"--embedding-lr-factor: .*--arch roberta_small"):
        FairseqFusedAdam(flags(0.1, 10.0), network().parameters())


def test_a_resumed_run_uses_the_factor_of_the_command_line():
    first = FairseqFusedAdam(flags(1e-3, 10.0), marked(embedding_network(True)[0]).parameters())
    second = FairseqFusedAdam(flags(1e-3, 5.0), marked(embedding_network(True)[0]).parameters())
    second.load_state_dict(first.state_dict(), second.optimizer_config)
    second.set_lr(1e-3)
    assert [group["lr"] for group in second.param_groups] == [1e-3, 5e-3]


@pytest.mark.parametrize(("before", "now"), [(1.0, 10.0), (10.0, 1.0)])
def test_resuming_with_a_factor_only_before_or_only_now_is_an_error(before, now):
    first = FairseqFusedAdam(flags(1e-3, before), marked(embedding_network(True)[0]).parameters())
    second = FairseqFusedAdam(flags(1e-3, now), marked(embedding_network(True)[0]).parameters())
    with pytest.raises(UserError, match=r"--embedding-lr-factor.*--reset-optimizer"):
        second.load_state_dict(first.state_dict(), second.optimizer_config)


def fairseq_updates(sparse, max_norm, accumulate=1):
    """Weights and gradient norms after thirty updates in the order of fairseq's trainer."""
    model, loss = embedding_network(sparse)
    cfg = flags(1e-2)
    optimizer = FairseqFusedAdam(cfg, model.parameters())
    norms = []
    for step in range(30):
        optimizer.zero_grad()
        for part in range(accumulate):
            loss(step * accumulate + part).backward()
        optimizer.multiply_grads(0.5)
        norms.append(optimizer.clip_grad_norm(max_norm).item())
        optimizer.step()
    return [p.detach() for p in model.parameters()], norms


@pytest.mark.parametrize("max_norm", [0.0, 0.05])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_sparse_gradients_make_the_same_updates_as_dense_ones(max_norm, accumulate):
    dense, dense_norms = fairseq_updates(False, max_norm, accumulate)
    sparse, norms = fairseq_updates(True, max_norm, accumulate)
    assert norms == pytest.approx(dense_norms, rel=1e-5)
    for a, b in zip(sparse, dense, strict=True):
        torch.testing.assert_close(a, b, **TOLERANCE)


@pytest.mark.parametrize("max_norm", [0.0, 0.7, 1e6])
def test_clipping_equals_fairseqs(max_norm):
    model = network()
    model(torch.ones(3, 8)).pow(2).sum().backward()
    before = [p.grad.clone() for p in model.parameters()]
    cfg = flags(0.5)
    norm = FairseqFusedAdam(cfg, model.parameters()).clip_grad_norm(max_norm)
    ours = [p.grad for p in model.parameters()]
    for parameter, gradient in zip(model.parameters(), before, strict=True):
        parameter.grad = gradient
    assert norm.item() == pytest.approx(clip_grad_norm_(list(model.parameters()), max_norm).item())
    for a, parameter in zip(ours, model.parameters(), strict=True):
        torch.testing.assert_close(a, parameter.grad)


@pytest.mark.parametrize("max_norm", [0.0, 0.05])
def test_scaling_in_the_update_equals_scaling_before_it(monkeypatch, max_norm):
    """As on a GPU; torch's fused update scales on a CPU, too."""
    found = []
    for scales in (False, True):
        monkeypatch.setattr(optimizer_module, "updates_on_gpu", lambda parameter, value=scales: value)
        model = network()
        optimizer = FairseqFusedAdam(flags(1e-2), model.parameters())
        norms = []
        for step in range(20):
            optimizer.zero_grad()
            model(torch.randn(5, 8, generator=torch.Generator().manual_seed(step))).pow(2).sum().backward()
            optimizer.multiply_grads(0.5)
            norms.append(optimizer.clip_grad_norm(max_norm))
            optimizer.multiply_grads(0.4)
            optimizer.step()
        found.append([torch.stack(norms), *model.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, **TOLERANCE)


def test_an_optimizer_of_a_gpu_is_freed_with_its_last_reference(monkeypatch):
    monkeypatch.setattr(optimizer_module, "updates_on_gpu", lambda parameter: True)
    model = network()
    optimizer = FairseqFusedAdam(flags(1e-2), model.parameters())
    model(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    moment = weakref.ref(next(iter(optimizer.optimizer.state.values()))["exp_avg"])
    gc.disable()
    try:
        del optimizer
        assert moment() is None
    finally:
        gc.enable()


def test_an_update_with_an_infinite_norm_changes_nothing_where_the_norm_is_read_later(monkeypatch):
    monkeypatch.setattr(optimizer_module, "updates_on_gpu", lambda parameter: True)
    model = network()
    optimizer = FairseqFusedAdam(flags(1e-2), model.parameters())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)
    assert not optimizer.clip_grad_norm(0.0).isfinite()
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


@pytest.mark.cuda
def test_updates_on_cuda_equal_those_on_a_cpu():
    found = []
    for device in ("cpu", "cuda"):
        model = network().to(device)
        optimizer = FairseqFusedAdam(flags(1e-2), model.parameters())
        for step in range(20):
            x = torch.randn(5, 8, generator=torch.Generator().manual_seed(step)).to(device)
            optimizer.zero_grad()
            model(x).pow(2).sum().backward()
            optimizer.multiply_grads(0.2)
            optimizer.clip_grad_norm(0.05)
            optimizer.step()
        found.append([parameter.detach().cpu() for parameter in model.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
