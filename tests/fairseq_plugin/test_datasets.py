"""Data that a training cannot begin with."""

import pytest
from data_folders import write_shards
from training import FAST, LM, SIZES, STEPS, build_trainer

from common.errors import UserError


def test_data_without_a_batch_are_clear_errors(tmp_path):
    """Five blocks, of which fairseq takes multiples of eight."""
    data = write_shards(tmp_path / "data", [1]) / "shard0"
    words = [data, *LM, *SIZES, *FAST, *STEPS]
    with pytest.raises(UserError, match="has no batch, of 5 sentences or blocks"):
        build_trainer(words)[1].get_train_iterator(epoch=1, load_dataset=True)
    trainer = build_trainer([*words, "--required-batch-size-multiple", "1"])[1]
    assert (
        len(trainer.get_train_iterator(epoch=1, load_dataset=True).first_batch["net_input"]["src_tokens"])
        == 5
    )
