"""The answers of the server, and what it refuses. `test_page.py` tests the page in a browser."""

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from demo_servers import serving
from signals import restore_defaults
from tiny_runs import BAD, GOOD, make_data, make_run

from roberta_small.common.errors import UserError
from roberta_small.eval import Ensemble, SentenceClassifier
from roberta_small.eval.__main__ import main
from roberta_small.eval.demo.server import MAX_BYTES, Demonstration, DemoServer
from roberta_small.eval.predict.explain import explain_texts, marked

pytest.importorskip("captum")
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def classifier(trained):
    return SentenceClassifier.from_run(trained.run, device="cpu")


@pytest.fixture(scope="module")
def server(classifier):
    with serving(classifier) as found:
        yield found


def request(server, method, path, body=None, headers=JSON):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    return response.status, response.read()


def post(server, path, **content):
    status, body = request(server, "POST", path, json.dumps(content))
    return status, json.loads(body)


def test_the_prediction_is_that_of_the_classifier(server, classifier):
    text = f"un livre {GOOD}"
    status, answer = post(server, "/classify", texts=[text])
    assert status == 200
    assert answer["classes"] == classifier.classes
    np.testing.assert_allclose(answer["probabilities"], classifier.probabilities([text])[0])
    assert answer["members"] == [answer["probabilities"]]
    assert answer["std"] is None
    assert answer["notes"] == []
    assert answer["predicted"] == classifier.predict([text])[0].predicted


def test_the_words_are_those_of_predict_explain(server, classifier):
    text = f"un <b>livre</b> {BAD}"
    status, answer = post(server, "/explain", texts=[text], member=0)
    (words,) = explain_texts(classifier, [text], classifier.encode([text]))
    assert status == 200
    assert answer["html"] == marked(words)
    assert "<b>" not in answer["html"]
    assert answer["predicted"] == classifier.predict([text])[0].predicted


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", []),
        (" \n\t ", []),
        ("livre " * 100, ["32"]),  # --max-positions of the run
        ("livre 汉字", ["1"]),
        ("livre\x00\u2028\r\nun", None),
    ],
    ids=["empty", "spaces", "long", "unknown", "control characters"],
)
def test_unusual_texts_are_classified_with_a_note(server, text, numbers):
    status, answer = post(server, "/classify", texts=[text])
    assert status == 200
    assert sum(answer["probabilities"]) == pytest.approx(1)
    if numbers is not None:
        (note,) = answer["notes"]
        assert re.findall(r"\d+", note)[:1] == numbers
    assert post(server, "/explain", texts=[text])[0] == 200


def test_a_note_has_the_number_of_tokens_before_truncation(server, classifier):
    text = "livre " * 100
    (note,) = post(server, "/classify", texts=[text])[1]["notes"]
    (length,) = classifier.text_input.encode([text]).lengths
    pieces = classifier.text_input.encoder.model.encode(text, out_type=str)
    assert length == len(pieces) + 2  # <s> and </s>
    assert str(length) in note


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/classify", "{", JSON, 400),
        ("/classify", "[" * 100_000, JSON, 400),
        ("/classify", "[]", JSON, 400),
        ("/classify", '{"texts": "un"}', JSON, 400),
        ("/classify", '{"texts": [1]}', JSON, 400),
        ("/classify", '{"texts": ["un", "deux"]}', JSON, 422),
        ("/classify", '{"texts": []}', JSON, 422),
        ("/classify", '{"texts": ["\\ud800"]}', JSON, 422),
        ("/explain", '{"texts": ["un"], "member": 1}', JSON, 422),
        ("/explain", '{"texts": ["un"], "member": "0"}', JSON, 400),
        ("/nothing", '{"texts": ["un"]}', JSON, 404),
        ("/classify", '{"texts": ["un"]}', {"Content-Type": "text/plain"}, 415),
        ("/classify", '{"texts": ["un"]}', JSON | {"Host": "example.org"}, 403),
        ("/classify", '{"texts": ["un"]}', JSON | {"Content-Length": "-1"}, 411),
        ("/classify", '{"texts": ["%s"]}' % ("u" * MAX_BYTES), JSON, 413),
    ],
)  # fmt: skip
def test_invalid_requests_are_refused(server, path, body, headers, status):
    found, answer = request(server, "POST", path, body, headers)
    assert found == status
    assert json.loads(answer)["error"]
    assert post(server, "/classify", texts=["un"])[0] == 200  # the server still works


def test_a_text_that_training_did_not_truncate_is_an_error_with_the_limit(tmp_path):
    make_run(
        make_data(tmp_path / "data"), tmp_path / "run", "--shorten-method", "none", "--max-positions", "80"
    )
    with serving(SentenceClassifier.from_run(tmp_path / "run", device="cpu")) as server:
        assert post(server, "/classify", texts=["un"])[0] == 200
        status, answer = post(server, "/classify", texts=["livre " * 100])
    assert status == 422
    assert re.search(r"\b80\b", answer["error"])


def test_only_the_page_is_served_and_its_policy_allows_no_other_address(server):
    status, page = request(server, "GET", "/", headers={})
    assert status == 200
    policy = re.search(rb'Content-Security-Policy" content="([^"]+)"', page)[1].decode()
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert rules["script-src"].startswith("'sha256-")
    assert not re.search(rb"https?://", page)
    assert request(server, "GET", "/etc/passwd", headers={})[0] == 404
    assert request(server, "GET", "/", headers={"Host": "example.org"})[0] == 403


def test_several_checkpoints_are_an_ensemble(trained, tmp_path):
    make_run(trained.data, tmp_path / "seed2", seed=2)
    ensemble = Ensemble.from_runs([trained.run, tmp_path / "seed2"], device="cpu")
    with serving(ensemble) as server:
        _, answer = post(server, "/classify", texts=["un livre"])
        explained = [post(server, "/explain", texts=["un livre"], member=m)[1] for m in (0, 1)]
    own = [member.probabilities(["un livre"])[0] for member in ensemble.members]
    np.testing.assert_allclose(answer["members"], own)
    np.testing.assert_allclose(answer["probabilities"], np.mean(own, axis=0))
    k = answer["classes"].index(answer["predicted"])
    assert answer["std"] == pytest.approx(np.std([p[k] for p in own], ddof=1))
    assert [one["probability"] for one in explained] == pytest.approx([max(p) for p in own])


def test_a_port_in_use_and_an_unknown_host_are_errors():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"--port {port}"):
            DemoServer("127.0.0.1", port)
    with pytest.raises(UserError, match=r"--host no\.such\.host\.invalid"):
        DemoServer("no.such.host.invalid", 0)


def test_ipv6():
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    try:
        with DemoServer("::1", 0) as server:
            assert server.local
            assert server.url == f"http://[::1]:{server.server_port}/"
    except UserError:
        pytest.skip("no IPv6 address")


def test_missing_captum_is_an_error(classifier, monkeypatch):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(UserError, match="pip install captum"):
        Demonstration(classifier)


@pytest.mark.parametrize("port", ["70000", "-1", "http"])
def test_an_invalid_port_is_a_usage_error(port, capsys):
    assert main(["demo", "--checkpoint", "run", "--port", port]) == 2
    assert "--port" in capsys.readouterr().err


def test_ctrl_c_ends_the_command(trained):
    command = [
        sys.executable,
        "-m",
        "roberta_small.eval",
        "demo",
        "--checkpoint",
        str(trained.run),
        "--port",
        "0",
    ]
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=restore_defaults
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)  # after a failure, it would serve for ever
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
