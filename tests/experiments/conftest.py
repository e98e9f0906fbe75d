import json
import os
from pathlib import Path

import fake_slurm
import fake_trainer
import pytest

from roberta_small.experiments.__main__ import main
from roberta_small.experiments.launchers import local
from roberta_small.experiments.launchers.slurm import queue
from roberta_small.experiments.launchers.slurm.settings import FLAGS

RECIPE = """
# two epochs
--valid-subset valid,test
--best-checkpoint-metric accuracy
--max-epoch 2      # a checkpoint to resume from after the first
--lr 1e-4
--adam-betas "(0.9, 0.98)"
"""


@pytest.fixture(autouse=True)
def short_waits_and_clean_environment(monkeypatch):
    """Shorten all waits, and remove environment variables that are also settings."""
    monkeypatch.setattr(local, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(local, "LOCK_SECONDS", 0.1)
    names = "DATA OUT INITS SEEDS ARM RECIPE PRETRAINED JOBS DEVICE TOKENS SEED GRID PROCESSES"
    for name in names.split():
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"RS_{name}", raising=False)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working directory, with a space and an accent in its name: data, a recipe and a checkpoint."""
    folder = tmp_path / "mes données"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for part in ("input0", "label"):
        (folder / "bin" / part).mkdir(parents=True)
        for subset in ("train", "valid", "test"):
            for end in ("bin", "idx"):
                (folder / "bin" / part / f"{subset}.{end}").write_text(f"{part} {subset} {end}")
    (folder / "bin/input0/dict.txt").write_text("▁livre 3\n", encoding="utf-8")
    (folder / "bin/label/dict.txt").write_text("1 900\n0 900\nmadeupword0000 0\nmadeupword0001 0\n")
    (folder / "quick.txt").write_text(RECIPE)
    (folder / "model.pt").write_bytes(b"weights")
    return folder


@pytest.fixture
def sweep(here, capfd):
    """Run train.sh's Python with the fake trainer; returns exit code, stdout and stderr."""

    def run(*words):
        code = main(
            ["train", "--data", "bin", "--recipe", "quick.txt", "--device", "cpu", *words],
            trainer=fake_trainer.COMMAND,
        )
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def starts():
    """Read the starts of the fake trainer in a run folder: arguments, environment and process id of each."""

    def read(run):
        return [json.loads(line) for line in (Path(run) / "starts.jsonl").read_text().splitlines()]

    return read


@pytest.fixture
def status():
    """Read the status of a run from its manifest."""

    def read(run):
        return json.loads((Path(run) / "manifest.json").read_text())["status"]

    return read


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """The state folder of a fake SLURM cluster (`fake_slurm`), whose commands are on the PATH."""
    for name in (*FLAGS, "launcher"):
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(queue, "QUEUE_SECONDS", 0.2)
    monkeypatch.setattr(queue, "LOG_SECONDS", 0.05)
    monkeypatch.setattr(queue, "SETTLE_SECONDS", 0.5)
    folder = tmp_path / "cluster"
    folder.mkdir()
    fake_slurm.install(folder)
    (folder / "squeue-calls").touch()
    monkeypatch.setenv("FAKE_SLURM", str(folder))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    yield folder
    (folder / "stop").touch()


@pytest.fixture
def submit(sweep, cluster):
    """Run train.sh --launcher slurm; returns exit code, stdout and stderr."""
    return lambda *words: sweep("--launcher", "slurm", *words)
