"""`composing.compose` equals `hydra.compose`."""

import hydra
import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

import roberta_small.fairseq_plugin  # noqa: F401  registers task, criterion, model and optimizer
from tests.support import composing
from tests.support.training import INPUT, LM, OURS, SIZES, STEPS, STOCK

ADAM = ("--optimizer", "adam")


@pytest.mark.parametrize(
    "words",
    [
        [*OURS, *INPUT, *STEPS, *SIZES, "--optimizer", "fused_adam", "--num-classes", "2"],
        [*STOCK, *INPUT, *STEPS, *ADAM],
        [*LM, *STEPS, *SIZES, *ADAM, "--max-update", "7", "--update-freq", "1,2"],
        [*LM, *STEPS, *SIZES, *ADAM, "--save-dir", "a 'quoted' path", "--lr", "1e-3,1e-4"],
    ],
)
def test_configurations_equal_those_of_hydra(words, monkeypatch, tmp_path):
    def configuration():
        parsed = options.parse_args_and_arch(options.get_training_parser(), [str(tmp_path), *words])
        cfg = convert_namespace_to_omegaconf(parsed)
        values = {name: dict(section or {}) if OmegaConf.is_config(section) else vars(section or object)
                  for name, section in cfg.items()}  # fmt: skip
        return str(values)

    assert hydra.compose is composing.compose
    found = configuration()
    assert configuration() == found
    monkeypatch.setattr(hydra, "compose", composing.COMPOSE)
    assert configuration() == found
