"""The linear classifier of hashed n-grams, compared with scikit-learn on n-grams that are not hashed."""

import shlex

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.models.ngrams import NgramHead
from tests.support.data_folders import write_data
from tests.support.training import INPUT, STEPS, losses_of, save, started

NGRAMS = shlex.split(
    "--task sentence_classification --criterion sentence_classification --arch ngram_classifier "
    "--optimizer shared_adam --lr 0.05"
)
STEPS = [word for word in STEPS if word not in ("--lr", "1e-3", "--weight-decay", "0.01")]
TEXTS = ["5 6 7 5 6", "6 7 8", "9 9 9 5", "5", "7 6 5 8 8"]
LABELS = [0, 1, 2, 0, 1]
CLASSES = 3
UNSEEN = ["5 6 9 8", "8 7 6"]


def tokens(texts, *, first=0, last=2, padding=1):
    """Rows of ids with `<s>` and `</s>`, padded on the right."""
    rows = [[first, *map(int, text.split()), last] for text in texts]
    length = max(map(len, rows))
    return torch.tensor([row + [padding] * (length - len(row)) for row in rows])


def fitted(order):
    head = NgramHead(order, 1 << 20, CLASSES)
    head.count([(row[row != 1], label) for row, label in zip(tokens(TEXTS), LABELS, strict=True)])
    return head


def features(order):
    """TF-IDF times the range of the log-probabilities, from scikit-learn: train (N, V) and unseen."""
    vectorizer = TfidfVectorizer(ngram_range=(1, order), token_pattern=r"\d+", sublinear_tf=True)
    train = vectorizer.fit_transform(TEXTS)
    present = (train.toarray() > 0).astype(float)
    counts = np.stack([present[np.array(LABELS) == k].sum(axis=0) for k in range(CLASSES)])
    return vectorizer, train.toarray(), counts


@pytest.mark.parametrize("order", [1, 3])
def test_values_are_those_of_scikit_learn(order):
    head, (vectorizer, train_NV, counts_KV) = fitted(order), features(order)
    unseen_buckets = head.buckets - counts_KV.shape[1]
    log_KV = np.log((counts_KV + 1) / ((counts_KV + 1).sum(axis=1, keepdims=True) + unseen_buckets))
    expected_NV = train_NV * (log_KV.max(axis=0) - log_KV.min(axis=0))

    # With a weight of 1 for the bucket of one n-gram, the logit is the value of this n-gram.
    for ngram, column in vectorizer.vocabulary_.items():
        _, buckets, _ = NgramHead(order, head.buckets, CLASSES).occurrences(tokens([ngram]))
        longest = [b for b in buckets.tolist() if len(ngram.split()) == 1 or b not in parts(head, ngram)]
        head.out_proj.weight.data.zero_()
        head.out_proj.weight.data[0, longest] = 1
        logits_NK = head(tokens(TEXTS))
        np.testing.assert_allclose(logits_NK[:, 0].detach(), expected_NV[:, column], rtol=1e-5, atol=1e-7)


def parts(head, ngram):
    """The buckets of the shorter n-grams of an n-gram."""
    words = ngram.split()
    shorter = [" ".join(words[:-1]), " ".join(words[1:])]
    return {bucket for text in shorter for bucket in head.occurrences(tokens([text]))[1].tolist()}


def test_padding_special_symbols_and_other_texts_change_nothing():
    head = fitted(2)
    torch.nn.init.normal_(head.out_proj.weight)
    together = head(tokens(UNSEEN))
    alone = torch.cat([head(tokens([text], first=3, last=1)) for text in UNSEEN])
    torch.testing.assert_close(together, alone)


def test_a_text_without_ngrams_has_the_logits_of_the_bias():
    head = fitted(2)
    torch.nn.init.normal_(head.out_proj.bias)
    logits_BK = head(torch.tensor([[0, 2, 1], [0, 7, 2]]))
    assert torch.equal(logits_BK[0], head.out_proj.bias)
    assert logits_BK.isfinite().all()


@pytest.mark.parametrize("order", [1, 3])
def test_contributions_sum_to_the_difference_of_the_logits(order):
    head = fitted(order)
    torch.nn.init.normal_(head.out_proj.weight)
    for row_L in tokens(TEXTS + UNSEEN):
        scores_L = head.contributions(row_L)
        logits_K = head(row_L[None])[0]
        best = int(logits_K.argmax())
        others = (logits_K.sum() - logits_K[best]) / (CLASSES - 1)
        assert float(scores_L.sum()) == pytest.approx(float(logits_K[best] - others), abs=1e-5)
        assert (scores_L[row_L < 4] == 0).all()


def trainer_of(data, save_dir, *flags):
    return started([data, *NGRAMS, *INPUT, *STEPS, "--save-dir", save_dir, *flags])


def test_it_learns_and_resumes_with_the_same_weights(tmp_path):
    data = write_data(tmp_path / "data", classes=("a", "b", "c"))
    trainer = trainer_of(data, tmp_path / "run")
    losses = losses_of(trainer, 40)
    assert losses[0] == pytest.approx(np.log2(3))
    assert np.mean(losses[-5:]) < 0.7 * losses[0]

    (tmp_path / "run").mkdir()
    save(trainer, tmp_path / "run" / "checkpoint_last.pt")
    resumed = trainer_of(data, tmp_path / "run").get_model().state_dict()
    for name, weight in trainer.get_model().state_dict().items():
        assert torch.equal(resumed[name], weight), name


def test_the_checkpoint_of_another_run_is_refused(tmp_path):
    data = write_data(tmp_path / "data")
    save(trainer_of(data, tmp_path / "first"), tmp_path / "model.pt")
    with pytest.raises(UserError, match="ngram_classifier"):
        trainer_of(data, tmp_path / "run", "--finetune-from-model", tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("flags", "named"),
    [(("--ngrams", "0"), "--ngrams 0"), (("--ngrams", "6"), "--ngrams 6"), (("--ngram-buckets", "1"), "1")],
)
def test_sizes_out_of_range_are_refused(tmp_path, flags, named):
    with pytest.raises(UserError, match=named):
        trainer_of(write_data(tmp_path / "data"), tmp_path / "run", *flags)
