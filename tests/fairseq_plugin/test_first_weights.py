"""First weights: shares by hand, heads that look where they should, and context that counts untrained."""

import math

import numpy as np
import pytest
import torch
from data_folders import PIECES, write_dictionary, write_split

from fairseq_plugin.checkpoints import ppmi_svd

SIZES = "--encoder-layers 2 --encoder-embed-dim 32 --encoder-ffn-embed-dim 16 --encoder-attention-heads 4"
GROUPS = (range(4, 14), range(20, 30))


def test_shares_are_smoothed_and_logarithmic():
    shares = np.exp(ppmi_svd.log_shares(np.array([6, 0, 3])))
    assert shares == pytest.approx(np.array([6, 0.1, 3]) / 9.1, rel=1e-6)


@pytest.mark.parametrize("offset", [-2, -1, 1, 3])
def test_a_shift_turns_positions_into_later_ones(offset):
    angles = torch.arange(10)[:, None] * ppmi_svd.frequencies(8)
    positions_TD = torch.cat([angles.sin(), angles.cos()], dim=1)
    shifted_TD = positions_TD @ ppmi_svd.shift(8, offset).T
    inner = slice(3, 7)
    assert torch.allclose(shifted_TD[inner], positions_TD[3 + offset : 7 + offset], atol=1e-6)


def test_heads_look_at_their_neighbours():
    attention = torch.nn.Module()
    attention.num_heads, attention.head_dim = 4, 16
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        projection = torch.nn.Linear(64, 64)
        torch.nn.init.zeros_(projection.weight)
        setattr(attention, name, projection)
    with torch.no_grad():
        ppmi_svd.copy_context(attention, 48)
    angles = torch.arange(20)[:, None] * ppmi_svd.frequencies(16)
    tokens_TC = torch.zeros(20, 64)
    tokens_TC[:, 48:] = math.sqrt(2) * torch.cat([angles.sin(), angles.cos()], dim=1)
    queries_THD = attention.q_proj(tokens_TC).view(20, 4, 16)
    keys_THD = attention.k_proj(tokens_TC).view(20, 4, 16)
    scores_HTT = torch.einsum("ihd,jhd->hij", queries_THD, keys_THD)
    assert not scores_HTT[:2].any()  # the mean of all
    places = torch.arange(1, 19)
    assert torch.equal(scores_HTT[2].argmax(-1)[1:-1], places - 1)
    assert torch.equal(scores_HTT[3].argmax(-1)[1:-1], places + 1)


@pytest.fixture
def corpus(tmp_path):
    """Each sentence is of one of two groups of pieces, one of which is twice as frequent."""
    rng = np.random.default_rng(0)
    rows = [rng.choice(GROUPS[k], 12).tolist() for k in (0, 1, 0) for _ in range(60)]
    for split in ("train", "valid"):
        write_split(tmp_path / "corpus", split, rows)
    write_dictionary(tmp_path / "corpus" / "dict.txt", [f"piece{i}" for i in range(PIECES)])
    return tmp_path / "corpus"


CAUSAL = ["--task", "language_modeling", "--arch"]


@pytest.fixture
def written(corpus, monkeypatch):
    """A function from flags of `warm_start` to the model that it writes."""
    built = []
    write = ppmi_svd.write_weights
    monkeypatch.setattr(
        ppmi_svd, "write_weights", lambda model, counts: (write(model, counts), built.append(model))
    )

    def build(*flags):
        assert ppmi_svd.main([str(corpus), "--output", str(corpus / "warm.pt"), *SIZES.split(), *flags]) == 0
        return built.pop().eval()

    return build


def odds_after(model, sentence, place):
    """How much more likely the frequent group is than the other, at a place of a sentence."""
    with torch.no_grad():
        shares_V = model(torch.tensor([sentence]))[0][0, place].softmax(-1)
    frequent, rare = (shares_V[list(group)].sum() for group in GROUPS)
    return float(frequent / rare)


def test_a_masked_piece_is_predicted_from_its_context_before_any_training(written):
    model = written()
    table_VC = model.encoder.sentence_encoder.embed_tokens.weight
    mask = len(table_VC) - 1
    assert not table_VC[mask].any()
    odds = [odds_after(model, [0, *context[:5], mask, *context[5:9], 2], 6) for context in GROUPS]
    assert odds[0] > 2 > odds[1]  # 2: without a look at the context
    assert odds[0] / odds[1] > 1.5


@pytest.mark.parametrize("arch", ["causal_roberta_small", "causal_lm_small"])
def test_a_next_piece_is_predicted_from_those_before_it(written, arch):
    model = written(*CAUSAL, arch)
    assert model.encoder.sentence_encoder.embed_tokens.weight[-1].any()  # a piece: there is no <mask>
    odds = [odds_after(model, [2, *context[:9]], 9) for context in GROUPS]
    assert odds[0] > 2 > odds[1]
