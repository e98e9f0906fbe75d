"""LoRA adapters: parameter counts of BLOOM-560m, and what is missing or differs."""

import pytest
import torch
from peft import TaskType
from transformers import BloomConfig, BloomForCausalLM

from roberta_small.common.errors import UserError
from roberta_small.experiments.methods.lora import adapters as lora_adapters
from roberta_small.experiments.methods.lora.settings import LoraSettings


def test_bloom_560m_has_the_published_number_of_trainable_parameters():
    with torch.device("meta"):
        # The sizes in the config.json of bigscience/bloom-560m.
        base = BloomForCausalLM(BloomConfig(vocab_size=250880, hidden_size=1024, n_layer=24, n_head=16))
        settings = LoraSettings(16, 32, 0.05, ("query_key_value",))
        model = lora_adapters.add_adapters(base, settings, TaskType.CAUSAL_LM)
    counted = lora_adapters.count(model)
    assert counted["trainable_parameters"] == 24 * 16 * (1024 + 3 * 1024) == 1_572_864
    assert counted["parameters"] - counted["trainable_parameters"] == 559_214_592


def test_a_missing_base_or_adapter_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"base: .*safetensors"):
        lora_adapters.merged_classifier(tmp_path)
    with pytest.raises(UserError, match=r"adapter: .*adapter_model\.safetensors"):
        lora_adapters.reload(None, tmp_path / "adapter")


def test_different_logits_are_an_error():
    logits = torch.tensor([1.0, -3.0])
    assert lora_adapters.largest_difference(logits, logits, "same") == 0
    with pytest.raises(RuntimeError, match="other: "):
        lora_adapters.largest_difference(logits, logits + 0.1, "other")
    assert lora_adapters.largest_difference(logits, logits + 0.1, "in 16 bits", bits=16) == pytest.approx(0.1)
