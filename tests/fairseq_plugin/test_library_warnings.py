"""A training prints no warnings of Hydra and torch; other warnings stay."""

import warnings

import pytest
from fairseq import options
from fairseq.dataclass import utils

from roberta_small.fairseq_plugin.library_warnings import filter_warnings
from tests.support.training import CLASSIFIER


def test_hydra_composes_the_same_configuration(tmp_path, monkeypatch):
    words = [str(word) for word in (tmp_path, *CLASSIFIER)]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = utils.convert_namespace_to_omegaconf(args)
    for name in ("initialize", "compose"):
        monkeypatch.setattr(utils, name, getattr(utils, name).__wrapped__)
    with pytest.warns(UserWarning, match="hydra"):
        stock = utils.convert_namespace_to_omegaconf(args)
    assert ours == stock
    assert ours._get_flag("struct") == stock._get_flag("struct")


@pytest.mark.parametrize(
    ("message", "category", "module", "shown"),
    [
        ("`torch.cuda.amp.autocast(args...)`", FutureWarning, "fairseq.tasks.task", False),
        ("`torch.cuda.amp.autocast(args...)`", FutureWarning, "my_plugin", True),
        ("another function is deprecated", FutureWarning, "fairseq.tasks.task", True),
        ("'pin_memory' argument is set as true", UserWarning, "torch.utils.data.dataloader", False),
        ("'roberta_small.fairseq_plugin.compat' found in sys.modules", RuntimeWarning, "runpy", False),
    ],
)
def test_only_named_warnings_are_filtered(message, category, module, shown):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        filter_warnings()
        warnings.warn_explicit(message, category, f"{module}.py", 1, module=module)
    assert len(caught) == shown
