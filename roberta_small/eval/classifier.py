"""`SentenceClassifier`: class probabilities for text; `Ensemble`: the mean over classifiers of several seeds.

A model of numeric labels predicts values in place of probabilities (`common.label_kinds`).

Shapes: M members, N examples, K classes, or 1 for regression.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.errors import UserError, count
from roberta_small.common.label_kinds import Labels
from roberta_small.common.predictions import AnyPrediction, from_outputs
from roberta_small.eval.base import Model
from roberta_small.eval.model import open_model
from roberta_small.eval.origin import MODELS, RunCheckpoint, check_distinct, find_runs
from roberta_small.eval.texts import Classified, EncodedTexts, Ids, InputFormat, Text, check_texts

Path = str | os.PathLike[str]


class SentenceClassifier:
    """A classifier of text.

    Attributes:
        model: what it consists of, such as dictionary, tokenizer, precision and run (`open_model`).
        labels: kind of labels, and what the logits mean.
        classes: names of the classes, in the order of the probabilities; empty for regression.
        pairs: whether an example is two sentences.
        network: computes logits from token ids.
        text_input: computes token ids from text.
    """

    def __init__(self, model: Model) -> None:
        """Raises `UserError` if the model is not a classifier or one of its files is missing."""
        self.model = model
        self.labels = model.labels
        self.classes = model.classes
        self.pairs = model.pairs
        self.text_input = model.text_input
        self.network = model.network

    @classmethod
    def from_run(cls, path: Path | RunCheckpoint, **options: Any) -> SentenceClassifier:
        """The classifier of a run, a checkpoint or an ONNX file; options and errors as for `open_model`."""
        return cls(open_model(path, text=True, **options))

    def predict(self, texts: Iterable[Text], *, progress: str | None = None) -> list[AnyPrediction]:
        """One prediction per text, in the order given; `index` counts from 0 and the label is None.

        An empty text is read as `<s> </s>`. Raises `TypeError` for one string instead of several texts.
        """
        return list(from_outputs(self.labels, self.probabilities(texts, progress=progress)))

    def probabilities(self, texts: Iterable[Text], *, progress: str | None = None) -> NDArray[np.float64]:
        """The probabilities (N, K) in the order of `classes`, or values (N, 1); errors as for `predict`."""
        return self.classify(texts, progress=progress).probabilities

    def classify(
        self, texts: Iterable[Text], *, first: int = 1, where: str = "text", progress: str | None = None
    ) -> Classified:
        """Probabilities, token ids and notes of each text; errors as for `encode`."""
        encoded = self.text_input.encode(texts, first=first, where=where)
        logits_NK = self.network.logits(encoded.rows, progress=progress)
        return Classified(self.labels.outputs(logits_NK), encoded)

    def encode(self, texts: Iterable[Text], *, first: int = 1, where: str = "text") -> list[Ids]:
        """The token ids of each text; errors as for `TextInput.encode`."""
        return self.text_input.encode(texts, first=first, where=where).rows


class Ensemble:
    """Several classifiers of the same data, whose probabilities are averaged.

    It classifies like a `SentenceClassifier`. `classes` has the order of the first member.
    """

    def __init__(self, members: Sequence[SentenceClassifier]) -> None:
        """Raises `UserError` for fewer than two models, and if classes, dictionary or data differ."""
        if len(members) < 2:
            raise UserError("--ensemble: only one checkpoint; pass several with --checkpoint")
        check_distinct((member.model.run.checkpoint, member.model.origin) for member in members)
        self.members = list(members)
        first = self.members[0]
        for member in self.members[1:]:
            _check_same(first.model, member.model)
        self.labels = mean_labels([member.labels for member in self.members])
        self.classes = first.classes
        self.pairs = first.pairs

    @classmethod
    def from_runs(cls, paths: Path | Iterable[Path], **options: Any) -> Ensemble:
        """The ensemble of several checkpoints, or of the finished runs of folders (`find_runs`).

        `options` as for `SentenceClassifier.from_run`. Raises `UserError` for fewer than two checkpoints, for
        checkpoints that differ in classes, dictionary or data, and as `SentenceClassifier.from_run`.
        """
        runs = find_runs([paths] if isinstance(paths, str | os.PathLike) else paths, MODELS)
        return cls([SentenceClassifier.from_run(run, **options) for run in runs])

    def predict(self, texts: Iterable[Text]) -> list[AnyPrediction]:
        """One prediction per text, as `SentenceClassifier.predict`."""
        return list(from_outputs(self.labels, self.classify(texts).probabilities))

    def classify(
        self, texts: Iterable[Text], *, first: int = 1, where: str = "text", progress: str | None = None
    ) -> Classified:
        """Mean probabilities, the sample standard deviation (ddof 1) of that of the predicted class, and the
        probabilities of the members.

        Errors as for `SentenceClassifier.encode`. Token ids are those of the first member.
        """
        check_texts(texts)
        texts = list(texts)
        encoded: dict[InputFormat, EncodedTexts] = {}
        found = []
        for member in self.members:
            how = member.text_input.format
            if how not in encoded:
                encoded[how] = member.text_input.encode(texts, first=first, where=where)
            logits_NK = member.network.logits(encoded[how].rows, progress=progress)
            found.append(Classified(member.labels.outputs(logits_NK), encoded[how]))
        return self.combine(found)

    def combine(self, found: Sequence[Classified]) -> Classified:
        """The result of `classify` from the results of the members, in their order."""
        first = self.members[0].model.run.name
        members_MNK = np.stack(
            [
                in_order_of(self.classes, member.classes, one.probabilities, member.model.run.name, first)
                for member, one in zip(self.members, found, strict=True)
            ]
        )
        mean_NK = members_MNK.mean(axis=0)
        std = members_MNK.std(axis=0, ddof=1)
        if self.labels.kind.exclusive or not self.labels.kind.has_classes:
            std = std[np.arange(len(mean_NK)), mean_NK.argmax(axis=1)]
        return Classified(mean_NK, found[0].encoded, std, members_MNK)


def mean_labels(members: Sequence[Labels]) -> Labels:
    """The labels of an ensemble: those of the first member, with the mean thresholds by class."""
    first = members[0]
    if not first.thresholds:
        return first
    own = [dict(zip(labels.classes, labels.thresholds, strict=True)) for labels in members]
    means = {name: float(np.mean([one[name] for one in own])) for name in first.classes}
    return first.with_thresholds(means)


def describe(ensemble: Ensemble) -> None:
    """Print the members on standard error, with a warning if they differ in more than their seed."""
    runs = [member.model.run for member in ensemble.members]
    groups = Counter(run.group or run.name for run in runs)
    print(
        f"ensemble of {count(len(runs), 'checkpoint')}: "
        + ", ".join(f"{name} ({number})" for name, number in groups.items()),
        file=sys.stderr,
    )
    if len(groups) > 1 and all(run.group for run in runs):
        print(
            "warning: the members differ in more than their seed; `roberta-small evaluate` scores an "
            "ensemble of each of these groups",
            file=sys.stderr,
        )


def in_order_of(
    classes: list[str], own_classes: list[str], p_NK: NDArray[np.float64], name: str, first: str
) -> NDArray[np.float64]:
    """The outputs of a member in the order of `classes`; `UserError` with both names if they differ."""
    if sorted(classes) != sorted(own_classes):
        raise UserError(
            f"{name}: has the classes {', '.join(own_classes)}, but {first} has {', '.join(classes)}; "
            "combine only classifiers with the same classes"
        )
    if not classes:
        return p_NK
    return p_NK[:, [own_classes.index(class_name) for class_name in classes]]


def _check_same(first: Model, other: Model) -> None:
    """Raise `UserError`, naming both checkpoints, if classes, dictionary, tokenizer or data differ."""
    names = other.run.name, first.run.name
    if first.labels.kind is not other.labels.kind:
        raise UserError(
            f"{names[0]} and {names[1]}: labels of the kinds {other.labels.kind.name} and "
            f"{first.labels.kind.name}; an ensemble needs checkpoints of the same data"
        )
    in_order_of(first.classes, other.classes, np.zeros((0, other.labels.size)), *names)
    same = {
        "dictionaries": first.encoder.dictionary.symbols == other.encoder.dictionary.symbols,
        "numbers of sentences per example": first.pairs == other.pairs,
        "treatments of apostrophes": (
            first.encoder.normalize_apostrophes == other.encoder.normalize_apostrophes
        ),
    }
    differing = [what for what, equal in same.items() if not equal]
    digests, others = (model.run.data.get("sha256", {}) for model in (first, other))
    if any(digests[name] != others[name] for name in digests.keys() & others.keys()):
        differing.append("data")
    if differing:
        raise UserError(
            f"{names[0]} and {names[1]}: trained with different {' and '.join(differing)}; "
            "an ensemble needs checkpoints of the same data"
        )
