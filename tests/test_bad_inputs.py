"""Mistakes end fairseq's own command with one clear line and a non-zero exit, and lose nothing.

The tests of the packages have the other mistakes, and those of the other commands.
"""

import re

import pytest
import torch

from tests.support.archives import Executes
from tests.support.data_folders import write_data
from tests.support.training import FAST, INPUT, OURS, SIZES, STEPS, fairseq_train


def missing_split(folder):
    (folder / "data/input0/valid.idx").unlink()


def checkpoint_that_runs_code(folder):
    torch.save({"model": {}, "cfg": Executes(folder / "executed")}, folder / "model.pt")


def checkpoint_of_another_model(folder):
    torch.save({"model": {"encoder.x": torch.ones(1)}, "cfg": None}, folder / "model.pt")


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path: path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("spoil", "fact"),
    [
        (missing_split, "valid.idx: "),
        (checkpoint_that_runs_code, "model.pt: "),
        (checkpoint_of_another_model, "model.pt "),
    ],
)
def test_one_line_and_nothing_lost(tmp_path, spoil, fact):
    write_data(tmp_path / "data")
    spoil(tmp_path)
    before = contents(tmp_path)
    words = [tmp_path / "data", *OURS, *INPUT, *STEPS, *SIZES, *FAST, "--save-dir", tmp_path / "save"]
    if (tmp_path / "model.pt").exists():
        words += ["--restore-file", tmp_path / "model.pt"]
    done = fairseq_train(*words)
    assert done.returncode not in (0, -11)
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert re.search(fact, errors[0]) or re.search(fact, done.stderr.splitlines()[-1])
    after = contents(tmp_path)
    assert {path: after.get(path) for path in before} == before
    assert not (tmp_path / "executed").exists()
