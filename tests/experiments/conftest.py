import json
from pathlib import Path

import pytest

from roberta_small.experiments import execute
from roberta_small.experiments.__main__ import main
from tests.support import fake_trainer

RECIPE = """
# two epochs
--valid-subset valid,test
--best-checkpoint-metric accuracy
--max-epoch 2      # a checkpoint to resume from after the first
--lr 1e-4
--adam-betas "(0.9, 0.98)"
"""


@pytest.fixture(autouse=True, scope="module")
def _forks(fast_processes):
    """Commands start their processes as forks."""


@pytest.fixture(autouse=True)
def short_waits_and_clean_environment(monkeypatch):
    """Shorten all waits, and remove environment variables that are also settings."""
    for name, seconds in {"POLL": 0.02, "HELD": 0.1, "LEASE": 0.5}.items():
        monkeypatch.setattr(execute, f"{name}_SECONDS", seconds)
    names = "DATA OUT INITS SEEDS ARM RECIPE PRETRAINED JOBS DEVICE TOKENS SEED GRID PROCESSES SLURM MAX_RUNS"
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
            ["train", "--data", "bin", "--recipe", "quick.txt", "--device", "cpu", "--no-baselines", *words],
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
