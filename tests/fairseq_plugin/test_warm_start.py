"""Counted embeddings: counts by hand, PPMI by its formula, and a checkpoint that fairseq starts from."""

import math

import numpy as np
import pytest
from data_folders import PIECES, write_data, write_dictionary, write_split
from fairseq.data import Dictionary
from scipy.sparse import csr_matrix

from fairseq_plugin.checkpoints import ppmi_svd
from fairseq_plugin.checkpoints.loading import load_checkpoint

SIZES = "--encoder-layers 1 --encoder-embed-dim 8 --encoder-ffn-embed-dim 8 --encoder-attention-heads 2"


@pytest.mark.parametrize("pairs", [1, 6, 100])
@pytest.mark.parametrize("window", [1, 2, 5])
def test_counts_stay_within_window_and_sentence(monkeypatch, pairs, window):
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


def test_ppmi_is_its_formula():
    counts = np.array([[2.0, 3.0, 0.0], [3.0, 0.0, 1.0], [0.0, 1.0, 4.0]])
    total, each = counts.sum(), counts.sum(axis=1)
    found = ppmi_svd.ppmi(csr_matrix(counts)).toarray()
    for a in range(3):
        for b in range(3):
            ratio = counts[a, b] * total / (each[a] * each[b])
            assert found[a, b] == pytest.approx(math.log(ratio) if ratio > 1 else 0)


def test_embeddings_reproduce_the_matrix_and_are_scaled():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, (6, 6)).astype(float)
    counts += counts.T
    counts[5] = counts[:, 5] = 0
    vectors = ppmi_svd.embeddings(csr_matrix(counts), 9, 0.3, np.random.default_rng(1))
    assert vectors.shape == (6, 9)
    assert vectors.dtype == np.float32
    known = vectors[:5, :6]
    assert known.mean(axis=0) == pytest.approx(np.zeros(6), abs=1e-6)
    assert known.std() == pytest.approx(0.3, rel=1e-5)
    # Factors of the PPMI matrix by a full SVD, up to sign, centring and scale: the same distances.
    left, values, _ = np.linalg.svd(ppmi_svd.ppmi(csr_matrix(counts)).toarray())
    exact = (left * np.sqrt(values))[:5]
    distances = [np.linalg.norm(x[:, None] - x[None], axis=2) for x in (known, exact)]
    assert distances[0] / distances[0].max() == pytest.approx(distances[1] / distances[1].max(), abs=1e-5)


@pytest.fixture
def corpus(tmp_path):
    """Pieces 4-9 keep company with each other, pieces 20-25 with each other."""
    rng = np.random.default_rng(0)
    rows = [list(rng.integers(low, low + 6, 12)) for low in (4, 20) for _ in range(60)]
    for split in ("train", "valid"):
        write_split(tmp_path / "corpus", split, rows)
    write_dictionary(tmp_path / "corpus" / "dict.txt", [f"piece{i}" for i in range(PIECES)])
    return tmp_path / "corpus"


def test_company_becomes_nearness_in_the_checkpoint(corpus, capsys):
    output = corpus.parent / "warm.pt"
    flags = [str(corpus), "--output", str(output), *SIZES.split()]
    assert ppmi_svd.main(flags) == 0
    weights = load_checkpoint(output)["model"]
    table = weights["encoder.sentence_encoder.embed_tokens.weight"].numpy()
    assert table.shape == (4 + PIECES + 1, 8)
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    likeness = unit @ unit.T
    assert likeness[4:10, 4:10].mean() > 0.5 > 0 > likeness[4:10, 20:26].mean()
    assert not table[Dictionary().pad()].any()
    before = output.read_bytes()
    assert ppmi_svd.main(flags) == 0
    again = load_checkpoint(output)["model"]
    assert all((again[name] == weights[name]).all() for name in weights), len(before)


CAUSAL = ["--task", "language_modeling", "--arch", "causal_roberta_small"]


@pytest.mark.parametrize(
    ("spoil", "flags", "said"),
    [
        (lambda d: (d / "dict.txt").unlink(), [], "dict.txt: no such file"),
        (lambda d: (d / "train.bin").unlink(), [], "train.bin: no such file"),
        (lambda d: None, ["--window", "0"], "--window 0"),
        (lambda d: None, ["--encoder-attention-heads", "1"], "--encoder-attention-heads 1"),
        (lambda d: None, ["--arch", "masked_lm"], "--arch masked_lm: first weights are for"),
        (lambda d: None, CAUSAL[:2], "take --arch causal_roberta_small"),
        (lambda d: None, CAUSAL[2:], "take --task language_modeling"),
    ],
)
def test_wrong_input_gets_a_clear_error(corpus, capsys, spoil, flags, said):
    spoil(corpus)
    output = corpus.parent / "warm.pt"
    assert ppmi_svd.main([str(corpus), "--output", str(output), *SIZES.split(), *flags]) == 1
    error = capsys.readouterr().err
    assert said in error.splitlines()[-1]
    assert not output.exists()


def test_other_language_models_of_fairseq_get_one_message(corpus, capsys):
    flags = ["--task", "language_modeling", "--arch", "transformer_lm"]
    assert ppmi_svd.main([str(corpus), "--output", str(corpus / "warm.pt"), *flags]) == 1
    assert "--arch transformer_lm: first weights are for" in capsys.readouterr().err.splitlines()[-1]


def test_data_of_a_classifier_are_not_running_text(tmp_path, capsys):
    data = write_data(tmp_path)
    assert ppmi_svd.main([str(data), "--output", str(tmp_path / "warm.pt")]) == 1
    assert "dict.txt: no such file" in capsys.readouterr().err
