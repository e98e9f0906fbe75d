"""How --lr and --precision of the methods transformers and lora change the flags of the recipe."""

import pytest

from roberta_small.common.cli import SettingsParser
from roberta_small.common.errors import UserError
from roberta_small.experiments.methods.lora import classify
from roberta_small.experiments.methods.transformers import method as transformers


def passed_on(module, data, *words):
    """The flags that are added to those of the recipe."""
    parser = SettingsParser()
    module.METHOD.add_arguments(parser)
    options = parser.parse_settings(["--data", str(data), "--inits", "random", *words], {})
    return list(module.METHOD.settings(options).passthrough)


@pytest.mark.parametrize(
    ("module", "words", "lr"),
    [
        (transformers, [], None),
        (transformers, ["--lr", "1e-4"], "1e-4"),
        (transformers, ["--", "--lr", "3e-4"], "3e-4"),
        (classify, [], None),  # its default is not a flag of the user
        (classify, ["--lr", "1e-4"], "1e-4"),
        (classify, ["--", "--lr", "3e-4"], "3e-4"),
    ],
)
def test_a_given_learning_rate_is_added_once(tmp_path, module, words, lr):
    flags = passed_on(module, tmp_path, *words)
    assert flags == ([] if lr is None else ["--lr", lr])


@pytest.mark.parametrize("flag", ["--lr", "--precision"])
def test_a_flag_before_and_after_the_dashes_is_an_error(tmp_path, flag):
    value = {"--lr": "1", "--precision": "fp32"}[flag]
    with pytest.raises(UserError, match=f"{flag} {value}"):
        passed_on(classify, tmp_path, flag, value, "--", flag, value)
