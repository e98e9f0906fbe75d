"""A named checkpoint that is missing or does not fit stops the run before its first update."""

import copy
import logging
import os
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
from data_folders import write_data, write_dictionary
from fairseq import checkpoint_utils, file_io
from training import FAST, INPUT, OURS, SIZES, STEPS, STOCK, build_trainer, save

from common.errors import UserError
from fairseq_plugin.checkpoints.initialization import checking_first, checkpoint_path
from fairseq_plugin.training import curves


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data")


def start(data, save_dir, *flags):
    """As far as `fairseq-train` goes before its first update; returns the trainer."""
    _, trainer = build_trainer([data, *OURS, *INPUT, *STEPS, *SIZES, *FAST, "--save-dir", save_dir, *flags])
    checkpoint_utils.load_checkpoint(trainer.cfg.checkpoint, trainer)
    return trainer


@pytest.fixture
def checkpoint(data, tmp_path):
    """A masked language model's checkpoint: no classification head."""
    trainer = start(data, tmp_path / "first")
    path = tmp_path / "pretrained" / "model.pt"
    path.parent.mkdir()
    save(trainer, path)
    state = torch.load(path, weights_only=True)
    state["model"] = {k: v + 1 for k, v in state["model"].items() if not k.startswith("classification_heads")}
    torch.save(state, path)
    return path


RESET = ("--reset-optimizer", "--reset-dataloader", "--reset-meters")


def test_random_weights_are_said(data, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        start(data, tmp_path / "run")
    assert "initialisation: random weights" in caplog.text


def test_weights_arrive_and_the_missing_head_is_said(data, tmp_path, checkpoint, caplog):
    with caplog.at_level(logging.INFO):
        trainer = start(data, tmp_path / "run", "--restore-file", checkpoint, *RESET)
    assert f"{checkpoint} has no classification head" in caplog.text
    loaded = trainer.get_model().state_dict()
    for name, value in torch.load(checkpoint, weights_only=True)["model"].items():
        assert torch.equal(loaded[name], value)


def test_another_trainings_optimizer(data, tmp_path, checkpoint):
    state = torch.load(checkpoint, weights_only=True)
    state["optimizer_history"][-1]["criterion_name"] = "MaskedLmLoss"
    torch.save(state, checkpoint)
    with pytest.raises(UserError, match=r"was trained with MaskedLmLoss, .*--reset-optimizer"):
        start(data, tmp_path / "run", "--restore-file", checkpoint)


def test_missing_file(data, tmp_path):
    with pytest.raises(UserError, match=r"--restore-file .*nothing\.pt: no such checkpoint"):
        start(data, tmp_path / "run", "--restore-file", tmp_path / "nothing.pt", *RESET)


def test_missing_file_to_finetune_from(data, tmp_path):
    with pytest.raises(UserError, match=r"--finetune-from-model .*nothing\.pt"):
        start(data, tmp_path / "run", "--finetune-from-model", tmp_path / "nothing.pt")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--encoder-embed-dim", "32"], r"embed_tokens\.weight is \(45, 16\) in the file and \(45, 32\)"),
        (["--encoder-layers", "3"], r"layers\.2\..* is missing.*and \d+ more"),
        (["--encoder-layers", "1"], r"layers\.1\..* is not part of the model"),
        (["--max-positions", "16"], r"embed_positions\.weight is \(34, 16\)"),
    ],
)
def test_other_sizes(data, tmp_path, checkpoint, flags, said):
    with pytest.raises(UserError, match=said):
        start(data, tmp_path / "run", "--restore-file", checkpoint, *RESET, *flags)


def test_the_dictionary_beside_the_checkpoint_is_compared(data, tmp_path, checkpoint):
    beside = checkpoint.parent / "dict.txt"
    words = [f"piece{i}" for i in range(40)]
    write_dictionary(beside, words)
    start(data, tmp_path / "run", "--restore-file", checkpoint, *RESET)
    write_dictionary(beside, [*words[:7], "piece8", "piece7", *words[9:]])
    with pytest.raises(UserError, match=r"type 11 is 'piece8' there and 'piece7' in the data"):
        start(data, tmp_path / "run", "--restore-file", checkpoint, *RESET)
    beside.write_bytes(b"\xff 1\n")
    with pytest.raises(UserError, match=r"dict\.txt: not a fairseq dictionary"):
        start(data, tmp_path / "run", "--restore-file", checkpoint, *RESET)
    write_dictionary(beside, words[:-1])
    with pytest.raises(UserError, match="43 types there, 44 in the data"):
        start(data, tmp_path / "run", "--restore-file", checkpoint, *RESET)


def test_an_unreadable_last_checkpoint(data, tmp_path, checkpoint):
    run = tmp_path / "run"
    run.mkdir()
    (run / "checkpoint_last.pt").write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"checkpoint_last\.pt: not a checkpoint, or cut short"):
        start(data, run)


def test_a_head_of_other_classes_is_replaced(data, tmp_path, checkpoint):
    state = torch.load(checkpoint, weights_only=True)
    head = "classification_heads.sentence_classification_head."
    state["model"] |= {
        f"{head}dense.weight": torch.ones(16, 16),
        f"{head}dense.bias": torch.ones(16),
        f"{head}out_proj.weight": torch.ones(5, 16),
        f"{head}out_proj.bias": torch.ones(5),
    }
    before = copy.deepcopy(state["model"])
    torch.save(state, checkpoint)
    model = start(data, tmp_path / "run", "--restore-file", checkpoint, *RESET).get_model()
    assert model.state_dict()[f"{head}out_proj.weight"].shape == (2, 16)
    name = "encoder.sentence_encoder.layers.0.fc1.weight"
    assert torch.equal(model.state_dict()[name], before[name])


def test_a_file_url(data, tmp_path, checkpoint, monkeypatch):
    """fairseq resolves it with iopath, whose part is played here by a class of a few lines."""

    class Resolver:
        _path_handlers: dict = {}  # noqa: RUF012

        @staticmethod
        def get_local_path(path, **options):
            return path.removeprefix("file://")

        @classmethod
        def open(cls, path, mode="r", **options):
            return open(cls.get_local_path(path), mode)

        @classmethod
        def exists(cls, path):
            return os.path.exists(cls.get_local_path(path))

        isfile = exists

    monkeypatch.setattr(file_io, "IOPathManager", Resolver)
    trainer = start(data, tmp_path / "run", "--restore-file", checkpoint.as_uri(), *RESET)
    loaded = trainer.get_model().state_dict()
    for name, value in torch.load(checkpoint, weights_only=True)["model"].items():
        assert torch.equal(loaded[name], value)


def test_a_run_without_save_dir(data, tmp_path):
    """As in fairseq's own tests of `load_checkpoint`, on mocks."""
    cfg = copy.deepcopy(start(data, tmp_path / "run").cfg.checkpoint)
    cfg.save_dir = None
    assert checkpoint_path(cfg) is None
    assert not curves._goes_on(cfg)


def test_a_missing_file_of_a_stock_model_is_left_to_fairseq(data, tmp_path):
    words = [data, *STOCK, *INPUT, *STEPS, *SIZES, "--optimizer", "adam", "--save-dir", tmp_path / "run"]
    _, trainer = build_trainer([*words, "--restore-file", "nothing.pt"])
    extra_state, _ = checkpoint_utils.load_checkpoint(trainer.cfg.checkpoint, trainer)
    assert extra_state is None


def test_a_trainer_that_is_a_mock_is_left_alone():
    """fairseq's own tests load checkpoints with mocks, for files that do not exist."""
    calls = []
    load = checking_first(lambda cfg, trainer: calls.append((cfg, trainer)))
    cfg, trainer = SimpleNamespace(restore_file="/no/such.pt", finetune_from_model=None), MagicMock()
    load(cfg, trainer)
    assert calls == [(cfg, trainer)]
    trainer.get_model.assert_not_called()
