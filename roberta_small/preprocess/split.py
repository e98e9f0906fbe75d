"""Hold out examples of a labelled file: stratified, seeded, and the same on every machine.

In each class the examples are ordered by SHA-256 of "<seed> <index>" and the first ones are held out; no
library's random numbers are involved. Classes share the size of a split in proportion to their own (largest
remainders), and all splits keep the order of the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction

from roberta_small.common.errors import UserError


def grouped_split(
    labels: Sequence[str], keys: Sequence[str], sizes: dict[str, int], seed: int
) -> dict[str, list[int]]:
    """0-based indices of "train" and of each split in `sizes`, ascending; equal `keys` stay in one split.

    What is ordered are groups of examples with the same key, under the label and index of their first one.
    Every class keeps a group for training, and a split may be smaller than its size where the groups do not
    add up to it.
    """
    groups: dict[str, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    classes: dict[str, list[list[int]]] = {}
    for group in groups.values():
        classes.setdefault(labels[group[0]], []).append(group)
    for label in classes:
        classes[label].sort(key=lambda group: hashlib.sha256(f"{seed} {group[0]}".encode()).digest())
    numbers = {label: sum(map(len, of_class)) for label, of_class in classes.items()}
    split: dict[str, list[int]] = {"train": [], **{name: [] for name in sizes}}
    for name, size in sizes.items():
        # In proportion to the classes, by largest remainders; ties go to the first name.
        exact = {label: Fraction(number * size, len(labels)) for label, number in numbers.items()}
        shares = {label: int(share) for label, share in exact.items()}
        by_remainder = sorted(exact, key=lambda label: (shares[label] - exact[label], label))
        for label in by_remainder[: size - sum(shares.values())]:
            shares[label] += 1
        for label, left in classes.items():
            for group in left[:]:
                if len(left) > 1 and len(group) <= shares[label]:
                    shares[label] -= len(group)
                    split[name] += group
                    left.remove(group)
    split["train"] = [index for left in classes.values() for group in left for index in group]
    return {name: sorted(indices) for name, indices in split.items()}


def part_of(size: str, lines: int, flag: str) -> int:
    """A number of lines, given as such or as a fraction; raises `UserError` naming `flag`."""
    try:
        number = round(Fraction(size) * lines) if "." in size else int(size)
    except ValueError:
        raise UserError(f"{flag} {size}: must be a number, or a fraction such as 0.1") from None
    if not 0 < number < lines:
        raise UserError(
            f"{flag} {size}: {number} of {lines} examples; use 1 to {lines - 1}, or a fraction such as 0.1"
        )
    return number
