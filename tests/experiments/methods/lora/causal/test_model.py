"""The model of lora-causal: perplexity, loading, precision."""

import math
import re

import pytest
import torch

from roberta_small.common.errors import UserError
from roberta_small.experiments.methods.lora.causal.data import IGNORED, Pair, PairDataset
from roberta_small.experiments.methods.lora.causal.model import (
    Loading,
    bits_per_token,
    choose_loading,
    find_folder,
    load_model,
    load_tokenizer,
)
from roberta_small.experiments.methods.lora.sample import sample_pairs

PAIRS = [Pair(**pair) for pair in sample_pairs()]


def test_bits_per_token_equal_the_loss_of_transformers(bloom):
    tokenizer, model = load_tokenizer(bloom), load_model(bloom, Loading(32, ""), torch.device("cpu"))
    pairs = PairDataset(PAIRS[:5], tokenizer, 512, answer_only=True)
    nats = tokens = 0
    for item in pairs:
        counted = int((item["labels"][1:] != IGNORED).sum())
        loss = model(input_ids=item["input_ids"][None], labels=item["labels"][None]).loss
        nats, tokens = nats + float(loss) * counted, tokens + counted
    found = bits_per_token(model, pairs, tokenizer.pad_token_id, batch_size=3)
    assert found == pytest.approx(nats / tokens / math.log(2), rel=1e-5)


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
        load_model(tmp_path, Loading(32, ""), torch.device("cpu"))
    with pytest.raises(UserError, match=re.escape(str(tmp_path))):
        load_tokenizer(tmp_path)


def test_precision_auto_is_4_bits_with_bitsandbytes_and_a_gpu(monkeypatch):
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert choose_loading(gpu, "auto").bits == 4
    assert choose_loading(cpu, "auto").bits == 32
    assert (choose_loading(gpu, "bf16").bits, choose_loading(gpu, "fp32").bits) == (16, 32)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert choose_loading(gpu, "auto").bits == 32
