"""Which examples are held out."""

import hashlib
from collections import Counter

from roberta_small.preprocess.split import grouped_split

LABELS = [["b", "a", "a"][i % 3] for i in range(50)]  # 17 b, 33 a
KEYS = [str(i) for i in range(50)]


def test_parts_are_disjoint_complete_and_in_order():
    split = grouped_split(LABELS, KEYS, {"valid": 10, "test": 5}, seed=1)
    assert sorted(index for indices in split.values() for index in indices) == list(range(50))
    assert {name: len(indices) for name, indices in split.items()} == {"train": 35, "valid": 10, "test": 5}
    assert all(indices == sorted(indices) for indices in split.values())


def test_classes_share_in_proportion():
    """10 of 50 lines with classes of 33 and 17: exact shares 6.6 and 3.4."""
    valid = grouped_split(LABELS, KEYS, {"valid": 10}, seed=1)["valid"]
    assert Counter(LABELS[i] for i in valid) == {"a": 7, "b": 3}


def test_order_is_the_documented_hash():
    valid = grouped_split(["x"] * 20, KEYS[:20], {"valid": 5}, seed=7)["valid"]
    keys = {i: hashlib.sha256(f"7 {i}".encode()).hexdigest() for i in range(20)}
    assert valid == sorted(sorted(keys, key=keys.get)[:5])


def test_a_class_always_has_training_examples():
    split = grouped_split(["a"] * 20 + ["b"], KEYS[:21], {"valid": 10, "test": 5}, seed=1)
    assert 20 in split["train"]
