"""`Models`: the classifiers of a server by name, and their ensemble."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from roberta_small.common.label_kinds import Labels
from roberta_small.common.predictions import AnyPrediction, ValuePrediction, from_outputs
from roberta_small.common.run import rank
from roberta_small.eval.classifier import Ensemble, SentenceClassifier, describe
from roberta_small.eval.graph import GraphModel
from roberta_small.eval.serve.batching import Result, Worker, turns
from roberta_small.eval.serve.schema import (
    INTEGRATED_GRADIENTS,
    LINEAR,
    ModelInfo,
    Prediction,
    Probabilities,
)
from roberta_small.eval.texts import Classified, Text
from roberta_small.eval.tfidf import TfidfModel
from roberta_small.preprocess.dictionary import UNK

ENSEMBLE = "ensemble"
"""Name of the ensemble of all classifiers."""


class Models:
    """The classifiers, each with a thread, and their ensemble if they are of the same data.

    Attributes:
        infos: name -> description, of each classifier and of the ensemble.
        unexplained: name -> reason, of the models whose predictions cannot be explained.
        default: the model of a request that names none: the only one; of several groups of runs, that of the
            best validation (`common.run`); otherwise the ensemble, or None.
    """

    def __init__(
        self, classifiers: Sequence[SentenceClassifier], *, max_tokens: int, max_waiting: int
    ) -> None:
        """Start the threads; `close` ends them. Limits as for `Worker`.

        Prints on standard error what the ensemble consists of, or why there is none.
        """
        self._ensemble = _ensemble(classifiers)
        self.unexplained: dict[str, str] = {}
        self.infos = {one.model.run.name: self._info(one) for one in classifiers}
        self.default = _best(classifiers)
        if self._ensemble is not None:
            info = _ensemble_info(self._ensemble)
            self.infos = {ENSEMBLE: info, **self.infos}
            self.unexplained[ENSEMBLE] = (
                f"not with the ensemble; choose one of {', '.join(info.members or ())}"
            )
            self.default = self.default or ENSEMBLE
        shared = turns()
        self.workers = {
            one.model.run.name: Worker(one, max_tokens=max_tokens, max_waiting=max_waiting, turns=shared)
            for one in classifiers
        }

    def close(self) -> None:
        """Cancel what has not been computed and end the threads."""
        for worker in self.workers.values():
            worker.close()

    async def predict(self, name: str, texts: Sequence[Text], *, explain: bool) -> list[Prediction]:
        """The predictions of a model.

        Cancelling the coroutine also cancels the computation. Raises `QueueFullError` if a model has too
        many unfinished texts, and `UserError` for a text that the model cannot read.
        """
        if name != ENSEMBLE:
            (result,) = await self._results([name], texts, explain=explain)
            return predictions(self.workers[name].classifier.labels, result)
        assert self._ensemble is not None  # its name is in `infos`
        members = [member.model.run.name for member in self._ensemble.members]
        results = await self._results(members, texts)
        combined = self._ensemble.combine([result.found for result in results])
        return predictions(self._ensemble.labels, Result(combined, None), members)

    def _info(self, classifier: SentenceClassifier) -> ModelInfo:
        model, name = classifier.model, classifier.model.run.name
        run = model.run.run
        explanation, reason = _explanation(classifier)
        if explanation is None:
            self.unexplained[name] = reason
        return ModelInfo(
            name=name,
            **_meaning(classifier.labels),
            pairs=classifier.pairs,
            method=None if run is None else run.method,
            init=None if run is None else run.init,
            seed=None if run is None else run.seed,
            sha256=sha256(model.run.checkpoint),
            explanation=explanation,
        )

    async def _results(
        self, names: Sequence[str], texts: Sequence[Text], *, explain: bool = False
    ) -> list[Result]:
        """The results of several models."""
        futures = []
        try:
            for name in names:
                futures.append(self.workers[name].submit(texts, explain=explain))
            return await asyncio.gather(*map(asyncio.wrap_future, futures))
        finally:
            for future in futures:
                future.cancel()  # without effect on a finished one


def _best(classifiers: Sequence[SentenceClassifier]) -> str | None:
    """The name of the only classifier, or of the best one of several groups of runs; None if unknown."""
    runs = {one.model.run.run: one.model.run.name for one in classifiers}
    if len(classifiers) == 1:
        return next(iter(runs.values()))
    known = [run for run in runs if run is not None]
    if len(known) < len(classifiers) or len({run.group for run in known}) < 2:
        return None
    try:
        return runs[rank(known)[0].runs[0]]
    except UserError:
        return None


def predictions(labels: Labels, result: Result, members: Sequence[str] = ()) -> list[Prediction]:
    """The predictions as JSON; `members` are the names of the models of an ensemble."""
    found, encoded = result.found, result.found.encoded
    answers = []
    for one in from_outputs(labels, found.probabilities):
        number, row = one.index, encoded.rows[one.index]
        answers.append(
            Prediction(
                label=_label(one),
                probabilities=None if isinstance(one, ValuePrediction) else one.probabilities,
                std=None if found.std is None else _by_class(labels, found.std[number]),
                members=_members(labels, found, number, members),
                note=encoded.notes[number] or None,
                tokens=encoded.lengths[number],
                tokens_read=len(row),
                tokens_unknown=int((row == UNK).sum()),
                words=None
                if result.words is None
                else [(word.text, round(word.score, 6)) for word in result.words[number]],
            )
        )
    return answers


def _label(one: AnyPrediction) -> str | list[str] | float:
    return list(one.predicted) if isinstance(one.predicted, tuple) else one.predicted


def _by_class(labels: Labels, values: NDArray[np.float64]) -> Probabilities | float:
    """Values (K,) by class; the number of a regression, and a value that is not one of each class."""
    if values.ndim == 0 or not labels.kind.has_classes:
        return float(values.reshape(()))
    return dict(zip(labels.classes, values.tolist(), strict=True))


def _members(
    labels: Labels, found: Classified, number: int, names: Sequence[str]
) -> dict[str, Probabilities | float] | None:
    if found.members is None:
        return None
    return {
        name: _by_class(labels, row_K) for name, row_K in zip(names, found.members[:, number], strict=True)
    }


def _meaning(labels: Labels) -> dict[str, Any]:
    """The fields of `ModelInfo` that describe the labels."""
    thresholds = dict(zip(labels.classes, labels.thresholds, strict=True)) if labels.thresholds else None
    return {"kind": labels.kind.name, "classes": list(labels.classes), "thresholds": thresholds}


def _ensemble(classifiers: Sequence[SentenceClassifier]) -> Ensemble | None:
    """The ensemble of all classifiers, or else of those that are networks: TF-IDF has words of its own.

    None for a single classifier and for classifiers of different data.
    """
    networks = [one for one in classifiers if not isinstance(one.model, TfidfModel)]
    reason = None
    for members in (classifiers, networks):
        try:
            ensemble = Ensemble(members)
        except UserError as error:
            reason = reason or error
            continue
        describe(ensemble)
        return ensemble
    if len(classifiers) > 1:
        print(f"no ensemble: {reason}", file=sys.stderr)
    return None


def _ensemble_info(ensemble: Ensemble) -> ModelInfo:
    runs: dict[str, Any] = dict.fromkeys(("method", "init", "seed", "sha256", "explanation"))
    names = [member.model.run.name for member in ensemble.members]
    return ModelInfo(name=ENSEMBLE, **_meaning(ensemble.labels), pairs=ensemble.pairs, members=names, **runs)


def _explanation(classifier: SentenceClassifier) -> tuple[Any, str]:
    """How predictions are explained, or None and the reason why they are not."""
    if isinstance(classifier.model, GraphModel | TfidfModel):
        return None, f"not with {classifier.model.run.checkpoint}; only with checkpoints"
    from roberta_small.eval.predict import explain

    try:
        explain.check_explainable(classifier)
    except UserError as error:
        return None, str(error)
    return LINEAR if explain.is_linear(classifier) else INTEGRATED_GRADIENTS, ""
