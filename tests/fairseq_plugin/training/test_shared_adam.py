"""Adam with a second moment that the outputs of a layer share."""

import torch

from roberta_small.fairseq_plugin.training.optimizer import SharedAdam

BETAS, EPS = (0.9, 0.98), 1e-8


def train(optimizer_class, classes, **settings):
    torch.manual_seed(0)
    layer = torch.nn.Linear(6, classes)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimizer = optimizer_class(layer.parameters(), lr=0.05, betas=BETAS, eps=EPS, **settings)
    x, y = torch.randn(40, 6), torch.randint(classes, (40,))
    for _ in range(20):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(layer(x), y).backward()
        optimizer.step()
    return layer


def test_with_two_classes_it_is_adam():
    ours, theirs = train(SharedAdam, 2), train(torch.optim.Adam, 2)
    torch.testing.assert_close(ours.weight, theirs.weight)
    torch.testing.assert_close(ours.bias, theirs.bias)


def test_the_first_step_keeps_the_proportions_of_the_gradients_of_a_feature():
    weight = torch.nn.Parameter(torch.zeros(4, 3))
    weight.grad = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    SharedAdam([weight], lr=0.1, betas=BETAS, eps=EPS).step()
    expected = -0.1 * weight.grad / weight.grad.square().mean(dim=0).sqrt()
    torch.testing.assert_close(weight.detach(), expected)
