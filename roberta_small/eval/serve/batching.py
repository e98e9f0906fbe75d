"""`Worker`: the predictions of one model for simultaneous requests.

A batch has whatever arrived while the previous one was computed, without waiting for more. So a single
request is computed at once, and many requests are computed together. Only the event loop changes the state of
a worker; threads run the tokenizer, the network and the explanations.

N texts of a request, K classes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from roberta_small.eval.classifier import SentenceClassifier
from roberta_small.eval.predict.output import Word
from roberta_small.eval.texts import Classified, Ids, Text


class Worker:
    """The batches of a model.

    Attributes:
        waiting: number of unfinished texts.
        finished: number of texts of answered requests.
    """

    def __init__(
        self, classifier: SentenceClassifier, threads: Executor, *, max_tokens: int, max_waiting: int
    ) -> None:
        """`threads` compute the batches of all models, as many at a time as there are threads.

        `max_tokens` limits a batch; a longer text is a batch of its own. `max_waiting` is the number of
        unfinished texts from which on requests are refused.
        """
        self.classifier = classifier
        self.waiting = self.finished = 0
        self._threads = threads
        self._max_tokens = max_tokens
        self._max_waiting = max_waiting
        self.queue: list[tuple[Ids, asyncio.Future[NDArray[np.floating]]]] = []
        """Ids of a text, and its logits (K,)."""
        self._batches: asyncio.Task[None] | None = None
        self._explaining = asyncio.Lock()

    async def classify(
        self, texts: Sequence[Text], *, explain: bool = False
    ) -> tuple[Classified, list[list[Word]] | None]:
        """The result of a request of at least one text, with the words of each text if `explain` is set.

        Cancelling the coroutine removes its texts from the queue. Raises `HTTPException` with status 503 if
        the model would have too many unfinished texts, and what `SentenceClassifier.classify` and
        `explain.explain_texts` raise.
        """
        if self.waiting + len(texts) > self._max_waiting:
            message = (
                f"{len(texts)} more texts, but the model has {self.waiting} unfinished ones, at most "
                f"{self._max_waiting} (--max-waiting); try again in 1 s"
            )
            raise HTTPException(503, message, {"Retry-After": "1"})
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[NDArray[np.floating]]] = [loop.create_future() for _ in texts]
        self.waiting += len(texts)
        try:
            encode = self.classifier.text_input.encode
            encoded = await asyncio.to_thread(encode, texts, where="text number")
            self.queue += zip(encoded.rows, futures, strict=True)
            if self._batches is None or self._batches.done():
                self._batches = loop.create_task(self._compute_batches())
            logits_NK = np.stack(await asyncio.gather(*futures))
            words = None
            if explain:
                async with (
                    self._explaining
                ):  # a batch waits for one text, not for all that wait for their words
                    words = [
                        await loop.run_in_executor(self._threads, self._explain, text, row)
                        for text, row in zip(texts, encoded.rows, strict=True)
                    ]
            self.finished += len(texts)
            return Classified(self.classifier.labels.outputs(logits_NK), encoded), words
        finally:
            self.waiting -= len(texts)
            for future in futures:
                future.cancel()  # without effect on a finished one

    async def _compute_batches(self) -> None:
        """Compute the queue, the oldest texts first, until it is empty."""
        while queue := [(row, future) for row, future in self.queue if not future.done()]:
            ends = np.cumsum([len(row) for row, _ in queue])
            size = max(1, int(np.searchsorted(ends, self._max_tokens, side="right")))
            rows, futures = zip(*queue[:size], strict=True)
            self.queue = queue[size:]
            try:
                compute = self.classifier.network.logits
                logits_NK = await asyncio.get_running_loop().run_in_executor(
                    self._threads, compute, list(rows)
                )
            except Exception as error:  # of these requests only
                for future in futures:
                    if not future.done():
                        future.set_exception(error)
                continue
            for future, logits_K in zip(futures, logits_NK, strict=True):
                if not future.done():  # the request was cancelled
                    future.set_result(logits_K)
        self.queue = []

    def _explain(self, text: Text, row: Ids) -> list[Word]:
        from roberta_small.eval.predict.explain import explain_texts

        (words,) = explain_texts(self.classifier, [text], [row])
        return words
