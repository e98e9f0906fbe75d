"""`python -m hf lora causal` from the sample to a merged model, on a small BLOOM."""

import json
import re

import pytest
import torch
from method_runs import command
from peft import PeftModel
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModelForCausalLM, AutoTokenizer

from common import manifest
from experiments.methods.lora import sample as lora_sample
from experiments.methods.lora.causal import model
from experiments.methods.lora.causal import train as causal_train


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    root = tmp_path_factory.mktemp("sample")
    lora_sample.write(root, updates=30)
    return root


@pytest.fixture(scope="module")
def trained(sample):
    assert command(*line(sample), "--merge", "--ask", "How long can I keep novels?") == 0
    return sample / "runs/causal-lora/bloom/seed1"


def line(sample):
    return [
        *("lora", "causal", "--data", sample / "faq.json", "--model", sample / "bloom", "--device", "cpu"),
        *("--out", sample / "runs", "--steps", "10", "--lr", "1e-2", "--answer-only", "--new-tokens", "8"),
    ]


def test_the_run_is_recorded(trained):
    content = manifest.read(trained)
    assert (content["status"], content["arm"], content["init"]) == ("finished", "causal-lora", "bloom")
    # Two layers of width 64: rank times what goes in and out of query_key_value.
    assert content["trainable_parameters"] == 2 * 16 * (64 + 3 * 64)
    assert content["precision"] == "fp32"
    assert "--answer-only" in content["recipe_flags"]
    assert content["data"]["sha256"]["faq.json"]
    log = (trained / "train.log").read_text()
    assert "update 10: loss" in log


def test_perplexity_falls_and_is_in_tensorboard(trained):
    results = json.loads((trained / "results.json").read_text())
    assert results["perplexity"]["after"] < 0.95 * results["perplexity"]["before"]
    assert (results["train_pairs"], results["valid_pairs"]) == (36, 4)
    assert [asked["question"] for asked in results["answers"]] == ["How long can I keep novels?"]
    events = EventAccumulator(str(trained / "tensorboard/valid")).Reload().Scalars("ppl")
    assert [event.step for event in events] == [0, 10]
    assert events[1].value == pytest.approx(results["perplexity"]["after"], rel=1e-5)
    train = EventAccumulator(str(trained / "tensorboard/train_inner")).Reload().Scalars("loss")
    assert [event.step for event in train] == list(range(1, 11))
    logged = re.findall(r"update \d+: loss (\S+) bits", (trained / "train.log").read_text())
    assert [event.value for event in train] == pytest.approx([float(value) for value in logged], abs=1e-4)


def test_the_merged_model_answers_as_base_and_adapter(sample, trained):
    ids_BL = AutoTokenizer.from_pretrained(trained / "merged")("Can I reserve films?", return_tensors="pt")
    base = AutoModelForCausalLM.from_pretrained(sample / "bloom")
    with torch.no_grad():
        unadapted = base(ids_BL["input_ids"]).logits.clone()
        adapted = PeftModel.from_pretrained(base, trained / "adapter")(ids_BL["input_ids"]).logits
        merged = AutoModelForCausalLM.from_pretrained(trained / "merged")(ids_BL["input_ids"]).logits
    torch.testing.assert_close(merged, adapted, atol=1e-4, rtol=1e-4)
    assert (adapted - unadapted).abs().max() > 0.1


def test_the_same_line_skips_and_another_recipe_is_refused(sample, trained, capfd):
    ended = manifest.read(trained)["ended"]
    assert command(*line(sample), "--merge") == 0
    out = capfd.readouterr().out
    assert "finished, skipped" in out
    assert "merged: is there already" in out
    assert manifest.read(trained)["ended"] == ended
    assert command(*line(sample), "--rank", "4") == 1
    assert "--rank 16, now --rank 4" in capfd.readouterr().err


def test_a_base_in_4_bits(sample, monkeypatch, capfd):
    """QLoRA; without bitsandbytes it is refused in one line."""
    asked = [*line(sample), "--name", "quantized", "--precision", "4bit"]
    with monkeypatch.context() as patched:
        patched.setattr(model.importlib.util, "find_spec", lambda name: None)
        assert command(*asked) == 1
    assert "--precision 4bit: bitsandbytes is missing" in capfd.readouterr().err
    pytest.importorskip("bitsandbytes")
    assert command(*asked, "--merge") == 0
    run = sample / "runs/causal-lora/quantized/seed1"
    results = json.loads((run / "results.json").read_text())
    assert results["base_bits"] == 4
    assert results["perplexity"]["after"] < 0.95 * results["perplexity"]["before"]
    assert manifest.read(run)["precision"] == "bf16"
    base = AutoModelForCausalLM.from_pretrained(sample / "bloom")
    assert results["parameters"] == 2 * 16 * (64 + 3 * 64) + sum(p.numel() for p in base.parameters())


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt, "interrupted"), (RuntimeError, "failed")])
def test_an_unfinished_run_says_so_and_starts_again(sample, monkeypatch, error, status):
    def fail(*arguments):
        raise error("a defect")

    run = sample / f"runs/causal-lora/{status}/seed1"
    with monkeypatch.context() as patched:
        patched.setattr(causal_train, "_fit", fail)
        if error is KeyboardInterrupt:
            assert command(*line(sample), "--name", status) == 130
        else:
            with pytest.raises(error, match="a defect"):
                command(*line(sample), "--name", status)
    assert manifest.read(run)["status"] == status
    assert command(*line(sample), "--name", status) == 0
    assert manifest.read(run)["status"] == "finished"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--target-modules", "query"],
            "query: BloomForCausalLM has no such linear map; there are",
        ),
        (["--data", "absent.json"], "absent.json: no such file"),
        (["--max-length", "5"], "leaves none of --max-length 5"),
        (["--model", "no/such/model/folder"], "no such folder"),
    ],
)
def test_mistakes_are_clear_errors(sample, capfd, tmp_path, arguments, complaint):
    assert command(*line(sample), "--out", tmp_path / "runs", *arguments) == 1
    captured = capfd.readouterr().err.strip().splitlines()
    assert len(captured) == 1
    assert complaint in captured[0]


def test_the_sample_is_the_same_each_time_and_never_overwritten(sample, capfd, tmp_path):
    lora_sample.write(tmp_path, updates=30)
    for name in ("faq.json", "bloom/model.safetensors", "bloom/tokenizer.json"):
        assert (tmp_path / name).read_bytes() == (sample / name).read_bytes(), name
    assert command("lora", "sample", "--out", sample) == 1
    assert "exists" in capfd.readouterr().err


def test_a_finished_run_answers_new_questions_without_training(sample, trained, monkeypatch):
    def fail(*arguments):
        raise AssertionError("trained again")

    monkeypatch.setattr(causal_train, "_fit", fail)
    before = manifest.read(trained)
    old = json.loads((trained / "results.json").read_text())
    assert command(*line(sample), "--ask", "Can I reserve films?", "--new-tokens", "3") == 0
    results = json.loads((trained / "results.json").read_text())
    assert [asked["question"] for asked in results["answers"]] == ["Can I reserve films?"]
    assert manifest.read(trained) == before
    assert {**results, "answers": None} == {**old, "answers": None}
