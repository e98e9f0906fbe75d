"""The model of lora-causal: perplexity, loading, precision."""

import math
import re
from pathlib import Path

import pytest
import torch

from roberta_small.common.errors import UserError
from roberta_small.experiments.methods.lora.causal import Pair
from roberta_small.experiments.methods.lora.causal_run import (
    IGNORED,
    Base,
    bits_per_token,
    encode_pairs,
    find_folder,
    load_model,
    load_tokenizer,
)
from roberta_small.experiments.methods.lora.sample import sample_pairs

PAIRS = [Pair(**pair) for pair in sample_pairs()]


def test_bits_per_token_are_those_of_the_probabilities(bloom):
    tokenizer, model = load_tokenizer(bloom), load_model(bloom, 32, torch.device("cpu"))
    items = encode_pairs(PAIRS[:5], tokenizer=tokenizer, max_length=512, answer_only=True)
    nats = tokens = 0
    for item in items:
        ids, labels = torch.tensor(item["input_ids"]), torch.tensor(item["labels"])
        with torch.no_grad():
            log_probabilities = model(input_ids=ids[None]).logits[0].log_softmax(-1)
        for position in range(1, len(ids)):
            if labels[position] != IGNORED:
                nats, tokens = nats - float(log_probabilities[position - 1, ids[position]]), tokens + 1
    assert bits_per_token(model, items) == pytest.approx(nats / tokens / math.log(2), rel=1e-5)


def test_a_model_needs_a_folder_with_safetensors(tmp_path):
    with pytest.raises(UserError, match=r"config\.json"):
        find_folder(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"model\.safetensors"):
        find_folder(str(tmp_path))
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(UserError, match=r"pytorch_model\.bin"):
        find_folder(str(tmp_path))
    with pytest.raises(UserError, match="no/such/folder/at/all"):
        find_folder("no/such/folder/at/all")


def test_corrupt_weights_and_a_missing_tokenizer_are_errors(tmp_path, bloom):
    (tmp_path / "config.json").write_text((bloom / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes((bloom / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(UserError, match=re.escape(str(tmp_path))):
        load_model(tmp_path, 32, torch.device("cpu"))
    with pytest.raises(UserError, match=re.escape(str(tmp_path))):
        load_tokenizer(tmp_path)


def test_precision_auto_depends_on_device_and_bitsandbytes(monkeypatch):
    def bits(device, precision, *, installed=True, bf16=True):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if installed else None)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **kwargs: bf16)
        base = Base(Path("bloom"), "cpu", precision)
        vars(base)["device"] = torch.device(device)
        return base.bits

    assert bits("cuda", "auto") == 4
    assert bits("cuda", "auto", installed=False) == 16
    assert bits("cuda", "auto", installed=False, bf16=False) == 32
    assert bits("cpu", "auto") == 32
    assert [bits("cpu", name) for name in ("4bit", "bf16", "fp32")] == [4, 16, 32]
