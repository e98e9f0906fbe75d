"""`fused_adam` and `shared_adam` against fairseq's `adam` and torch's."""

import argparse
import gc
import weakref

import pytest
import torch
from fairseq.optim.adam import Adam
from fairseq.utils import clip_grad_norm_

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.training import optimizer as optimizer_module
from roberta_small.fairseq_plugin.training.optimizer import (
    FairseqFusedAdam,
    FusedAdam,
    SharedAdam,
    parse_betas,
)

SETTINGS = {"lr": 1e-2, "betas": (0.9, 0.98), "eps": 1e-3, "weight_decay": 0.1}
# Float32 rounding over a hundred updates of parameters near 1.
TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}


def flags(lr, embedding_lr_factor=1.0):
    settings = {"adam_betas": "(0.9, 0.98)", "adam_eps": 1e-6, "weight_decay": 0.3}
    return argparse.Namespace(lr=[lr], embedding_lr_factor=embedding_lr_factor, **settings)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def updates(model, optimizer, steps):
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(5, 8, generator=generator)
        for group in optimizer.param_groups:
            group["lr"] = SETTINGS["lr"] / (1 + step / 10)  # as a scheduler would
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("eps", [1e-3, 1e-8])
def test_a_hundred_updates_equal_fairseqs_adam(eps):
    settings = {**SETTINGS, "eps": eps}
    theirs, ours = network(), network()
    updates(theirs, Adam(theirs.parameters(), **settings), 100)
    updates(ours, FusedAdam(ours.parameters(), **settings), 100)
    for a, b in zip(theirs.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(b, a, **TOLERANCE)


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
    settings = {"betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.3}
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


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf"), 10.0])
def test_an_invalid_factor_or_a_model_without_marked_embeddings_is_an_error(factor):
    fact = ": .*--arch roberta_small" if factor == 10.0 else f" {factor}"
    with pytest.raises(UserError, match=f"--embedding-lr-factor{fact}"):
        FairseqFusedAdam(flags(0.1, factor), network().parameters())


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
    optimizer = FairseqFusedAdam(flags(1e-2), model.parameters())
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
    norm = FairseqFusedAdam(flags(0.5), model.parameters()).clip_grad_norm(max_norm)
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


def trained(optimizer_class, classes):
    torch.manual_seed(0)
    layer = torch.nn.Linear(6, classes)
    layer.load_state_dict({name: torch.zeros_like(weight) for name, weight in layer.state_dict().items()})
    optimizer = optimizer_class(layer.parameters(), lr=0.05, betas=(0.9, 0.98), eps=1e-8)
    x, y = torch.randn(40, 6), torch.randint(classes, (40,))
    for _ in range(20):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(layer(x), y).backward()
        optimizer.step()
    return layer


def test_with_two_classes_shared_adam_is_adam():
    ours, theirs = trained(SharedAdam, 2), trained(torch.optim.Adam, 2)
    torch.testing.assert_close(ours.weight, theirs.weight)
    torch.testing.assert_close(ours.bias, theirs.bias)


def test_the_first_step_of_shared_adam_keeps_the_proportions_of_the_gradients_of_a_feature():
    weight = torch.nn.Parameter(torch.zeros(4, 3))
    weight.grad = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    SharedAdam([weight], lr=0.1, betas=(0.9, 0.98), eps=1e-8).step()
    expected = -0.1 * weight.grad / weight.grad.square().mean(dim=0).sqrt()
    torch.testing.assert_close(weight.detach(), expected)


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
