"""The initial checkpoint: one that is missing or does not fit stops the run before its first update."""

import logging
import os
import shutil
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils, file_io

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.checkpoints.architecture import read_architecture
from roberta_small.fairseq_plugin.checkpoints.initialization import initial_checkpoint
from roberta_small.fairseq_plugin.training import curves
from tests.support.data_folders import write_data, write_dictionary
from tests.support.training import CLASSIFIER, INPUT, SIZES, STEPS, STOCK, build_trainer, save, started


def start(data, save_dir, *flags):
    return started([data, *CLASSIFIER, "--save-dir", save_dir, *flags])


@pytest.fixture
def checkpoint(original, tmp_path):
    """A copy, beside which a test may write."""
    (tmp_path / "pretrained").mkdir()
    return shutil.copy(original, tmp_path / "pretrained/model.pt")


@pytest.fixture(scope="module")
def original(data, tmp_path_factory):
    """A checkpoint without a classification head, as of a masked language model."""
    path = tmp_path_factory.mktemp("original") / "model.pt"
    save(start(data, path.parent), path)
    state = torch.load(path, weights_only=True)
    state["model"] = {k: v + 1 for k, v in state["model"].items() if not k.startswith("classification_heads")}
    torch.save(state, path)
    return path


RESET = ("--reset-optimizer", "--reset-dataloader", "--reset-meters")


def assert_loaded(trainer, checkpoint):
    loaded = trainer.get_model().state_dict()
    for name, value in torch.load(checkpoint, weights_only=True)["model"].items():
        assert torch.equal(loaded[name], value), name


def test_restore_file_loads_the_weights_and_logs_the_missing_head(data, tmp_path, checkpoint, caplog):
    with caplog.at_level(logging.INFO):
        trainer = start(data, tmp_path / "run", "--restore-file", checkpoint, *RESET)
    assert f"{checkpoint} has no classification head" in caplog.text
    assert_loaded(trainer, checkpoint)


@pytest.mark.parametrize("flag", ["--restore-file", "--continue-once"])
def test_the_optimizer_of_another_criterion_is_an_error(data, tmp_path, checkpoint, flag):
    state = torch.load(checkpoint, weights_only=True)
    state["optimizer_history"][-1]["criterion_name"] = "MaskedLmLoss"
    torch.save(state, checkpoint)
    with pytest.raises(UserError, match=rf"{flag} .*model\.pt .*MaskedLmLoss.*--reset-optimizer"):
        start(data, tmp_path / "run", flag, checkpoint)
    for words in ((flag, checkpoint, *RESET), ("--finetune-from-model", checkpoint)):
        assert_loaded(start(data, tmp_path / "run", *words), checkpoint)


@pytest.mark.parametrize("flag", ["--restore-file", "--continue-once", "--finetune-from-model"])
def test_a_missing_checkpoint_is_an_error(data, tmp_path, flag):
    with pytest.raises(UserError, match=rf"{flag} .*nothing\.pt: "):
        start(data, tmp_path / "run", flag, tmp_path / "nothing.pt")


def test_the_last_checkpoint_of_the_run_takes_precedence_over_continue_once(data, tmp_path, checkpoint):
    run = tmp_path / "run"
    trainer = start(data, run, "--continue-once", checkpoint)
    assert_loaded(trainer, checkpoint)
    assert not curves.resumes(trainer.cfg.checkpoint)
    run.mkdir()
    (run / "checkpoint_last.pt").write_bytes(b"truncated")
    with pytest.raises(UserError, match=r"checkpoint_last\.pt"):
        start(data, run, "--continue-once", checkpoint)
    assert curves.resumes(trainer.cfg.checkpoint)


def test_the_checkpoint_suffix_belongs_to_the_file_name(data, tmp_path, checkpoint):
    suffix = ("--checkpoint-suffix=-shard0",)
    with pytest.raises(UserError, match=r"model-shard0\.pt: "):
        start(data, tmp_path / "run", "--restore-file", checkpoint, *suffix, *RESET)
    shard = checkpoint.rename(checkpoint.with_name("model-shard0.pt"))
    assert_loaded(start(data, tmp_path / "run", "--restore-file", checkpoint, *suffix, *RESET), shard)

    run = tmp_path / "run"
    run.mkdir()
    trainer = start(data, run, *suffix)
    assert initial_checkpoint(trainer.cfg.checkpoint, trainer.checkpoint_suffix)[1] is None
    last = shard.rename(run / "checkpoint_last-shard0.pt")
    assert initial_checkpoint(trainer.cfg.checkpoint, "-shard0") == ("--restore-file", str(last))
    assert curves.resumes(trainer.cfg.checkpoint, "-shard0")
    assert not curves.resumes(trainer.cfg.checkpoint)
    assert_loaded(start(data, run, *suffix), last)


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        (["--encoder-embed-dim", "32"], "use --encoder-embed-dim 16"),
        (["--encoder-layers", "1"], "use --encoder-layers 2"),
        (["--encoder-attention-heads", "8"], "use --encoder-attention-heads 2"),
        (["--activation-fn", "relu"], "use --activation-fn gelu"),
        (["--layer-norm-eps", "1e-12"], "use --layer-norm-eps 1e-05"),
        (["--encoder-normalize-before"], "without --encoder-normalize-before"),
        (["--max-positions", "33"], "--max-positions 32"),
    ],
)
def test_a_checkpoint_of_another_architecture_is_an_error(data, tmp_path, checkpoint, flags, remedy):
    with pytest.raises(UserError) as caught:
        start(data, tmp_path / "run", "--finetune-from-model", checkpoint, *flags)
    facts = ("--finetune-from-model", str(checkpoint), remedy, *flags)
    assert all(fact in str(caught.value) for fact in facts), caught.value


def test_the_flags_of_the_error_message_load_the_checkpoint(data, tmp_path, checkpoint):
    """A message names all differences."""
    wrong = ["--arch", "roberta_prenorm", "--encoder-attention-heads", "4", "--activation-fn", "relu"]
    words = ["--restore-file", checkpoint, *RESET, *wrong]
    with pytest.raises(UserError) as caught:
        start(data, tmp_path / "run", *words)
    flags = str(caught.value).partition("; use ")[2].partition(" without ")[0].split()
    assert_loaded(start(data, tmp_path / "run", *words, *flags), checkpoint)


def test_a_checkpoint_with_another_vocabulary_is_an_error(tmp_path, checkpoint):
    data = write_data(tmp_path / "other")
    write_dictionary(data / "input0/dict.txt", [f"piece{i}" for i in range(41)])
    with pytest.raises(UserError, match=r"model\.pt: vocabulary of 45, .* 46 "):
        start(data, tmp_path / "run", "--restore-file", checkpoint, *RESET)


def test_of_more_positions_the_first_are_loaded(data, tmp_path, checkpoint, caplog):
    with caplog.at_level(logging.INFO):
        trainer = start(data, tmp_path / "run", "--finetune-from-model", checkpoint, "--max-positions", "20")
    assert f"{checkpoint} has 32 positions: the first 20 are used" in caplog.text
    name = "encoder.sentence_encoder.embed_positions.weight"
    loaded, stored = trainer.get_model().state_dict(), torch.load(checkpoint, weights_only=True)["model"]
    assert torch.equal(loaded[name], stored[name][:22])
    save(trainer, tmp_path / "saved.pt")
    assert read_architecture(tmp_path / "saved.pt").positions == 20
    again = start(data, tmp_path / "again", "--max-positions", "20", "--restore-file", tmp_path / "saved.pt")
    assert_loaded(again, tmp_path / "saved.pt")
    with pytest.raises(UserError, match="--max-positions 32"):  # the state of the optimizer
        start(data, tmp_path / "run", "--restore-file", checkpoint, "--max-positions", "20")


def test_a_checkpoint_without_configuration_is_loaded_with_a_warning(data, tmp_path, checkpoint, caplog):
    state = torch.load(checkpoint, weights_only=True)
    torch.save(state | {"cfg": None, "args": None}, checkpoint)
    with caplog.at_level(logging.WARNING):
        assert_loaded(start(data, tmp_path / "run", "--restore-file", checkpoint, *RESET), checkpoint)
    assert f"{checkpoint} records no configuration" in caplog.text


def test_the_dictionary_next_to_the_checkpoint_is_compared(data, tmp_path, checkpoint):
    beside = checkpoint.parent / "dict.txt"
    words = [f"piece{i}" for i in range(40)]
    write_dictionary(beside, words)
    start(data, tmp_path / "run", "--restore-file", checkpoint, *RESET)
    write_dictionary(beside, [*words[:7], "piece8", "piece7", *words[9:]])
    with pytest.raises(UserError, match=r"dict\.txt.* 11 .*'piece8'.*'piece7'.*--dict"):
        start(data, tmp_path / "run", "--restore-file", checkpoint, *RESET)
    beside.write_bytes(b"\xff 1\n")
    with pytest.raises(UserError, match=r"dict\.txt: "):
        start(data, tmp_path / "run", "--restore-file", checkpoint, *RESET)
    write_dictionary(beside, words[:-1])
    with pytest.raises(UserError, match=r"dict\.txt.*43.*44"):
        start(data, tmp_path / "run", "--restore-file", checkpoint, *RESET)


def test_a_classification_head_with_other_classes_is_replaced(data, tmp_path, checkpoint):
    five = start(data, tmp_path / "five", "--finetune-from-model", checkpoint, "--num-classes", "5")
    save(five, tmp_path / "five.pt")
    trainer = start(data, tmp_path / "run", "--restore-file", tmp_path / "five.pt", *RESET)
    weights = trainer.get_model().state_dict()
    assert weights["classification_heads.sentence_classification_head.out_proj.weight"].shape == (2, 16)
    name = "encoder.sentence_encoder.layers.0.fc1.weight"
    assert torch.equal(weights[name], torch.load(checkpoint, weights_only=True)["model"][name])


def test_a_file_url_is_resolved(data, tmp_path, checkpoint, monkeypatch):
    """fairseq resolves URLs with iopath, for which this is a substitute."""

    def local(path, **options):
        return path.removeprefix("file://")

    def opened(path, mode="r", **options):
        return open(local(path), mode)

    def exists(path):
        return os.path.exists(local(path))

    functions = {"get_local_path": local, "open": opened, "exists": exists, "isfile": exists}
    monkeypatch.setattr(file_io, "IOPathManager", SimpleNamespace(_path_handlers={}, **functions))
    assert_loaded(start(data, tmp_path / "run", "--restore-file", checkpoint.as_uri(), *RESET), checkpoint)


def test_a_missing_checkpoint_of_a_stock_model_is_not_an_error(data, tmp_path):
    words = [data, *STOCK, *INPUT, *STEPS, *SIZES, "--optimizer", "adam", "--save-dir", tmp_path / "run"]
    _, trainer = build_trainer([*words, "--restore-file", "nothing.pt"])
    extra_state, _ = checkpoint_utils.load_checkpoint(trainer.cfg.checkpoint, trainer)
    assert extra_state is None


@pytest.fixture(scope="module")
def with_head(data, tmp_path_factory):
    """A checkpoint with a classification head, and the output layer of the head."""
    folder = tmp_path_factory.mktemp("with_head")
    trainer = start(data, folder)
    head = trainer.get_model().classification_heads["sentence_classification_head"].out_proj
    for parameter in head.parameters():  # not those of the seed
        torch.nn.init.normal_(parameter)
    save(trainer, folder / "model.pt")
    return folder / "model.pt", head


def loaded_head(path, tmp_path, classes, recorded, flags=("--restore-file", *RESET)):
    """The output layer of a run on other data that starts from the checkpoint with the classes `recorded`."""
    state = torch.load(path, weights_only=False)
    state["extra_state"]["SentenceClassificationTask"]["class_names"] = recorded
    torch.save(state, tmp_path / "model.pt")
    other = write_data(tmp_path / "other", classes=classes)
    loaded = start(other, tmp_path / "run", flags[0], tmp_path / "model.pt", *flags[1:]).get_model()
    return loaded.classification_heads["sentence_classification_head"].out_proj


@pytest.mark.parametrize(
    ("recorded", "classes", "flags"),
    [
        (["0", "1"], ("1", "0"), ("--finetune-from-model",)),
        (["NEGATIVE", "POSITIVE"], ("positive", "negative"), ("--restore-file", *RESET)),
        (["LABEL_0", "LABEL_1"], ("positive", "negative"), ("--restore-file", *RESET)),
        (["LABEL_0", "LABEL_1"], ("1", "0"), ("--restore-file", *RESET)),
        (["LABEL_1", "LABEL_0"], ("0", "1"), ("--restore-file", *RESET)),
    ],
)
def test_a_head_is_loaded_in_the_order_of_the_datas_classes(with_head, tmp_path, recorded, classes, flags):
    """Names are matched without case, LABEL_i in sorted order."""
    path, first = with_head
    head = loaded_head(path, tmp_path, classes, recorded, flags)
    assert torch.equal(head.weight, first.weight.flip(0))
    assert torch.equal(head.bias, first.bias.flip(0))


@pytest.mark.parametrize("recorded", [["0", "1"], ["neg", "other"], ["Neg", "neg"]])
def test_the_head_of_other_classes_is_not_loaded(with_head, tmp_path, caplog, recorded):
    path, first = with_head
    head = loaded_head(path, tmp_path, ("neg", "pos"), recorded)
    assert not torch.equal(head.weight, first.weight)
    assert not torch.equal(head.bias, first.bias)
    # `analysis` renames the levels.
    (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING and "head" in r.getMessage()]
    assert all(name in warning.getMessage() for name in recorded)


@pytest.mark.parametrize(("saved", "started_with"), [("linear", "dense"), ("dense", "linear")])
def test_a_head_of_another_form_is_replaced_by_a_new_one(data, tmp_path, saved, started_with, caplog):
    path = tmp_path / "model.pt"
    save(start(data, tmp_path / "first", "--head", saved, "--seed", "1"), path)
    flags = ("--head", started_with, "--seed", "2")
    new = start(data, tmp_path / "new", *flags).get_model().state_dict()
    found = start(data, tmp_path / "run", *flags, "--restore-file", path, *RESET).get_model().state_dict()
    wanted = torch.load(path, weights_only=True)["model"]
    for name, weight in found.items():
        assert torch.equal(weight, (new if name.startswith("classification_heads") else wanted)[name]), name
    assert "classification head is not used" in caplog.text


def test_fairseqs_own_model_refuses_a_linear_head(data, tmp_path):
    path = tmp_path / "model.pt"
    save(start(data, tmp_path / "first", "--head", "linear"), path)
    words = [data, *STOCK, *INPUT, *STEPS, *SIZES, "--optimizer", "adam", "--save-dir", tmp_path / "run"]
    with pytest.raises(UserError, match=r"model\.pt has --head linear, which fairseq's own model does not"):
        started([*words, "--restore-file", path, *RESET])
