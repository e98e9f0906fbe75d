"""LoRA adapters: parameter counts of BLOOM-560m, merging, reloading, unknown target modules."""

import pytest
import torch
from peft import TaskType
from transformers import BloomConfig, BloomForCausalLM, RobertaConfig, RobertaForSequenceClassification

from roberta_small.common.errors import UserError
from roberta_small.experiments.methods.lora import adapters as lora_adapters
from roberta_small.experiments.methods.lora.settings import LoraSettings

TINY = RobertaConfig(
    vocab_size=20,
    num_hidden_layers=1,
    hidden_size=8,
    intermediate_size=8,
    num_attention_heads=2,
    max_position_embeddings=18,
)
QUERY_VALUE = LoraSettings(rank=2, alpha=6, dropout=0.0, target_modules=("query", "value"))


def test_bloom_560m_has_the_published_number_of_trainable_parameters():
    with torch.device("meta"):
        # The sizes in the config.json of bigscience/bloom-560m.
        base = BloomForCausalLM(BloomConfig(vocab_size=250880, hidden_size=1024, n_layer=24, n_head=16))
        settings = LoraSettings(16, 32, 0.05, ("query_key_value",))
        model = lora_adapters.add_adapters(base, settings, TaskType.CAUSAL_LM)
    counted = lora_adapters.count(model)
    assert counted["trainable_parameters"] == 24 * 16 * (1024 + 3 * 1024) == 1_572_864
    assert counted["parameters"] - counted["trainable_parameters"] == 559_214_592


def test_merging_adds_the_product_of_b_and_a_and_reloading_keeps_the_head(tmp_path):
    torch.manual_seed(0)
    base = RobertaForSequenceClassification(TINY)
    weight = base.roberta.encoder.layer[0].attention.self.query.weight.detach().clone()
    base.save_pretrained(tmp_path / "base")
    model = lora_adapters.add_adapters(base, QUERY_VALUE, TaskType.SEQ_CLS, ["classifier"])
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter)
    model.eval()
    ids_BL = torch.randint(4, 20, (3, 9))
    with torch.no_grad():
        trained_BK = model(input_ids=ids_BL).logits
    lora_adapters.save(model, tmp_path / "adapter")
    assert sorted(path.name for path in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors",
    ]  # fmt: skip

    named = dict(model.named_parameters())
    a, b = (
        next(value for key, value in named.items() if f"query.lora_{part}" in key).detach() for part in "AB"
    )
    merged = lora_adapters.merged_classifier(tmp_path)
    found = merged.roberta.encoder.layer[0].attention.self.query.weight
    torch.testing.assert_close(found, weight + 6 / 2 * b @ a, atol=1e-5, rtol=0)
    for again in (merged, lora_adapters.adapted_classifier(tmp_path)):
        with torch.no_grad():
            torch.testing.assert_close(again(input_ids=ids_BL).logits, trained_BK, atol=1e-5, rtol=1e-5)


def test_a_missing_base_or_adapter_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"base: .*safetensors"):
        lora_adapters.merged_classifier(tmp_path)
    RobertaForSequenceClassification(TINY).save_pretrained(tmp_path / "base")
    with pytest.raises(UserError, match=r"adapter: .*adapter_model\.safetensors"):
        lora_adapters.merged_classifier(tmp_path)


def test_different_logits_are_an_error():
    logits = torch.tensor([1.0, -3.0])
    assert lora_adapters.largest_difference(logits, logits, "same") == 0
    with pytest.raises(RuntimeError, match="other: "):
        lora_adapters.largest_difference(logits, logits + 0.1, "other")
    assert lora_adapters.largest_difference(logits, logits + 0.1, "in 16 bits", bits=16) == pytest.approx(0.1)
