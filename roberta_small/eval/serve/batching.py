"""`Worker`: predictions of one model for simultaneous requests, in a thread of its own.

The thread computes whatever has arrived while it computed the previous batch, without waiting for more. So
a single request is computed at once, and many requests are computed together.

N texts of a request, K classes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from roberta_small.common import hardware
from roberta_small.common.label_kinds import Labels
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

    @property
    def classified(self) -> bool:
        """Whether the logits of all texts are known."""
        return len(self.logits) == len(self.texts)

    def finish(self, labels: Labels) -> None:
        """Set the result if everything is known and nobody has cancelled the request."""
        complete = self.classified and (not self.explain or len(self.words) == len(self.texts))
        if complete and self.future.set_running_or_notify_cancel():
            assert self.encoded is not None  # otherwise there were no logits
            found = Classified(labels.outputs(np.stack(self.logits)), self.encoded)
            self.future.set_result(Result(found, self.words if self.explain else None))

    def fail(self, error: Exception) -> None:
        """Set the error unless the request was cancelled."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


def turns() -> threading.Semaphore:
    """For the workers of several models: as many compute at a time as there are cores for their threads."""
    torch = sys.modules.get("torch")  # absent with ONNX files only
    threads = hardware.usable_cores() if torch is None else torch.get_num_threads()
    return threading.Semaphore(max(1, hardware.usable_cores() // threads))


class Worker:
    """The thread of a model."""

    def __init__(
        self,
        classifier: SentenceClassifier,
        *,
        max_tokens: int,
        max_waiting: int,
        turns: threading.Semaphore,
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
            waiting = sum(len(one.texts) for one in self._jobs if not one.future.done())
            if waiting + len(texts) > self._max_waiting:
                raise QueueFullError(
                    f"{len(texts)} more texts, but the model has {waiting} unfinished ones, at most "
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

    def _work(self) -> None:
        while jobs := self._unfinished():
            self._classify_batch(jobs)
            self._explain_text(jobs)

    def _unfinished(self) -> list[_Job]:
        """Wait for requests; those that are neither finished nor cancelled. Empty after `close`."""
        with self._changed:
            while True:
                self._jobs = [job for job in self._jobs if not job.future.done()]
                if self._closed:
                    for job in self._jobs:
                        job.future.cancel()
                    return []
                if self._jobs:
                    return list(self._jobs)
                self._changed.wait()

    def _classify_batch(self, jobs: Sequence[_Job]) -> None:
        """Compute the next texts, the oldest first, up to the maximum number of tokens."""
        batch: list[tuple[_Job, Ids]] = []
        tokens = 0
        for job, row in self._rows(jobs):
            tokens += len(row)
            if batch and tokens > self._max_tokens:
                break
            batch.append((job, row))
        if not batch:
            return
        requests = dict.fromkeys(job for job, _ in batch)
        try:
            with self._turns:
                logits_NK = self.classifier.network.logits([row for _, row in batch])
        except Exception as error:
            for job in requests:
                job.fail(error)
            return
        for (job, _), logits_K in zip(batch, logits_NK, strict=True):
            job.logits.append(logits_K)
        for job in requests:
            job.finish(self.classifier.labels)

    def _rows(self, jobs: Sequence[_Job]) -> Iterator[tuple[_Job, Ids]]:
        """The texts without logits as rows of ids; a request whose texts cannot be read fails."""
        for job in jobs:
            if job.encoded is None:
                try:
                    job.encoded = self.classifier.text_input.encode(job.texts, where=NAME)
                except Exception as error:
                    job.fail(error)
                    continue
            for row in job.encoded.rows[len(job.logits) :]:
                yield job, row

    def _explain_text(self, jobs: Sequence[_Job]) -> None:
        """Explain one text of the oldest request that needs it: predictions do not wait for more."""
        job = next((job for job in jobs if job.explain and job.classified and not job.future.done()), None)
        if job is None or job.encoded is None:
            return
        from roberta_small.eval.predict.explain import explain_texts

        number = len(job.words)
        text, row = job.texts[number], job.encoded.rows[number]
        try:
            with self._turns:
                job.words += explain_texts(self.classifier, [text], [row])
        except Exception as error:
            job.fail(error)
            return
        job.finish(self.classifier.labels)
