"""`Models`: the classifiers of a server by name, and their ensemble."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common import hardware
from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from roberta_small.common.label_kinds import Labels
from roberta_small.common.predictions import ValuePrediction, from_outputs
from roberta_small.common.run import rank
from roberta_small.eval.classifier import Ensemble, SentenceClassifier, describe
from roberta_small.eval.graph import GraphModel
from roberta_small.eval.serve.batching import Result, Worker
from roberta_small.eval.serve.schema import Explanation, ModelInfo, Prediction, Probabilities
from roberta_small.eval.texts import Text
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
        self.unexplained: dict[str, str] = {}
        self.infos = {one.model.run.name: self._info(one) for one in classifiers}
        self.default = _best(classifiers)
        self._ensemble = _ensemble(classifiers)
        if self._ensemble is not None:
            self._members = [member.model.run.name for member in self._ensemble.members]
            info = _described(ENSEMBLE, self._ensemble, members=self._members)
            self.infos = {ENSEMBLE: info, **self.infos}
            self.unexplained[ENSEMBLE] = f"not with the ensemble; choose one of {', '.join(self._members)}"
            self.default = self.default or ENSEMBLE
        torch = sys.modules.get("torch")  # absent with ONNX files only
        threads = hardware.usable_cores() if torch is None else torch.get_num_threads()
        # As many models compute at a time as there are cores for their threads.
        turns = threading.Semaphore(max(1, hardware.usable_cores() // threads))
        self.workers = {
            one.model.run.name: Worker(one, max_tokens=max_tokens, max_waiting=max_waiting, turns=turns)
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
        members = self._members if name == ENSEMBLE else [name]
        futures = []
        try:
            for member in members:
                futures.append(self.workers[member].submit(texts, explain=explain))
            results = await asyncio.gather(*map(asyncio.wrap_future, futures))
        finally:
            for future in futures:
                future.cancel()  # without effect on a finished one
        if name == ENSEMBLE and self._ensemble is not None:
            combined = self._ensemble.combine([result.found for result in results])
            return predictions(self._ensemble.labels, Result(combined, None), members)
        return predictions(self.workers[name].classifier.labels, results[0])

    def _info(self, classifier: SentenceClassifier) -> ModelInfo:
        model = classifier.model
        explanation: Explanation | None = None
        if isinstance(model, GraphModel | TfidfModel):
            self.unexplained[model.run.name] = f"not with {model.run.checkpoint}; only with checkpoints"
        else:
            from roberta_small.eval.predict import explain

            try:
                explain.check_explainable(classifier)
                linear = explain.is_linear(classifier)
                explanation = "linear terms" if linear else "integrated gradients"
            except UserError as error:
                self.unexplained[model.run.name] = str(error)
        run = model.run.run
        return _described(
            model.run.name,
            classifier,
            sha256=sha256(model.run.checkpoint),
            explanation=explanation,
            **({} if run is None else {"method": run.method, "init": run.init, "seed": run.seed}),
        )


def _described(name: str, classifier: SentenceClassifier | Ensemble, **more: Any) -> ModelInfo:
    labels = classifier.labels
    return ModelInfo(
        name=name,
        kind=labels.kind.name,
        classes=list(labels.classes),
        thresholds=dict(zip(labels.classes, labels.thresholds, strict=True)) if labels.thresholds else None,
        pairs=classifier.pairs,
        **more,
    )


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


def _ensemble(classifiers: Sequence[SentenceClassifier]) -> Ensemble | None:
    """The ensemble of all classifiers, or else of each network once: TF-IDF has its own words."""
    networks = [one for one in classifiers if not isinstance(one.model, TfidfModel)]
    distinct = list({one.model.origin: one for one in reversed(networks)}.values())[::-1]
    reason = None
    for members in (classifiers, distinct):
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


def predictions(labels: Labels, result: Result, members: Sequence[str] = ()) -> list[Prediction]:
    """The predictions as JSON; `members` are the names of the models of an ensemble."""
    found, encoded = result.found, result.found.encoded

    def by_class(values: NDArray[np.float64]) -> Probabilities | float:
        """Values (K,) by class; the number of a regression, and a value that is not one of each class."""
        if values.ndim == 0 or not labels.kind.has_classes:
            return float(values.reshape(()))
        return dict(zip(labels.classes, values.tolist(), strict=True))

    answers = []
    for one in from_outputs(labels, found.probabilities):
        number, row = one.index, encoded.rows[one.index]
        own = None
        if found.members is not None:
            own = {name: by_class(p_NK[number]) for name, p_NK in zip(members, found.members, strict=True)}
        words = None
        if result.words is not None:
            words = [(word.text, round(word.score, 6)) for word in result.words[number]]
        answers.append(
            Prediction(
                label=list(one.predicted) if isinstance(one.predicted, tuple) else one.predicted,
                probabilities=None if isinstance(one, ValuePrediction) else one.probabilities,
                std=None if found.std is None else by_class(found.std[number]),
                members=own,
                note=encoded.notes[number] or None,
                tokens=encoded.lengths[number],
                tokens_read=len(row),
                tokens_unknown=int((row == UNK).sum()),
                words=words,
            )
        )
    return answers
