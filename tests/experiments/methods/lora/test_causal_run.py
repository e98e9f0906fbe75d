"""A run of lora-causal: questions and answers, perplexity, loading, precision."""

import json
import math
import re
from dataclasses import replace

import pytest
import torch

from roberta_small.common.errors import UserError
from roberta_small.experiments.methods.lora import causal_run
from roberta_small.experiments.methods.lora.causal_run import (
    IGNORED,
    Base,
    Pair,
    bits_per_token,
    encode_pairs,
    find_folder,
    load_tokenizer,
    prompt,
    read_pairs,
    split,
)
from roberta_small.experiments.methods.lora.sample import sample_pairs

PAIRS = [Pair(**pair) for pair in sample_pairs()]


@pytest.fixture(scope="module")
def bloom(causal_sample):
    return causal_sample / "bloom"


@pytest.mark.parametrize("wrap", [lambda pairs: {"questions": pairs}, lambda pairs: pairs])
def test_pairs_are_read_in_order(tmp_path, wrap):
    path = tmp_path / "faq.json"
    path.write_text(json.dumps(wrap(sample_pairs())))
    assert read_pairs(path) == PAIRS


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ('{"questions": [{"question": "a?", "answer": "b"},', "line 1"),
        ('{"faq": []}', "question"),
        ("[]", "question"),
        ('["a?"]', "entry 1"),
        ('[{"question": "a?", "answer": "b"}, {"question": "c?"}]', "entry 2: 'answer'"),
        ('[{"question": " ", "answer": "b"}]', "entry 1: 'question'"),
        ('[{"question": "a?", "answer": 3}]', "entry 1: 'answer'"),
        ('["é"]', "line 1"),  # in latin-1
    ],
)
def test_a_malformed_file_is_an_error_that_names_the_entry(tmp_path, text, fact):
    path = tmp_path / "faq.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=rf"faq\.json.*{fact}"):
        read_pairs(path)


def test_the_split_is_seeded_and_keeps_equal_questions_together():
    pairs = [*PAIRS, Pair(PAIRS[0].question.upper(), "asked again")]
    train, valid = split(pairs, seed=1)
    assert split(pairs, seed=1) == (train, valid) != split(pairs, seed=2)
    assert len(train) + len(valid) == len(pairs)
    assert not {p.question.casefold() for p in train} & {p.question.casefold() for p in valid}
    assert [len(part) for part in split(PAIRS, seed=1)] == [36, 4]
    assert [len(part) for part in split(PAIRS[:2], seed=1)] == [1, 1]
    with pytest.raises(UserError, match="one question"):
        split([PAIRS[0], PAIRS[0]], seed=1)


def test_a_pair_becomes_a_text_with_an_end_token_and_prompts_can_be_without_loss(bloom):
    tokenizer = load_tokenizer(bloom)

    def encode(max_length, *, answer_only=True):
        (item,) = encode_pairs(PAIRS[:1], tokenizer, max_length=max_length, answer_only=answer_only)
        return item["input_ids"], item["labels"]

    ids, labels = encode(512, answer_only=False)
    assert tokenizer.decode(ids) == f"<human>: {PAIRS[0].question}  \n <assistant>: {PAIRS[0].answer}</s>"
    assert ids == labels
    same, labels = encode(512)
    begin = labels.count(IGNORED)
    assert same == ids
    assert tokenizer.decode(labels[begin:]) == f" {PAIRS[0].answer}</s>"
    assert tokenizer.decode(ids[:begin]) == prompt(PAIRS[0].question)
    assert [len(part) for part in encode(len(ids) - 3)] == [len(ids) - 3] * 2


def test_bits_per_token_are_those_of_the_probabilities(bloom):
    base = Base.open(bloom, "cpu", "fp32")
    model = base.load()
    items = encode_pairs(PAIRS[:5], base.tokenizer, max_length=512, answer_only=True)
    nats = tokens = 0
    for item in items:
        ids, labels = torch.tensor(item["input_ids"]), torch.tensor(item["labels"])
        with torch.no_grad():
            log_probabilities = model(input_ids=ids[None]).logits[0].log_softmax(-1)
        for position in range(1, len(ids)):
            if labels[position] != IGNORED:
                nats, tokens = nats - float(log_probabilities[position - 1, ids[position]]), tokens + 1
    assert bits_per_token(model, items) == pytest.approx(nats / tokens / math.log(2), rel=1e-5)


def test_a_model_needs_a_folder_with_safetensors_and_a_tokenizer(tmp_path, bloom):
    with pytest.raises(UserError, match=r"config\.json"):
        find_folder(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"model\.safetensors"):
        find_folder(str(tmp_path))
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(UserError, match=r"pytorch_model\.bin"):
        find_folder(str(tmp_path))
    (tmp_path / "config.json").write_text((bloom / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes((bloom / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(UserError, match=re.escape(str(tmp_path))):
        replace(Base.open(bloom, "cpu", "fp32"), folder=tmp_path).load()
    with pytest.raises(UserError, match=re.escape(str(tmp_path))):
        Base.open(tmp_path, "cpu", "fp32")


def test_precision_auto_depends_on_device_and_bitsandbytes(bloom, monkeypatch):
    def bits(device, precision, *, installed=True, bf16=True):
        monkeypatch.setattr(causal_run, "find_device", torch.device)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if installed else None)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **kwargs: bf16)
        return Base.open(bloom, device, precision).bits

    assert bits("cuda", "auto") == 4
    assert bits("cuda", "auto", installed=False) == 16
    assert bits("cuda", "auto", installed=False, bf16=False) == 32
    assert bits("cpu", "auto") == 32
    assert [bits("cpu", name) for name in ("4bit", "bf16", "fp32")] == [4, 16, 32]
