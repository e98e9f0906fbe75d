"""Pipes and devices with the names of logs: they would block a reader, so they are skipped and named."""

import os
import signal

import pytest

from roberta_small.analysis.__main__ import main
from roberta_small.analysis.read.long_table import load_runs
from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from tests.support.analysis.printed_tables import failed
from tests.support.analysis.run_trees import write_run

SECONDS = 30


@pytest.fixture(autouse=True)
def limited_time():
    """Fail instead of waiting for a pipe forever."""

    def stop(*_):
        pytest.fail("blocked by a pipe")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "runs", "random", 1, [50.0, 60.0], [51.0, 61.0])


@pytest.mark.parametrize("name", ["console.log", "run-seed1_valid-tag-loss.csv", "events.out.tfevents.1"])
@pytest.mark.parametrize("special", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_a_pipe_or_device_is_skipped_and_named(run, tmp_path, name, special, caplog):
    path = run / "tensorboard" / name
    special(path)
    os.mkfifo(run / "control")  # no log, and no concern
    assert load_runs(tmp_path / "runs")["value"].tolist() == [51.0, 61.0, 50.0, 60.0]
    (record,) = [record for record in caplog.records if "skipped" in record.getMessage()]
    assert str(path) in record.getMessage()
    assert "control" not in caplog.text


@pytest.mark.parametrize("command", ["tables", "collect"])
def test_every_kind_of_command_ends(run, tmp_path, command):
    os.mkfifo(run / "tensorboard" / "events.out.tfevents.1")
    os.mkfifo(run / "train.log")
    os.mkfifo(run / "predictions-test.jsonl")
    more = {"tables": [], "collect": ["--out", str(tmp_path / "out")]}
    assert main([command, str(tmp_path / "runs"), *more[command]]) == 0


def test_predictions_are_skipped_and_named(run, tmp_path, caplog, capsys):
    path = run / "predictions-test.jsonl"
    os.mkfifo(path)
    assert main(["tables", str(tmp_path / "runs"), "--table", "seeds"]) == 0
    assert str(path) in caplog.text
    assert main(["tables", str(tmp_path / "runs"), "--table", "accuracy"]) == 1


def test_a_manifest_that_is_a_pipe_is_an_error(run, tmp_path, capsys):
    path = run / manifest.NAME
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match=str(path)):
        manifest.read(run)
    assert str(path) in failed(capsys, "tables", tmp_path / "runs")
