import threading

import pytest

from roberta_small.eval import Ensemble, SentenceClassifier
from tests.support.servers import serving
from tests.support.tiny_runs import make_data, make_run


@pytest.fixture(scope="session")
def classifier(trained):
    return SentenceClassifier.from_run(trained.run, device="cpu")


@pytest.fixture(scope="session")
def pair_classifier(tmp_path_factory):
    root = tmp_path_factory.mktemp("pairs")
    make_run(make_data(root / "data", pairs=True), root / "run", seed=3)
    return SentenceClassifier.from_run(root / "run", device="cpu")


@pytest.fixture(scope="session")
def ensemble(trained, tmp_path_factory):
    """Of two seeds."""
    run = tmp_path_factory.mktemp("ensemble") / "fairseq/random/seed2"
    make_run(trained.data, run, seed=2)
    return Ensemble.from_runs([trained.run, run], device="cpu")


@pytest.fixture(scope="module")
def server(classifier):
    with serving(classifier) as found:
        yield found


@pytest.fixture
def gate(classifier, monkeypatch):
    """(started, go, sizes): the network waits until `go` is set; `started` is set when it begins.

    `sizes` has the number of texts of each batch that it has computed.
    """
    started, go, sizes = threading.Event(), threading.Event(), []
    logits = classifier.network.logits

    def gated(rows):
        started.set()
        assert go.wait(60)
        sizes.append(len(rows))
        return logits(rows)

    monkeypatch.setattr(classifier.network, "logits", gated)
    yield started, go, sizes
    go.set()
