"""The command: its process, its address, the models that it loads and its errors."""

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys

import pytest

from roberta_small.common.errors import UserError
from roberta_small.eval.__main__ import main
from roberta_small.eval.serve import listen, local_hosts, url_of
from tests.support.servers import JSON
from tests.support.signals import restore_defaults

# Starts the command with a network that takes a second for each batch.
SLOW = """
import sys, time
from roberta_small.__main__ import main
from roberta_small.eval.network import Network

logits = Network.logits
def slow(*args, **more):
    print("computing", flush=True)
    time.sleep(1)
    return logits(*args, **more)
Network.logits = slow
code = main()
print("matplotlib" in sys.modules)
sys.exit(code)
"""


@pytest.mark.usefixtures("fast_processes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_after_the_requests_in_progress(trained, number):
    command = [sys.executable, "-c", SLOW, "serve", str(trained.run), "--port", "0", "--access-log"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen(command, **pipes, preexec_fn=restore_defaults) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)  # after a failure, it would serve for ever
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/predict", json.dumps({"text": "un livre"}), JSON)
        assert process.stdout.readline() == "computing\n"
        process.send_signal(number)
        response = connection.getresponse()
        answer = json.loads(response.read())
        output, errors = process.communicate(timeout=60)
    assert response.status == 200
    assert answer["predictions"][0]["label"]
    assert process.returncode == 0
    assert re.fullmatch(r"\S+ 127\.0\.0\.1 POST /predict 200 [\d.]+\nFalse\n", output)
    assert "Traceback" not in errors
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_port_in_use_and_an_unknown_host_are_errors(trained, capsys):
    with contextlib.closing(listen("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(trained.run), "--port", str(port)]) == 1
        assert f"--port {port}" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"--host no\.such\.host\.invalid"):
        listen("no.such.host.invalid", 0)


def test_the_address_and_the_hosts_of_a_request():
    with contextlib.closing(listen("localhost", 0)) as listener:
        host, port = listener.getsockname()[:2]
        assert url_of(listener) in (f"http://{host}:{port}/", f"http://[{host}]:{port}/")
        assert "localhost" in local_hosts(listener)
    with contextlib.closing(listen("0.0.0.0", 0)) as listener:
        assert local_hosts(listener) == []
    try:
        listener = listen("::1", 0)
    except UserError:
        pytest.skip("no IPv6 address")
    with contextlib.closing(listener):
        assert url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}/"
        assert "[::1]" in local_hosts(listener)


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--port", "70000"], ["--port", "70000"]),
        (["--port", "-1"], ["--port"]),
        (["--port", "http"], ["--port", "http"]),
        (["--timeout", "0"], ["--timeout", "0"]),
        (["--max-texts", "0"], ["--max-texts", "0"]),
        (["--max-waiting", "8"], ["--max-waiting 8", "--max-texts 64"]),
        (["--max-token", "8"], ["--max-token", "--max-tokens"]),
    ],
)
def test_errors_of_the_command_line_name_option_and_value(words, facts, capsys):
    assert main(["serve", "run", *words]) in (1, 2)
    errors = capsys.readouterr().err
    assert all(fact in errors for fact in facts)


@pytest.mark.parametrize("name", ["fastapi", "uvicorn"])
def test_without_a_package_the_error_names_it(monkeypatch, capsys, name):
    monkeypatch.setitem(sys.modules, name, None)
    assert main(["serve", "run"]) == 1
    assert f"pip install {name}" in capsys.readouterr().err
