"""Many requests: what is computed together, what is not computed, and what is counted."""

import http.client
import json
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.servers import JSON, post, request, serving, wait_until

NAME = "fairseq/random/seed1"


@pytest.fixture
def pool():
    with ThreadPoolExecutor(16) as found:
        yield found


def test_simultaneous_requests_have_the_results_of_single_ones(trained, classifier, pool):
    expected = classifier.predict(trained.texts)
    with serving(classifier, max_tokens=200) as server:
        answers = list(pool.map(lambda text: post(server, text=text)[1]["predictions"][0], trained.texts))
        together = post(server, texts=trained.texts)[1]["predictions"]
    for found in (answers, together):
        for one, prediction in zip(found, expected, strict=True):
            assert one["probabilities"] == pytest.approx(prediction.probabilities, abs=1e-6)


def test_what_arrives_during_a_batch_is_the_next_batch(classifier, gate, pool):
    started, go, sizes = gate
    with serving(classifier, max_tokens=4096) as server:
        worker = server.models.workers[NAME]
        first = pool.submit(post, server, text="un")
        assert started.wait(60)
        others = [pool.submit(post, server, text="une") for _ in range(5)]
        wait_until(lambda: len(worker.queue) == 5)
        go.set()
        assert [one.result()[0] for one in (first, *others)] == [200] * 6
    assert sizes == [1, 5]


def test_a_batch_has_a_maximum_number_of_tokens(classifier, gate):
    _, go, sizes = gate
    go.set()
    with serving(classifier, max_tokens=3 * len(classifier.encode(["un"])[0])) as server:
        assert len(post(server, texts=["un"] * 7)[1]["predictions"]) == 7
        assert post(server, text="livre " * 100)[0] == 200  # longer than a batch
    assert sizes == [3, 3, 1, 1]


def test_predictions_do_not_wait_for_all_explanations(classifier, monkeypatch, pool):
    explain = pytest.importorskip("roberta_small.eval.predict.explain")
    explaining, predicted, calls = threading.Event(), threading.Event(), []

    def slow(classifier, texts, rows):
        explaining.set()
        calls.append(predicted.wait(0.2))
        return [[]]

    monkeypatch.setattr(explain, "explain_texts", slow)
    with serving(classifier) as server:
        explained = pool.submit(post, server, texts=["un"] * 64, explain=True)
        assert explaining.wait(60)
        assert post(server, text="une")[0] == 200
        predicted.set()
        assert len(explained.result()[1]["predictions"]) == len(calls) == 64
    assert any(calls)


def test_a_full_queue_is_an_error_with_a_time_to_wait(classifier, gate, pool):
    started, go, sizes = gate
    with serving(classifier, waiting=2, texts=2) as server:
        first = pool.submit(post, server, texts=["un", "une"])
        assert started.wait(60)
        response, body = request(server, "POST", "/predict", '{"text": "un"}')
        go.set()
        assert first.result()[0] == 200
        assert post(server, text="un")[0] == 200
    assert response.status == 503
    assert int(response.headers["Retry-After"]) >= 1
    assert "--max-waiting" in json.loads(body)["error"]
    assert sizes == [2, 1]


def test_the_time_limit(classifier, gate, pool):
    started, go, sizes = gate
    with serving(classifier, seconds=1.0) as server:
        first = pool.submit(post, server, text="un")
        assert started.wait(60)
        second = pool.submit(post, server, texts=["un", "une"])
        answers = [first.result(), second.result()]
        go.set()
        assert post(server, text="un")[0] == 200
    for status, answer in answers:
        assert status == 504
        assert "--timeout" in answer["error"]
    assert sizes == [1, 1]  # the second was not computed


def test_a_body_that_does_not_arrive_is_an_error(classifier):
    with (
        serving(classifier, seconds=0.5) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as client,
    ):
        head = f"POST /predict HTTP/1.1\r\nHost: localhost:{server.port}\r\nContent-Length: 99\r\n"
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n{{".encode())
        answer = http.client.HTTPResponse(client)
        answer.begin()
        body = answer.read()
    assert answer.status == 408
    assert b"--timeout" in body


def test_a_client_that_goes_away_is_not_served(classifier, gate, pool):
    started, go, sizes = gate
    with serving(classifier) as server:
        worker = server.models.workers[NAME]
        first = pool.submit(post, server, text="un")
        assert started.wait(60)
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/predict", json.dumps({"texts": ["un"] * 5}), JSON)
        wait_until(lambda: worker.waiting == 6)
        connection.close()
        wait_until(lambda: worker.waiting == 1)
        go.set()
        assert first.result()[0] == 200
        assert post(server, text="un")[0] == 200
    assert sizes == [1, 1]


def samples(server):
    """The values of /metrics by name and label."""
    response, text = request(server, "GET", "/metrics", headers={})
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = re.findall(r"^roberta_small_(\w+)\{(?:path|model)=(.*)\} ([\d.e-]+)$", text.decode(), re.M)
    assert len(found) == len(re.findall("^[^#]", text.decode(), re.M))
    return {(name, label): float(value) for name, label, value in found}


def test_metrics_and_access_log(classifier, gate, pool, capsys):
    started, go, _ = gate
    with serving(classifier, log=True) as server:
        first = pool.submit(post, server, texts=["un secret", "une"])
        assert started.wait(60)
        assert samples(server)["waiting_texts", f'"{NAME}"'] == 2
        go.set()
        assert first.result()[0] == 200
        server.models.workers['é"'] = server.models.workers[NAME]
        post(server, txt="un secret")
        request(server, "GET", "/a%0Ab?secret", headers={})
        found = samples(server)
    assert found["texts_total", f'"{NAME}"'] == found["texts_total", r'"é\""'] == 2
    assert found["waiting_texts", f'"{NAME}"'] == 0
    answered = [('"/predict",status="200"', 1), ('"/predict",status="422"', 1), ('"other",status="404"', 1)]
    assert answered == [(label, found["requests_total", label]) for label, _ in answered]
    assert found["request_seconds_total", answered[0][0]] > 0
    lines = [line.split()[1:5] for line in capsys.readouterr().out.splitlines()]
    requests = [["POST", "/predict", "200"], ["POST", "/predict", "422"], ["GET", "/a%0Ab", "404"]]
    assert lines[1:4] == [["127.0.0.1", *one] for one in requests]
