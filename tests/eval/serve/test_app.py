"""The JSON API: its predictions and errors. `test_page.py` tests the page in a browser."""

import http.client
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from roberta_small.common.files import ROOT, sha256
from roberta_small.eval import Ensemble, SentenceClassifier
from roberta_small.eval.__main__ import main
from roberta_small.eval.origin import find_runs
from tests.support.servers import JSON, LIMITS, get, post, request, serving
from tests.support.tiny_runs import BAD, GOOD

NAME = "fairseq/random/seed1"
PAGE = ROOT / "docs/how-to/serve.md"


@pytest.fixture(scope="module")
def classifier(trained):
    return SentenceClassifier.from_run(trained.run, device="cpu")


@pytest.fixture(scope="module")
def server(classifier):
    with serving(classifier) as found:
        yield found


@pytest.fixture(scope="module")
def pair_classifier(pairs):
    return SentenceClassifier.from_run(pairs.run, device="cpu")


@pytest.fixture(scope="module")
def pair_server(pair_classifier):
    with serving(pair_classifier) as found:
        yield found


def test_predictions_are_those_of_the_command(trained, server, capsys):
    texts = [trained.texts[0], "", f"un livre {GOOD}", "汉字"]
    status, answer = post(server, texts=texts)
    assert (status, answer["model"]) == (200, NAME)
    assert main(["predict", "--checkpoint", str(trained.run), "--device", "cpu", *texts]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for found, line in zip(answer["predictions"], lines, strict=True):
        assert found["label"] == line["label"]
        assert list(found["probabilities"]) == list(line["probabilities"])
        assert found["probabilities"] == pytest.approx(line["probabilities"], abs=1e-6)
        assert found.get("note") == line.get("note")
        assert not {"words", "std", "members"} & found.keys()


def test_the_words_are_those_of_predict_explain(trained, server, capsys):
    pytest.importorskip("captum")
    text = f"un <b>livre</b> {BAD}"
    status, answer = post(server, text=text, model=NAME, explain=True)
    assert status == 200
    words = ["--format", "jsonl", "--explain", text]
    assert main(["predict", "--checkpoint", str(trained.run), "--device", "cpu", *words]) == 0
    line = json.loads(capsys.readouterr().out)
    (found,) = answer["predictions"]
    assert [word for word, _ in found["words"]] == [word for word, _ in line["words"]]
    scores = [[score for _, score in one["words"]] for one in (found, line)]
    assert scores[0] == pytest.approx(scores[1], abs=2e-6)
    assert found["probabilities"] == pytest.approx(line["probabilities"], abs=1e-6)


def test_sentence_pairs(pair_server, pair_classifier):
    pair, other = ["un livre", "une histoire"], ["le roman", ""]
    _, answer = post(pair_server, texts=[pair, other])
    expected = pair_classifier.predict([pair, other])
    for found, one in zip(answer["predictions"], expected, strict=True):
        assert found["probabilities"] == pytest.approx(one.probabilities, abs=1e-6)
    assert answer["predictions"][1]["note"] == "empty"
    (alone,) = post(pair_server, text=pair)[1]["predictions"]
    assert alone["probabilities"] == pytest.approx(answer["predictions"][0]["probabilities"], abs=1e-6)
    status, answer = post(pair_server, texts=[["un", "une"], "un"])
    assert status == 422
    assert "texts[1]" in answer["error"]


def test_several_models_of_the_same_data_are_also_an_ensemble(sweep):
    ensemble = Ensemble.from_runs(sweep, device="cpu")
    names = [member.model.run.name for member in ensemble.members]
    (expected,) = ensemble.predict(["un livre"])
    own = [member.predict(["un livre"])[0] for member in ensemble.members]
    with serving(*ensemble.members) as server:
        version = get(server, "/version")
        _, answer = post(server, text="un livre")
        alone = [post(server, text="un livre", model=name)[1]["predictions"][0] for name in names]
        status, refused = post(server, text="un livre", explain=True)
    assert version["default"] == answer["model"] == "ensemble"
    assert [one["name"] for one in version["models"]] == ["ensemble", *names]
    assert version["models"][0]["members"] == names
    (found,) = answer["predictions"]
    assert found["label"] == expected.predicted
    assert found["probabilities"] == pytest.approx(expected.probabilities, abs=1e-6)
    assert list(found["members"]) == names
    for one, member, separate in zip(own, found["members"].values(), alone, strict=True):
        assert member == pytest.approx(one.probabilities, abs=1e-6)
        assert separate["probabilities"] == pytest.approx(member, abs=1e-6)
    std = np.std([one.probabilities[expected.predicted] for one in own], ddof=1)
    assert found["std"] == pytest.approx(std, abs=1e-6)
    assert status == 422
    assert all(name in refused["error"] for name in names)


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl")
def test_the_requests_of_the_documentation(sweep):
    pytest.importorskip("captum")
    _, requests, example, *_ = re.findall(r"^```(?:json)?\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    with serving(*Ensemble.from_runs(sweep, device="cpu").members) as server:
        lines = requests.replace("http://127.0.0.1:8000/", server.url).splitlines()
        answers = [json.loads(subprocess.check_output(f"{line} -s --fail", shell=True)) for line in lines]
    assert [answer.get("model") for answer in answers[:2]] == ["ensemble", NAME]
    assert answers[-1] == {"status": "ok"}
    (shown,), (real,) = json.loads(example)["predictions"], answers[2]["predictions"]
    assert list(shown) == list(real)
    assert [word for word, _ in shown["words"]] == [word for word, _ in real["words"]]


def test_models_of_different_data_are_chosen_by_name(trained, pair_classifier):
    runs = find_runs([trained.run, pair_classifier.model.run.folder])
    classifiers = [SentenceClassifier.from_run(run, device="cpu") for run in runs]
    with serving(*classifiers) as server:
        version = get(server, "/version")
        names = [one["name"] for one in version["models"]]
        single = post(server, text="un livre", model=names[0])
        pair = post(server, text=["un livre", "une histoire"], model=names[1])
        status, answer = post(server, text="un livre")
    assert version["default"] is None
    assert [one["pairs"] for one in version["models"]] == [False, True]
    assert (single[0], pair[0], status) == (200, 200, 422)
    assert all(name in answer["error"] for name in names)


def test_the_version_describes_the_models(trained, server, classifier):
    version = get(server, "/version")
    (info,) = version["models"]
    assert (info["name"], info["classes"], info["pairs"]) == (NAME, classifier.classes, False)
    assert (info["method"], info["init"], info["seed"]) == ("fairseq", "random", 1)
    assert info["sha256"] == sha256(trained.run / "checkpoint_best.pt")
    assert version["default"] == NAME
    assert version["limits"] == LIMITS
    assert re.match(r"\d+\.\d+\.\d+", version["version"])
    assert get(server, "/health") == {"status": "ok"}


def test_the_api_describes_itself(server):
    described = get(server, "/openapi.json")
    assert set(described["paths"]) == {"/health", "/version", "/metrics", "/predict"}
    predict = described["paths"]["/predict"]["post"]
    body = predict["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {"text", "texts", "model", "explain"}
    assert all("description" in one for one in body["properties"].values())
    for status, answer in predict["responses"].items():
        name = answer["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert name == ("Predictions" if status == "200" else "Error")
    for example in body["examples"]:
        status, _ = post(server, **example)
        assert status == (422 if isinstance(example.get("text"), list) else 200)
    response, page = request(server, "GET", "/docs", headers={})
    assert response.status == 200
    assert b"openapi.json" in page


@pytest.mark.parametrize(
    ("text", "note", "read"),
    [
        ("", "empty", None),
        (" \n\t ", "empty", None),
        ("livre " * 100, None, 32),  # --max-positions of the run
        ("livre 汉字", None, None),
        ("livre\x00\u2028\r\nun", None, None),
    ],
    ids=["empty", "spaces", "long", "unknown", "control characters"],
)
def test_unusual_texts_are_classified(server, classifier, text, note, read):
    status, answer = post(server, text=text)
    assert status == 200
    (found,) = answer["predictions"]
    assert sum(found["probabilities"].values()) == pytest.approx(1)
    encoded = classifier.text_input.encode([text])
    assert (found.get("note") or "") == encoded.notes[0]
    assert note is None or found["note"] == note
    assert found["tokens"] == encoded.lengths[0]
    assert found["tokens_read"] == (read or encoded.lengths[0])
    assert (found["tokens_unknown"] > 0) == ("汉" in text or "\x00" in text)


MANY = json.dumps({"texts": ["un"] * (LIMITS["texts"] + 1)})
LONG = json.dumps({"texts": ["un", "u" * (LIMITS["characters"] + 1)]})
DEEP = '{"text": ' + "[" * 900 + "]" * 900 + "}"
LARGE = json.dumps({"text": "u" * LIMITS["bytes"]})


@pytest.mark.parametrize(
    ("body", "headers", "status", "facts"),
    [
        ("{", JSON, 400, ["JSON"]),
        ("[" * 100_000, JSON, 400, ["JSON"]),
        (b'{"text": "\xff"}', JSON, 400, ["JSON"]),
        (r'{"texts": ["un", "\ud800"]}', JSON, 422, ["texts[1]", r"\ud800"]),
        (r'{"\ud800": "un"}', JSON, 422, ["body: "]),
        (DEEP, JSON, 422, ["text: ", "two strings"]),
        ("[]", JSON, 422, ["object"]),
        ("{}", JSON, 422, ["text", "texts"]),
        ('{"text": "un", "texts": ["un"]}', JSON, 422, ["text", "texts"]),
        ('{"txt": "un"}', JSON, 422, ["txt", "mean text?"]),
        ('{"TEXT": "un"}', JSON, 422, ["TEXT: ", "mean text?"]),
        ('{"x": 1, "y": 2}', JSON, 422, ["x: ", "texts, model, explain"]),
        (json.dumps({"x" * 999: 1}), JSON, 422, ["x" * 60]),
        ('{"texts": "un"}', JSON, 422, ["texts", "list"]),
        ('{"texts": []}', JSON, 422, ["texts", "1"]),
        ('{"texts": ["un", 5, 6]}', JSON, 422, ["texts[1]: ", "string"]),
        ('{"text": ["a", "b", "c"]}', JSON, 422, ["text: ", "two strings"]),
        ('{"text": ["a", "b"]}', JSON, 422, ["text", NAME, "single texts"]),
        ('{"text": "un", "explain": 1}', JSON, 422, ["explain"]),
        ('{"text": "un", "model": 1}', JSON, 422, ["model"]),
        ('{"text": "un", "model": "x"}', JSON, 404, ["model", "'x'", NAME]),
        (MANY, JSON, 413, ["texts", "65", "64", "--max-texts"]),
        (LONG, JSON, 413, ["texts[1]", "20001", "20000", "--max-characters"]),
        (LARGE, JSON, 413, ["body", "1048576", "--max-bytes"]),
        ('{"text": "un"}', {"Content-Type": "text/plain"}, 415, ["application/json"]),
        ('{"text": "un"}', {}, 415, ["application/json"]),
    ],
)  # fmt: skip
def test_invalid_requests_are_refused(server, body, headers, status, facts):
    response, answer = request(server, "POST", "/predict", body, headers)
    assert response.status == status
    error = json.loads(answer)
    assert list(error) == ["error"]
    assert all(fact in error["error"] for fact in facts), error
    assert len(error["error"]) < 200
    assert "; y" not in error["error"]  # the first error only
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert post(server, text="un")[0] == 200  # the server still works


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-be"])
def test_a_body_in_another_unicode_encoding_is_read(server, encoding):
    body = json.dumps({"text": "été"}, ensure_ascii=False).encode(encoding)
    assert json.loads(request(server, "POST", "/predict", body)[1]) == post(server, text="été")[1]


@pytest.mark.parametrize(
    ("method", "path", "host", "status", "fact"),
    [
        ("POST", "/predict", "example.org", 400, "http://127.0.0.1:"),
        ("GET", "/", "example.org:80", 400, "http://127.0.0.1:"),
        ("GET", "/version", "localhost:80", 200, ""),
        ("GET", "/predict", "localhost", 405, ""),
        ("GET", "/etc/passwd", "localhost", 404, ""),
        ("HEAD", "/", "localhost", 200, ""),
        ("HEAD", "/health", "localhost", 200, ""),
        ("HEAD", "/predict", "localhost", 405, ""),
        ("HEAD", "/health", "example.org", 400, ""),
    ],
)
def test_hosts_methods_and_paths(server, method, path, host, status, fact):
    body = '{"text": "un"}' if method == "POST" else None
    response, answer = request(server, method, path, body, JSON | {"Host": host})
    assert response.status == status
    if method == "HEAD":
        assert answer == b""
        assert int(response.headers["Content-Length"]) > 0
    elif status != 200:
        assert list(json.loads(answer)) == ["error"]
        assert fact in json.loads(answer)["error"]


def samples(server):
    """The values of /metrics by name and label."""
    response, text = request(server, "GET", "/metrics", headers={})
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = re.findall(r"^roberta_small_(\w+)\{(?:path|model)=(.*)\} ([\d.e-]+)$", text.decode(), re.M)
    assert len(found) == len(re.findall("^[^#]", text.decode(), re.M))
    return {(name, label): float(value) for name, label, value in found}


def test_metrics_and_access_log(classifier, gate, capsys):
    started, go, _ = gate
    with serving(classifier, log=True) as server, ThreadPoolExecutor(1) as pool:
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


def test_a_chunked_body_is_limited_too(server):
    parts = [b'{"text": "', *[b"u" * 65536] * 17, b'"}']
    response, answer = request(server, "POST", "/predict", iter(parts))
    assert response.status == 413
    assert "--max-bytes" in json.loads(answer)["error"]
    assert request(server, "POST", "/predict", iter([b'{"text"', b': "un"}']))[0].status == 200


def test_a_text_that_training_did_not_truncate_is_an_error_with_the_limit(untruncated):
    with serving(SentenceClassifier.from_run(untruncated, device="cpu")) as server:
        assert post(server, text="un")[0] == 200
        status, answer = post(server, texts=["un", "livre " * 100])
    assert status == 422
    assert re.search(r"\b2\b.*\b80\b", answer["error"])


def test_an_error_of_the_program_is_logged_and_not_shown(server, classifier, monkeypatch, caplog):
    def broken(rows):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(classifier.network, "logits", broken)
    status, answer = post(server, text="un secret")
    assert status == 500
    assert "a bug" not in answer["error"]
    wait_until(lambda: "ZeroDivisionError: a bug" in caplog.text)
    assert "secret" not in caplog.text
    monkeypatch.undo()
    assert post(server, text="un")[0] == 200


def test_without_captum_there_are_predictions_only(classifier, monkeypatch):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with serving(classifier) as server:
        assert get(server, "/version")["models"][0]["explanation"] is None
        status, answer = post(server, text="un", explain=True)
        assert post(server, text="un")[0] == 200
    assert status == 422
    assert "pip install captum" in answer["error"]


def test_a_full_queue_is_an_error_with_a_time_to_wait(classifier, gate):
    started, go, computed = gate
    with serving(classifier, waiting=2, texts=2) as server, ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, server, texts=["un", "une"])
        assert started.wait(60)
        response, body = request(server, "POST", "/predict", '{"text": "un"}')
        go.set()
        assert first.result()[0] == 200
        assert post(server, text="un")[0] == 200
    assert response.status == 503
    assert int(response.headers["Retry-After"]) >= 1
    assert "--max-waiting" in json.loads(body)["error"]
    assert computed == [2, 1]


def test_the_time_limit(classifier, gate):
    started, go, computed = gate
    with serving(classifier, seconds=1.0) as server, ThreadPoolExecutor(2) as pool:
        first = pool.submit(post, server, text="un")
        assert started.wait(60)
        second = pool.submit(post, server, texts=["un", "une"])
        answers = [first.result(), second.result()]
        go.set()
        assert post(server, text="un")[0] == 200
    for status, answer in answers:
        assert status == 504
        assert "--timeout" in answer["error"]
    assert computed == [1, 1]  # the second was not computed


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


def test_a_client_that_goes_away_is_not_served(classifier, gate):
    started, go, computed = gate
    with serving(classifier) as server, ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, server, text="un")
        assert started.wait(60)
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/predict", json.dumps({"texts": ["un"] * 5}), JSON)
        (worker,) = server.models.workers.values()
        wait_until(lambda: worker.waiting == 6)
        connection.close()
        wait_until(lambda: worker.waiting == 1)
        go.set()
        assert first.result()[0] == 200
        assert post(server, text="un")[0] == 200
    assert computed == [1, 1]


def wait_until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_policy_of_the_page_allows_no_other_address(server):
    response, page = request(server, "GET", "/", headers={})
    assert response.status == 200
    policy = response.headers["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["frame-ancestors"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert rules["script-src"].startswith("'sha256-")
    assert not re.search(rb"https?://", page)


@pytest.mark.parametrize(("hosts", "host"), [([], "example.org"), (["[::1]"], "[::1]:8000")])
def test_other_machines_may_use_any_name(classifier, monkeypatch, hosts, host):
    monkeypatch.setattr("tests.support.servers.local_hosts", lambda listener: hosts)
    with serving(classifier) as server:
        body = json.dumps({"text": "un"})
        response, _ = request(server, "POST", "/predict", body, JSON | {"Host": host})
    assert response.status == 200
