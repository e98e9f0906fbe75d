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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.multiclass import OneVsRestClassifier
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from roberta_small.common import predictions
from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import atomic_write
from roberta_small.common.label_kinds import SINGLE_LABEL, Labels, chosen_thresholds
from roberta_small.common.metrics import Scored, logged, measure_statistics, metrics_of, number, scored
from roberta_small.common.run import TENSORBOARD, TFIDF, write_thresholds
from roberta_small.eval.tfidf import Tfidf
from roberta_small.experiments.methods.tfidf.method import (
    MODEL,
    STRENGTHS,
    Features,
    Split,
    Splits,
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
CERTAIN = 20.0
"""Logit of a class that all training texts have."""

Probabilities = NDArray[np.float64]


def vectorizer(features: Features) -> TfidfVectorizer:
    """The vectorizer; words are lower-cased and have at least two characters (scikit-learn's pattern).

    Weights are term frequency times ln((1 + N) / (1 + document frequency)) + 1, with L2 normalization.
    """
    return TfidfVectorizer(
        ngram_range=features.ngrams, min_df=features.min_df, sublinear_tf=features.sublinear, dtype=np.float64
    )


@dataclass(frozen=True)
class Linear:
    """The weights of a linear model."""

    weights: NDArray[np.float64]
    """(K, V); with two exclusive classes (1, V), those of the second one."""
    bias: NDArray[np.float64]
    """(K,), or (1,)."""

    @classmethod
    def of(cls, model: LogisticRegression | OneVsRestClassifier | Ridge) -> Linear:
        """The weights of a fitted model."""
        if isinstance(model, Ridge):
            return cls(np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_))
        if isinstance(model, LogisticRegression):
            return cls(model.coef_, model.intercept_)
        size = next((one.coef_.shape[1] for one in model.estimators_ if hasattr(one, "coef_")), 0)
        rows = [_of_class(one, size) for one in model.estimators_]
        return cls(np.stack([weights for weights, _ in rows]), np.array([bias for _, bias in rows]))

    def logits(self, x_NV: Any) -> NDArray[np.float64]:
        """(N, K)."""
        return np.asarray(x_NV @ self.weights.T) + self.bias


def _of_class(model: Any, size: int) -> tuple[NDArray[np.float64], float]:
    """Weights and bias of one class of multi-label data, which all training texts or none may have."""
    if hasattr(model, "coef_"):
        return model.coef_[0], float(model.intercept_[0])
    return np.zeros(size), CERTAIN if model.predict(np.zeros((1, size)))[0] else -CERTAIN


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

    @property
    def classes(self) -> list[str]:
        """Empty for regression."""
        return list(self.labels.classes)

    @property
    def valid_accuracy(self) -> dict[float, float]:
        """`valid_scores` of data with one class per text: accuracy in percent."""
        return self.valid_scores

    def probabilities(self, texts: Sequence[str]) -> Probabilities:
        """Probabilities (N, K), with the classes in the order of `classes`, or values (N, 1)."""
        return outputs(self.classifier, self.vectorizer.transform(texts), self.labels)

    def export(self, features: Features) -> Tfidf:
        """The classifier as a file."""
        words, linear, exclusive = self.vectorizer, Linear.of(self.classifier), self.labels.kind.exclusive
        return Tfidf(
            ngrams=words.get_feature_names_out().tolist(),
            idf=words.idf_,
            weights=linear.weights,
            bias=linear.bias,
            classes=[str(name) for name in self.classifier.classes_] if exclusive else self.classes,
            sizes=features.ngrams,
            sublinear=features.sublinear,
            labels=None if exclusive else self.labels,
        )

    def most_informative(self, most: int) -> dict[str, list[tuple[str, float]]]:
        """For each class up to `most` n-grams with the largest positive weights, with these weights.

        For regression those that raise the value, and with negative weights those that lower it.
        """
        ngrams_V = self.vectorizer.get_feature_names_out()
        weights_KV = Linear.of(self.classifier).weights
        if not self.labels.kind.has_classes:
            lower = [(ngram, -weight) for ngram, weight in _largest(ngrams_V, -weights_KV[0], most)]
            return {"higher": _largest(ngrams_V, weights_KV[0], most), "lower": lower}
        if not self.labels.kind.exclusive:
            return {
                name: _largest(ngrams_V, row_V, most)
                for name, row_V in zip(self.classes, weights_KV, strict=True)
            }
        if len(weights_KV) == 1:  # two classes share one row: positive weights favor the second class
            weights_KV = np.concatenate([-weights_KV, weights_KV])
        row_of = {name: row for row, name in enumerate(self.classifier.classes_)}
        return {name: _largest(ngrams_V, weights_KV[row_of[name]], most) for name in self.classes}


def fit(splits: Splits, features: Features) -> Fitted:
    """Fit on train for each of `STRENGTHS` and select by the metric of the kind of labels on valid.

    The smallest C is selected on a tie. Raises `UserError` if no n-gram is left.
    """
    words = vectorizer(features)
    try:
        train_NV = words.fit_transform(splits.train.texts)
    except ValueError as error:
        raise UserError(
            f"{' '.join(features.words())}: no n-gram remains ({error}); lower --min-df"
        ) from None
    valid_NV = words.transform(splits.valid.texts)
    labels, found, models = splits.labels, {}, {}
    for strength, model in _models(splits, train_NV):
        models[strength] = model
        found[strength] = measure(labels, splits.targets(splits.valid), outputs(model, valid_NV, labels))
    best = max(STRENGTHS, key=lambda strength: (found[strength], -strength))
    p_NK = outputs(models[best], valid_NV, labels)
    labels = labels.with_thresholds(chosen_thresholds(labels, splits.targets(splits.valid), p_NK))
    return Fitted(words, models[best], labels, best, found)


def measure(labels: Labels, targets: Any, outputs_NK: Probabilities) -> float:
    """The metric of the kind of labels."""
    test_set = scored(labels, targets, outputs_NK)
    statistics = test_set.statistics(np.ones((1, test_set.count)))
    metric = metrics_of(labels.kind.name)[labels.kind.metric]
    assert metric.from_statistics is not None
    return float(metric.from_statistics(statistics)[0])


def _models(splits: Splits, train_NV: Any) -> Iterator[tuple[float, Any]]:
    """A model for each of `STRENGTHS`, fitted on train."""
    # For many classes, Newton's method from the solution of the strength before is seven times faster.
    how: dict[str, Any] = {"solver": "newton-cg", "warm_start": True} if len(splits.classes) > 2 else {}
    classifier = LogisticRegression(tol=TOLERANCE, max_iter=MAX_ITERATIONS, **how)
    targets, scaling = splits.targets(splits.train), splits.labels.scaling
    for strength in STRENGTHS:
        if splits.kind.exclusive:
            classifier.set_params(C=strength).fit(train_NV, splits.train.labels)
            yield strength, copy.deepcopy(classifier)
        elif splits.kind.has_classes:
            one = LogisticRegression(C=strength, tol=TOLERANCE, max_iter=MAX_ITERATIONS)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a class that all texts have, or none
                yield strength, OneVsRestClassifier(one).fit(train_NV, targets.astype(int))
        else:
            ridge = Ridge(alpha=1 / strength, tol=TOLERANCE, max_iter=MAX_ITERATIONS, solver="sparse_cg")
            yield strength, ridge.fit(train_NV, (targets - scaling.mean) / scaling.scale)


def outputs(model: Any, x_NV: Any, labels: Labels) -> Probabilities:
    """The outputs of a fitted model, as `Labels.outputs`."""
    if labels.kind.exclusive:
        return _in_order(model, x_NV, labels.classes)
    return labels.outputs(Linear.of(model).logits(x_NV))


def scores(probabilities_NK: Probabilities, split: Split, classes: Sequence[str]) -> dict[str, float]:
    """The metrics of a training log: every registered metric of a confusion matrix, and the loss in bits."""
    labels = np.asarray([list(classes).index(name) for name in split.labels])
    matrix_KK = Scored(labels, probabilities_NK).confusion(np.ones((1, len(labels))))[0]
    names = sorted(classes)  # the column order of log_loss
    columns = [list(classes).index(name) for name in names]
    return {
        **measure_statistics(SINGLE_LABEL, matrix_KK),
        "loss": float(log_loss(np.asarray(split.labels), probabilities_NK[:, columns], labels=names))
        / np.log(2),
    }


def scores_of(labels: Labels, split: Split, targets: Any, outputs_NK: Probabilities) -> dict[str, float]:
    """The metrics of a training log for any kind of labels.

    As in training, a class of multi-label data is predicted from a probability of 0.5 on, and the loss is in
    bits: the mean over examples and classes, or of the squared error of standardized values divided by ln 2.
    """
    if labels.kind.exclusive:
        return scores(outputs_NK, split, labels.classes)
    plain = replace(labels, thresholds=())
    statistics = scored(plain, targets, outputs_NK).statistics(np.ones((1, len(split.labels))))
    found = {
        metric.name: float(metric.from_statistics(statistics)[0])
        for metric in logged(labels.kind.name)
        if metric.from_statistics is not None
    }
    if labels.kind.has_classes:
        p_NK = np.clip(outputs_NK, np.finfo(float).tiny, 1 - np.finfo(float).eps)
        loss = -np.where(targets, np.log(p_NK), np.log1p(-p_NK)).mean()
    else:
        loss = (((outputs_NK[:, 0] - targets) / labels.scaling.scale) ** 2).mean()
    return {**found, "loss": float(loss) / np.log(2)}


def _in_order(classifier: LogisticRegression, x_NV: object, classes: Sequence[str]) -> Probabilities:
    known = list(classifier.classes_)
    return classifier.predict_proba(x_NV)[:, [known.index(name) for name in classes]]


def _largest(ngrams_V: NDArray, weights_V: NDArray[np.float64], most: int) -> list[tuple[str, float]]:
    largest = np.argsort(-weights_V, kind="stable")[:most]
    return [(str(ngrams_V[i]), float(weights_V[i])) for i in largest if weights_V[i] > 0]


def write_run(folder: Path, fitted: Fitted, splits: Splits, features: Features) -> None:
    """Write event files, predictions and the classifier into a run folder, and log the scores."""
    for name, split in splits.items():
        outputs_NK, targets = fitted.probabilities(split.texts), splits.targets(split)
        found = scores_of(fitted.labels, split, targets, outputs_NK)
        _write_events(folder / TENSORBOARD / name, found)
        prefix = "" if name == "train" else f"{name}_"
        record = {"epoch": 1} | {f"{prefix}{key}": f"{value:.6g}" for key, value in found.items()}
        logging.getLogger(name).info(json.dumps(record | {f"{prefix}num_updates": str(STEP)}))
        if name != "train":
            rows = predictions.from_outputs(fitted.labels, outputs_NK, targets)
            predictions.write(folder / predictions.file_name(name), rows)
    atomic_write(folder / MODEL, _model(fitted))
    fitted.export(features).write(folder / TFIDF)
    if fitted.labels.thresholds:
        write_thresholds(folder, dict(zip(fitted.classes, fitted.labels.thresholds, strict=True)))


def _write_events(folder: Path, values: dict[str, float]) -> None:
    writer = EventFileWriter(str(folder))
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
    writer.add_event(Event(wall_time=time.time(), step=STEP, summary=summary))
    writer.close()


def _model(fitted: Fitted) -> str:
    metric = fitted.labels.kind.metric
    content: dict[str, Any] = {
        "C": fitted.strength,
        f"valid_{metric}": [{"C": c, metric: x} for c, x in fitted.valid_scores.items()],
        "ngrams": len(fitted.vectorizer.vocabulary_),
        "telling": {
            name: [{"ngram": ngram, "weight": weight} for ngram, weight in ngrams]
            for name, ngrams in fitted.most_informative(MOST_INFORMATIVE).items()
        },
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


@report_errors
def main(words: Sequence[str] | None = None) -> None:
    """Fit and write one run."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("text", type=Path)
    parser.add_argument("run", type=Path)
    add_features(parser)
    options = parser.parse_args(words)
    logging.basicConfig(format=LOG_FORMAT, datefmt=LOG_TIME, level=logging.INFO, stream=sys.stdout)
    splits = read_folder(options.text)
    chosen = features(options)
    fitted = fit(splits, chosen)
    metric = fitted.labels.kind.metric
    for strength, value in fitted.valid_scores.items():
        shown = f"valid {metric} {number(value, metric)}"
        print(f"C {strength:<8.3g} {shown}{'  chosen' * (strength == fitted.strength)}")
    write_run(options.run, fitted, splits, chosen)


if __name__ == "__main__":
    sys.exit(main())
