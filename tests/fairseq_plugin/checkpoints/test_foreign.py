"""Initial weights from checkpoints of other programs and of older versions of fairseq."""

import argparse

import numpy as np
import pytest
import torch

from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import Labels
from roberta_small.eval.network import Network, build_encoder, read_checkpoint
from roberta_small.experiments.__main__ import main as experiments
from roberta_small.export.transformers.networks import converted, source_of
from tests.support.training import CLASSIFIER, make_old, started

HEADS = "classification_heads"
RESETS = ["--reset-optimizer", "--reset-dataloader", "--reset-meters"]


def of_another_program(state):
    arguments = argparse.Namespace(**vars(state["cfg"]["model"]))
    arguments.criterion, arguments.optimizer, arguments.lr_scheduler = "smooth_masked_lm", "own", "own"
    arguments.task, arguments.user_dir, arguments.arch = "proteins", "/nowhere/plugin", "protein_roberta"
    history = {"criterion_name": "SmoothLoss", "optimizer_name": "Own", "lr_scheduler_state": {}}
    state |= {"args": arguments, "cfg": None, "optimizer_history": [history | {"num_updates": 9}]}


def with_another_head(state):
    heads = {key: weight for key, weight in state["model"].items() if key.startswith(HEADS)}
    state["model"] |= {key.replace("sentence_classification_head", "mnli"): w for key, w in heads.items()}


def with_weights(change):
    """A change of each (name, weight) of the model; None removes it."""

    def apply(state):
        state["model"] = dict(filter(None, (change(*item) for item in state["model"].items())))

    return apply


CHANGES = {
    "of another program": of_another_program,
    # Of a task without a dataclass, fairseq stores a namespace.
    "of a task with argparse": lambda state: state["cfg"].update(
        task=argparse.Namespace(**state["cfg"]["task"])
    ),
    "without its task": lambda state: state["cfg"].pop("task"),
    "of 2019": make_old,
    "of several GPUs": with_weights(lambda key, weight: (f"module.{key}", weight)),
    "in half precision": with_weights(lambda key, weight: (key, weight.half())),
    "without LM head": with_weights(lambda key, weight: None if "lm_head" in key else (key, weight)),
    "without head": with_weights(lambda key, weight: None if key.startswith(HEADS) else (key, weight)),
    "with another head": with_another_head,
}


@pytest.mark.parametrize("change", CHANGES)
def test_initial_weights_and_hidden_states_need_only_the_architecture_and_the_weights(
    classifier, data, tmp_path, change
):
    state = torch.load(classifier, weights_only=False)
    # Other weights than those that a new model with the same seed has.
    state["model"] = {key: weight + 0.125 for key, weight in state["model"].items()}
    wanted = {key: weight.clone() for key, weight in state["model"].items()}
    torch.save(state, tmp_path / "original.pt")
    CHANGES[change](state)
    torch.save(state, tmp_path / "foreign.pt")
    flags = ["--restore-file", tmp_path / "foreign.pt", *RESETS, "--save-dir", tmp_path / "run"]
    found = started([data, *CLASSIFIER, *flags]).get_model().state_dict()
    tolerance = 1e-3 if change == "in half precision" else 1e-6
    left = {"without LM head": "encoder.lm_head", "without head": HEADS}.get(change)
    assert found.keys() == wanted.keys()
    for key, weight in wanted.items():
        if left is None or not key.startswith(left):
            torch.testing.assert_close(found[key], weight, atol=tolerance, rtol=tolerance)
    # Hidden states, as of the teacher of a distillation.
    networks = [
        build_encoder(read_checkpoint(tmp_path / name), torch.device("cpu"), "fp32")
        for name in ("original.pt", "foreign.pt")
    ]
    with torch.no_grad():
        states = [network(torch.tensor([[0, 5, 6, 7, 2]]), features_only=True)[0] for network in networks]
    torch.testing.assert_close(*states, atol=2e-2 if change == "in half precision" else 1e-6, rtol=0)


@pytest.fixture
def unregistered(classifier, tmp_path):
    """The checkpoint with another name of its architecture, as a plugin of another program gives it."""
    state = torch.load(classifier, weights_only=False)
    state["cfg"]["model"].arch = state["cfg"]["model"]._name = "protein_roberta"
    torch.save(state, tmp_path / "unregistered.pt")
    return tmp_path / "unregistered.pt"


def test_predictions_hidden_states_and_the_export_are_those_of_a_registered_architecture(
    classifier, unregistered
):
    rows = [np.array([0, *range(4, 4 + length), 2]) for length in (1, 9)]
    wanted, found = (read_checkpoint(path) for path in (classifier, unregistered))
    logits = [Network(content, device="cpu").logits(rows) for content in (wanted, found)]
    np.testing.assert_array_equal(*logits)
    ids_BL = torch.from_numpy(rows[1])[None]
    networks = [build_encoder(content, torch.device("cpu"), "fp32") for content in (wanted, found)]
    with torch.no_grad():
        torch.testing.assert_close(*(network(ids_BL, features_only=True)[0] for network in networks))
        models = [
            converted(source_of(read_checkpoint(path)), Labels.single("ab"))
            for path in (classifier, unregistered)
        ]
        torch.testing.assert_close(*(model.eval()(ids_BL).logits for model in models))


@pytest.mark.parametrize("method", ["transformers", "lora"])
def test_the_methods_of_transformers_start_from_an_architecture_that_is_not_registered(
    data, unregistered, tmp_path, capsys, method
):
    options = ["--method", method, "--data", data, "--pretrained", unregistered, "--inits", "pretrained"]
    options += ["--seeds", "1", "--out", tmp_path / "runs", "--device", "cpu", "--dry-run"]
    assert experiments(["train", *map(str, options), "--", "--max-epoch", "1", "--precision", "fp32"]) == 0
    assert "--encoder-embed-dim 16" in capsys.readouterr().out


def test_another_network_than_a_roberta_is_still_refused(unregistered):
    state = torch.load(unregistered, weights_only=False)
    state["model"] = {key.replace("sentence_encoder", "layers"): w for key, w in state["model"].items()}
    torch.save(state, unregistered)
    with pytest.raises(UserError, match="protein_roberta"):
        source_of(read_checkpoint(unregistered))
    with pytest.raises(UserError, match="protein_roberta"):
        read_checkpoint(unregistered).model_class()
