"""Precision (precision.py): fairseq's own flags are refused where its devices for them are missing."""

from types import SimpleNamespace

import pytest
from data_folders import write_data
from training import INPUT, OURS, SIZES, SLOW, STEPS, build_trainer, configuration

from common.errors import UserError
from fairseq_plugin.training import precision


@pytest.fixture
def machine(monkeypatch):
    """Call it to have a GPU or the package for TPUs, or not."""

    def has(*, gpu=False, xla=False):
        monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
        monkeypatch.setattr(precision, "find_spec", lambda name: xla or None)

    return has


def common(*flags):
    """What fairseq's command line makes of the flags."""
    cfg = configuration(["data", *OURS, *SIZES, "--batch-size", "8", "--optimizer", "adam", *flags])
    return cfg.common


@pytest.mark.parametrize(
    ("flags", "gpu", "said"),
    [
        (["--bf16", "--cpu"], False, "--bf16 on a CPU: .* --precision bf16"),
        (["--bf16", "--cpu"], True, "--bf16 on a CPU"),
        (["--bf16"], False, "--bf16 on a CPU"),
        (["--bf16"], True, "--bf16 on a GPU: .* TPU"),
        (["--memory-efficient-bf16"], True, "--bf16 on a GPU"),
        (["--fp16", "--cpu"], True, "--fp16 on a CPU: .* --precision bf16"),
        (["--fp16"], False, "--fp16 on a CPU"),
        (["--memory-efficient-fp16"], False, "--fp16 on a CPU"),
    ],
)
def test_a_flag_without_its_device_is_refused(machine, flags, gpu, said):
    machine(gpu=gpu)
    with pytest.raises(UserError, match=said):
        precision.check_flags(common(*flags))


@pytest.mark.parametrize(
    ("flags", "has"),
    [
        ([], {}),
        (["--cpu"], {"gpu": True}),
        (["--fp16"], {"gpu": True}),
        (["--bf16"], {"xla": True}),
        (["--amp", "--cpu"], {}),
    ],
)
def test_a_flag_with_its_device_is_left_to_fairseq(machine, flags, has):
    machine(**has)
    precision.check_flags(common(*flags))


def test_bf16_of_a_configuration_file_is_left_to_the_gpu(machine):
    machine(gpu=True)
    precision.check_flags(SimpleNamespace(bf16=True, fp16=False, tpu=False, cpu=False))


@pytest.mark.parametrize("flag", ["--fp16", "--memory-efficient-fp16", "--amp"])
def test_losses_are_not_scaled_by_our_optimizer(machine, flag):
    machine(gpu=True)
    with pytest.raises(UserError, match="fused_adam does not scale losses; use --precision bf16"):
        precision.check_flags(common(flag), "fused_adam")
    precision.check_flags(common(flag), "adam")


@pytest.mark.parametrize("flag", ["--bf16", "--fp16"])
def test_the_trainer_is_not_built(tmp_path, flag):
    with pytest.raises(UserError, match=f"{flag} on a CPU"):
        build_trainer([write_data(tmp_path), *OURS, *INPUT, *STEPS, *SIZES, *SLOW, flag])
