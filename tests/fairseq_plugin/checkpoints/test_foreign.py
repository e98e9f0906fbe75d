"""Initial weights from checkpoints of other programs and of older versions of fairseq."""

import argparse
from collections import OrderedDict

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.logging.meters import AverageMeter, TimeMeter

from roberta_small.common.errors import UserError
from roberta_small.eval.network import Network, build_encoder, read_checkpoint
from roberta_small.experiments.__main__ import main as experiments
from roberta_small.export.transformers.networks import converted, read_source
from tests.support.data_folders import write_data
from tests.support.training import FAST, INPUT, OURS, SIZES, STEPS, build_trainer, save

RESETS = ["--reset-optimizer", "--reset-dataloader", "--reset-meters"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Data, and the checkpoint of a classifier."""
    root = tmp_path_factory.mktemp("foreign")
    data = write_data(root / "data")
    _, trainer = build_trainer([data, *OURS, *INPUT, *STEPS, *SIZES, *FAST])
    save(trainer, root / "model.pt")
    return data, root / "model.pt"


def namespace(state):
    """As before fairseq 0.10: one namespace of all arguments."""
    arguments = argparse.Namespace(**vars(state["cfg"]["model"]))
    state |= {"args": arguments, "cfg": None}
    return arguments


def of_another_program(state):
    arguments = namespace(state)
    arguments.criterion, arguments.optimizer, arguments.lr_scheduler = "smooth_masked_lm", "own", "own"
    arguments.task, arguments.user_dir, arguments.arch = "proteins", "/nowhere/plugin", "protein_roberta"
    history = {
        "criterion_name": "SmoothLoss",
        "optimizer_name": "Own",
        "lr_scheduler_state": {},
        "num_updates": 9,
    }
    state["optimizer_history"] = [history]


def of_a_task_with_argparse(state):
    """As of a task without a dataclass, of which fairseq stores a namespace."""
    state["cfg"]["task"] = argparse.Namespace(**state["cfg"]["task"])


def without_its_task(state):
    del state["cfg"]["task"]


def of_2019(state):
    arguments = namespace(state)
    for name in ("_name", "layer_norm_eps", "encoder_kind", "precision", "pooling", "family", "token_types"):
        if hasattr(arguments, name):
            delattr(arguments, name)
    arguments.arch = "roberta_base"
    names = {"encoder.": "decoder.", ".layernorm_embedding.": ".emb_layer_norm."}
    weights = OrderedDict()
    for key, weight in state["model"].items():
        for new, old in names.items():
            key = key.replace(new, old, 1) if not key.startswith("classification") else key
        weights[key] = weight
    state["model"] = weights
    state["extra_state"] = {"train_meters": OrderedDict(train_loss=AverageMeter(), wps=TimeMeter())}


def of_several_gpus(state):
    state["model"] = {f"module.{key}": weight for key, weight in state["model"].items()}


def in_half_precision(state):
    state["model"] = {key: weight.half() for key, weight in state["model"].items()}


def without_lm_head(state):
    state["model"] = {key: weight for key, weight in state["model"].items() if "lm_head" not in key}


def without_classification_head(state):
    heads = "classification_heads"
    state["model"] = {key: weight for key, weight in state["model"].items() if not key.startswith(heads)}


def with_another_head(state):
    heads = {k: w for k, w in state["model"].items() if k.startswith("classification_heads")}
    state["model"] |= {k.replace("sentence_classification_head", "mnli"): w for k, w in heads.items()}


CHANGES = [
    of_another_program,
    of_a_task_with_argparse,
    without_its_task,
    of_2019,
    of_several_gpus,
    in_half_precision,
    without_lm_head,
]
CHANGES += [without_classification_head, with_another_head]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_initial_weights_need_only_the_architecture_and_the_weights(trained, tmp_path, change):
    data, checkpoint = trained
    state = torch.load(checkpoint, weights_only=False)
    # Other weights than those that a new model with the same seed has.
    state["model"] = {key: weight + 0.125 for key, weight in state["model"].items()}
    wanted = {key: weight.clone() for key, weight in state["model"].items()}
    change(state)
    torch.save(state, tmp_path / "foreign.pt")
    flags = ["--restore-file", tmp_path / "foreign.pt", *RESETS, "--save-dir", tmp_path / "run"]
    _, trainer = build_trainer([data, *OURS, *INPUT, *STEPS, *SIZES, *FAST, *flags])
    checkpoint_utils.load_checkpoint(trainer.cfg.checkpoint, trainer)
    found = trainer.get_model().state_dict()
    tolerance = 1e-3 if change is in_half_precision else 1e-6
    left = {without_lm_head: "encoder.lm_head", without_classification_head: "classification_heads"}.get(
        change
    )
    assert found.keys() == wanted.keys()
    for key, weight in wanted.items():
        if left is None or not key.startswith(left):
            torch.testing.assert_close(found[key], weight, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_hidden_states_are_those_of_the_same_weights(trained, tmp_path, change):
    """As of the teacher of a distillation."""
    state = torch.load(trained[1], weights_only=False)
    change(state)
    torch.save(state, tmp_path / "foreign.pt")
    ids_BL = torch.tensor([[0, 5, 6, 7, 2]])
    with torch.no_grad():
        wanted, found = (
            build_encoder(read_checkpoint(path), torch.device("cpu"), "fp32")(ids_BL, features_only=True)[0]
            for path in (trained[1], tmp_path / "foreign.pt")
        )
    torch.testing.assert_close(found, wanted, atol=2e-2 if change is in_half_precision else 1e-6, rtol=0)


@pytest.fixture
def unregistered(trained, tmp_path):
    """The checkpoint with another name of its architecture, as a plugin of another program gives it."""
    _, checkpoint = trained
    state = torch.load(checkpoint, weights_only=False)
    state["cfg"]["model"].arch = state["cfg"]["model"]._name = "protein_roberta"
    torch.save(state, tmp_path / "unregistered.pt")
    return tmp_path / "unregistered.pt"


def test_predictions_hidden_states_and_the_export_are_those_of_a_registered_architecture(
    trained, unregistered
):
    _, checkpoint = trained
    rows = [np.array([0, *range(4, 4 + length), 2]) for length in (1, 9)]
    wanted, found = (read_checkpoint(path) for path in (checkpoint, unregistered))
    np.testing.assert_array_equal(
        *(Network(content, device="cpu").logits(rows) for content in (wanted, found))
    )
    ids_BL = torch.from_numpy(rows[1])[None]
    networks = [build_encoder(content, torch.device("cpu"), "fp32") for content in (wanted, found)]
    with torch.no_grad():
        torch.testing.assert_close(*(network(ids_BL, features_only=True)[0] for network in networks))
        models = [converted(read_source(path), ["a", "b"]) for path in (checkpoint, unregistered)]
        torch.testing.assert_close(*(model.eval()(ids_BL).logits for model in models))


@pytest.mark.parametrize("method", ["transformers", "lora"])
def test_the_methods_of_transformers_start_from_an_architecture_that_is_not_registered(
    trained, unregistered, tmp_path, capsys, method
):
    data, _ = trained
    options = ["--method", method, "--data", data, "--pretrained", unregistered, "--inits", "pretrained"]
    options += ["--seeds", "1", "--out", tmp_path / "runs", "--device", "cpu", "--dry-run"]
    assert experiments(["train", *map(str, options), "--", "--max-epoch", "1", "--precision", "fp32"]) == 0
    assert "--encoder-embed-dim 16" in capsys.readouterr().out


def test_another_network_than_a_roberta_is_still_refused(trained, unregistered):
    state = torch.load(unregistered, weights_only=False)
    state["model"] = {key.replace("sentence_encoder", "layers"): w for key, w in state["model"].items()}
    torch.save(state, unregistered)
    with pytest.raises(UserError, match="protein_roberta"):
        read_source(unregistered)
    with pytest.raises(UserError, match="protein_roberta"):
        read_checkpoint(unregistered).model_class()
