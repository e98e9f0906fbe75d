"""PPMI-SVD initialization: co-occurrences, PPMI and frequencies by hand, the weights, and the script."""

import math

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from scipy.sparse import csr_matrix

from roberta_small.fairseq_plugin.checkpoints import ppmi_svd
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from roberta_small.fairseq_plugin.checkpoints.ppmi_svd import main
from tests.support.data_folders import PIECES, write_dictionary, write_split

ONE_LAYER = "--encoder-layers 1 --encoder-embed-dim 8 --encoder-ffn-embed-dim 8 --encoder-attention-heads 2"
TWO_LAYERS = (
    "--encoder-layers 2 --encoder-embed-dim 32 --encoder-ffn-embed-dim 16 --encoder-attention-heads 4"
)
LANGUAGE_MODELING = ["--task", "language_modeling"]
GROUPS = (range(4, 14), range(20, 30))
"""Token ids of the two topics of `corpus`; the first is twice as frequent."""


@pytest.mark.parametrize("pairs", [1, 6, 100])
@pytest.mark.parametrize("window", [1, 2, 5])
def test_cooccurrences_are_counted_within_window_and_sentence(monkeypatch, pairs, window):
    monkeypatch.setattr(ppmi_svd, "PAIRS", pairs)
    sentences = [[0, 1, 2, 1], [3], [2, 2, 0]]
    expected = np.zeros((4, 4))
    for sentence in sentences:
        for i, a in enumerate(sentence):
            for j, b in enumerate(sentence):
                expected[a, b] += 0 < abs(i - j) <= window
    tokens = np.concatenate([np.array(s) for s in sentences])
    numbers = np.repeat(np.arange(3), [4, 1, 3])
    assert np.array_equal(ppmi_svd.cooccurrences(tokens, numbers, 4, window).toarray(), expected)


def test_ppmi_equals_its_formula():
    counts = np.array([[2.0, 3.0, 0.0], [3.0, 0.0, 1.0], [0.0, 1.0, 4.0]])
    total, each = counts.sum(), counts.sum(axis=1)
    found = ppmi_svd.ppmi(csr_matrix(counts)).toarray()
    for a in range(3):
        for b in range(3):
            ratio = counts[a, b] * total / (each[a] * each[b])
            assert found[a, b] == pytest.approx(math.log(ratio) if ratio > 1 else 0)


def test_embeddings_factorize_the_ppmi_matrix():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, (6, 6)).astype(float)
    counts += counts.T
    counts[5] = counts[:, 5] = 0
    vectors = ppmi_svd.embeddings(csr_matrix(counts), 9, 0.3, np.random.default_rng(1))
    assert vectors.shape == (6, 9)
    assert vectors.dtype == np.float32
    factors = vectors[:5, :6]
    assert factors.mean(axis=0) == pytest.approx(np.zeros(6), abs=1e-6)
    assert factors.std() == pytest.approx(0.3, rel=1e-5)
    # Distances are the same as with a full SVD; the factors differ in sign, centring and scale.
    left, values, _ = np.linalg.svd(ppmi_svd.ppmi(csr_matrix(counts)).toarray())
    exact = (left * np.sqrt(values))[:5]
    distances = [np.linalg.norm(x[:, None] - x[None], axis=2) for x in (factors, exact)]
    assert distances[0] / distances[0].max() == pytest.approx(distances[1] / distances[1].max(), abs=1e-5)


def test_the_last_two_heads_attend_to_their_neighbours():
    attention = torch.nn.Module()
    attention.num_heads, attention.head_dim = 4, 16
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        projection = torch.nn.Linear(64, 64)
        torch.nn.init.zeros_(projection.weight)
        setattr(attention, name, projection)
    with torch.no_grad():
        ppmi_svd.initialize_attention(attention, 48)
    angles = torch.arange(20)[:, None] * ppmi_svd.frequencies(16)
    tokens_TC = torch.zeros(20, 64)
    tokens_TC[:, 48:] = math.sqrt(2) * torch.cat([angles.sin(), angles.cos()], dim=1)
    queries_THD = attention.q_proj(tokens_TC).view(20, 4, 16)
    keys_THD = attention.k_proj(tokens_TC).view(20, 4, 16)
    scores_HTT = torch.einsum("ihd,jhd->hij", queries_THD, keys_THD)
    assert not scores_HTT[:2].any()  # equal scores: the mean of all tokens
    positions = torch.arange(1, 19)
    assert torch.equal(scores_HTT[2].argmax(-1)[1:-1], positions - 1)
    assert torch.equal(scores_HTT[3].argmax(-1)[1:-1], positions + 1)


@pytest.fixture
def corpus(tmp_path):
    """Each sentence contains tokens of one of the two `GROUPS`."""
    rng = np.random.default_rng(0)
    rows = [rng.choice(GROUPS[k], 12).tolist() for k in (0, 1, 0) for _ in range(60)]
    for split in ("train", "valid"):
        write_split(tmp_path / "corpus", split, rows)
    write_dictionary(tmp_path / "corpus/dict.txt", [f"token{i}" for i in range(PIECES)])
    return tmp_path / "corpus"


def test_tokens_that_occur_together_have_similar_embeddings_each_time(corpus):
    weights, again = {}, {}
    for name, found in (("first.pt", weights), ("second.pt", again)):
        assert main([str(corpus), "--out", str(corpus.parent / name), *ONE_LAYER.split()]) == 0
        found |= load_checkpoint(corpus.parent / name)["model"]
    assert all(torch.equal(again[name], weight) for name, weight in weights.items())
    table = weights["encoder.sentence_encoder.embed_tokens.weight"].numpy()
    assert table.shape == (4 + PIECES + 1, 8)
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    similarity = unit @ unit.T
    assert similarity[4:14, 4:14].mean() > 0.5 > 0 > similarity[4:14, 20:30].mean()
    assert not table[Dictionary().pad()].any()


@pytest.fixture
def initialized(corpus, monkeypatch):
    """A function from flags of the command to the model that it initializes."""
    built = []
    initialize = ppmi_svd.initialize
    monkeypatch.setattr(
        ppmi_svd, "initialize", lambda model, counts: (initialize(model, counts), built.append(model))
    )

    def build(*flags):
        output = str(corpus / "start.pt")
        assert main([str(corpus), "--out", output, *TWO_LAYERS.split(), *flags]) == 0
        return built.pop().eval()

    return build


def odds_at(model, sentence, position):
    """Predicted odds of the first group against the second at a position of a sentence."""
    with torch.no_grad():
        probabilities_V = model(torch.tensor([sentence]))[0][0, position].softmax(-1)
    first, second = (probabilities_V[list(group)].sum() for group in GROUPS)
    return float(first / second)


def test_a_masked_token_is_predicted_from_its_context_before_training(initialized):
    model = initialized()
    table_VC = model.encoder.sentence_encoder.embed_tokens.weight
    mask = len(table_VC) - 1
    assert not table_VC[mask].any()
    odds = [odds_at(model, [0, *context[:5], mask, *context[5:9], 2], 6) for context in GROUPS]
    assert odds[0] > 2 > odds[1]  # 2 is the ratio of the frequencies
    assert odds[0] / odds[1] > 1.5


@pytest.mark.parametrize("arch", ["causal_roberta_small", "causal_lm_small"])
def test_the_next_token_is_predicted_from_its_context_before_training(initialized, arch):
    model = initialized(*LANGUAGE_MODELING, "--arch", arch)
    assert model.encoder.sentence_encoder.embed_tokens.weight[-1].any()  # a token: there is no <mask>
    odds = [odds_at(model, [2, *context[:9]], 9) for context in GROUPS]
    assert odds[0] > 2 > odds[1]


@pytest.mark.parametrize(
    ("corrupt", "flags", "facts"),
    [
        (lambda d: (d / "dict.txt").unlink(), [], ["dict.txt: no such file"]),
        (lambda d: (d / "train.bin").unlink(), [], ["train.bin: no such file"]),
        (lambda d: None, ["--window", "0"], ["--window 0"]),
        (lambda d: None, ["--encoder-attention-heads", "1"], ["--encoder-attention-heads 1"]),
        (lambda d: None, ["--arch", "masked_lm"], ["--arch masked_lm", "roberta_small"]),
        (lambda d: None, [*LANGUAGE_MODELING, "--arch", "transformer_lm"], ["--arch transformer_lm"]),
        (lambda d: None, LANGUAGE_MODELING, ["--arch roberta_small", "--arch causal_roberta_small"]),
        (lambda d: None, ["--arch", "causal_roberta_small"], ["--task masked_lm", "--task language_model"]),
    ],
)
def test_invalid_input_is_an_error(corpus, capsys, corrupt, flags, facts):
    corrupt(corpus)
    output = corpus.parent / "start.pt"
    sizes = [] if "transformer_lm" in flags else ONE_LAYER.split()
    assert main([str(corpus), "--out", str(output), *sizes, *flags]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert all(fact in message for fact in facts), message
    assert not output.exists()
