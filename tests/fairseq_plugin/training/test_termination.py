"""How training ends: an error if it diverges, and fairseq's loading threads stop before the process does."""

import subprocess
import time
from pathlib import Path

import pytest
import torch
from fairseq.data.iterators import BufferedIterator

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.training import termination
from roberta_small.fairseq_plugin.training.termination import stop_loading
from tests.support import preloaded
from tests.support.training import CLASSIFIER, build_trainer, losses_of


def trainer_of(data, *flags):
    return build_trainer([data, *CLASSIFIER, "--save-dir", "save", *flags])[1]


def test_gradients_that_are_not_finite_stop_the_training(data):
    trainer = trainer_of(data, "--lr", "1e30", "--warmup-updates", "0")
    with pytest.raises(UserError, match=r"save: .* update \d+.*learning rate \d.*--lr"):
        losses_of(trainer, 20)


def test_a_loss_above_the_maximum_stops_the_training(data, monkeypatch):
    monkeypatch.setattr(termination, "MAX_LOSS", 0.01)
    with pytest.raises(UserError, match=r"save: .*update 1\b.*loss .*[01]\.\d+,.*--lr"):
        losses_of(trainer_of(data), 1)


def test_a_gpu_without_memory_for_a_batch_stops_the_training(data, monkeypatch):
    trainer = trainer_of(data)

    def full(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(type(trainer.criterion), "forward", full)
    with pytest.raises(UserError, match=r"save: out of GPU memory at update 1;.*--jobs 1.*--batch-size"):
        losses_of(trainer, 1)


class Batches:
    """A million batches, each of which takes some time."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.made = seconds, 0

    def __len__(self) -> int:
        return 1_000_000

    def __iter__(self):
        for _ in range(len(self)):
            time.sleep(self.seconds)
            self.made += 1
            yield torch.ones(64, 64) @ torch.ones(64, 64)


@pytest.mark.parametrize("seconds", [0.0, 0.01], ids=["waiting for the queue", "loading"])
def test_a_loading_thread_stops_after_its_batch(seconds):
    batches = Batches(seconds)
    loaded = BufferedIterator(2, batches)
    next(loaded)
    stop_loading()
    assert not loaded._consumer.is_alive()
    made = batches.made
    time.sleep(0.05)
    assert batches.made == made


def test_the_plugin_stops_loading_threads_at_exit():
    script = (
        "import atexit, sys; sys.path[:0] = sys.argv[1:]\n"
        "atexit.register(lambda: print('alive:', loaded._consumer.is_alive()))\n"  # first in, last out
        "from tests.fairseq_plugin.training.test_termination import Batches\n"  # imports the plugin
        "from fairseq.data.iterators import BufferedIterator\n"
        "loaded = BufferedIterator(2, Batches(0.01))\n"
        "next(loaded)\n"
    )
    command = [preloaded.python(), "-c", script, str(Path(__file__).parents[3])]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "alive: False\n"), ended.stderr
