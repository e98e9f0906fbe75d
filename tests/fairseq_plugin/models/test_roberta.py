"""The packed model against stock fairseq."""

import argparse
from types import SimpleNamespace

import pytest
import torch
from fairseq.models.roberta.model import RobertaModel

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.models import attention
from roberta_small.fairseq_plugin.models.causal import CausalRobertaSmall
from roberta_small.fairseq_plugin.models.roberta import RobertaSmall
from roberta_small.fairseq_plugin.training import precision
from tests.support import networks
from tests.support.networks import HEAD, LENGTHS, PAD, TOLERANCE, sentences


def build(kind=RobertaSmall, **changes):
    return networks.build(kind, 3, **changes)


def logits_and_gradients(model, tokens):
    model.zero_grad()
    logits, _ = model(tokens, features_only=True, classification_head_name=HEAD)
    logits.pow(2).sum().backward()
    return logits, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.fixture(params=[{}, {"encoder_normalize_before": True}], ids=["post-norm", "pre-norm"])
def pair(request):
    """Stock fairseq and our model with the same weights: those of the initialization plus noise."""
    stock, ours = build(RobertaModel, **request.param), build(**request.param)
    with torch.no_grad():
        for parameter in stock.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    ours.load_state_dict(stock.state_dict())
    return stock, ours


@pytest.mark.parametrize("lengths", [LENGTHS, (9, 9, 9)], ids=["padded batch", "no padding"])
def test_logits_and_gradients_equal_stock(pair, lengths):
    tokens = sentences(lengths)
    (theirs, their_gradients), (ours, our_gradients) = (logits_and_gradients(m, tokens) for m in pair)
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    assert our_gradients.keys() == their_gradients.keys()
    for name, gradient in their_gradients.items():
        torch.testing.assert_close(
            our_gradients[name], gradient, **TOLERANCE, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("changes", [{}, {"encoder_normalize_before": True}], ids=["post-norm", "pre-norm"])
def test_mean_pooling_equals_the_head_on_the_mean_of_stock_features(changes):
    stock, ours = build(RobertaModel, **changes), build(pooling="mean", **changes)
    ours.load_state_dict(stock.state_dict())
    tokens = sentences()
    features, _ = stock(tokens, features_only=True)
    means = [row[:length].mean(0) for row, length in zip(features, LENGTHS, strict=True)]
    theirs = stock.classification_heads[HEAD](torch.stack(means).unsqueeze(1))
    for flags in ({}, {"return_all_hiddens": True}):
        logits, _ = ours(tokens, features_only=True, classification_head_name=HEAD, **flags)
        torch.testing.assert_close(logits, theirs, **TOLERANCE)


def test_default_sizes_are_those_of_the_reference():
    task = SimpleNamespace(source_dictionary=networks.dictionary(31996))
    model = RobertaSmall.build_model(argparse.Namespace(), task)
    encoder = sum(p.numel() for name, p in model.named_parameters() if "lm_head" not in name)
    assert (encoder, model.args.encoder_attention_heads, model.max_positions()) == (22_829_056, 8, 256)
    assert (model.args.dropout, model.args.attention_dropout) == (0.1, 0.1)


@pytest.mark.parametrize("kind", [RobertaSmall, CausalRobertaSmall])
def test_attention_dropout_is_applied_in_training_only(kind):
    model, tokens = build(kind, attention_dropout=0.5, dropout=0.0, pooler_dropout=0.0), sentences()
    for training in (False, True):
        first, second = (model.train(training)(tokens, classification_head_name=HEAD)[0] for _ in "ab")
        assert torch.equal(first, second) is not training


class Counting(torch.nn.Module):
    seen = ()

    def set_num_updates(self, num_updates):
        self.seen = (*self.seen, num_updates)


@pytest.mark.parametrize("kind", [RobertaSmall, CausalRobertaSmall])
def test_modules_that_depend_on_the_number_of_updates_are_told(kind):
    model = build(kind)
    model.encoder.sentence_encoder.layers[1].counting = counting = Counting()
    for number in (1, 2):
        model.set_num_updates(number)
    assert counting.seen == (1, 2)


@pytest.mark.parametrize("encoder_kind", ["packed", "padded"])
@pytest.mark.parametrize("changes", [{}, {"encoder_normalize_before": True}], ids=["post-norm", "pre-norm"])
def test_the_epsilon_is_that_of_every_norm(encoder_kind, changes):
    """Stock fairseq has no flag: its norms are changed by hand."""
    epsilon, tokens = 0.3, sentences()
    stock = build(RobertaModel, **changes)
    norms = [module for module in stock.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert len(norms) == 2 + 2 * 3 + len(changes)  # embeddings, LM head, three layers, the last of pre-norm
    before = stock(tokens)[0]
    for norm in norms:
        norm.eps = epsilon
    ours = build(layer_norm_eps=epsilon, encoder_kind=encoder_kind, **changes)
    ours.load_state_dict(stock.state_dict())
    real, head = tokens.ne(PAD), {"classification_head_name": HEAD}
    assert not torch.allclose(stock(tokens)[0][real], before[real], atol=1e-3)
    torch.testing.assert_close(ours(tokens)[0][real], stock(tokens)[0][real], **TOLERANCE)
    torch.testing.assert_close(ours(tokens, **head)[0], stock(tokens, **head)[0], **TOLERANCE)


@pytest.mark.parametrize("lengths", [LENGTHS, (9, 9, 9)], ids=["padded batch", "no padding"])
def test_features_hidden_states_and_lm_scores_equal_stock(pair, lengths):
    stock, ours = pair
    tokens = sentences(lengths)
    real = tokens.ne(PAD)
    masked = real & (torch.rand(tokens.shape) < 0.4)
    torch.testing.assert_close(
        ours(tokens, masked_tokens=masked)[0], stock(tokens, masked_tokens=masked)[0], **TOLERANCE
    )
    features, extra = ours(tokens, features_only=True, return_all_hiddens=True)
    their_features, their_extra = stock(tokens, features_only=True, return_all_hiddens=True)
    torch.testing.assert_close(features[real], their_features[real], **TOLERANCE)
    assert len(extra["inner_states"]) == len(their_extra["inner_states"])
    for state, theirs in zip(extra["inner_states"], their_extra["inner_states"], strict=True):
        torch.testing.assert_close(state.transpose(0, 1)[real], theirs.transpose(0, 1)[real], **TOLERANCE)
    # Given embeddings of tokens replace the lookup.
    encoders = [model.encoder.sentence_encoder for model in pair]
    wanted, found = (
        one(tokens, token_embeddings=one.embed_tokens(tokens))["encoder_out"][0].transpose(0, 1)
        for one in encoders
    )
    torch.testing.assert_close(found[real], wanted[real], **TOLERANCE)


def test_dropout_has_the_same_distribution_as_stock():
    """Mean and variance of the logits and of the gradient norm over many dropout masks."""
    draws, tokens = 120, sentences()
    samples = []
    weights = build(RobertaModel, encoder_layers=1).state_dict()
    torch.manual_seed(2)
    weights = {name: w + torch.randn_like(w) * 0.15 for name, w in weights.items()}
    for kind in (RobertaModel, RobertaSmall):
        model = build(kind, encoder_layers=1, dropout=0.2, attention_dropout=0.2).train()
        model.load_state_dict(weights)
        rows = []
        for _ in range(draws):
            logits, gradients = logits_and_gradients(model, tokens)
            norm = torch.stack([g.norm() for g in gradients.values()]).norm()
            rows.append(torch.cat([logits.detach().flatten(), norm[None]]))
        samples.append(torch.stack(rows))
    (mean, other_mean), (var, other_var) = zip(*((s.mean(0), s.var(0)) for s in samples), strict=True)
    # The maximum of 16 standard normal values exceeds 4.5 with a probability of 1 in 10,000.
    assert ((mean - other_mean) / ((var + other_var) / draws).sqrt()).abs().max() < 4.5
    assert (var / other_var).sqrt().tolist() == pytest.approx([1.0] * len(var), abs=0.4)


def test_bf16_is_close_to_fp32():
    exact, rounded = build(), build(precision="bf16")
    rounded.load_state_dict(exact.state_dict())
    tokens = sentences()
    a, b = (m(tokens, classification_head_name=HEAD)[0].float() for m in (exact, rounded))
    assert not torch.equal(a, b)
    torch.testing.assert_close(a, b, rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [(kind, pooling) for kind in (RobertaSmall, CausalRobertaSmall) for pooling in kind.POOLINGS],
)
def test_the_gpu_code_path_gives_the_same_logits_and_gradients(gpu_path, kind, pooling, monkeypatch):
    model, tokens = build(kind, pooling=pooling), sentences()
    found = []
    for one_by_one in (True, False):
        monkeypatch.setattr(attention, "one_by_one", lambda x, value=one_by_one: value)
        logits_BK = model(tokens, classification_head_name=HEAD)[0]
        model.zero_grad()
        logits_BK.pow(2).sum().backward()
        found.append([logits_BK, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert gpu_path
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_gpu_code_path_trains_with_dropout_and_accepts_padding_only(gpu_path, precision):
    model = build(dropout=0.1, attention_dropout=0.1, precision=precision).train()
    model(sentences(), classification_head_name=HEAD)[0].sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    with torch.inference_mode():
        assert model.eval()(torch.full((2, 5), PAD), features_only=True)[0].shape[:2] == (2, 5)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", [RobertaSmall, CausalRobertaSmall])
def test_weights_that_are_cast_at_once_give_the_same_logits_and_gradients(
    gpu_path, monkeypatch, kind, frozen
):
    """As on a GPU; bit for bit."""
    model, found = build(kind, precision="bf16"), []
    if frozen:
        model.encoder.sentence_encoder.layers[0].requires_grad_(False)
    names = sorted(model.state_dict())
    for at_once in (True, False):
        monkeypatch.setattr(precision, "casts_at_once", lambda device, value=at_once: value)
        model.zero_grad()
        logits_BK = model(sentences(), classification_head_name=HEAD)[0]
        logits_BK.float().pow(2).sum().backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
        found[-1]["logits"] = logits_BK.detach()
    assert sorted(model.state_dict()) == names
    assert all(weight.dtype == torch.float32 for weight in model.parameters())
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        assert torch.equal(value, found[1][name]), name


@pytest.mark.cuda
@pytest.mark.parametrize("heads", [4, 3])  # sizes 6 and 8; only the first needs padding
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_cuda_equals_cpu(precision, heads):
    tokens, found = sentences(), []
    for device, of in (("cpu", "fp32"), ("cuda", precision)):
        model = build(precision=of, encoder_attention_heads=heads).to(device)
        logits_BK = model(tokens.to(device), classification_head_name=HEAD)[0].float()
        logits_BK.pow(2).sum().backward()
        grads = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
        found.append((logits_BK.detach().cpu(), grads))
    near = {"rtol": 0.05, "atol": 0.05 if precision == "bf16" else 1e-3}
    torch.testing.assert_close(found[0][0], found[1][0], **near)
    for name, gradient in found[0][1].items():
        torch.testing.assert_close(found[1][1][name].to_dense(), gradient.to_dense(), **near)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"encoder_attention_heads": 5}, "--encoder-attention-heads 5"),
        ({"tokens_per_sample": 64}, "--tokens-per-sample 64"),
        ({"encoder_layerdrop": 0.1}, "--encoder padded"),
        ({"quant_noise_pq": 0.1}, "--encoder padded"),
        ({"dropout": 1.5}, "--dropout 1.5"),
        ({"attention_dropout": -0.1}, "--attention-dropout -0.1"),
        ({"pooler_dropout": float("nan")}, "--pooler-dropout nan"),
    ],
)
def test_incompatible_flags_are_an_error(changes, facts):
    with pytest.raises(UserError, match=facts):
        build(**changes)
