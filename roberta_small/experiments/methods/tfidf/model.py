"""The process of a run of the method tfidf: fits TF-IDF features and a linear model, and writes the run.

    python -m roberta_small.experiments.methods.tfidf.model TEXT RUN [options of the features]

It prints lines like those of fairseq-train, from which the launcher reads the scores.

N texts, V n-grams, K classes, or 1 for regression.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from roberta_small.common import predictions
from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import atomic_write
from roberta_small.common.label_kinds import Labels, chosen_thresholds
from roberta_small.common.metrics import logged, number, scored
from roberta_small.common.run import TENSORBOARD, TFIDF, write_thresholds
from roberta_small.eval.tfidf import TOKENS, Tfidf, joined
from roberta_small.experiments.methods.tfidf.method import (
    MODEL,
    STRENGTHS,
    Features,
    Split,
    add_features,
    features,
    read_folder,
)
from roberta_small.experiments.progress import LOG_FORMAT, LOG_TIME

TOLERANCE = 1e-6
"""scikit-learn's default of 1e-4 stops before the optimum if C is large."""
MAX_ITERATIONS = 5000
STEP = 1
"""The fit is logged as one step."""
MOST_INFORMATIVE = 50
EPSILON = np.finfo(float).eps
"""The least probability of a true class in the loss."""
CERTAIN = 20.0
"""Logit of a class that all training texts have."""


def linear(model: LogisticRegression | OneVsRestClassifier | Ridge) -> tuple[NDArray, NDArray]:
    """Weights (K, V) and biases (K,) of a fitted model; of two exclusive classes, those of the second."""
    if not isinstance(model, OneVsRestClassifier):
        return np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    weights, biases = [], []
    size = next((one.coef_.shape[1] for one in model.estimators_ if hasattr(one, "coef_")), 0)
    for one in model.estimators_:
        if hasattr(one, "coef_"):
            weights.append(one.coef_[0])
            biases.append(float(one.intercept_[0]))
        else:  # a class that all training texts have, or none
            weights.append(np.zeros(size))
            biases.append(CERTAIN if one.predict(np.zeros((1, size)))[0] else -CERTAIN)
    return np.stack(weights), np.array(biases)


def outputs(model: Any, x_NV: Any, labels: Labels) -> NDArray[np.float64]:
    """The outputs of a fitted model, as `Labels.outputs`: probabilities (N, K), or values (N, 1)."""
    if labels.kind.exclusive:
        known = list(model.classes_)
        return model.predict_proba(x_NV)[:, [known.index(name) for name in labels.classes]]
    weights_KV, bias_K = linear(model)
    return labels.outputs(np.asarray(x_NV @ weights_KV.T) + bias_K)


@dataclass(frozen=True)
class Fitted:
    """A model fitted on train, with C selected on valid."""

    vectorizer: TfidfVectorizer
    classifier: Any
    """A `LogisticRegression`, or a `OneVsRestClassifier` of them, or a `Ridge`."""
    labels: Labels
    """With the thresholds of multi-label data."""
    strength: float
    valid_scores: dict[float, float]
    """The metric of the kind of labels for each of `STRENGTHS`."""

    def outputs(self, texts: Sequence[Any]) -> NDArray[np.float64]:
        """As the function of this name."""
        return outputs(self.classifier, transformed(self.vectorizer, texts), self.labels)

    def most_informative(self, most: int) -> dict[str, list[tuple[str, float]]]:
        """For each class up to `most` n-grams with the largest positive weights, with these weights.

        For regression those that raise the value, and with negative weights those that lower it.
        """
        kind, names = self.labels.kind, list(self.labels.classes)
        ngrams_V, (weights_KV, _) = self.vectorizer.get_feature_names_out(), linear(self.classifier)
        if weights_KV.shape[1] > len(ngrams_V):
            ngrams_V = [f"{i}: {ngram}" for i in (1, 2) for ngram in ngrams_V] + ["cosine similarity"]
        if not kind.has_classes or (kind.exclusive and len(weights_KV) == 1):
            # Two classes share one row: positive weights favor the second class.
            weights_KV = np.concatenate([-weights_KV, weights_KV])
        if not kind.has_classes:
            names, weights_KV = ["higher", "lower"], weights_KV[::-1]
        elif kind.exclusive:
            known = list(self.classifier.classes_)
            weights_KV = weights_KV[[known.index(name) for name in names]]
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
    return joined([words.transform(column) for column in columns_of(texts)], words.get_feature_names_out())


def fit(splits: Mapping[str, Split], labels: Labels, features: Features) -> Fitted:
    """Fit on train for each of `STRENGTHS` and select by the metric of the kind of labels on valid.

    Regression is selected by the squared error. The features are those of scikit-learn's `TfidfVectorizer`.
    The smallest C is selected on a tie. Raises `UserError` if no n-gram is left.
    """
    train, valid, kind = splits["train"], splits["valid"], labels.kind
    how: dict[str, Any] = {"ngram_range": features.ngrams, "min_df": features.min_df, "dtype": np.float64}
    words = TfidfVectorizer(**how, sublinear_tf=features.sublinear, token_pattern=TOKENS)
    try:
        words.fit(chain.from_iterable(columns_of(train.texts)))
    except ValueError as error:
        raise UserError(
            f"{' '.join(features.words())}: no n-gram remains ({error}); lower --min-df"
        ) from None
    train_NV, valid_NV = transformed(words, train.texts), transformed(words, valid.texts)
    # For many classes, Newton's method from the solution of the strength before is seven times faster.
    how = {"solver": "newton-cg", "warm_start": True} if len(labels.classes) > 2 else {}
    exclusive = LogisticRegression(tol=TOLERANCE, max_iter=MAX_ITERATIONS, **how)
    found, models = {}, {}
    for strength in STRENGTHS:
        model: Any
        if kind.exclusive:
            model = copy.deepcopy(exclusive.set_params(C=strength).fit(train_NV, train.lines))
        elif kind.has_classes:
            one = LogisticRegression(C=strength, tol=TOLERANCE, max_iter=MAX_ITERATIONS)
            with warnings.catch_warnings(action="ignore"):  # a class that all texts have, or none
                model = OneVsRestClassifier(one).fit(train_NV, train.targets.astype(int))
        else:
            model = Ridge(alpha=1 / strength, tol=TOLERANCE, max_iter=MAX_ITERATIONS, solver="sparse_cg")
            model.fit(train_NV, (train.targets - labels.scaling.mean) / labels.scaling.scale)
        models[strength] = model
        found[strength] = scores(labels, valid.targets, outputs(model, valid_NV, labels))
    # A correlation is the same for values that a strong penalty pulls towards the mean; their error is not.
    merits = {c: x[kind.metric] if kind.has_classes else -x["loss"] for c, x in found.items()}
    best = max(STRENGTHS, key=lambda strength: (merits[strength], -strength))
    thresholds = chosen_thresholds(labels, valid.targets, outputs(models[best], valid_NV, labels))
    return Fitted(
        words,
        models[best],
        labels.with_thresholds(thresholds),
        best,
        {c: x[kind.metric] for c, x in found.items()},
    )


def scores(labels: Labels, targets: Any, outputs_NK: NDArray[np.float64]) -> dict[str, float]:
    """The metrics of a training log.

    As in training, a class of multi-label data is predicted from a probability of 0.5 on, and the loss is in
    bits: the mean over examples and classes, or of the squared error of standardized values divided by ln 2.
    """
    test_set = scored(replace(labels, thresholds=()), targets, outputs_NK)
    statistics = test_set.statistics(np.ones((1, len(targets))))
    found = {
        metric.name: float(metric.from_statistics(statistics)[0])
        for metric in logged(labels.kind.name)
        if metric.from_statistics is not None
    }
    if labels.kind.exclusive:
        losses = -np.log(np.maximum(outputs_NK[np.arange(len(targets)), targets], EPSILON))
    elif labels.kind.has_classes:
        p_NK = np.clip(outputs_NK, np.finfo(float).tiny, 1 - EPSILON)
        losses = -np.where(targets, np.log(p_NK), np.log1p(-p_NK))
    else:
        losses = ((outputs_NK[:, 0] - targets) / labels.scaling.scale) ** 2
    return {**found, "loss": float(losses.mean()) / np.log(2)}


def write_run(folder: Path, fitted: Fitted, splits: Mapping[str, Split], features: Features) -> None:
    """Write event files, predictions and the classifier into a run folder, and log the scores."""
    labels, words, (weights_KV, bias_K) = fitted.labels, fitted.vectorizer, linear(fitted.classifier)
    for name, split in splits.items():
        outputs_NK = fitted.outputs(split.texts)
        found = scores(labels, split.targets, outputs_NK)
        writer = EventFileWriter(str(folder / TENSORBOARD / name))
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in found.items()])
        writer.add_event(Event(wall_time=time.time(), step=STEP, summary=summary))
        writer.close()
        prefix = "" if name == "train" else f"{name}_"
        record = {"epoch": 1} | {f"{prefix}{key}": f"{value:.6g}" for key, value in found.items()}
        logging.getLogger(name).info(json.dumps(record | {f"{prefix}num_updates": str(STEP)}))
        if name != "train":
            rows = predictions.from_outputs(labels, outputs_NK, split.targets)
            keys = predictions.keys_of(columns_of(split.texts))
            predictions.write(folder / predictions.file_name(name), rows, keys)
    metric = labels.kind.metric
    content = {
        "C": fitted.strength,
        f"valid_{metric}": [{"C": c, metric: x} for c, x in fitted.valid_scores.items()],
        "ngrams": len(words.vocabulary_),
        "telling": {
            name: [{"ngram": ngram, "weight": weight} for ngram, weight in ngrams]
            for name, ngrams in fitted.most_informative(MOST_INFORMATIVE).items()
        },
    }
    atomic_write(folder / MODEL, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    exclusive = labels.kind.exclusive
    Tfidf(
        ngrams=words.get_feature_names_out().tolist(),
        idf=words.idf_,
        weights=weights_KV,
        bias=bias_K,
        classes=[str(name) for name in (fitted.classifier.classes_ if exclusive else labels.classes)],
        sizes=features.ngrams,
        sublinear=features.sublinear,
        pattern=TOKENS,
        labels=None if exclusive else labels,
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
    metric = labels.kind.metric
    for strength, value in fitted.valid_scores.items():
        shown = f"valid {metric} {number(value, metric)}"
        print(f"C {strength:<8.3g} {shown}{'  chosen' * (strength == fitted.strength)}")
    write_run(options.run, fitted, splits, features(options))


if __name__ == "__main__":
    sys.exit(main())
