"""What the flags of the Transformers arms make of the recipe's."""

import pytest

from common.cli import SettingsParser
from common.errors import UserError
from experiments.methods.lora import classify
from experiments.methods.transformers import command as finetune


def passed_on(command, data, *words):
    """The flags that the runs get after the recipe's."""
    parser = SettingsParser()
    command.METHOD.add_arguments(parser)
    options = parser.parse_settings(["--data", str(data), "--inits", "random", *words], {})
    return list(finetune.settings_of(options).passthrough)


@pytest.mark.parametrize(
    ("command", "words", "lr"),
    [
        (finetune, [], None),
        (finetune, ["--lr", "1e-4"], "0.0001"),
        (finetune, ["--", "--lr", "3e-4"], "3e-4"),
        (classify, [], None),  # its own is beneath
        (classify, ["--lr", "1e-4"], "0.0001"),
        (classify, ["--", "--lr", "3e-4"], "3e-4"),
    ],
)
def test_the_learning_rate_is_the_one_that_is_given(tmp_path, command, words, lr):
    flags = passed_on(command, tmp_path, *words)
    assert flags == ([] if lr is None else ["--lr", lr])


@pytest.mark.parametrize("flag", ["--lr", "--precision"])
def test_a_flag_before_and_after_the_dashes_is_refused(tmp_path, flag):
    value = {"--lr": "1", "--precision": "fp32"}[flag]
    with pytest.raises(UserError, match=f"{flag} {value}.* after --"):
        passed_on(classify, tmp_path, flag, value, "--", flag, value)
