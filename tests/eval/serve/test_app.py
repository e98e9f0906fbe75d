"""The JSON API: its requests, answers and errors. `test_page.py` tests the page in a browser."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from roberta_small.common.files import ROOT, sha256
from roberta_small.eval import SentenceClassifier
from tests.support.servers import JSON, LIMITS, get, post, request, serving, wait_until
from tests.support.tiny_runs import make_data, make_run

NAME = "fairseq/random/seed1"
PAGE = ROOT / "docs/how-to/serve.md"


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl")
def test_the_requests_of_the_documentation(ensemble):
    pytest.importorskip("captum")
    _, requests, example, *_ = re.findall(r"^```(?:json)?\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    with serving(*ensemble.members) as server:
        lines = requests.replace("http://127.0.0.1:8000/", server.url).splitlines()
        answers = [json.loads(subprocess.check_output(f"{line} -s --fail", shell=True)) for line in lines]
    assert [answer.get("model") for answer in answers[:2]] == ["ensemble", NAME]
    assert answers[-1] == {"status": "ok"}
    (shown,), (real,) = json.loads(example)["predictions"], answers[2]["predictions"]
    assert list(shown) == list(real)
    assert [word for word, _ in shown["words"]] == [word for word, _ in real["words"]]


def test_models_of_different_data_are_chosen_by_name(classifier, pair_classifier):
    pair = ["un livre", "une histoire"]
    with serving(classifier, pair_classifier) as server:
        version = get(server, "/version")
        names = [one["name"] for one in version["models"]]
        single = post(server, text="un livre", model=names[0])
        pairs = post(server, texts=[pair, ["le roman", ""]], model=names[1])
        alone = post(server, text=pair, model=names[1])[1]["predictions"]
        refused = [post(server, text="un"), post(server, texts=[pair, "un"], model=names[1])]
    assert version["default"] is None
    assert [one["pairs"] for one in version["models"]] == [False, True]
    assert (single[0], pairs[0]) == (200, 200)
    found = pairs[1]["predictions"]
    for one, prediction in zip(found, pair_classifier.predict([pair, ("le roman", "")]), strict=True):
        assert one["probabilities"] == pytest.approx(prediction.probabilities, abs=1e-6)
    assert found[1]["note"] == "empty"
    assert alone[0]["probabilities"] == pytest.approx(found[0]["probabilities"], abs=1e-6)
    assert [status for status, _ in refused] == [422, 422]
    assert all(name in refused[0][1]["error"] for name in names)
    assert "texts[1]" in refused[1][1]["error"]


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
        ('{"text": 5}', JSON, 422, ["text: ", "two strings"]),
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


def test_a_chunked_body_is_limited_too(server):
    parts = [b'{"text": "', *[b"u" * 65536] * 17, b'"}']
    response, answer = request(server, "POST", "/predict", iter(parts))
    assert response.status == 413
    assert "--max-bytes" in json.loads(answer)["error"]
    assert request(server, "POST", "/predict", iter([b'{"text"', b': "un"}']))[0].status == 200


def test_a_text_that_training_did_not_truncate_is_an_error_with_the_limit(tmp_path):
    flags = ["--shorten-method", "none", "--max-positions", "80"]
    make_run(make_data(tmp_path / "data"), tmp_path / "run", *flags)
    with serving(SentenceClassifier.from_run(tmp_path / "run", device="cpu")) as server:
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


def test_the_policy_of_the_page_allows_no_other_address(server):
    response, page = request(server, "GET", "/", headers={})
    assert response.status == 200
    policy = response.headers["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["frame-ancestors"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert rules["script-src"].startswith("'sha256-")
    assert not re.search(rb"https?://", page)
