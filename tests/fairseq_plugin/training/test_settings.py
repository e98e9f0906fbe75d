"""Settings are looked up once, and changes are seen."""

import collections

import pytest
from omegaconf import DictConfig, OmegaConf

from roberta_small.fairseq_plugin.training.settings import RememberingConfig, remember
from tests.support.training import CLASSIFIER, build_trainer


@pytest.fixture
def config():
    content = {"common": {"fp16": False, "seed": 1}, "optimizer": {"fp16": "${common.fp16}", "lr": [0.1]}}
    found = OmegaConf.create(content)
    remember(found)
    return found


def test_values_and_copies_are_those_of_the_configuration(config):
    for _ in range(2):
        assert (config.common.fp16, config.common.seed, config.optimizer.lr[0]) == (False, 1, 0.1)
    assert "seed" in vars(config.common)
    assert OmegaConf.to_container(config)["common"] == {"fp16": False, "seed": 1}
    assert list(config.common) == ["fp16", "seed"]
    assert "seed: 1" in OmegaConf.to_yaml(config)


def test_a_changed_setting_is_seen(config):
    assert not config.common.fp16
    assert not config.optimizer.fp16
    config.common.fp16 = True
    assert config.common.fp16
    assert config.optimizer.fp16  # a reference
    config.common["seed"] = 2
    assert config.common.seed == 2
    config.merge_with({"common": {"seed": 3}})
    assert config.common.seed == 3
    config.common = {"seed": 4}
    assert config.common.seed == 4
    del config.common["seed"]
    with pytest.raises(AttributeError):
        config.common.seed  # noqa: B018  the attribute


def test_an_update_looks_nothing_up_that_is_known(data, monkeypatch):
    words = [data, *CLASSIFIER]
    _, trainer = build_trainer(words)
    assert isinstance(trainer.cfg, RememberingConfig)
    iterator = trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=False)
    trainer.begin_epoch(1)
    trainer.train_step([next(iterator)])
    looked_up = collections.Counter()
    look_up = DictConfig.__getattr__

    def count(config, key):
        looked_up[key] += 1
        return look_up(config, key)

    monkeypatch.setattr(DictConfig, "__getattr__", count)
    trainer.train_step([next(iterator)])
    assert looked_up.total() < 5, looked_up
