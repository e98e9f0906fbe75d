"""Which classifiers make an ensemble, and how their classes are matched."""

import json
import shutil

import numpy as np
import pytest
import torch

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.eval.__main__ import main
from roberta_small.eval.classifier import Ensemble, describe, in_order_of
from tests.support.tiny_runs import write_manifest


def test_classes_are_matched_by_name():
    p_NK = np.array([[0.1, 0.2, 0.7]])
    assert in_order_of(["c", "a", "b"], ["a", "b", "c"], p_NK, "second", "first").tolist() == [
        [0.7, 0.1, 0.2]
    ]
    with pytest.raises(UserError, match=r"^second: .*\bfirst\b"):
        in_order_of(["a", "b"], ["a", "b", "c"], p_NK, "second", "first")


def copy_run(run, folder, **changes):
    """Another run with the same weights; its checkpoint differs."""
    shutil.copytree(run, folder)
    state = torch.load(folder / "checkpoint_best.pt", weights_only=False)
    torch.save(state | {"copy": str(folder)}, folder / "checkpoint_best.pt")
    manifest.write(folder, manifest.read(folder) | changes)
    return folder


def test_members_of_other_data_are_an_error(trained, tmp_path):
    data = {"path": str(trained.data)}
    first = copy_run(trained.run, tmp_path / "a/seed1", data=data | {"sha256": {"train": "1", "test": "2"}})
    other = copy_run(trained.run, tmp_path / "b/seed2", data=data | {"sha256": {"train": "3"}}, seed=2)
    with pytest.raises(UserError, match=r"fairseq/random/seed2 and fairseq/random/seed1: .*\bdata\b"):
        Ensemble.from_runs([first, other])
    same = copy_run(
        trained.run, tmp_path / "c/seed2", data=data | {"sha256": {"train": "1", "valid": "4"}}, seed=2
    )
    assert len(Ensemble.from_runs([first, same]).members) == 2


def test_members_with_another_dictionary_are_an_error(trained, pairs, tmp_path):
    write_manifest(shutil.copytree(pairs.run, tmp_path / "run"), pairs.data, seed=2)
    with pytest.raises(UserError, match="fairseq/random/seed2 and fairseq/random/seed1: "):
        Ensemble.from_runs([trained.run, tmp_path / "run"])


def test_a_model_counts_once(trained, tmp_path, capsys):
    runs = [str(shutil.copytree(trained.run, tmp_path / name)) for name in ("seed1", "copy")]
    for command in (["predict", "un livre", "--ensemble"], ["evaluate"]):
        assert main([*command, "--checkpoint", *runs]) == 1
        error = capsys.readouterr().err
        assert all(run in error for run in runs)


def test_several_initializations_are_a_warning(trained, tmp_path, capsys):
    for init in ("random", "pretrained"):
        copy_run(trained.run, tmp_path / f"fairseq/{init}/seed1", init=init)
    describe(Ensemble.from_runs(tmp_path))
    assert "warning: " in capsys.readouterr().err


def test_python_interface(trained, tmp_path):
    copy_run(trained.run, tmp_path / "seed2", seed=2)
    ensemble = Ensemble.from_runs([trained.run, tmp_path / "seed2"], precision="fp32")
    (prediction,) = ensemble.predict(["un livre"])
    assert prediction.probabilities == ensemble.members[0].predict(["un livre"])[0].probabilities
    assert json.loads(json.dumps(prediction.probabilities)).keys() == {"neg", "pos"}
    with pytest.raises(TypeError):
        ensemble.predict("un livre")
