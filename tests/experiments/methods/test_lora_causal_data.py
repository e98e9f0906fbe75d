"""Questions and answers for lora-causal, and its model: reading, encoding, perplexity, loading."""

import json
import math
import re

import pytest
import torch

from common.errors import UserError
from experiments.methods.lora.causal.data import (
    IGNORED,
    PadPairs,
    Pair,
    PairDataset,
    prompt,
    read_pairs,
    split,
)
from experiments.methods.lora.causal.model import (
    Loading,
    bits_per_token,
    choose_loading,
    find_folder,
    load_model,
    load_tokenizer,
)
from experiments.methods.lora.sample import sample_pairs, train_model, train_tokenizer

PAIRS = [Pair(**pair) for pair in sample_pairs()]


@pytest.fixture(scope="module")
def bloom(tmp_path_factory):
    """A BLOOM trained for three updates, with its tokenizer."""
    folder = tmp_path_factory.mktemp("bloom")
    tokenizer = train_tokenizer([text for pair in sample_pairs() for text in pair.values()])
    train_model(tokenizer, [pair.answer for pair in PAIRS], updates=3).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


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
    ],
)
def test_a_malformed_file_is_an_error_that_names_the_entry(tmp_path, text, fact):
    path = tmp_path / "faq.json"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"faq\.json.*{fact}"):
        read_pairs(path)


def test_a_missing_file_and_invalid_utf8_are_errors(tmp_path):
    with pytest.raises(UserError, match=r"faq\.json"):
        read_pairs(tmp_path / "faq.json")
    (tmp_path / "faq.json").write_bytes('["é"]'.encode("latin-1"))
    with pytest.raises(UserError, match=r"faq\.json.*byte 3"):
        read_pairs(tmp_path / "faq.json")


def test_the_split_is_seeded_and_keeps_equal_questions_together():
    pairs = [*PAIRS, Pair(PAIRS[0].question.upper(), "asked again")]
    train, valid = split(pairs, 0.25, seed=1)
    assert split(pairs, 0.25, seed=1) == (train, valid) != split(pairs, 0.25, seed=2)
    assert len(train) + len(valid) == len(pairs)
    assert not {p.question.casefold() for p in train} & {p.question.casefold() for p in valid}
    with pytest.raises(UserError, match=r"--valid-share 0 .*40 .*0 "):
        split(PAIRS, 0.0, seed=1)


def test_a_pair_becomes_a_text_with_an_end_token(bloom):
    tokenizer = load_tokenizer(bloom)
    item = PairDataset(PAIRS[:1], tokenizer, 512, answer_only=False)[0]
    text = f"<human>: {PAIRS[0].question}  \n <assistant>: {PAIRS[0].answer}</s>"
    assert tokenizer.decode(item["input_ids"]) == text
    assert torch.equal(item["input_ids"], item["labels"])


def test_answer_only_excludes_the_prompt_from_the_loss(bloom):
    tokenizer = load_tokenizer(bloom)
    item = PairDataset(PAIRS[:1], tokenizer, 512, answer_only=True)[0]
    counted = item["labels"] != IGNORED
    assert tokenizer.decode(item["labels"][counted]) == f" {PAIRS[0].answer}</s>"
    assert tokenizer.decode(item["input_ids"][~counted]) == prompt(PAIRS[0].question)


def test_long_pairs_are_truncated_and_long_questions_are_errors(bloom):
    tokenizer = load_tokenizer(bloom)
    length = len(PairDataset(PAIRS[:1], tokenizer, 512, answer_only=True)[0]["input_ids"])
    assert len(PairDataset(PAIRS[:1], tokenizer, length - 3, answer_only=True)[0]["input_ids"]) == length - 3
    with pytest.raises(UserError, match="--max-length 10"):
        PairDataset(PAIRS[:1], tokenizer, 10, answer_only=True)


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


def test_padding_is_masked_and_has_no_loss():
    short, long = ({"input_ids": torch.arange(n), "labels": torch.arange(n)} for n in (2, 4))
    batch = PadPairs(9)([short, long])
    assert batch["input_ids"].tolist() == [[0, 1, 9, 9], [0, 1, 2, 3]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert batch["labels"].tolist() == [[0, 1, IGNORED, IGNORED], [0, 1, 2, 3]]


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
