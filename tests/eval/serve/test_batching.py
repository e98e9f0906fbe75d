"""The thread of a model: what it computes together, and what it does not compute."""

import contextlib
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import numpy as np
import pytest

from roberta_small.common.errors import UserError
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.serve.batching import Worker


@pytest.fixture
def classifier(trained):
    return SentenceClassifier.from_run(trained.run, device="cpu", precision="fp32")


@contextlib.contextmanager
def working(classifier, *, max_tokens=4096, max_waiting=256):
    turns = threading.Semaphore()
    worker = Worker(classifier, max_tokens=max_tokens, max_waiting=max_waiting, turns=turns)
    with contextlib.closing(worker):
        yield worker


def test_simultaneous_requests_have_the_results_of_single_ones(trained, classifier):
    expected = classifier.probabilities(trained.texts)
    with working(classifier, max_tokens=200) as worker, ThreadPoolExecutor(16) as pool:
        futures = list(pool.map(lambda text: worker.submit([text]), trained.texts))
        both = worker.submit(trained.texts)
        found = np.concatenate([future.result(60).found.probabilities for future in futures])
        together = both.result(60)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(together.found.probabilities, expected, atol=1e-6)
    assert together.words is None
    encoded = classifier.text_input.encode(trained.texts)
    assert together.found.encoded.notes == encoded.notes
    assert together.found.encoded.lengths == encoded.lengths


def test_what_arrives_during_a_batch_is_the_next_batch(trained, classifier, gate):
    started, go, sizes = gate
    with working(classifier) as worker:
        first = worker.submit(["un"])
        assert started.wait(60)
        others = [worker.submit([text]) for text in trained.texts[:5]]
        go.set()
        for future in (first, *others):
            future.result(60)
    assert sizes == [1, 5]


def test_a_batch_has_a_maximum_number_of_tokens(classifier, gate):
    _, go, sizes = gate
    go.set()
    length = len(classifier.encode(["un"])[0])
    with working(classifier, max_tokens=3 * length) as worker:
        assert len(worker.submit(["un"] * 7).result(60).found.probabilities) == 7
        worker.submit(["livre " * 100]).result(60)  # longer than a batch
    assert sizes == [3, 3, 1, 1]


def test_an_error_is_that_of_one_request(untruncated):
    with working(SentenceClassifier.from_run(untruncated, device="cpu")) as worker:
        futures = [worker.submit([text]) for text in ("un", "livre " * 100, "une")]
        with pytest.raises(UserError, match=r"\b80\b"):
            futures[1].result(60)
        for future in (futures[0], futures[2]):
            assert future.result(60).found.probabilities.shape == (1, 2)


def test_predictions_do_not_wait_for_all_explanations(classifier, monkeypatch):
    from roberta_small.eval.predict import explain

    order, started, go = [], threading.Event(), threading.Event()

    def gated(classifier, texts, rows):
        started.set()
        assert go.wait(60)
        order.append("explained")
        return [[]]

    monkeypatch.setattr(explain, "explain_texts", gated)
    with working(classifier) as worker:
        explained = worker.submit(["un", "une", "le"], explain=True)
        assert started.wait(60)
        predicted = worker.submit(["un"])
        predicted.add_done_callback(lambda _: order.append("predicted"))
        go.set()
        assert len(explained.result(60).words) == 3
    assert order == ["explained", "predicted", "explained", "explained"]


def test_closing_cancels_what_waits(classifier, gate):
    started, go, _ = gate
    with working(classifier) as worker:
        first = worker.submit(["un"])
        assert started.wait(60)
        second = worker.submit(["un"])
        threading.Timer(0.2, go.set).start()
    assert first.result(0).found.probabilities.shape == (1, 2)
    with pytest.raises(CancelledError):
        second.result(0)
