"""The learning-rate schedule `time_budget`."""

import shlex

import pytest

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.training import time_budget
from tests.support.training import FAST, INPUT, OURS, SIZES, build_trainer, losses_of

STEPS = shlex.split("--batch-size 8 --lr 1e-3 --cpu --seed 1 --num-workers 0 --no-progress-bar")


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand, in seconds."""
    now = [100.0]
    monkeypatch.setattr(time_budget.time, "monotonic", lambda: now[0])
    return now


def trainer_of(data, *flags):
    schedule = ["--lr-scheduler", "time_budget", *flags]
    return build_trainer([data, *OURS, *INPUT, *SIZES, *FAST, *STEPS, *schedule])[1]


def test_the_learning_rate_is_a_function_of_the_elapsed_time(data, clock, monkeypatch):
    trainer = trainer_of(data, "--stop-time-hours", "1", "--warmup-share", "0.1")
    schedule = trainer.lr_scheduler
    assert trainer.get_lr() == 0
    for seconds, rate in ((180, 5e-4), (360, 1e-3), (1980, 5e-4), (3600, 0.0), (9999, 0.0)):
        clock[0] = 100.0 + seconds
        assert schedule.step_update(1) == pytest.approx(rate)
    monkeypatch.setattr(time_budget, "broadcast", lambda seconds: 1980.0)  # the clock of the first worker
    assert schedule.step_update(1) == pytest.approx(5e-4)


def test_a_resumed_run_counts_the_time_before_the_interruption(data, clock):
    first = trainer_of(data, "--stop-time-hours", "1").lr_scheduler
    clock[0] += 1800
    state = first.state_dict()
    clock[0] += 10_000  # interrupted
    second = trainer_of(data, "--stop-time-hours", "1").lr_scheduler
    second.load_state_dict(state)
    assert second.seconds == pytest.approx(1800)
    assert second.step_update(1) == pytest.approx(first.factor(0.5) * 1e-3)


def test_training_updates_the_learning_rate(data, clock):
    trainer = trainer_of(data, "--stop-time-hours", "1")
    losses_of(trainer, 1)
    clock[0] += 1800
    losses_of(trainer, 2)
    assert trainer.get_lr() == pytest.approx(1e-3 * 0.5 / 0.94)


@pytest.mark.parametrize(
    ("flags", "facts"),
    [
        ([], "--lr-scheduler time_budget .*--stop-time-hours"),
        (["--stop-time-hours", "1", "--warmup-share", "1"], r"--warmup-share 1\.0"),
    ],
)
def test_invalid_flags_are_an_error(data, flags, facts):
    with pytest.raises(UserError, match=facts):
        trainer_of(data, *flags).get_lr()
