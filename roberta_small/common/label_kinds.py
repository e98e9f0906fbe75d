"""The kinds of labels: one class per text, any number of classes per text, or a number.

`KINDS` has what the packages need to know about each kind, and `Labels` what the outputs of a model mean.
The names of the kinds are those of Transformers (`problem_type`).

    kind                          logits   activation   training loss          targets
    single_label_classification   K        softmax      cross-entropy          int64 (N,), the class
    multi_label_classification    K        sigmoid      binary cross-entropy   bool (N, K)
    regression                    1        none         mean squared error     float64 (N,)

Shapes: N examples; K classes, or 1 for regression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.errors import UserError

Array = NDArray[np.float64]
Targets = NDArray[Any]
"""int64 (N,), bool (N, K) or float64 (N,), by the kind."""
SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"
THRESHOLD = 0.5
"""The threshold of a class for which none was chosen."""
KIND, SCALING = "label_kind", "label_scaling"
"""Keys of preprocess.json. Without `label_kind`, the kind is single_label_classification."""


def softmax(logits_NK: NDArray[np.floating]) -> Array:
    """Probabilities of exclusive classes, float64 (N, K)."""
    logits_NK = logits_NK.astype(np.float64)
    powers_NK = np.exp(logits_NK - logits_NK.max(axis=-1, keepdims=True))
    return powers_NK / powers_NK.sum(axis=-1, keepdims=True)


def sigmoid(logits_NK: NDArray[np.floating]) -> Array:
    """Probabilities of independent classes, float64 (N, K)."""
    return np.exp(-np.logaddexp(0, -logits_NK.astype(np.float64)))


def identity(logits_NK: NDArray[np.floating]) -> Array:
    """Standardized values, float64 (N, K)."""
    return logits_NK.astype(np.float64)


@dataclass(frozen=True)
class LabelKind:
    """What the packages need to know about a kind of labels."""

    name: str
    """As in Transformers."""
    task: str
    """The value of --task."""
    metric: str
    """The metric that selects the best checkpoint unless another one is requested."""
    activation: Callable[[NDArray[np.floating]], Array]
    """Logits (N, K) -> probabilities, or standardized values."""
    flags: tuple[str, ...]
    """Flags of the task `sentence_classification` of fairseq-train."""
    has_classes: bool = True
    """Whether there is a dictionary of classes."""
    exclusive: bool = True
    """Whether an example has exactly one class: class weights, label smoothing and soft labels apply."""

    def require_exclusive(self, option: str, where: object = "the data") -> None:
        """Raise `UserError` if `option` applies to exclusive classes only and these are not exclusive."""
        if not self.exclusive:
            raise UserError(
                f"{option}: only for data with one class per text, but the labels of {where} are of the "
                f"kind {self.name}; omit the option"
            )


KINDS: dict[str, LabelKind] = {
    kind.name: kind
    for kind in (
        LabelKind(SINGLE_LABEL, "classification", "accuracy", softmax, ()),
        LabelKind(MULTI_LABEL, "multi-label", "micro_f1", sigmoid, ("--multi-label",), exclusive=False),
        LabelKind(
            REGRESSION,
            "regression",
            "pearson",
            identity,
            ("--regression-target",),
            has_classes=False,
            exclusive=False,
        ),
    )
}
TASKS: dict[str, LabelKind] = {kind.task: kind for kind in KINDS.values()}
"""The kinds by the value of --task."""


def kind_of(name: object, where: object) -> LabelKind:
    """The kind of this name; raises `UserError` with `where` it is recorded if there is none."""
    found = KINDS.get(name) if isinstance(name, str) else None
    if found is None:
        raise UserError(f"{where}: unknown kind of labels {name!r}; the kinds are {', '.join(KINDS)}")
    return found


def kind_of_report(report: Mapping[str, Any], where: object = "preprocess.json") -> LabelKind:
    """The kind of labels that the report of a data folder records."""
    return kind_of(report.get(KIND, SINGLE_LABEL), where)


@dataclass(frozen=True)
class Scaling:
    """The standardization of numeric labels: `standardized = (value - mean) / scale`."""

    mean: float = 0.0
    scale: float = 1.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Scaling:
        """Mean and population standard deviation of the values; scale 1 if all are equal."""
        scale = float(np.std(values))
        return cls(float(np.mean(values)), scale if scale > 0 else 1.0)

    @classmethod
    def from_record(cls, record: object, where: object) -> Scaling:
        """The scaling in a JSON object; raises `UserError` with `where` it is recorded if it is malformed."""
        try:
            found = cls(float(record["mean"]), float(record["scale"]))  # type: ignore[index]  # TypeError below
        except (KeyError, TypeError, ValueError):
            found = cls(math.nan)
        if not (math.isfinite(found.mean) and math.isfinite(found.scale) and found.scale > 0):
            raise UserError(f"{where}: {SCALING} {record!r} has no finite mean and positive scale")
        return found

    def record(self) -> dict[str, float]:
        """The JSON object."""
        return {"mean": self.mean, "scale": self.scale}


@dataclass(frozen=True)
class Labels:
    """What the outputs of a model mean, and how its logits become outputs."""

    kind: LabelKind
    classes: tuple[str, ...] = ()
    """In the order of the logits; empty for regression."""
    scaling: Scaling = field(default_factory=Scaling)
    """Of a regression."""
    thresholds: tuple[float, ...] = ()
    """Of multi-label data: for each class, the least probability with which it is predicted."""

    def __post_init__(self) -> None:
        if self.kind.name == MULTI_LABEL and len(self.thresholds) != len(self.classes):
            object.__setattr__(self, "thresholds", (THRESHOLD,) * len(self.classes))

    @classmethod
    def single(cls, classes: Sequence[str]) -> Labels:
        """One of several classes."""
        return cls(KINDS[SINGLE_LABEL], tuple(classes))

    @classmethod
    def from_record(cls, record: Any, where: object) -> Labels:
        """The labels in a JSON object of `record`; raises `UserError` with `where` for another one."""
        try:
            kind = kind_of(record["kind"], where)
            classes = tuple(map(str, record["classes"]))
            scaling = Scaling.from_record(record["scaling"], where) if "scaling" in record else Scaling()
            return cls(kind, classes, scaling, tuple(map(float, record.get("thresholds", ()))))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{where}: malformed description of the labels ({error})") from None

    def record(self) -> dict[str, Any]:
        """The JSON object."""
        found: dict[str, Any] = {"kind": self.kind.name, "classes": list(self.classes)}
        if not self.kind.has_classes:
            found["scaling"] = self.scaling.record()
        return found | ({"thresholds": list(self.thresholds)} if self.thresholds else {})

    @property
    def size(self) -> int:
        """K, the number of logits."""
        return len(self.classes) if self.kind.has_classes else 1

    def outputs(self, logits_NK: NDArray[np.floating]) -> Array:
        """Probabilities (N, K), or for regression the values (N, 1) in the unit of the labels; float64."""
        found_NK = self.kind.activation(logits_NK)
        return found_NK if self.kind.has_classes else self.scaling.mean + self.scaling.scale * found_NK

    def assigned(self, outputs_NK: Array) -> NDArray[np.bool_]:
        """Which classes multi-label outputs predict, bool (N, K)."""
        return outputs_NK >= np.asarray(self.thresholds)

    def with_thresholds(self, thresholds: Mapping[str, float]) -> Labels:
        """The labels with thresholds by class; a class without one keeps its own.

        Labels of other kinds than multi-label are unchanged.
        """
        if not self.thresholds:
            return self
        own = zip(self.classes, self.thresholds, strict=True)
        return replace(self, thresholds=tuple(thresholds.get(name, value) for name, value in own))


def chosen_thresholds(labels: Labels, targets: Targets, outputs_NK: Array) -> dict[str, float]:
    """The threshold of each class that is best on these examples; empty unless the data are multi-label."""
    if labels.kind.name != MULTI_LABEL:
        return {}
    return dict(zip(labels.classes, best_thresholds(outputs_NK, targets), strict=True))


def best_thresholds(probabilities_NK: Array, targets_NK: NDArray[np.bool_]) -> list[float]:
    """For each class, the threshold with the highest F1; of several, the one nearest to 0.5.

    Candidates are the midpoints between successive probabilities of the class. A class without examples keeps
    0.5. Lipton et al. 2014, "Optimal thresholding of classifiers to maximize F1 measure".
    """
    found = [THRESHOLD] * targets_NK.shape[1]
    for k in np.flatnonzero(targets_NK.any(axis=0)):
        p_N, is_N = np.asarray(probabilities_NK[:, k], dtype=np.float64), targets_NK[:, k]
        order = np.argsort(-p_N, kind="stable")
        sorted_N, hits_N = p_N[order], is_N[order].cumsum()
        f1_N = 2 * hits_N / (np.arange(1, len(p_N) + 1) + is_N.sum())
        # After the last of equal probabilities: all of them or none are predicted.
        ends = np.flatnonzero(np.append(sorted_N[:-1] != sorted_N[1:], True))
        lower = np.append(sorted_N, 0.0)[ends + 1]
        middle = (sorted_N[ends] + lower) / 2
        # 0.5 itself where it lies between the same two probabilities.
        inside = (lower < THRESHOLD) & (sorted_N[ends] >= THRESHOLD)
        candidates = np.where(inside, THRESHOLD, middle)
        best = np.flatnonzero(f1_N[ends] >= f1_N[ends].max() - 1e-12)
        found[k] = float(candidates[best[np.abs(candidates[best] - THRESHOLD).argmin()]])
    return found
