"""Names and folders of runs, and the checkpoint of a folder."""

import re
from pathlib import Path

import pytest

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.common.run import Run, find_checkpoint, runs, split_arm

CONTENT = {
    **{"schema": 1, "status": "finished", "arm": "fairseq,lr=1e-4", "init": "small", "seed": 3},
    **{"recipe": "reference", "command": [], "data": {}},
}


def test_names_of_a_run():
    run = Run.below(Path("out"), "fairseq,lr=1e-4", "small", 3)
    assert run.folder == Path("out/fairseq,lr=1e-4/small/seed3")
    assert (run.method, run.setting) == split_arm(run.arm) == ("fairseq", "lr=1e-4")
    assert run.group == "fairseq,lr=1e-4/small"
    assert run.name == "fairseq,lr=1e-4/small/seed3"
    assert run.label == "lr=1e-4/small/seed3"
    assert Run.below(Path("out"), "bow", "tfidf", 0).label == "tfidf/seed0"


def test_runs_of_an_arm_are_ordered_by_init_then_seed():
    found = runs(Path("out"), "fairseq", {"random": None, "small": Path("a.pt")}, [2, 1])
    assert [(run.init, run.seed, run.checkpoint) for run in found] == [
        *(("random", 2, None), ("random", 1, None)),
        *(("small", 2, Path("a.pt")), ("small", 1, Path("a.pt"))),
    ]


def test_run_is_read_from_its_manifest(tmp_path):
    assert Run.at(tmp_path) is None
    manifest.write(tmp_path, CONTENT | {"checkpoint": {"path": "a.pt", "sha256": "0"}})
    run = Run.at(tmp_path)
    assert run == Run(tmp_path, "fairseq,lr=1e-4", "small", 3, Path("a.pt"))
    assert run.read_manifest()["status"] == "finished"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], None),
        (["model.pt"], "model.pt"),
        (["model.safetensors"], "model.safetensors"),
        (["checkpoint_best.pt"], "checkpoint_best.pt"),
        (["checkpoint_best.pt", "model.pt"], "model.pt"),
        (["checkpoint_best.pt", "model.safetensors"], "model.safetensors"),
    ],
)
def test_checkpoint_of_a_folder(tmp_path, files, expected):
    for name in files:
        (tmp_path / name).touch()
    assert find_checkpoint(tmp_path) == (tmp_path / expected if expected else None)


@pytest.mark.parametrize("best", [False, True])
def test_two_model_files_are_an_error(tmp_path, best):
    if best:
        (tmp_path / "checkpoint_best.pt").touch()
    (tmp_path / "model.pt").touch()
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(UserError, match=re.escape(str(tmp_path))) as caught:
        find_checkpoint(tmp_path)
    assert "model.pt" in str(caught.value)
    assert "model.safetensors" in str(caught.value)
