"""The flags of the recipe that the methods transformers and lora pass to their runs."""

import pytest

from roberta_small.common.cli import SettingsParser
from roberta_small.common.errors import UserError
from roberta_small.experiments.methods.lora import classify
from roberta_small.experiments.methods.transformers import method as transformers
from roberta_small.experiments.methods.transformers import recipe
from roberta_small.experiments.methods.transformers.trainer import training_arguments
from tests.support.data_folders import write_data


def passed_on(module, data, *words):
    """The flags that are added to those of the recipe."""
    parser = SettingsParser()
    module.METHOD.add_arguments(parser)
    options = parser.parse_settings(["--data", str(data), "--inits", "random", *words], {})
    return list(module.METHOD.settings(options).passthrough)


@pytest.mark.parametrize("module", [transformers, classify])
def test_a_given_learning_rate_is_added_once(tmp_path, module):
    assert passed_on(module, tmp_path) == []  # LoRA's default is not a flag of the user
    for words in (["--lr", "1e-4"], ["--", "--lr", "1e-4"]):
        assert passed_on(module, tmp_path, *words) == ["--lr", "1e-4"]


@pytest.mark.parametrize("flag", ["--lr", "--precision"])
def test_a_flag_before_and_after_the_dashes_is_an_error(tmp_path, flag):
    value = {"--lr": "1", "--precision": "fp32"}[flag]
    with pytest.raises(UserError, match=f"{flag} {value}"):
        passed_on(classify, tmp_path, flag, value, "--", flag, value)


@pytest.mark.parametrize("module", [transformers, classify])
@pytest.mark.parametrize("cpu", [True, False])
def test_a_run_accepts_the_flags_of_its_command(tmp_path, module, cpu):
    data = write_data(tmp_path)
    parser = SettingsParser()
    module.METHOD.add_arguments(parser)
    options = parser.parse_settings(["--data", str(data), "--inits", "random", "--out", str(tmp_path)], {})
    sweep = module.METHOD.sweep(module.METHOD.settings(options), data)
    argv = module.METHOD.command(sweep, sweep.trainings[0], resume=False, cpu=cpu).argv
    cfg = recipe.parse(str(data), list(argv[argv.index("--recipe") + 1 :]))
    found = training_arguments(cfg, tmp_path, sentences=48, seed=1, bf16=False, cpu=True)
    assert found.per_device_eval_batch_size == (16 if cpu else 256)  # of 256 tokens each
