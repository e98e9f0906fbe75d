from itertools import pairwise

import numpy as np
import pytest

from preprocess.corpus import Seen


@pytest.mark.parametrize("most", [50, 5_000, 2**64 - 1])
def test_new_is_what_a_set_has_not(most):
    generator = np.random.default_rng(1)
    seen, known = Seen(), set()
    for size in [0, 1, 1, 700, 3, *generator.integers(0, 900, 40)]:
        keys = generator.integers(0, most, size, np.uint64, endpoint=True)
        expected = []
        for key in keys.tolist():
            expected.append(key not in known)
            known.add(key)
        assert seen.add(keys).tolist() == expected
    kept = np.concatenate(seen.sorted_arrays)
    assert set(kept.tolist()) == known
    assert len(kept) == len(known)


def test_eight_bytes_a_key_in_a_few_arrays():
    seen = Seen()
    for start in range(0, 100_000, 100):
        assert seen.add(np.arange(start, start + 100, dtype=np.uint64)).all()
    lengths = [len(array) for array in seen.sorted_arrays]
    assert sum(array.nbytes for array in seen.sorted_arrays) == 800_000
    assert all(longer > 2 * shorter for longer, shorter in pairwise(lengths))
