"""The process of a run of the method tfidf: fits TF-IDF features and a linear model, and writes the run.

    python -m roberta_small.experiments.methods.tfidf.model TEXT RUN [options of the features]

It prints lines like those of fairseq-train, from which the launcher reads the scores.

N texts, V n-grams, K classes, or 1 for regression.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from roberta_small.common.data_folder import keys_of
from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import atomic_write
from roberta_small.common.label_kinds import Labels
from roberta_small.common.run import TFIDF, write_thresholds
from roberta_small.eval.tfidf import TOKENS, Tfidf, joined, shortest
from roberta_small.experiments.methods import MODEL, linear
from roberta_small.experiments.methods.linear import Linear
from roberta_small.experiments.methods.tfidf.method import (
    Features,
    Split,
    add_features,
    features,
    read_folder,
)
from roberta_small.experiments.progress import LOG_FORMAT, LOG_TIME

MOST_INFORMATIVE = 50


@dataclass(frozen=True)
class Fitted:
    """A model fitted on train, with C selected on valid."""

    vectorizer: TfidfVectorizer
    linear: Linear

    def outputs(self, texts: Sequence[Any]) -> NDArray[np.float64]:
        """Probabilities (N, K), or values (N, 1)."""
        return self.linear.outputs(transformed(self.vectorizer, texts))

    def most_informative(self, most: int) -> dict[str, list[tuple[str, float]]]:
        """For each class up to `most` n-grams with the largest positive weights, with these weights.

        For regression those that raise the value, and with negative weights those that lower it.
        """
        kind, names = self.linear.labels.kind, list(self.linear.labels.classes)
        ngrams_V, weights_KV = self.vectorizer.get_feature_names_out(), self.linear.weights
        if weights_KV.shape[1] > len(ngrams_V):
            ngrams_V = [f"{i}: {ngram}" for i in (1, 2) for ngram in ngrams_V] + ["cosine similarity"]
        if not kind.has_classes or (kind.exclusive and len(weights_KV) == 1):
            # Two classes share one row: positive weights favor the second class.
            weights_KV = np.concatenate([-weights_KV, weights_KV])
        if not kind.has_classes:
            names, weights_KV = ["higher", "lower"], weights_KV[::-1]
        found = {}
        for name, row_V in zip(names, weights_KV, strict=True):
            largest = [i for i in np.argsort(-row_V, kind="stable")[:most] if row_V[i] > 0]
            found[name] = [(str(ngrams_V[i]), float(row_V[i])) for i in largest]
        if not kind.has_classes:
            found["lower"] = [(ngram, -weight) for ngram, weight in found["lower"]]
        return found


def columns_of(texts: Sequence[Any]) -> list[Sequence[str]]:
    """The column of texts, or the two columns of pairs of texts."""
    return list(zip(*texts, strict=True)) if texts and not isinstance(texts[0], str) else [texts]


def transformed(words: TfidfVectorizer, texts: Sequence[Any]) -> Any:
    """The features (N, V) of texts, or (N, 2V + 1) of pairs."""
    parts = [words.transform(column) for column in columns_of(texts)]
    return joined(parts, shortest(words.get_feature_names_out()))


def fit(splits: Mapping[str, Split], labels: Labels, features: Features) -> Fitted:
    """Fit on train, and select by the metric of the kind of labels on valid (`linear.fit`).

    The features are those of scikit-learn's `TfidfVectorizer`. Raises `UserError` if no n-gram is left.
    """
    how: dict[str, Any] = {"ngram_range": features.ngrams, "min_df": features.min_df, "dtype": np.float64}
    words = TfidfVectorizer(**how, sublinear_tf=features.sublinear, token_pattern=TOKENS)
    try:
        words.fit(chain.from_iterable(columns_of(splits["train"].texts)))
    except ValueError as error:
        raise UserError(
            f"{' '.join(features.words())}: no n-gram remains ({error}); lower --min-df"
        ) from None
    fitted = linear.fit(
        {name: transformed(words, splits[name].texts) for name in ("train", "valid")},
        {name: split.targets for name, split in splits.items()},
        labels,
        labels.kind.metric,
    )
    return Fitted(words, fitted)


def write_run(folder: Path, fitted: Fitted, splits: Mapping[str, Split], features: Features) -> None:
    """Write event files, predictions and the classifier into a run folder, and log the scores."""
    model, words = fitted.linear, fitted.vectorizer
    labels = model.labels
    for name, split in splits.items():
        keys = keys_of(columns_of(split.texts))
        linear.write_split(folder, name, labels, split.targets, fitted.outputs(split.texts), keys)
    content = {
        **model.record(),
        "ngrams": len(words.vocabulary_),
        "telling": {
            name: [{"ngram": ngram, "weight": weight} for ngram, weight in ngrams]
            for name, ngrams in fitted.most_informative(MOST_INFORMATIVE).items()
        },
    }
    atomic_write(folder / MODEL, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    Tfidf(
        ngrams=words.get_feature_names_out().tolist(),
        idf=words.idf_,
        weights=model.weights,
        bias=model.bias,
        classes=list(labels.classes),
        sizes=features.ngrams,
        sublinear=features.sublinear,
        pattern=TOKENS,
        labels=None if labels.kind.exclusive else labels,
    ).write(folder / TFIDF)
    if labels.thresholds:
        write_thresholds(folder, dict(zip(labels.classes, labels.thresholds, strict=True)))


@report_errors
def main(words: Sequence[str] | None = None) -> None:
    """Fit and write one run."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("text", type=Path)
    parser.add_argument("run", type=Path)
    add_features(parser)
    options = parser.parse_args(words)
    logging.basicConfig(format=LOG_FORMAT, datefmt=LOG_TIME, level=logging.INFO, stream=sys.stdout)
    splits, labels = read_folder(options.text)
    fitted = fit(splits, labels, features(options))
    fitted.linear.print_scores()
    write_run(options.run, fitted, splits, features(options))


if __name__ == "__main__":
    sys.exit(main())
