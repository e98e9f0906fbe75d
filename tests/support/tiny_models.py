"""Tiny random models of all families, written by Transformers with their tokenizers."""

import torch
import transformers
from transformers import AutoTokenizer

from tests.support import tiny_tokenizers

PREFIXES = {"roberta": "Roberta", "camembert": "Camembert", "xlm-roberta": "XLMRoberta"}
"""The families with the ids of fairseq's dictionaries."""
OTHERS = {"bert": "Bert", "distilbert": "DistilBert", "electra": "Electra", "flaubert": "Flaubert"}
"""The other families, whose ids are permuted."""
NAMES = {
    "distilbert": {
        "hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim", "hidden_act": "activation",
    },
    "flaubert": {
        "hidden_size": "emb_dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
        "intermediate_size": None,
    },
}  # fmt: skip
"""Family -> its names of settings; None for one that it does not have."""
KINDS = {"masked-lm": "ForMaskedLM", "classifier": "ForSequenceClassification", "encoder": "Model"}
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 34,
}
FLAGS = [
    *("--encoder-layers", "2", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "24"),
    *("--encoder-attention-heads", "2", "--max-positions", "32"),
]
"""The same sizes as flags of fairseq-train."""


def config(family, tokenizer, **changes):
    """The configuration of a real model of the family, but small."""
    if family in OTHERS:
        names = NAMES.get(family, {})
        sizes = {names.get(name, name): value for name, value in SIZES.items() if names.get(name, name)}
        sizes |= {"embedding_size": SIZES["hidden_size"]} if family == "electra" else {}
        usual = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
        return getattr(transformers, f"{OTHERS[family]}Config")(**sizes | usual | changes)
    special = {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    usual = {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "vocab_size": len(tokenizer), "pad_token_id": 1}
    kind = getattr(transformers, f"{PREFIXES[family]}Config")
    return kind(**SIZES | usual | special | changes)


def write(folder, family, kind="masked-lm", **changes):
    """Write a model with tokenizer; returns the model. No weight is zero, so that each one counts."""
    tokenizers = tiny_tokenizers.FAMILIES | {"flaubert": tiny_tokenizers.flaubert}
    tokenizers.get(family, tiny_tokenizers.bert)(folder)
    settings = config(family, AutoTokenizer.from_pretrained(folder), **changes)
    name = f"{(PREFIXES | OTHERS)[family]}{KINDS[kind]}"
    model = getattr(transformers, name.replace("FlaubertForMaskedLM", "FlaubertWithLMHeadModel"))(settings)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3, generator=generator)
    model.save_pretrained(folder)
    return model.eval()
