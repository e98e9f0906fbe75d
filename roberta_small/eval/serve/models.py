"""`Models`: the classifiers of a server by name, and their ensemble."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from roberta_small.common import hardware
from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from roberta_small.common.label_kinds import Labels
from roberta_small.common.predictions import ValuePrediction, from_outputs
from roberta_small.common.run import rank
from roberta_small.eval.classifier import Ensemble, SentenceClassifier, describe
from roberta_small.eval.graph import GraphModel
from roberta_small.eval.predict.output import Word
from roberta_small.eval.serve.batching import Worker
from roberta_small.eval.serve.schema import Explanation, ModelInfo, Prediction
from roberta_small.eval.texts import Classified, Text
from roberta_small.eval.tfidf import TfidfModel
from roberta_small.preprocess.dictionary import UNK

ENSEMBLE = "ensemble"
"""Name of the ensemble of all classifiers."""


class Models:
    """The classifiers, each with its batches, and their ensemble if they are of the same data.

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
        torch = sys.modules.get("torch")  # absent with ONNX files only
        cores = hardware.usable_cores()
        # As many models compute at a time as there are cores for their threads.
        turns = max(1, cores // (cores if torch is None else torch.get_num_threads()))
        self._threads = ThreadPoolExecutor(turns)
        self.workers = {
            one.model.run.name: Worker(one, self._threads, max_tokens=max_tokens, max_waiting=max_waiting)
            for one in classifiers
        }
        self.unexplained: dict[str, str] = {}
        self.infos = {one.model.run.name: self._info(one) for one in classifiers}
        self.default = _best(classifiers)
        self._ensemble = _ensemble(classifiers)
        if self._ensemble is not None:
            members = [member.model.run.name for member in self._ensemble.members]
            self.infos = {ENSEMBLE: _described(ENSEMBLE, self._ensemble, members=members), **self.infos}
            self.unexplained[ENSEMBLE] = f"not with the ensemble; choose one of {', '.join(members)}"
            self.default = self.default or ENSEMBLE

    def close(self) -> None:
        """End the threads, after the computations in progress."""
        self._threads.shutdown(cancel_futures=True)

    async def predict(self, name: str, texts: Sequence[Text], *, explain: bool) -> list[Prediction]:
        """The predictions of a model.

        Cancelling the coroutine also cancels the computation. Raises what `Worker.classify` raises.
        """
        members = self.infos[name].members
        workers = [self.workers[member] for member in members or [name]]
        tasks = [asyncio.ensure_future(worker.classify(texts, explain=explain)) for worker in workers]
        try:
            results = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()  # without effect on a finished one
        if members is not None and self._ensemble is not None:
            combined = self._ensemble.combine([found for found, _ in results])
            return predictions(self._ensemble.labels, combined, members=members)
        return predictions(workers[0].classifier.labels, *results[0])

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


def predictions(
    labels: Labels, found: Classified, words: list[list[Word]] | None = None, *, members: Sequence[str] = ()
) -> list[Prediction]:
    """The predictions as JSON; `members` are the names of the models of an ensemble."""
    encoded = found.encoded
    answers = []
    for one in from_outputs(labels, found.probabilities):
        number, row = one.index, encoded.rows[one.index]
        std = None if found.std is None else found.std[number].tolist()
        members_MK = [] if found.members is None else found.members[:, number].tolist()
        own = {
            name: dict(zip(labels.classes, values_K, strict=True)) if labels.classes else values_K[0]
            for name, values_K in zip(members, members_MK, strict=True)
        }
        answers.append(
            Prediction(
                label=list(one.predicted) if isinstance(one.predicted, tuple) else one.predicted,
                probabilities=None if isinstance(one, ValuePrediction) else one.probabilities,
                std=dict(zip(labels.classes, std, strict=True)) if isinstance(std, list) else std,
                members=own or None,
                note=encoded.notes[number] or None,
                tokens=encoded.lengths[number],
                tokens_read=len(row),
                tokens_unknown=int((row == UNK).sum()),
                words=None
                if words is None
                else [(word.text, round(word.score, 6)) for word in words[number]],
            )
        )
    return answers
