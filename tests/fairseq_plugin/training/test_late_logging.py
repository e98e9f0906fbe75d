"""An update does not wait for a GPU, and logs the same numbers."""

import json
import re
import shlex
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.logging import metrics
from fairseq_cli.train import main

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.training import late_logging, optimizer
from tests.support import pretended_gpu
from tests.support.training import FAST, INPUT, LM, OURS, SIZES, STEPS, build_trainer, configuration

WEIGHTED = shlex.split("--class-weights balanced --label-smoothing 0.1 --clip-norm 1.0 --update-freq 2")
NEXT = shlex.split(
    "--task language_modeling --criterion fast_lm --arch causal_lm_small --tokens-per-sample 16 "
    "--sample-break-mode none --max-positions 32"
)
CAUSAL = [*OURS[:-1], "causal_roberta_small"]
CASES = {
    "classifier": [*OURS, *INPUT],
    "mean": [*OURS, *INPUT, "--pooling", "mean", *WEIGHTED],
    "causal classifier": [*CAUSAL, *INPUT],
    "masked LM": [*LM, "--bag-of-words", "0.5"],
    "next token": NEXT,
}


def words_of(data, case):
    folder = data / "input0" if case in ("masked LM", "next token") else data
    return [folder, *FAST, *CASES[case], *STEPS, *SIZES]


def some_batches(trainer, count):
    iterator = trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=False)
    return [next(iterator) for _ in range(count)]


@pytest.mark.parametrize("case", list(CASES))
def test_an_update_does_not_wait_for_the_gpu(gpu_kernels, monkeypatch, data, case):
    gpu = pretended_gpu.pretend(monkeypatch)
    _, trainer = build_trainer(words_of(data, case))
    pretended_gpu.train_on(gpu, trainer)
    batches = some_batches(trainer, 3)
    with gpu:
        trainer.begin_epoch(1)
        for _ in range(2):
            trainer.train_step(batches[:1])  # the optimizer is built, and a graph recorded
        gpu.waits.clear()
        trainer.train_step(batches[1:2])
        trainer.train_step(batches[2:])
        assert not gpu.waits
        assert "loss" in metrics.get_smoothed_values("train")
        assert not gpu.waits  # the numbers are on the CPU

        for name in ("packing", "scored", "host_targets"):  # a batch that was not completed
            batches[0].pop(name, None)
        trainer.train_step(batches[:1])
    assert gpu.waits


@pytest.mark.cuda
@pytest.mark.parametrize("case", list(CASES))
def test_an_update_does_not_wait_for_a_real_gpu(data, case):
    words = [word for word in words_of(data, case) if word != "--cpu"]
    _, trainer = build_trainer(words)
    batches = some_batches(trainer, 3)
    trainer.begin_epoch(1)
    for _ in range(2):
        trainer.train_step(batches[:1])
    torch.cuda.set_sync_debug_mode("error")
    try:
        trainer.train_step(batches[1:2])
        trainer.train_step(batches[2:])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert metrics.get_smoothed_values("train")["loss"] > 0


@pytest.fixture
def late(monkeypatch):
    """On a CPU, too, updates are logged one update later."""
    monkeypatch.setattr(late_logging, "logs_late", lambda trainer: True)
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)


def test_the_logged_numbers_are_the_same(data, tmp_path, caplog, request, monkeypatch):
    """What fairseq-train logs at intervals, after epochs and after validation, without times."""
    flags = shlex.split(
        "--max-epoch 2 --log-interval 4 --log-format json --no-epoch-checkpoints --clip-norm 0.5"
    )
    times, found = re.compile(r"(train_|valid_)?(wps|ups|wall|train_wall)"), []
    for name in ("at once", "late"):
        if name == "late":
            request.getfixturevalue("late")
        caplog.clear()
        metrics.reset()
        monkeypatch.delattr(checkpoint_utils.save_checkpoint, "best", raising=False)
        with caplog.at_level("INFO"):
            main(configuration([*words_of(data, "classifier"), *flags, "--save-dir", tmp_path / name]))
        lines = [json.loads(r.message) for r in caplog.records if r.message.startswith('{"epoch"')]
        found.append([{k: v for k, v in line.items() if not times.fullmatch(k)} for line in lines])
    assert len(found[0]) == 7  # three at intervals, two after epochs, two after validation
    assert found[0] == found[1]


def test_divergence_is_reported_with_its_update_and_changes_no_weight(late, monkeypatch, data):
    monkeypatch.setattr(optimizer, "updates_on_gpu", lambda parameter: True)
    _, trainer = build_trainer([*words_of(data, "classifier"), "--warmup-updates", "0"])
    batches = some_batches(trainer, 3)
    trainer.begin_epoch(1)
    for parameter in trainer.model.parameters():
        parameter.sparse_gradient = False  # as on a GPU
    trainer.train_step(batches[:1])
    before = [parameter.clone() for parameter in trainer.model.parameters()]
    clip = type(trainer.optimizer).clip_grad_norm

    def poisoned(optimizer, *args, **kwargs):
        next(iter(optimizer.params)).grad.fill_(torch.inf)
        return clip(optimizer, *args, **kwargs)

    monkeypatch.setattr(type(trainer.optimizer), "clip_grad_norm", poisoned)
    trainer.train_step(batches[1:2])
    for parameter, value in zip(trainer.model.parameters(), before, strict=True):
        assert torch.equal(parameter, value)
    with pytest.raises(UserError, match="at update 2"):
        metrics.get_smoothed_values("train")
