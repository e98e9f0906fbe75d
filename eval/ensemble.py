"""Ensembles: the mean of the class probabilities of classifiers that were trained with different seeds.

Shapes: M members, N examples, K classes.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.errors import UserError, count
from roberta_small.common.predictions import Prediction, from_probabilities
from roberta_small.eval.loading.runs import find_runs

if TYPE_CHECKING:
    from roberta_small.eval.classifier import SentenceClassifier
    from roberta_small.eval.texts import Classified, EncodedTexts, InputFormat, Text


Path = str | os.PathLike[str]


def mean_probabilities(p_MNK: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The probabilities (N, K) of an ensemble: the mean over its members."""
    return np.mean(p_MNK, axis=0)


def in_order_of(
    classes: list[str], own_classes: list[str], p_NK: NDArray[np.float64], name: str, first: str
) -> NDArray[np.float64]:
    """The probabilities of one member with their columns in the order of `classes`.

    Raises `UserError`, with the names of the member and of the first member, if it has other classes.
    """
    if sorted(classes) != sorted(own_classes):
        raise UserError(
            f"{name}: has the classes {', '.join(own_classes)}, but {first} has {', '.join(classes)}; "
            "combine only classifiers with the same classes"
        )
    return p_NK[:, [own_classes.index(class_name) for class_name in classes]]


class Ensemble:
    """Several classifiers of the same data, whose probabilities are averaged.

    It classifies like a `SentenceClassifier`. `classes` has the order of the first member.
    """

    def __init__(self, members: Sequence[SentenceClassifier]) -> None:
        """Raises `UserError` for fewer than two members, and if classes, dictionary or data differ."""
        if len(members) < 2:
            raise UserError("--ensemble: only one checkpoint; pass several with --checkpoint")
        self.members = list(members)
        first = self.members[0]
        for member in self.members[1:]:
            _check_same(first, member)
        self.classes = first.classes
        self.pairs = first.pairs

    @classmethod
    def from_runs(cls, paths: Path | Iterable[Path], **options: Any) -> Ensemble:
        """The ensemble of several checkpoints, or of the finished runs of folders (`find_runs`).

        `options` as for `SentenceClassifier.from_run`. Raises `UserError` for fewer than two checkpoints, for
        checkpoints that differ in classes, dictionary or data, and as `SentenceClassifier.from_run`.
        """
        from roberta_small.eval.classifier import SentenceClassifier

        runs = find_runs([paths] if isinstance(paths, str | os.PathLike) else paths)
        return cls([SentenceClassifier.from_run(run, **options) for run in runs])

    def predict(self, texts: Iterable[Text]) -> list[Prediction]:
        """One prediction per text, as `SentenceClassifier.predict`."""
        return list(from_probabilities(self.classes, self.classify(texts).probabilities))

    def classify(
        self, texts: Iterable[Text], *, first: int = 1, where: str = "text", progress: str | None = None
    ) -> Classified:
        """Mean probabilities, the sample standard deviation (ddof 1) of that of the predicted class, and the
        probabilities of the members.

        Errors as for `SentenceClassifier.encode`. Token ids are those of the first member.
        """
        from roberta_small.eval.batches import probabilities
        from roberta_small.eval.texts import Classified, check_texts

        check_texts(texts)
        texts = list(texts)
        encoded: dict[InputFormat, EncodedTexts] = {}
        p_MNK = []
        for member in self.members:
            if member.input_format not in encoded:
                encoded[member.input_format] = member.text_input.encode(texts, first=first, where=where)
            rows = encoded[member.input_format].rows
            p_NK = probabilities(member.network.logits(rows, progress=progress))
            p_MNK.append(
                in_order_of(self.classes, member.classes, p_NK, _name(member), _name(self.members[0]))
            )
        mean_NK = mean_probabilities(p_MNK)
        predicted_N = mean_NK.argmax(axis=1)
        members_MNK = np.stack(p_MNK)
        std_N = members_MNK[:, np.arange(len(mean_NK)), predicted_N].std(axis=0, ddof=1)
        return Classified(mean_NK, encoded[self.members[0].input_format], std_N, members_MNK)


def describe(ensemble: Ensemble) -> None:
    """Print the members on standard error, with a warning if they differ in more than their seed."""
    runs = [member.run for member in ensemble.members if member.run is not None]
    groups = Counter(run.group or run.name for run in runs)
    print(
        f"ensemble of {count(len(runs), 'checkpoint')}: "
        + ", ".join(f"{name} ({number})" for name, number in groups.items()),
        file=sys.stderr,
    )
    if len(groups) > 1 and all(run.group for run in runs):
        print(
            "warning: the members differ in more than their seed; `eval evaluate` scores an ensemble of "
            "each of these groups",
            file=sys.stderr,
        )


def _check_same(first: SentenceClassifier, other: SentenceClassifier) -> None:
    """Raise `UserError`, naming both checkpoints, if classes, dictionary, tokenizer or data differ."""
    in_order_of(first.classes, other.classes, np.zeros((0, len(other.classes))), _name(other), _name(first))
    theirs = _identity(other)
    differing = [what for what, value in _identity(first).items() if value != theirs[what]]
    digests, others = _data_digests(first), _data_digests(other)
    if any(digests[name] != others[name] for name in digests.keys() & others.keys()):
        differing.append("data")
    if differing:
        raise UserError(
            f"{_name(other)} and {_name(first)}: trained with different {' and '.join(differing)}; "
            "an ensemble needs checkpoints of the same data"
        )


def _identity(member: SentenceClassifier) -> dict[str, Any]:
    """What the members of an ensemble have in common, by its name in messages."""
    return {
        "dictionaries": member.network.dictionary.symbols,
        "numbers of sentences per example": member.pairs,
        "treatments of apostrophes": member.encoder.normalize_apostrophes,
    }


def _data_digests(member: SentenceClassifier) -> dict[str, str]:
    """The checksums of the training data that the run recorded; empty without a manifest."""
    manifest = (member.run and member.run.manifest) or {}
    return manifest.get("data", {}).get("sha256", {})


def _name(member: SentenceClassifier) -> str:
    return member.run.name if member.run else "a classifier"
