"""`Worker`: predictions of one model for simultaneous requests, in a thread of its own.

The thread computes whatever has arrived while it computed the previous batch, without waiting for more. So
a single request is computed at once, and many requests are computed together.

N texts of a request, K classes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from roberta_small.eval.classifier import SentenceClassifier
from roberta_small.eval.predict.output import Word
from roberta_small.eval.texts import Classified, EncodedTexts, Ids, Text

NAME = "text number"
"""What an error message calls a text; the number, counted from 1, follows."""


class QueueFullError(Exception):
    """A model has too many unfinished texts; the message contains their number and the limit."""


@dataclass(frozen=True)
class Result:
    """The result of a request."""

    found: Classified
    words: list[list[Word]] | None
    """The words of each text with their contributions, if they were requested."""


@dataclass(eq=False)
class _Job:
    """A request and how far it has been computed."""

    texts: Sequence[Text]
    explain: bool
    future: Future[Result] = field(default_factory=Future)
    encoded: EncodedTexts | None = None
    logits: list[NDArray[np.floating]] = field(default_factory=list)
    """(K,) of the first texts."""
    words: list[list[Word]] = field(default_factory=list)
    """Of the first texts."""

    def fail(self, error: Exception) -> None:
        """Set the error unless the request was cancelled."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class Worker:
    """The thread of a model."""

    def __init__(
        self, classifier: SentenceClassifier, *, max_tokens: int, max_waiting: int, turns: threading.Semaphore
    ) -> None:
        """Start the thread.

        `max_tokens` limits a batch; a longer text is a batch of its own. `max_waiting` is the number of
        unfinished texts from which on requests are refused. Each batch acquires `turns`.
        """
        self.classifier = classifier
        self._max_tokens = max_tokens
        self._max_waiting = max_waiting
        self._turns = turns
        self._jobs: list[_Job] = []
        self.finished = 0  # texts of answered requests
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"model {classifier.model.run.name}")
        self._thread.start()

    def submit(self, texts: Sequence[Text], *, explain: bool = False) -> Future[Result]:
        """Queue a request of at least one text.

        Cancelling the future removes the request from the queue. The future raises what
        `SentenceClassifier.classify` and `explain.explain_texts` raise.

        Raises `QueueFullError` if the model would have too many unfinished texts.
        """
        job = _Job(texts, explain)
        with self._changed:
            if self.waiting + len(texts) > self._max_waiting:
                raise QueueFullError(
                    f"{len(texts)} more texts, but the model has {self.waiting} unfinished ones, at most "
                    f"{self._max_waiting}"
                )
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def close(self) -> None:
        """Cancel the requests in the queue, and wait for the computation in progress."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    @property
    def waiting(self) -> int:
        """The number of unfinished texts."""
        return sum(len(one.texts) for one in self._unfinished())

    def _unfinished(self) -> list[_Job]:
        return [job for job in self._jobs if not job.future.done()]

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._unfinished())
                self._jobs = self._unfinished()
                if self._closed:
                    for job in self._jobs:
                        job.future.cancel()
                    return
                jobs = list(self._jobs)
            for compute in (self._classify_batch, self._explain_text):
                compute(jobs)
                for job in self._unfinished():
                    known = len(job.logits), len(job.words if job.explain else job.texts)
                    if job.encoded is None or known != (len(job.texts), len(job.texts)):
                        continue
                    if job.future.set_running_or_notify_cancel():
                        found = Classified(self.classifier.labels.outputs(np.stack(job.logits)), job.encoded)
                        self.finished += len(job.texts)
                        job.future.set_result(Result(found, job.words if job.explain else None))

    def _classify_batch(self, jobs: Sequence[_Job]) -> None:
        """Compute the next texts, the oldest first, up to the maximum number of tokens."""
        batch: list[tuple[_Job, Ids]] = []
        tokens = 0
        for job in jobs:
            try:
                job.encoded = job.encoded or self.classifier.text_input.encode(job.texts, where=NAME)
            except Exception as error:  # of this request only
                job.fail(error)
                continue
            for row in job.encoded.rows[len(job.logits) :]:
                tokens += len(row)
                if not batch or tokens <= self._max_tokens:
                    batch.append((job, row))
            if tokens > self._max_tokens:
                break
        if not batch:
            return
        try:
            with self._turns:
                logits_NK = self.classifier.network.logits([row for _, row in batch])
        except Exception as error:
            for job in dict.fromkeys(job for job, _ in batch):
                job.fail(error)
            return
        for (job, _), logits_K in zip(batch, logits_NK, strict=True):
            job.logits.append(logits_K)

    def _explain_text(self, jobs: Sequence[_Job]) -> None:
        """Explain one text of the oldest request that needs it: predictions do not wait for more."""
        for job in jobs:
            number = len(job.words)
            classified = len(job.logits) == len(job.texts)
            if not job.explain or job.encoded is None or not classified or job.future.done():
                continue
            from roberta_small.eval.predict.explain import explain_texts

            try:
                with self._turns:
                    job.words += explain_texts(
                        self.classifier, [job.texts[number]], [job.encoded.rows[number]]
                    )
            except Exception as error:
                job.fail(error)
            return
