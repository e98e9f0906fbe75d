import numpy as np
import pytest

from eval.loading.network import batches, pad


@pytest.mark.parametrize("max_tokens", [1, 10, 64, 10_000])
def test_every_sentence_once_and_within_the_budget(max_tokens):
    lengths = np.random.default_rng(0).integers(1, 30, size=200)
    found = list(batches(lengths, max_tokens))
    assert sorted(np.concatenate(found).tolist()) == list(range(200))
    assert all(len(b) * lengths[b].max() <= max_tokens or len(b) == 1 for b in found)
    assert lengths[found[0][0]] == lengths.max()
    # No batch could have taken the next sentence as well.
    for batch in found[:-1]:
        assert (len(batch) + 1) * lengths[batch[0]] > max_tokens


def test_nothing_gives_no_batch():
    assert list(batches(np.empty(0, dtype=np.int64), 8)) == []


def test_padding_on_the_right():
    rows = [np.array([5, 6, 7]), np.array([8])]
    assert pad(rows, 1).tolist() == [[5, 6, 7], [8, 1, 1]]
