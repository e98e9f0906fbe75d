"""Questions and answers of lora-causal: reading, splitting, encoding, padding."""

import json

import pytest
import torch

from roberta_small.common.errors import UserError
from roberta_small.experiments.methods.lora.causal.data import (
    IGNORED,
    PadPairs,
    Pair,
    PairDataset,
    prompt,
    read_pairs,
    split,
)
from roberta_small.experiments.methods.lora.causal.model import load_tokenizer
from roberta_small.experiments.methods.lora.sample import sample_pairs

PAIRS = [Pair(**pair) for pair in sample_pairs()]


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


def test_padding_is_masked_and_has_no_loss():
    short, long = ({"input_ids": torch.arange(n), "labels": torch.arange(n)} for n in (2, 4))
    batch = PadPairs(9)([short, long])
    assert batch["input_ids"].tolist() == [[0, 1, 9, 9], [0, 1, 2, 3]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert batch["labels"].tolist() == [[0, 1, IGNORED, IGNORED], [0, 1, 2, 3]]
