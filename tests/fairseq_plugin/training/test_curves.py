"""Resumed runs have the same curves, weights and precision as uninterrupted ones."""

import contextlib

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.logging import metrics, progress_bar
from fairseq_cli import train

from roberta_small.analysis.read.events import read_scalars
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from roberta_small.fairseq_plugin.training import precision
from roberta_small.fairseq_plugin.training.curves import TIMING_METRICS, epoch_metrics
from roberta_small.preprocess.__main__ import main as preprocess
from tests.support import tiny_tokenizers
from tests.support.training import CLASSIFIER, configuration

UPDATES = 6
"""Per epoch."""
BERT = ("--separator-token", "-1", "--keep-eos", "--family", "bert", "--layer-norm-eps", "1e-12")
ACCURACY = ("--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric")
LOG = ("--log-format", "json", "--log-interval", "4", "--no-epoch-checkpoints", "--max-epoch", "2")


def run(data, folder, *flags):
    """Train with six updates per epoch, after resetting fairseq's global state."""
    metrics.reset()
    progress_bar._tensorboard_writers.clear()
    vars(checkpoint_utils.save_checkpoint).pop("best", None)
    vars(train.should_stop_early).clear()
    places = ("--save-dir", folder, "--tensorboard-logdir", folder / "tensorboard")
    train.main(configuration([data, *CLASSIFIER, *LOG, *places, *flags]))


@contextlib.contextmanager
def killed(after=1, before_death=lambda: None):
    """A context in which a run ends as if it was killed, after it has saved checkpoints."""
    original, saved = checkpoint_utils.save_checkpoint, []

    def save_and_end(*arguments):
        original(*arguments)
        saved.append(arguments)
        if len(saved) == after:
            before_death()
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_utils, "save_checkpoint", save_and_end)
        with pytest.raises(KeyboardInterrupt):
            yield


def curves(folder):
    """(subset, tag, step) -> the values logged, each once, without `TIMING_METRICS`."""
    found = {}
    for path in folder.glob("tensorboard/*/events*"):
        for scalar in read_scalars(path):
            if scalar.tag not in TIMING_METRICS:
                found.setdefault((path.parent.name, scalar.tag, scalar.step), set()).add(scalar.value)
    return found


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """The folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    run(data, folder)
    return folder


@pytest.mark.parametrize("written", [(), ("loss", "accuracy")], ids=["nothing logged", "partly logged"])
def test_a_run_killed_after_saving_has_the_same_curves(data, whole, tmp_path, written):
    def log():
        stats = {name: value for name, value in epoch_metrics().items() if name in written}
        bar = progress_bar.TensorboardProgressBarWrapper(None, tmp_path / "ended/tensorboard")
        bar._log_to_tensorboard(stats, "train", 6)

    with killed(before_death=log):
        run(data, tmp_path / "ended")
    assert (("train", "loss", 6) in curves(tmp_path / "ended")) == bool(written)
    assert ("train", "macro_f1", 6) not in curves(tmp_path / "ended")
    run(data, tmp_path / "ended")
    wanted = curves(whole)
    assert curves(tmp_path / "ended") == wanted
    assert {step for subset, _, step in wanted if subset == "train_inner"} == {4, 8, 12}
    assert all(len(values) == 1 for values in wanted.values())
    one, other = (load_checkpoint(path / "checkpoint_last.pt") for path in (whole, tmp_path / "ended"))
    assert one["optimizer_history"][-1] == other["optimizer_history"][-1]
    assert all(torch.equal(weight, other["model"][name]) for name, weight in one["model"].items())


def test_a_run_with_all_updates_done_exits(data, tmp_path):
    limit = ("--max-update", "8")
    run(data, tmp_path, *limit)
    last = tmp_path / "checkpoint_last.pt"
    before = last.read_bytes()
    with pytest.raises(SystemExit) as ended:
        run(data, tmp_path, *limit)
    assert ended.value.code == 0
    assert last.read_bytes() == before
    assert load_checkpoint(last)["optimizer_history"][-1]["num_updates"] == 8


def test_a_resumed_run_of_another_family_has_the_same_weights(tmp_path):
    tiny_tokenizers.write_csv(tmp_path / "reviews.csv", ("bad", "good"), pairs=True)
    tokenizer = tiny_tokenizers.bert(tmp_path / "tokenizer")
    words = ["--text-column", "text", "--pair-column", "text2", "--tokenizer", str(tokenizer)]
    words += ["--out", str(tmp_path / "data")]
    assert preprocess(["prepare", str(tmp_path / "reviews.csv"), *words]) == 0
    for epochs, name in (("2", "whole"), ("1", "parts"), ("2", "parts")):
        run(tmp_path / "data", tmp_path / name, *BERT, "--token-types", "--max-epoch", epochs)
    whole, resumed = (load_checkpoint(tmp_path / name / "checkpoint_last.pt") for name in ("whole", "parts"))
    assert whole["optimizer_history"][-1] == resumed["optimizer_history"][-1]
    assert whole["model"]["encoder.sentence_encoder.embed_second.weight"].any()
    for name, value in whole["model"].items():
        assert torch.equal(resumed["model"][name], value), name


@pytest.mark.parametrize("killed_after", [2, 3])
def test_a_resumed_run_stops_as_early_as_an_uninterrupted_one(data, tmp_path, killed_after):
    # With this learning rate no epoch is better than the first: the run stops after the third.
    limits = ("--max-epoch", "6", "--patience", "2", "--lr", "1e-12", *ACCURACY)
    with killed(killed_after):
        run(data, tmp_path, *limits)
    with pytest.raises(SystemExit) if killed_after == 3 else contextlib.nullcontext():
        run(data, tmp_path, *limits)
    state = load_checkpoint(tmp_path / "checkpoint_last.pt")
    assert state["optimizer_history"][-1]["num_updates"] == 3 * UPDATES
    assert state["extra_state"]["early_stopping"]["num_runs"] == 2
    assert {step for subset, _, step in curves(tmp_path) if subset == "train"} == {6, 12, 18}


def test_a_resumed_run_keeps_its_precision(data, tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "_resolved", {})
    for fast, epochs in ((True, "1"), (False, "2")):
        precision._resolved.clear()
        precision.resolve.cache_clear()
        monkeypatch.setattr(precision, "bf16_is_fast", lambda device, fast=fast: (fast, "measured"))
        run(data, tmp_path, "--precision", "auto", "--max-epoch", epochs)
        state = load_checkpoint(tmp_path / "checkpoint_last.pt")
        assert state["extra_state"]["precision"] == {"cpu": "bf16"}
    precision.resolve.cache_clear()


def test_another_run_that_starts_from_the_checkpoint_has_its_own_curves(data, whole, tmp_path):
    resets = ("--reset-optimizer", "--reset-dataloader", "--reset-meters")
    start = ("--restore-file", whole / "checkpoint_last.pt", *resets)
    run(data, tmp_path, *start, "--max-update", "1")
    assert {step for _, _, step in curves(tmp_path)} == {1}
