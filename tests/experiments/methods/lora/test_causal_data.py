"""Questions and answers of lora-causal: reading, splitting, encoding."""

import json

import pytest

from roberta_small.common.errors import UserError
from roberta_small.experiments.methods.lora.causal import Pair, read_pairs, split
from roberta_small.experiments.methods.lora.causal_run import (
    IGNORED,
    encode_pairs,
    load_tokenizer,
    prompt,
)
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


def test_invalid_utf8_is_an_error(tmp_path):
    (tmp_path / "faq.json").write_bytes('["é"]'.encode("latin-1"))
    with pytest.raises(UserError, match=r"faq\.json.*position 2"):
        read_pairs(tmp_path / "faq.json")


def test_the_split_is_seeded_and_keeps_equal_questions_together():
    pairs = [*PAIRS, Pair(PAIRS[0].question.upper(), "asked again")]
    train, valid = split(pairs, 0.25, seed=1)
    assert split(pairs, 0.25, seed=1) == (train, valid) != split(pairs, 0.25, seed=2)
    assert len(train) + len(valid) == len(pairs)
    assert not {p.question.casefold() for p in train} & {p.question.casefold() for p in valid}
    with pytest.raises(UserError, match=r"--valid-share 0 .*40 .*0 "):
        split(PAIRS, 0.0, seed=1)


@pytest.fixture
def encode(bloom):
    """Encode one pair."""
    tokenizer = load_tokenizer(bloom)

    def encode(max_length, *, answer_only):
        items = encode_pairs(PAIRS[:1], tokenizer=tokenizer, max_length=max_length, answer_only=answer_only)
        return items[0]["input_ids"], items[0]["labels"]

    encode.decode = tokenizer.decode
    return encode


def test_a_pair_becomes_a_text_with_an_end_token(encode):
    ids, labels = encode(512, answer_only=False)
    text = f"<human>: {PAIRS[0].question}  \n <assistant>: {PAIRS[0].answer}</s>"
    assert encode.decode(ids) == text
    assert ids == labels


def test_answer_only_excludes_the_prompt_from_the_loss(encode):
    ids, labels = encode(512, answer_only=True)
    begin = labels.count(IGNORED)
    assert encode.decode(labels[begin:]) == f" {PAIRS[0].answer}</s>"
    assert encode.decode(ids[:begin]) == prompt(PAIRS[0].question)


def test_long_pairs_are_truncated_and_long_questions_are_errors(encode):
    length = len(encode(512, answer_only=True)[0])
    assert [len(part) for part in encode(length - 3, answer_only=True)] == [length - 3, length - 3]
    with pytest.raises(UserError, match="--max-length 10"):
        encode(10, answer_only=True)
