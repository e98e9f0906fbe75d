"""Which of very many keys were there before, in eight bytes a key."""

from __future__ import annotations

import numpy as np


class Seen:
    """A set of 64-bit keys that is asked and filled many keys at a time.

    The keys lie in sorted arrays, each more than twice as long as the next; new ones are merged from the
    short end (a log-structured merge tree: O'Neil et al. 1996). So N keys take 8 N bytes, and up to three
    times that while the longest arrays are merged, where Python's set of bytes takes 75 N.
    """

    def __init__(self) -> None:
        self.sorted_arrays: list[np.ndarray] = []

    def add(self, keys_N: np.ndarray) -> np.ndarray:
        """Keys, uint64 (N,) -> bool (N,): whether a key is new, at its first place."""
        keys_D, first_D = np.unique(keys_N, return_index=True)
        new_D = np.ones(len(keys_D), dtype=bool)
        for array in self.sorted_arrays:
            place_D = np.searchsorted(array, keys_D)
            new_D &= array[np.minimum(place_D, len(array) - 1)] != keys_D
        new_N = np.zeros(len(keys_N), dtype=bool)
        new_N[first_D[new_D]] = True
        if new_D.any():
            self._merge(keys_D[new_D])
        return new_N

    def _merge(self, keys: np.ndarray) -> None:
        while self.sorted_arrays and len(self.sorted_arrays[-1]) <= 2 * len(keys):
            keys = np.concatenate([self.sorted_arrays.pop(), keys])
            keys.sort(kind="stable")  # of two sorted halves: one merge
        self.sorted_arrays.append(keys)
