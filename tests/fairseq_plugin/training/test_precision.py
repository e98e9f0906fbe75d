"""Precision: fairseq's own flags are an error on devices that do not support them."""

from types import SimpleNamespace

import pytest
import torch

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.training import precision
from tests.support.training import INPUT, OURS, SIZES, SLOW, STEPS, build_trainer, configuration


@pytest.fixture
def machine(monkeypatch):
    """A function that simulates a machine with or without a GPU and torch_xla."""

    def has(*, gpu=False, xla=False):
        monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
        monkeypatch.setattr(precision, "find_spec", lambda name: xla or None)

    return has


def common(*flags):
    """The `CommonConfig` that fairseq's command line makes of the flags."""
    cfg = configuration(["data", *OURS, *SIZES, "--batch-size", "8", "--optimizer", "adam", *flags])
    return cfg.common


@pytest.mark.parametrize(
    ("flags", "gpu", "facts"),
    [
        (["--bf16", "--cpu"], False, "--bf16 on a CPU: .* --precision bf16"),
        (["--bf16"], False, "--bf16 on a CPU"),
        (["--bf16"], True, "--bf16 on a GPU: .* TPU"),
        (["--fp16", "--cpu"], True, "--fp16 on a CPU: .* --precision bf16"),
        (["--fp16"], False, "--fp16 on a CPU"),
        (["--memory-efficient-fp16"], False, "--fp16 on a CPU"),
    ],
)
def test_a_flag_that_the_device_does_not_support_is_an_error(machine, flags, gpu, facts):
    machine(gpu=gpu)
    with pytest.raises(UserError, match=facts):
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
def test_a_flag_that_the_device_supports_is_allowed(machine, flags, has):
    machine(**has)
    precision.check_flags(common(*flags))


def test_bf16_from_a_configuration_file_is_allowed_on_a_gpu(machine):
    machine(gpu=True)
    precision.check_flags(SimpleNamespace(bf16=True, fp16=False, tpu=False, cpu=False))


@pytest.mark.parametrize("flag", ["--fp16", "--memory-efficient-fp16", "--amp"])
def test_loss_scaling_with_fused_adam_or_another_precision_is_an_error(machine, flag):
    machine(gpu=True)
    with pytest.raises(UserError, match=r"--optimizer fused_adam .*--precision bf16"):
        precision.check_flags(common(flag), "fused_adam")
    precision.check_flags(common(flag), "adam")
    for own in ("auto", "bf16"):
        with pytest.raises(UserError, match=f"--precision {own}: .*--precision fp32"):
            precision.check_flags(common(flag), "adam", own)
    precision.check_flags(common(flag), "adam", "fp32")


def test_apex_is_an_error_for_models_of_this_plugin_on_a_gpu(machine, monkeypatch):
    machine(gpu=True)
    monkeypatch.setattr(precision.layer_norm, "has_fused_layernorm", True)
    with pytest.raises(UserError, match="apex"):
        precision.check_flags(common(), "adam", "auto")
    precision.check_flags(common("--cpu"), "adam", "auto")
    precision.check_flags(common(), "adam")


def test_the_flags_are_checked_when_the_trainer_is_built(data):
    with pytest.raises(UserError, match="--fp16 on a CPU"):
        build_trainer([data, *OURS, *INPUT, *STEPS, *SIZES, *SLOW, "--fp16"])


def test_bf16_on_a_gpu_without_it_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **kwargs: False)
    precision.resolve.cache_clear()
    with pytest.raises(UserError, match="does not support bf16; use --precision fp32"):
        precision.resolve("bf16", torch.device("cuda"))


def test_the_speed_of_products_is_measured_on_one_thread(monkeypatch):
    """With several, another process on one of the cores would delay fp32 and bf16 alike."""
    threads, product = [], torch.mm
    monkeypatch.setattr(
        torch, "mm", lambda a, b: (threads.append((a.dtype, torch.get_num_threads())), product(a, b))
    )
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert precision.bf16_speedup() > 0.0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(threads) == {(torch.float32, 1), (torch.bfloat16, 1)}
