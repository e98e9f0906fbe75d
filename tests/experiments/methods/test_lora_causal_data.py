"""causal_data.py and causal_model.py: pairs in, prompts and losses out."""

import json
import math

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
from experiments.methods.lora.sample import sample_pairs as sample_pairs
from experiments.methods.lora.sample import train_model, train_tokenizer

PAIRS = [Pair(**pair) for pair in sample_pairs()]


@pytest.fixture(scope="module")
def bloom(tmp_path_factory):
    """A BLOOM of a few updates with its tokenizer."""
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
    ("text", "complaint"),
    [
        ('{"questions": [{"question": "a?", "answer": "b"},', "line 1: not JSON"),
        ('{"faq": []}', "no pairs in it"),
        ("[]", "no pairs in it"),
        ('["a?"]', "entry 1: not an object"),
        ('[{"question": "a?", "answer": "b"}, {"question": "c?"}]', "entry 2: 'answer' is missing"),
        ('[{"question": " ", "answer": "b"}]', "entry 1: 'question' is missing, empty"),
        ('[{"question": "a?", "answer": 3}]', "entry 1: 'answer' is missing, empty or not a text"),
    ],
)
def test_a_malformed_file_is_named_with_the_entry(tmp_path, text, complaint):
    path = tmp_path / "faq.json"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"faq\.json.*{complaint}"):
        read_pairs(path)


def test_a_missing_file_and_one_that_is_not_utf8(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_pairs(tmp_path / "faq.json")
    (tmp_path / "faq.json").write_bytes('["é"]'.encode("latin-1"))
    with pytest.raises(UserError, match="byte 3 is not UTF-8"):
        read_pairs(tmp_path / "faq.json")


def test_the_split_is_seeded_whole_and_by_question():
    pairs = [*PAIRS, Pair(PAIRS[0].question.upper(), "asked again")]
    train, valid = split(pairs, 0.25, seed=1)
    assert split(pairs, 0.25, seed=1) == (train, valid) != split(pairs, 0.25, seed=2)
    assert len(train) + len(valid) == len(pairs)
    assert not {p.question.casefold() for p in train} & {p.question.casefold() for p in valid}
    with pytest.raises(UserError, match="leaves 40 to train on and 0"):
        split(PAIRS, 0.0, seed=1)


def test_a_pair_becomes_the_reports_text_with_an_end(bloom):
    tokenizer = load_tokenizer(bloom)
    item = PairDataset(PAIRS[:1], tokenizer, 512, answer_only=False)[0]
    text = f"<human>: {PAIRS[0].question}  \n <assistant>: {PAIRS[0].answer}</s>"
    assert tokenizer.decode(item["input_ids"]) == text
    assert torch.equal(item["input_ids"], item["labels"])


def test_answer_only_leaves_the_prompt_out_of_the_loss(bloom):
    tokenizer = load_tokenizer(bloom)
    item = PairDataset(PAIRS[:1], tokenizer, 512, answer_only=True)[0]
    counted = item["labels"] != IGNORED
    assert tokenizer.decode(item["labels"][counted]) == f" {PAIRS[0].answer}</s>"
    assert tokenizer.decode(item["input_ids"][~counted]) == prompt(PAIRS[0].question)


def test_long_pairs_are_cut_and_long_questions_refused(bloom):
    tokenizer = load_tokenizer(bloom)
    length = len(PairDataset(PAIRS[:1], tokenizer, 512, answer_only=True)[0]["input_ids"])
    assert len(PairDataset(PAIRS[:1], tokenizer, length - 3, answer_only=True)[0]["input_ids"]) == length - 3
    with pytest.raises(UserError, match="leaves none of --max-length 10"):
        PairDataset(PAIRS[:1], tokenizer, 10, answer_only=True)


def test_bits_per_token_are_transformers_own_loss(bloom):
    tokenizer, model = load_tokenizer(bloom), load_model(bloom, Loading(32, ""), torch.device("cpu"))
    pairs = PairDataset(PAIRS[:5], tokenizer, 512, answer_only=True)
    nats = tokens = 0
    for item in pairs:
        counted = int((item["labels"][1:] != IGNORED).sum())
        loss = model(input_ids=item["input_ids"][None], labels=item["labels"][None]).loss
        nats, tokens = nats + float(loss) * counted, tokens + counted
    found = bits_per_token(model, pairs, tokenizer.pad_token_id, batch_size=3)
    assert found == pytest.approx(nats / tokens / math.log(2), rel=1e-5)


def test_padding_is_masked_and_not_counted():
    short, long = ({"input_ids": torch.arange(n), "labels": torch.arange(n)} for n in (2, 4))
    batch = PadPairs(9)([short, long])
    assert batch["input_ids"].tolist() == [[0, 1, 9, 9], [0, 1, 2, 3]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert batch["labels"].tolist() == [[0, 1, IGNORED, IGNORED], [0, 1, 2, 3]]


def test_models_are_folders_with_safetensors(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="no config"):
        find_folder(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="no weights"):
        find_folder(str(tmp_path))
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(UserError, match=r"only pytorch_model\.bin, which could run any program"):
        find_folder(str(tmp_path))
    with pytest.raises(UserError, match="no such folder"):
        find_folder("no/such/folder/at/all")


def test_damaged_weights_and_other_models_are_clear_errors(tmp_path, bloom):
    (tmp_path / "config.json").write_text((bloom / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes((bloom / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(UserError, match="not a causal language model"):
        load_model(tmp_path, Loading(32, ""), torch.device("cpu"))
    with pytest.raises(UserError, match="no tokenizer"):
        load_tokenizer(tmp_path)


def test_four_bits_where_they_are_possible(monkeypatch):
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert choose_loading(gpu, "auto").bits == 4
    assert choose_loading(cpu, "auto") == Loading(32, "4 bits need a GPU")
    assert (choose_loading(gpu, "bf16").bits, choose_loading(gpu, "fp32").bits) == (16, 32)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert choose_loading(gpu, "auto") == Loading(32, "4 bits need bitsandbytes, which is not installed")
