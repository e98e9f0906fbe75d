"""`lora-causal` on the small BLOOM of its `--sample`."""

import contextlib
import io
import json
import re
import shlex
import shutil

import pytest
import torch
from peft import PeftModel
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModelForCausalLM, AutoTokenizer

from roberta_small.common import manifest
from roberta_small.common.cli import flags_of
from roberta_small.experiments.methods.lora import sample as lora_sample
from tests.support.method_runs import command


@pytest.fixture(scope="module")
def sample(causal_sample, tmp_path_factory):
    """A copy of the sample, in which runs are written."""
    return shutil.copytree(causal_sample, tmp_path_factory.mktemp("causal") / "sample")


@pytest.fixture(scope="module")
def trained(sample):
    """The run of the command that a dry run prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert command(*arguments(sample), "--dry-run") == 0
    shown = shlex.split(printed.getvalue().splitlines()[-1])
    assert not list(sample.rglob("manifest.json"))
    assert command(*shown[1:], "--device", "cpu", "--merge", "--ask", "How long can I keep novels?") == 0
    run = sample / "runs/lora-causal/bloom/seed1"
    assert manifest.read(run)["command"] == shown
    return run


def arguments(sample):
    return [
        *("lora-causal", "--data", sample / "faq.json", "--model", sample / "bloom", "--device", "cpu"),
        *("--out", sample / "runs", "--steps", "10", "--lr", "1e-2", "--answer-only", "--new-tokens", "8"),
    ]


def test_manifest_results_and_tensorboard_describe_the_run(trained):
    content = manifest.read(trained)
    assert (content["status"], content["arm"], content["init"]) == ("finished", "lora-causal", "bloom")
    # Two layers of width 64: rank times input and output size of query_key_value.
    assert content["trainable_parameters"] == 2 * 16 * (64 + 3 * 64)
    assert content["precision"] == "fp32"
    assert "--answer-only" in content["recipe_flags"]
    adapter = json.loads((trained / "adapter/adapter_config.json").read_text())
    assert [adapter[name] for name in ("r", "lora_alpha", "lora_dropout")] == [16, 32, 0.05]
    assert len(list((trained / "adapter").iterdir())) == 2
    # Constants, which are recorded as those options of version 1.
    fixed = {"--accumulation": ("4",), "--warmup-share": ("0.05",), "--valid-share": ("0.1",)}
    recorded = flags_of(content["recipe_flags"])
    assert {flag: recorded[flag][1:] for flag in fixed} == fixed
    assert content["data"]["sha256"]["faq.json"]
    results = json.loads((trained / "results.json").read_text())
    assert results["perplexity"]["after"] < 0.95 * results["perplexity"]["before"]
    assert (results["train_pairs"], results["valid_pairs"]) == (36, 4)
    assert [asked["question"] for asked in results["answers"]] == ["How long can I keep novels?"]
    assert results["answers"][0]["before"] != results["answers"][0]["after"]
    events = EventAccumulator(str(trained / "tensorboard/valid")).Reload().Scalars("ppl")
    assert [event.step for event in events] == [0, 10]
    assert events[1].value == pytest.approx(results["perplexity"]["after"], rel=1e-5)
    train = EventAccumulator(str(trained / "tensorboard/train_inner")).Reload().Scalars("loss")
    assert [event.step for event in train] == list(range(1, 11))
    logged = re.findall(r'train_inner .*"loss": "(\S+)"', (trained / "train.log").read_text())
    assert [event.value for event in train] == pytest.approx([float(value) for value in logged], abs=1e-4)


def test_the_merged_model_has_the_logits_of_base_and_adapter(sample, trained):
    ids_BL = AutoTokenizer.from_pretrained(trained / "merged")("Can I reserve films?", return_tensors="pt")
    base = AutoModelForCausalLM.from_pretrained(sample / "bloom")
    with torch.no_grad():
        unadapted = base(ids_BL["input_ids"]).logits.clone()
        adapted = PeftModel.from_pretrained(base, trained / "adapter")(ids_BL["input_ids"]).logits
        merged = AutoModelForCausalLM.from_pretrained(trained / "merged")(ids_BL["input_ids"]).logits
    torch.testing.assert_close(merged, adapted, atol=1e-4, rtol=1e-4)
    assert (adapted - unadapted).abs().max() > 0.1


def test_a_finished_run_only_answers_and_another_recipe_is_an_error(sample, trained, capfd):
    ended = manifest.read(trained)["ended"]
    assert command(*arguments(sample), "--merge") == 0
    out = capfd.readouterr().out
    assert "finished" in out
    assert manifest.read(trained)["ended"] == ended
    old = json.loads((trained / "results.json").read_text())
    assert command(*arguments(sample), "--ask", "Can I reserve films?", "--new-tokens", "3") == 0
    results = json.loads((trained / "results.json").read_text())
    assert [asked["question"] for asked in results["answers"]] == ["Can I reserve films?"]
    assert {**results, "answers": None} == {**old, "answers": None}
    assert manifest.read(trained)["ended"] == ended
    capfd.readouterr()
    assert command(*arguments(sample), "--rank", "4") == 1
    err = capfd.readouterr().err
    assert "--rank 16" in err
    assert "--rank 4" in err


def test_a_base_in_4_bits(sample, monkeypatch, capfd):
    """QLoRA; an error without bitsandbytes."""
    quantized = [*arguments(sample), "--name", "quantized", "--precision", "4bit"]
    with monkeypatch.context() as patched:
        patched.setattr("importlib.util.find_spec", lambda name: None)
        assert command(*quantized) == 1
    err = capfd.readouterr().err
    assert "--precision 4bit" in err
    assert "bitsandbytes" in err
    pytest.importorskip("bitsandbytes")
    assert command(*quantized, "--merge") == 0
    run = sample / "runs/lora-causal/quantized/seed1"
    results = json.loads((run / "results.json").read_text())
    assert results["base_bits"] == 4
    assert results["perplexity"]["after"] < 0.95 * results["perplexity"]["before"]
    assert manifest.read(run)["precision"] == "bf16"
    base = AutoModelForCausalLM.from_pretrained(sample / "bloom")
    assert results["parameters"] == 2 * 16 * (64 + 3 * 64) + sum(p.numel() for p in base.parameters())


def test_an_interrupted_run_starts_from_scratch(sample, trained, tmp_path):
    """With the same weights, bit for bit."""
    run = tmp_path / "runs/lora-causal/bloom/seed1"
    shutil.copytree(trained, run)
    (run / "adapter/adapter_model.safetensors").unlink()
    manifest.write(run, manifest.read(run) | {"status": "interrupted"})
    assert command(*arguments(sample), "--out", tmp_path / "runs") == 0
    wanted = (trained / "adapter/adapter_model.safetensors").read_bytes()
    assert (run / "adapter/adapter_model.safetensors").read_bytes() == wanted
    assert len(list((run / "tensorboard/valid").iterdir())) == 1
    assert manifest.read(run)["status"] == "finished"


@pytest.mark.parametrize(
    ("wrong", "facts"),
    [
        (["--target-modules", "query"], ["--target-modules query", "query_key_value"]),
        (["--data", "absent.json"], ["absent.json: "]),
        (["--max-length", "5"], ["--max-length 5"]),
        (["--model", "no/such/model/folder"], ["--model no/such/model/folder"]),
    ],
)
def test_mistakes_are_reported_in_one_line(sample, capfd, tmp_path, wrong, facts):
    assert command(*arguments(sample), "--out", tmp_path / "runs", *wrong) == 1
    captured = capfd.readouterr().err.strip().splitlines()
    assert len(captured) == 1
    assert all(fact in captured[0] for fact in facts), captured


def test_the_sample_is_reproducible_and_never_overwritten(sample, capfd, tmp_path):
    lora_sample.write(tmp_path, updates=30)
    for name in ("faq.json", "bloom/model.safetensors", "bloom/tokenizer.json"):
        assert (tmp_path / name).read_bytes() == (sample / name).read_bytes(), name
    assert command("lora-causal", "--sample", sample) == 1
    assert str(sample / "bloom") in capfd.readouterr().err
