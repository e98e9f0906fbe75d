"""symbols.py: tokenizers made from a dictionary, against fairseq's dictionary and GPT-2's BPE."""

import json

import pytest
from fairseq.data import Dictionary
from tokenizers import ByteLevelBPETokenizer

from roberta_small.common.errors import UserError
from roberta_small.preprocess.tokenization.choice import Located, locate
from tests.support.encoded import keeps_ids, rows

LETTERS = "ACDEFGHIKLMNPQRSTVWY"


@pytest.fixture
def letters(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("".join(f"{letter} 1\n" for letter in LETTERS))
    return path


def test_one_character_a_token_as_fairseqs_dictionary_reads_them(letters):
    found = locate(str(letters.parent))
    assert (found.symbols, found.files) == ("characters", [str(letters)])
    encoder = found.transformers_encoder()
    dictionary = Dictionary.load(str(letters))
    lines = ["EVQLVESGG", "E V Q\tL", "", "EXB", "</s>"]
    for line, row in zip(lines, rows(encoder, lines), strict=True):
        wanted = dictionary.encode_line(" ".join("".join(line.split())), add_if_not_exist=False)
        assert row == wanted.tolist()
    assert encoder.dictionary.symbols == [*dictionary.symbols, "<mask>"]
    assert keeps_ids(encoder)
    assert encoder.separates_pairs


def test_tokenized_text_is_read_as_fairseq_reads_it(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("▁le 9\n▁livre 5\ns 4\nmadeupword0001 0\n", encoding="utf-8")
    encoder = locate("words", str(path)).transformers_encoder()
    dictionary = Dictionary.load(str(path))
    lines = ["▁le ▁livre s", "  s   s  ", "", "▁le ▁roman", "<mask> </s>"]
    for line, row in zip(lines, rows(encoder, lines), strict=True):
        wanted = dictionary.encode_line(line, add_if_not_exist=False).tolist()
        # The name of a special token is text here: two unknown tokens.
        assert row == ([3, 3, 3, 3, 2] if "mask" in line else wanted)


@pytest.fixture
def gpt2(tmp_path):
    """encoder.json, vocab.bpe and dict.txt as fairseq's roberta.base has them, but small."""
    model = ByteLevelBPETokenizer()
    model.train_from_iterator(["the book was good", "a very good book, indeed"] * 9, vocab_size=300)
    model.save_model(str(tmp_path))
    numbers = json.loads((tmp_path / "vocab.json").read_text())
    (tmp_path / "vocab.json").rename(tmp_path / "encoder.json")
    (tmp_path / "merges.txt").rename(tmp_path / "vocab.bpe")
    by_frequency = sorted(numbers.values(), key=lambda number: (number % 7, number))
    lines = [f"{number} 1\n" for number in by_frequency] + ["madeupword0000 0\n"]
    (tmp_path / "dict.txt").write_text("".join(lines))
    return tmp_path, model


def test_gpt2s_bpe_gives_the_numbers_of_the_dictionary(gpt2):
    folder, model = gpt2
    found = locate(str(folder))
    assert found.symbols == "bpe"
    assert len(found.files) == 3
    encoder = found.transformers_encoder()
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    lines = ["the good book", " a book", "", "été, 漢字 🙂", "x </s> <mask>"]
    for line, row in zip(lines, rows(encoder, lines), strict=True):
        numbers = " ".join(map(str, model.encode(line).ids))
        assert row == dictionary.encode_line(numbers, add_if_not_exist=False).tolist()
    assert encoder.dictionary.symbols == [*dictionary.symbols, "<mask>"]


def test_a_saved_tokenizer_has_the_same_ids_and_symbols(gpt2, tmp_path):
    encoder = locate(str(gpt2[0])).transformers_encoder()
    (tmp_path / "saved").mkdir()
    encoder.save(tmp_path / "saved")
    again = Located(transformers=str(tmp_path / "saved")).transformers_encoder()
    assert rows(again, ["the good book"]) == rows(encoder, ["the good book"])
    assert again.dictionary.symbols == encoder.dictionary.symbols
    path = tmp_path / "saved/fairseq_dict.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match=r"fairseq_dict\.txt: .* ids"):
        Located(transformers=str(tmp_path / "saved")).transformers_encoder()


def test_a_dictionary_of_another_bpe_is_an_error(gpt2):
    folder, _ = gpt2
    lines = (folder / "dict.txt").read_text().splitlines()
    (folder / "dict.txt").write_text("\n".join(lines[5:]) + "\n")
    with pytest.raises(UserError, match=r"dict\.txt: 5 of the .* encoder\.json are missing"):
        locate(str(folder)).transformers_encoder()


@pytest.mark.parametrize(
    ("name", "content"),
    [("encoder.json", b"[]"), ("encoder.json", b"{"), ("vocab.bpe", b"t\xff h\n"), ("vocab.bpe", b"the\n")],
)
def test_malformed_files_of_gpt2_are_errors(gpt2, name, content):
    folder, _ = gpt2
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        locate(str(folder)).transformers_encoder()


def test_words_need_a_dictionary():
    with pytest.raises(UserError, match="--dict"):
        locate("words")
