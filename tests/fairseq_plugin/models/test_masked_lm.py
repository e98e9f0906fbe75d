"""The blockwise loss over the vocabulary against torch's and fairseq's."""

import argparse
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.logging import metrics
from fairseq.models.roberta.model import RobertaModel
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from roberta_small.common.errors import UserError
from roberta_small.common.hardware import CPU
from roberta_small.fairseq_plugin.models import parameters as flops
from roberta_small.fairseq_plugin.models.roberta import RobertaSmall
from roberta_small.fairseq_plugin.tasks import language_modeling
from roberta_small.fairseq_plugin.tasks.language_modeling import FastMaskedLmCriterion, linear_cross_entropy
from tests.support import networks

POSITIONS, VOCAB_SIZE, WIDTH, PAD = 21, 50, 12, 1


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Use several blocks of several parts, with remainders."""
    small = replace(CPU, loss_rows=3, loss_block_bytes=8 * VOCAB_SIZE * 4, loss_columns=16)
    monkeypatch.setattr(language_modeling, "sizes_of", lambda device_type: small)


def tensors():
    torch.manual_seed(0)
    x, weight, bias = torch.randn(POSITIONS, WIDTH), torch.randn(VOCAB_SIZE, WIDTH), torch.randn(VOCAB_SIZE)
    return [t.requires_grad_() for t in (x, weight, bias)], torch.randint(VOCAB_SIZE, (POSITIONS,))


def test_the_loss_of_distant_scores_is_finite():
    """The exponential of their differences underflows in fp32."""
    (x, weight, bias), target = tensors()
    far = (x * 1000, weight, bias)
    ours, _ = linear_cross_entropy(*far, target)
    theirs = F.cross_entropy(F.linear(*far), target, reduction="sum")
    assert theirs > 100 * POSITIONS
    torch.testing.assert_close(ours, theirs)


def test_loss_and_bias_gradient_of_bf16_scores_are_computed_in_fp32():
    (x, weight, bias), target = tensors()
    half = [t.detach().bfloat16() for t in (x, weight, bias)]
    scores = torch.addmm(half[2], half[0], half[1].t()).float()
    loss, _ = linear_cross_entropy(half[0], weight, bias, target)
    assert loss.item() == pytest.approx(F.cross_entropy(scores, target, reduction="sum").item(), rel=1e-5)
    expected = (scores.softmax(-1) - F.one_hot(target, VOCAB_SIZE)).sum(0)
    torch.testing.assert_close(torch.autograd.grad(loss, bias)[0], expected, rtol=1e-4, atol=1e-4)


def test_the_loss_without_grad_and_without_positions():
    (x, weight, bias), target = tensors()
    with torch.no_grad():
        loss, _ = linear_cross_entropy(x, weight, bias, target)
        wanted = F.cross_entropy(F.linear(x, weight, bias), target, reduction="sum")
    assert loss.item() == pytest.approx(wanted.item())
    nothing, _ = linear_cross_entropy(x[:0], weight, bias, target[:0])
    nothing.backward()
    assert nothing == 0
    assert not weight.grad.any()


def models():
    dictionary = networks.dictionary(VOCAB_SIZE - 4)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    sizes = {
        "encoder_layers": 2, "encoder_embed_dim": WIDTH, "encoder_ffn_embed_dim": 16,
        "encoder_attention_heads": 2, "max_positions": 16, "precision": "fp32",
        "dropout": 0.0, "attention_dropout": 0.0,
    }  # fmt: skip
    built = []
    for kind in (RobertaModel, RobertaSmall):
        torch.manual_seed(0)
        built.append(kind.build_model(argparse.Namespace(**sizes), task).train())
    return task, *built


def batch():
    torch.manual_seed(1)
    tokens = torch.randint(4, VOCAB_SIZE, (3, 14))
    tokens[1, 9:] = PAD
    masked = (torch.rand(tokens.shape) < 0.4) & tokens.ne(PAD)
    target = tokens.masked_fill(~masked, PAD)
    return {
        "net_input": {"src_tokens": tokens, "src_lengths": tokens.ne(PAD).sum(1)},
        "target": target, "ntokens": int(tokens.ne(PAD).sum()), "nsentences": 3,
    }  # fmt: skip


@pytest.mark.parametrize("sparse", [False, True], ids=["dense gradient", "sparse gradient"])
def test_fast_masked_lm_equals_fairseqs_criterion(sparse):
    task, stock, ours = models()
    ours.encoder.sentence_encoder.embed_tokens.weight.sparse_gradient = sparse
    theirs_loss, theirs_size, _ = MaskedLmLoss(MaskedLmConfig(tpu=False), task)(stock, batch())
    loss, size, logged = FastMaskedLmCriterion(task)(ours, batch())
    assert size == theirs_size
    torch.testing.assert_close(loss, theirs_loss)
    loss.backward()
    theirs_loss.backward()
    theirs = {name: p.grad for name, p in stock.named_parameters()}
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, theirs[name], rtol=1e-4, atol=1e-5, msg=name)

    metrics.reset()
    with metrics.aggregate() as meters:
        FastMaskedLmCriterion.reduce_metrics([logged, logged])
    bits = theirs_loss.item() / int(theirs_size) / 0.6931471805599453
    assert meters["loss"].avg == pytest.approx(bits, rel=1e-6)
    assert meters.get_smoothed_values()["ppl"] == pytest.approx(2**bits, rel=1e-2)


def test_flops_equal_those_that_torch_counts():
    """On a batch without padding, and without the head, which stock fairseq computes for every token."""
    task, stock, ours = models()
    full = batch()
    full["net_input"]["src_tokens"][1] = 5
    _, masked, logged = FastMaskedLmCriterion(task)(ours, full)
    # torch does not count the FLOPs of fused attention kernels.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        x, _ = stock(**full["net_input"], features_only=True)
        (x * 2).sum().backward()
    layers_only = logged["flops"] - flops.masked_lm_head(WIDTH, VOCAB_SIZE, masked)
    assert layers_only == counter.get_total_flops()
    metrics.reset()
    with metrics.aggregate() as meters:
        for _ in range(3):  # the first call starts the clock
            FastMaskedLmCriterion.reduce_metrics([logged, logged])
    assert meters["tflops"].n == pytest.approx(4 * logged["flops"] / 1e12)
    assert FastMaskedLmCriterion(task)(ours.eval(), full)[2]["flops"] == 0


def test_another_architecture_is_an_error():
    task, stock, _ = models()
    with pytest.raises(UserError, match="--arch roberta_small"):
        FastMaskedLmCriterion(task)(stock, batch())


def test_the_bag_of_words_are_the_tokens_before_masking():
    """Each counts once; they are predicted from the first vector."""
    task, _, ours = models()
    sample, weight = batch(), 0.5
    tokens, targets = sample["net_input"]["src_tokens"], sample["target"]
    tokens[:, 0], targets[:, 0] = 0, PAD  # <s>
    sample["net_input"]["src_tokens"] = tokens.masked_fill(targets.ne(PAD), VOCAB_SIZE - 1)
    plain, size, plain_log = FastMaskedLmCriterion(task)(ours, sample)
    loss, _, logged = FastMaskedLmCriterion(task, bag_of_words=weight)(ours, sample)
    scores, _ = ours(sample["net_input"]["src_tokens"])
    log_probs = F.log_softmax(scores[:, 0], -1)
    expected = 0.0
    original = torch.where(targets.ne(PAD), targets, tokens)
    for row, (sentence, target) in enumerate(zip(original, targets, strict=True)):
        bag = sorted({token for token in sentence.tolist() if token >= 4})
        expected -= log_probs[row, bag].mean() * int(target.ne(PAD).sum())
    torch.testing.assert_close(logged["bag_loss"], expected)
    torch.testing.assert_close(loss, plain + weight * expected)
    torch.testing.assert_close(logged["loss"], plain_log["loss"])
    assert logged["flops"] - plain_log["flops"] == flops.masked_lm_head(WIDTH, VOCAB_SIZE, 3)

    metrics.reset()
    with metrics.aggregate() as meters:
        FastMaskedLmCriterion.reduce_metrics([logged, logged])
    assert meters["bag_loss"].avg == pytest.approx(float(expected.detach()) / size / 0.6931471805599453)


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_an_invalid_weight_is_an_error(weight):
    with pytest.raises(UserError, match="--bag-of-words"):
        FastMaskedLmCriterion(models()[0], bag_of_words=weight)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_loss_on_cuda_equals_that_on_a_cpu(dtype):
    found = []
    for device, of in (("cpu", torch.float32), ("cuda", dtype)):
        (x, weight, bias), target = tensors()
        inputs = [x.detach().to(device, of), weight.detach().to(device), bias.detach().to(device)]
        inputs = [each.requires_grad_() for each in inputs]
        bags = torch.rand(4, VOCAB_SIZE, generator=torch.Generator().manual_seed(1)).to(device)
        loss, _ = linear_cross_entropy(*inputs, target[:-4].to(device), bags)
        found.append([x.float().cpu() for x in (loss.detach(), *torch.autograd.grad(loss, inputs))])
    for one, other in zip(*found, strict=True):
        # In bf16, an error is relative to the terms of a sum, not to the sum.
        rtol, atol = (1e-4, 1e-4) if dtype == torch.float32 else (0.05, 0.01 * float(one.abs().max()))
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)
