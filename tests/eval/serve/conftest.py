import threading

import pytest


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
