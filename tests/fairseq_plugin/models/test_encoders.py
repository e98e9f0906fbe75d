"""The registry of encoders."""

import pytest
from fairseq.models.transformer import TransformerEncoder

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.models import encoders
from roberta_small.fairseq_plugin.models.encoders import EncoderKind
from tests.support import training


class Counting(TransformerEncoder):
    """fairseq's encoder that counts its calls."""

    calls = 0

    def forward(self, src_tokens, **kwargs):
        type(self).calls += 1
        return super().forward(src_tokens, **kwargs)


@pytest.fixture
def toy(monkeypatch):
    """An encoder that is registered for one test."""
    monkeypatch.setattr(Counting, "calls", 0)
    kind = EncoderKind("toy", Counting, "counts its calls", unsupported={"quant_noise_pq": 0})
    monkeypatch.setitem(encoders.ENCODERS, "toy", kind)


def arguments(data, encoder, *more):
    return [
        data, *training.OURS, *training.SIZES, *training.INPUT, *training.STEPS,
        "--optimizer", "adam", "--precision", "fp32", "--encoder", encoder, *more,
    ]  # fmt: skip


def test_a_registered_encoder_trains(toy, data):
    ours, _ = training.losses_and_accuracy(arguments(data, "toy"), 5)
    assert Counting.calls >= 5
    padded, _ = training.losses_and_accuracy(arguments(data, "padded"), 5)
    assert ours == padded


@pytest.mark.parametrize("flags", [("--quant-noise-pq", "0.1"), ("--pooling", "mean")])
def test_a_flag_that_the_encoder_does_not_support_is_an_error(toy, data, flags):
    with pytest.raises(UserError, match=flags[0]) as error:
        training.build_trainer(arguments(data, "toy", *flags))
    assert ("padded" if flags[0] == "--quant-noise-pq" else "packed") in str(error.value)
