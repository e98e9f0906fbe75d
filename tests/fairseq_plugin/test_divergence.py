"""A training that diverges ends in one line, and one that does not is left alone."""

import pytest
from data_folders import write_data
from training import FAST, INPUT, OURS, SIZES, STEPS, build_trainer, losses_of

from common.errors import UserError
from fairseq_plugin.training import termination


def trainer_of(folder, *flags):
    words = [write_data(folder / "data"), *OURS, *INPUT, *STEPS, *SIZES, *FAST, "--save-dir", folder / "save"]
    return build_trainer([*words, *flags])[1]


def test_a_learning_rate_beyond_reason(tmp_path):
    trainer = trainer_of(tmp_path, "--lr", "1e30", "--warmup-updates", "0")
    with pytest.raises(UserError, match=r"save: .* at update \d+, learning rate \d.*: the training diverges"):
        losses_of(trainer, 20)


def test_a_loss_that_is_a_number_and_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(termination, "LARGEST_LOSS", 0.01)
    with pytest.raises(UserError, match=r"a loss of [01]\.\d+ at update 1,"):
        losses_of(trainer_of(tmp_path), 1)
