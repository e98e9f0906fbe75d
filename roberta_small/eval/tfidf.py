"""A classifier of TF-IDF features, opened without torch and fairseq: the file `tfidf.npz` of a run.

`experiments.methods.tfidf` fits and writes it. Its tokens are n-grams of words, its network is linear.

Shapes: N texts, V n-grams, K classes.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_open
from roberta_small.common.label_kinds import Labels, Targets
from roberta_small.eval.base import Model
from roberta_small.eval.origin import DataFolder, OptionalPath
from roberta_small.eval.texts import Examples, Ids, InputFormat
from roberta_small.preprocess.dictionary import EOS, SPECIALS, UNK, Dictionary
from roberta_small.preprocess.label_cells import label_lines
from roberta_small.preprocess.labels import check_line_counts, classes_in
from roberta_small.preprocess.readers.lines import Block
from roberta_small.preprocess.tokenization.encoder import Encoded

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from roberta_small.eval.network import Checkpoint

AGAIN = "train the run again"
WORDS = r"(?u)\b\w\w+\b"
"""scikit-learn's words."""
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan; Burmese; Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Chinese characters
)
TOKENS = rf"[{UNSPACED}]|[^\W{UNSPACED}]{{2,}}"
"""The same, but every character of a script without spaces between words is a token of its own."""
SIMILARITY = 10.0
"""Weight of one feature against thousands, of which a few can explain a training text: almost no penalty."""
LEAST = np.finfo(np.float64).tiny
"""Divisor of a text without a known n-gram."""


@dataclass(frozen=True)
class Tfidf:
    """TF-IDF features and a linear classifier, as scikit-learn has fitted them."""

    ngrams: list[str]
    """The vocabulary: n-grams of lower-case words, joined by a space."""
    idf: NDArray[np.float64]
    """(V,)"""
    weights: NDArray[np.float64]
    """(K, V), of pairs (K, 2V + 1), for `joined`; with two exclusive classes (1, V), those of the second one;
    of a regression (1, V)."""
    bias: NDArray[np.float64]
    """(K,), or (1,) as `weights`."""
    classes: list[str]
    """In the order of the rows of `weights`."""
    sizes: tuple[int, int]
    """Minimum and maximum number of words of an n-gram."""
    sublinear: bool
    """Whether n occurrences count as 1 + log(n)."""
    pattern: str
    """What is a word."""
    labels: Labels | None = None
    """What the logits mean; None for one of `classes`."""

    @property
    def meaning(self) -> Labels:
        """What the logits mean."""
        return self.labels or Labels.single(self.classes)

    @property
    def pairs(self) -> bool:
        """Whether it classifies sentence pairs."""
        return self.weights.shape[1] > len(self.ngrams)

    @cached_property
    def _shortest(self) -> NDArray[np.bool_]:
        return shortest(self.ngrams)

    def write(self, path: Path) -> None:
        """Write the file, atomically."""
        arrays: dict[str, Any] = {
            "ngrams": _bytes("\n".join(self.ngrams)),
            "classes": _bytes("\n".join(self.classes)),
            "idf": self.idf,
            "weights": self.weights,
            "bias": self.bias,
            "sizes": np.array(self.sizes),
            "sublinear": np.array(self.sublinear),
            "pattern": np.array(self.pattern),
        }
        if self.labels is not None:
            arrays["labels"] = _bytes(json.dumps(self.labels.record()))
        with atomic_open(path, "wb") as stream:
            np.savez_compressed(stream, **arrays)

    @classmethod
    def read(cls, path: Path) -> Tfidf:
        """The content of a file; raises `UserError` if it is not one."""
        try:
            with np.load(path, allow_pickle=False) as found:
                smallest, largest = found["sizes"].tolist()
                labels = None
                if "labels" in found:
                    labels = Labels.from_record(json.loads(found["labels"].tobytes()), path)
                return cls(
                    ngrams=_lines(found["ngrams"]),
                    idf=found["idf"],
                    weights=found["weights"],
                    bias=found["bias"],
                    classes=_lines(found["classes"]),
                    sizes=(smallest, largest),
                    sublinear=bool(found["sublinear"]),
                    pattern=str(found["pattern"]) if "pattern" in found else WORDS,  # of version 1
                    labels=labels,
                )
        except FileNotFoundError:
            raise UserError(f"{path}: no such file; {AGAIN}") from None
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise UserError(f"{path}: not a TF-IDF classifier ({error}); {AGAIN}") from None

    def logits(self, rows: Sequence[Ids], *, progress: str | None = None) -> NDArray[np.float64]:
        """The logits (N, K) of rows of ids of `WordNgrams`, of which each sentence ends in `</s>`."""
        sentences = [np.split(row, np.flatnonzero(row == EOS) + 1) for row in rows]
        parts = [self._features([row[i] for row in sentences]) for i in range(1 + self.pairs)]
        scores_NK = joined(parts, self._shortest) @ self.weights.T + self.bias
        if scores_NK.shape[1] == 1 and self.meaning.kind.exclusive:
            scores_NK = np.hstack([np.zeros_like(scores_NK), scores_NK])
        return scores_NK

    def _features(self, rows: Sequence[Ids]) -> csr_matrix:
        """(N, V) TF-IDF of unit length."""
        from scipy.sparse import csr_matrix

        known = [row[row >= len(SPECIALS)] - len(SPECIALS) for row in rows]
        ids_T = np.concatenate([np.empty(0, dtype=np.int64), *known])
        starts_N = np.cumsum([0, *map(len, known)])
        counts_NV = csr_matrix((np.ones(len(ids_T)), ids_T, starts_N), (len(rows), len(self.ngrams)))
        counts_NV.sum_duplicates()
        if self.sublinear:
            counts_NV.data = np.log(counts_NV.data) + 1
        features_NV = counts_NV.multiply(self.idf).tocsr()
        norms_N1 = np.sqrt(np.asarray(features_NV.multiply(features_NV).sum(axis=1)).reshape(-1, 1))
        return features_NV.multiply(1 / np.maximum(norms_N1, LEAST)).tocsr()


def shortest(ngrams: Sequence[str]) -> NDArray[np.bool_]:
    """(V,), whether no n-gram has fewer words."""
    words_V = np.array([ngram.count(" ") for ngram in ngrams])
    return words_V == words_V.min()


def joined(parts: Sequence[csr_matrix], shortest_V: NDArray[np.bool_]) -> csr_matrix:
    """The features of N examples from those of their texts, (N, V) of unit length.

    Those of a single text are its own; of a pair (N, 2V + 1): both, and `SIMILARITY` times the cosine
    similarity of their shortest n-grams. Longer ones are mostly unknown in new texts, which raises it.
    """
    from scipy.sparse import csr_matrix, hstack

    if len(parts) == 1:
        return parts[0]
    first_NW, second_NW = (part[:, shortest_V] for part in parts)
    products_N, *norms = (
        np.asarray(one.multiply(other).sum(axis=1)).ravel()
        for one, other in ((first_NW, second_NW), (first_NW, first_NW), (second_NW, second_NW))
    )
    similarity_N = products_N / np.sqrt(np.maximum(norms[0] * norms[1], LEAST))
    return hstack([*parts, csr_matrix(SIMILARITY * similarity_N[:, None])], format="csr")


class WordNgrams:
    """Lines to ids of word n-grams; one that is not in the vocabulary is `<unk>`."""

    def __init__(self, model: Tfidf) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.dictionary = Dictionary()
        for ngram in model.ngrams:
            self.dictionary.append(ngram, 1)
        self.normalize_apostrophes = False
        self._analyze = TfidfVectorizer(ngram_range=model.sizes, token_pattern=model.pattern).build_analyzer()

    def __call__(self, block: Block) -> Encoded:
        """Encode one block of lines."""
        index = self.dictionary.index
        rows = [[*(index.get(ngram, UNK) for ngram in self._analyze(line)), EOS] for line in block.lines()]
        ids_T = np.array([number for row in rows for number in row], dtype=np.int32)
        return Encoded(block, ids_T, np.array([len(row) for row in rows], dtype=np.int64))


@dataclass(frozen=True)
class TfidfModel(Model):
    """The classifier of a run of the method tfidf."""

    def load(self) -> object:
        """Read the file; raises `UserError` as `Tfidf.read`, and for an option that has no effect."""
        if wrong := self.given.unused():
            raise UserError(f"{wrong[0]}: not with {self.run.checkpoint}, which has its own words; omit it")
        return self.network

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """There is none."""
        raise UserError(f"{self.run.checkpoint}: a TF-IDF classifier; use predict, evaluate or serve")

    precision = None
    """Everything is computed in fp64."""

    @cached_property
    def labels(self) -> Labels:
        """What the logits mean."""
        return self.network.meaning

    @property
    def pairs(self) -> bool:
        """Whether an example is two sentences."""
        return self.network.pairs

    def examples(self, split: str, data: OptionalPath = None) -> Examples:
        """The texts of a split of `data`, by default the training data; `UserError` if they do not fit."""
        folder = self.data if data is None else DataFolder.given(data)
        columns, paths = folder.columns(split), folder.texts(split)
        kinds = ("single texts", "sentence pairs")
        if len(columns) != 1 + self.pairs:
            raise UserError(f"{folder.path}: {kinds[not self.pairs]}; the run has {kinds[self.pairs]}")
        path = next(iter(paths[0])).with_suffix(".label")
        lines = label_lines(str(path), self.labels.kind)
        for column, own in zip(columns, paths, strict=True):
            check_line_counts(str(next(iter(own))), len(column), str(path), len(lines))
        targets = label_targets(lines, self.labels, path)
        return Examples(self.text_input.encode(examples_of(columns)).rows, targets, self.classes)

    @cached_property
    def encoder(self) -> WordNgrams:  # type: ignore[override]  # another text encoder
        """The n-grams of a text."""
        return WordNgrams(self.network)

    @cached_property
    def input_format(self) -> InputFormat:
        """All n-grams of a text."""
        return InputFormat(None, None, sys.maxsize, shorten=False, keep_eos=True)

    @cached_property
    def network(self) -> Tfidf:
        """The linear classifier."""
        return Tfidf.read(self.run.checkpoint)


def examples_of(columns: Sequence[list[str]]) -> list[Any]:
    """The texts, or the pairs of texts, of one or two columns."""
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def label_targets(lines: Sequence[str], labels: Labels, path: Path) -> Targets:
    """The targets of lines of labels, as in `common.label_kinds`; `UserError` for a class not in `labels`."""
    if not labels.kind.has_classes:
        return np.array([float(line) for line in lines])
    index = {name: number for number, name in enumerate(labels.classes)}
    targets_NK = np.zeros((len(lines), len(index)), dtype=bool)
    for row, line in enumerate(lines):
        for name in classes_in(line, labels.kind):
            if name not in index:
                raise UserError(
                    f"{path}, line {row + 1}: class '{name}' does not occur in the training data, which have "
                    f"{', '.join(index)}"
                )
            targets_NK[row, index[name]] = True
    return targets_NK.argmax(axis=1) if labels.kind.exclusive else targets_NK


def _bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode("utf-8"), dtype=np.uint8)


def _lines(data: NDArray[np.uint8]) -> list[str]:
    return data.tobytes().decode("utf-8").split("\n")
