"""The precision of eval: requested, recorded by manifest or checkpoint, or fp32; never measured; int8."""

import json

import numpy as np
import pytest
import torch

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.__main__ import main
from roberta_small.eval.network import read_checkpoint
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from roberta_small.fairseq_plugin.training import precision
from tests.support.tiny_runs import make_run


@pytest.fixture
def unmeasured(monkeypatch):
    """Fail where a precision is measured."""

    def fail():
        raise AssertionError("measured")

    monkeypatch.setattr(precision, "_resolved", {})
    monkeypatch.setattr(precision, "bf16_speedup", fail)
    precision.resolve.cache_clear()
    yield
    precision.resolve.cache_clear()


def set_checkpoint(path, requested, recorded):
    """Change `--precision` and what it resolved to in a checkpoint; None removes the record."""
    state = load_checkpoint(path)
    state["cfg"]["model"].precision = requested
    state["extra_state"].pop("precision", None)
    if recorded is not None:
        state["extra_state"]["precision"] = recorded
    torch.save(state, path)


@pytest.mark.parametrize(
    ("requested", "recorded", "in_manifest", "expected"),
    [
        ("auto", None, None, "fp32"),
        ("auto", {"cpu": "bf16"}, None, "bf16"),
        ("auto", {"cuda": "fp32", "cpu": "bf16"}, None, "bf16"),
        ("auto", {"cpu": "fp32"}, "bf16", "bf16"),
        ("auto", None, "4bit", "fp32"),
        ("bf16", {}, None, "bf16"),
        ("fp32", None, None, "fp32"),
    ],
)
def test_recorded_precision(copied_run, unmeasured, requested, recorded, in_manifest, expected):
    set_checkpoint(copied_run / "checkpoint_best.pt", requested, recorded)
    if in_manifest:
        manifest.write(copied_run, manifest.read(copied_run) | {"precision": in_manifest})
    for given in (None, "auto"):
        classifier = SentenceClassifier.from_run(copied_run, precision=given)
        assert classifier.model.precision.value == classifier.network.model.args.precision == expected
        classifier.predict(["un livre"])
    other = {"fp32": "bf16", "bf16": "fp32"}[expected]
    assert SentenceClassifier.from_run(copied_run, precision=other).model.precision.value == other


def test_an_unknown_precision_is_an_error_with_the_choices(trained):
    with pytest.raises(UserError, match=r"fp8.*auto, fp32, bf16, int8"):
        SentenceClassifier.from_run(trained.run, precision="fp8")


def test_bf16_of_a_gpu_is_fp32_on_a_cpu_unless_requested(copied_run, unmeasured):
    content = manifest.read(copied_run) | {"precision": "bf16"}
    for gpu, expected in ((None, "bf16"), ("NVIDIA H100", "fp32")):
        manifest.write(copied_run, content | {"hardware": {"gpu": gpu}})
        classifier = SentenceClassifier.from_run(copied_run, device="cpu")
        assert classifier.network.model.args.precision == expected
    assert "GPU" in classifier.model.precision.reason
    assert SentenceClassifier.from_run(copied_run, precision="bf16").model.precision.value == "bf16"


def test_training_with_auto_records_what_it_resolved_to(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "_resolved", {})
    monkeypatch.setattr(precision, "bf16_speedup", lambda: 9.0)
    precision.resolve.cache_clear()
    make_run(trained.data, tmp_path / "run", "--precision", "auto", updates=1)
    precision.resolve.cache_clear()
    assert read_checkpoint(tmp_path / "run/checkpoint_best.pt").precision == "bf16"


def test_commands_print_the_precision_and_repeat_their_result(copied_run, unmeasured, capsys):
    set_checkpoint(copied_run / "checkpoint_best.pt", "auto", {"cpu": "bf16"})
    outputs = []
    for _ in range(2):
        assert main(["predict", "--checkpoint", str(copied_run), "un livre"]) == 0
        captured = capsys.readouterr()
        outputs.append(captured.out)
        (line,) = captured.err.splitlines()
        assert "bf16" in line
        assert "--precision fp32" in line
    assert outputs[0] == outputs[1]
    assert main(["predict", "--checkpoint", str(copied_run), "--precision", "fp32", "un livre"]) == 0
    captured = capsys.readouterr()
    assert ("fp32" in captured.err, "bf16" in captured.err) == (True, False)
    p, q = (json.loads(out)["probabilities"]["neg"] for out in (outputs[0], captured.out))
    assert 0 < abs(p - q) < 0.02
    assert main(["evaluate", "--checkpoint", str(copied_run), "--draws", "2"]) == 0
    assert "bf16" in capsys.readouterr().err


TEXTS = ["un livre captivant", "un roman", "le livre est long", ""]


@pytest.mark.parametrize("flags", [(), ("--pooling", "mean"), ("--encoder", "padded")])
def test_logits_in_int8_are_close_to_those_in_fp32(trained, tmp_path, flags):
    make_run(trained.data, tmp_path / "run", *flags, updates=1)
    rows = SentenceClassifier.from_run(tmp_path / "run").text_input.encode(TEXTS).rows
    logits = {}
    for value in ("fp32", "int8"):
        classifier = SentenceClassifier.from_run(tmp_path / "run", precision=value)
        network = classifier.network
        logits[value] = network.logits(rows)
    difference = np.abs(logits["int8"] - logits["fp32"]).max()
    assert 0 < difference < 0.05 * np.abs(logits["fp32"]).max()
    kept = {name for name, _ in network.model.encoder.sentence_encoder.layers.named_parameters()}
    assert not any("fc1" in name or "fc2" in name or "out_proj" in name for name in kept)
    # Nothing else holds the weights in fp32, and the checkpoint still knows their shapes.
    assert all(weight.is_meta for weight in classifier.model.checkpoint.weights.values())
    assert classifier.model.checkpoint.classes == logits["int8"].shape[1]


def test_commands_in_int8(copied_run, capsys):
    words = ["--checkpoint", str(copied_run), "--precision", "int8"]
    assert main(["predict", *words, "un livre"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["precision: int8, as requested"]
    assert sum(json.loads(captured.out)["probabilities"].values()) == pytest.approx(1)
    assert main(["evaluate", *words, "--draws", "2"]) == 0
    assert "int8" in capsys.readouterr().err
    assert main(["predict", *words, "--explain", "out.html", "un livre"]) == 1
    assert "gradients" in capsys.readouterr().err
