"""Left-to-right models against torch's own modules; causality, pooling and heads."""

import functools
import math

import pytest
import torch
from torch import nn

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.models.causal import CausalLmSmall, CausalRobertaSmall
from roberta_small.fairseq_plugin.models.roberta import RobertaSmall
from tests.support import networks
from tests.support.networks import HEAD, LENGTHS, PAD, TOLERANCE, sentences

KINDS = (CausalLmSmall, CausalRobertaSmall)
UNK, START, END = 3, 2, 2
WIDTH, HEADS, HIDDEN, LAYERS = 24, 2, 40, 3
build = functools.partial(networks.build, encoder_attention_heads=HEADS)


class TorchModel(nn.Module):
    """The published model, built from torch's own modules."""

    def __init__(self, vocab_size):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, dropout=0.0, activation="relu")
        self.encoder = nn.TransformerEncoder(layer, LAYERS)
        self.head = nn.Linear(WIDTH, vocab_size)

    def forward(self, tokens_BL):
        length = tokens_BL.size(1)
        positions_LC = torch.zeros(length, WIDTH)
        for p in range(length):
            for i in range(0, WIDTH, 2):
                positions_LC[p, i] = math.sin(p / 10000 ** (i / WIDTH))
                positions_LC[p, i + 1] = math.cos(p / 10000 ** (i / WIDTH))
        x_LBC = (self.embed(tokens_BL) * math.sqrt(WIDTH) + positions_LC).transpose(0, 1)
        mask_LL = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.encoder(x_LBC, mask=mask_LL, is_causal=True).transpose(0, 1))


NAMES = {
    "self_attn.out_proj": "self_attn.out_proj", "linear1": "fc1", "linear2": "fc2",
    "norm1": "self_attn_layer_norm", "norm2": "final_layer_norm",
}  # fmt: skip


def torch_copy(model):
    """A `TorchModel` with the model's weights."""
    theirs = model.state_dict()
    copy = TorchModel(len(theirs["encoder.lm_head.bias"]))
    name = "encoder.sentence_encoder."
    weights = {
        "embed.weight": theirs[f"{name}embed_tokens.weight"],
        "head.weight": theirs["encoder.lm_head.weight"],
        "head.bias": theirs["encoder.lm_head.bias"],
    }
    for i in range(LAYERS):
        for end in ("weight", "bias"):
            layer = f"{name}layers.{i}."
            qkv = [theirs[f"{layer}self_attn.{part}_proj.{end}"] for part in "qkv"]
            weights[f"encoder.layers.{i}.self_attn.in_proj_{end}"] = torch.cat(qkv)
            for torchs, ours in NAMES.items():
                weights[f"encoder.layers.{i}.{torchs}.{end}"] = theirs[f"{layer}{ours}.{end}"]
    copy.load_state_dict(weights)
    return copy.train()  # it has no dropout; this avoids torch's fused inference path


def test_scores_and_gradients_equal_those_of_torchs_encoder_with_a_causal_mask():
    model = build(CausalLmSmall)
    copy, tokens = torch_copy(model), sentences()
    real = tokens.ne(PAD)
    ours, theirs = model(tokens)[0][real], copy(tokens)[real]
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    ours.pow(2).sum().backward()
    theirs.pow(2).sum().backward()
    gradient = model.encoder.sentence_encoder.embed_tokens.weight.grad
    torch.testing.assert_close(gradient, copy.embed.weight.grad, rtol=1e-3, atol=1e-3)
    fc1 = model.encoder.sentence_encoder.layers[0].fc1.weight.grad
    torch.testing.assert_close(fc1, copy.encoder.layers[0].linear1.weight.grad, rtol=1e-3, atol=1e-3)


def test_the_initialization_has_the_distributions_of_torch():
    ours, theirs = torch_copy(build(CausalLmSmall, encoder_layers=LAYERS)), TorchModel(54)
    for (name, a), b in zip(ours.encoder.named_parameters(), theirs.encoder.parameters(), strict=True):
        # Both are uniform within the same bound, zero or one; small tensors need a larger tolerance.
        few = a.dim() < 2
        assert a.abs().max().item() == pytest.approx(b.abs().max().item(), rel=0.3 if few else 0.05), name
        assert few or a.std().item() == pytest.approx(b.std().item(), rel=0.1), name
    assert 0.09 < ours.embed.weight.abs().max() <= 0.1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [LENGTHS, (16, 16)], ids=["sentences", "blocks"])
def test_features_do_not_depend_on_later_tokens(kind, lengths):
    model, tokens, at = build(kind), sentences(lengths), 7
    before = model(tokens)[0]
    other = tokens.clone()
    other[0, at:] = 4 + (tokens[0, at:] - 3) % 46
    after = model(other)[0]
    torch.testing.assert_close(after[0, :at], before[0, :at], rtol=0, atol=1e-6)
    torch.testing.assert_close(after[1:], before[1:], rtol=0, atol=1e-6)
    assert (after[0, at] - before[0, at]).abs().max() > 1e-3


def test_causal_roberta_small_differs_from_roberta_small_only_in_the_mask():
    """For sentences of one token the scores are the same."""
    causal, masked = build(CausalRobertaSmall), build(RobertaSmall)
    masked.load_state_dict(causal.state_dict())
    tokens = sentences((1, 1, 1))
    torch.testing.assert_close(causal(tokens)[0], masked(tokens)[0], **TOLERANCE)
    longer = sentences((5, 5))
    assert (causal(longer)[0] - masked(longer)[0]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changes", [{}, {"encoder_normalize_before": True}], ids=["post-norm", "pre-norm"])
def test_pooling_selects_the_last_token_or_averages(kind, changes):
    encoder, tokens = build(kind, **changes).encoder.sentence_encoder, sentences()
    features = encoder(tokens)["encoder_out"][0].transpose(0, 1)
    last = torch.stack([row[length - 1] for row, length in zip(features, LENGTHS, strict=True)])
    mean = torch.stack([row[:length].mean(0) for row, length in zip(features, LENGTHS, strict=True)])
    torch.testing.assert_close(encoder.pooled(tokens, "last"), last, **TOLERANCE)
    torch.testing.assert_close(encoder.pooled(tokens, "mean"), mean, **TOLERANCE)


def test_pooling_last_piece_ignores_eos():
    """It equals the last token of the same rows without </s>."""
    encoder = build(CausalLmSmall).encoder.sentence_encoder
    ended = torch.tensor([[START, 7, 8, END], [START, 9, END, PAD], [START, 7, 8, 9], [START, END, PAD, PAD]])
    bare = torch.tensor([[START, 7, 8, PAD], [START, 9, PAD, PAD], [START, 7, 8, 9], [START, PAD, PAD, PAD]])
    torch.testing.assert_close(encoder.pooled(ended, "last-piece"), encoder.pooled(bare, "last"), **TOLERANCE)
    assert torch.equal(encoder.without_eos(bare[[1, 3]]), bare[[1, 3]])
    assert torch.equal(ended[0], torch.tensor([START, 7, 8, END]))  # the argument is not modified


@pytest.mark.parametrize("pooling", ["last", "last-piece", "mean"])
def test_empty_rows_and_unknown_tokens_have_finite_logits(pooling):
    model = build(CausalLmSmall, classes=3, pooling=pooling)
    tokens = torch.tensor([[START, 7, 8, END], [PAD] * 4, [START, UNK, UNK, END], [START, END, PAD, PAD]])
    logits = model(tokens, classification_head_name=HEAD)[0]
    assert logits.isfinite().all()
    bias = model.classification_heads[HEAD].out_proj.bias
    torch.testing.assert_close(logits[1], bias)  # the pooled vector is zero
    for row in (2, 3):
        real = tokens[row][tokens[row].ne(PAD)]
        torch.testing.assert_close(
            logits[row], model(real[None], classification_head_name=HEAD)[0][0], **TOLERANCE
        )
    empty = model(tokens[1:2], classification_head_name=HEAD)[0]
    torch.testing.assert_close(empty[0], bias)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"encoder_kind": "padded"}, "--encoder padded: .*--encoder packed"),
        ({"encoder_attention_heads": 5}, "--encoder-embed-dim 24 .*--encoder-attention-heads 5"),
        ({"tokens_per_sample": 99}, "--tokens-per-sample 99 .*--max-positions 32"),
    ],
)
def test_incompatible_flags_are_an_error(changes, facts):
    with pytest.raises(UserError, match=facts):
        build(CausalLmSmall, **changes)
