"""choice.py: ids of each kind of tokenizer against the tokenizer itself."""

import json
import shutil
from pathlib import Path

import pytest
import sentencepiece
from fairseq.data import Dictionary
from transformers import AutoTokenizer

from roberta_small.common.errors import UserError
from roberta_small.experiments.inputs.prepare import _content
from roberta_small.preprocess import dataset
from roberta_small.preprocess.tokenization.choice import (
    MODEL,
    TokenizerOptions,
    carried_size,
    choose,
    is_hub_name,
    locate,
)
from roberta_small.preprocess.tokenization.encoder import parse_model
from roberta_small.preprocess.tokenization.transformers_encoder import TransformersEncoder
from tests.support import tiny_tokenizers
from tests.support.encoded import rows

TEXTS = ["le livre n'est pas bon", "", "  été   très captivant ! 漢字 🙂", "l'auteur <b> 5 < 6", "bon" * 40]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Makes the tokenizer of a family once; tests do not change its folder."""
    root = tmp_path_factory.mktemp("made")
    families = tiny_tokenizers.FAMILIES | {"bert": tiny_tokenizers.bert, "flaubert": tiny_tokenizers.flaubert}

    def make(family, fast=True):
        folder = root / f"{family}-{'fast' if fast else 'slow'}"
        return folder if folder.exists() else families[family](folder, fast=fast)

    return make


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "train.input0"
    path.write_text("".join(f"{line}\n" for line in [*TEXTS, *tiny_tokenizers.lines()]), encoding="utf-8")
    return path


def chosen_for(name, text):
    return choose(TokenizerOptions(tokenizer=str(name)), [text])


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
@pytest.mark.parametrize("family", tiny_tokenizers.FAMILIES)
def test_ids_are_those_of_the_transformers_tokenizer(family, fast, made, text):
    folder = made(family, fast)
    chosen = chosen_for(folder, text)
    reference = AutoTokenizer.from_pretrained(folder)
    for line, row in zip(TEXTS, rows(chosen.encoder, TEXTS), strict=True):
        assert [chosen.init_token, *row] == reference(line)["input_ids"]
    a, b = rows(chosen.encoder, [TEXTS[0], TEXTS[2]])
    assert [chosen.init_token, *a, chosen.separator_token, *b] == reference(TEXTS[0], TEXTS[2])["input_ids"]


SLOW = {
    "bert": ["vocab.txt"],
    "roberta": ["merges.txt", "vocab.json"],
    "flaubert": ["merges.txt", "vocab.json"],
    "xlm-roberta": [MODEL],
    "camembert": [MODEL],
}
"""Family -> the files of its vocabulary."""


def names(located):
    return sorted(Path(file).name for file in located.files)


@pytest.mark.parametrize("family", SLOW)
def test_a_folder_of_a_model_needs_only_the_vocabulary_of_its_tokenizer(family, made, tmp_path, text):
    folder = shutil.copytree(made(family, fast=False), tmp_path / family)
    assert names(locate(str(folder))) == sorted([*SLOW[family], "tokenizer_config.json"])
    wanted = [TransformersEncoder(str(folder)).tokenizer(line)["input_ids"] for line in TEXTS]
    (folder / "tokenizer_config.json").unlink()
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    assert names(locate(str(folder))) == SLOW[family]
    chosen = chosen_for(folder, text)
    for row, ids in zip(rows(chosen.encoder, TEXTS), wanted, strict=True):
        assert [chosen.encoder.order[i] for i in [chosen.init_token, *row]] == ids


def test_a_vocabulary_without_the_configuration_of_a_model_is_no_tokenizer(tmp_path):
    (tmp_path / "vocab.txt").write_text("le\nlivre\n")
    with pytest.raises(UserError, match="no tokenizer in this folder"):
        locate(str(tmp_path))
    (tmp_path / "dict.txt").write_text("A 1\nC 1\n")
    assert locate(str(tmp_path)).symbols == "characters"


@pytest.mark.parametrize("family", SLOW)
def test_another_vocabulary_is_another_request_and_another_tokenizer(family, made, tmp_path):
    folder, data = shutil.copytree(made(family, fast=False), tmp_path / "one"), tmp_path / "reviews.csv"
    tiny_tokenizers.write_csv(data, ("bad", "good"))
    request = dataset.Options(train=(str(data),), tokenizer=str(folder)).request()
    content = _content(locate(str(folder)))
    shutil.copytree(folder, tmp_path / "two")
    assert _content(locate(str(tmp_path / "two"))) == content
    for name in SLOW[family]:
        path = folder / name
        before = path.read_bytes()
        path.write_bytes(before + b"x\n")
        changed = dataset.Options(train=(str(data),), tokenizer=str(folder)).request()
        assert changed["sha256"] != request["sha256"]
        assert _content(locate(str(folder))) != content
        path.write_bytes(before)


@pytest.mark.parametrize("family", tiny_tokenizers.FAMILIES)
def test_fairseq_reads_the_dictionary_with_the_same_ids(family, made, tmp_path, text):
    folder = made(family)
    chosen = chosen_for(folder, text)
    (tmp_path / "dict.txt").write_text(chosen.encoder.dictionary.text(), encoding="utf-8")
    dictionary = Dictionary.load(str(tmp_path / "dict.txt"))
    vocabulary = AutoTokenizer.from_pretrained(folder).get_vocab()
    assert len(dictionary) == len(vocabulary)
    assert dictionary.add_symbol("<mask>") == vocabulary["<mask>"]
    assert all(dictionary.symbols[index] == token for token, index in vocabulary.items() if index > 3)


@pytest.mark.parametrize("family", tiny_tokenizers.FAMILIES)
def test_a_saved_transformers_tokenizer_gives_the_same_ids(family, made, tmp_path, text):
    chosen = chosen_for(made(family), text)
    chosen.save(tmp_path / "saved")
    again = chosen_for(tmp_path / "saved", text)
    assert rows(again.encoder, TEXTS) == rows(chosen.encoder, TEXTS)
    assert again.describe() == chosen.describe()


def test_a_sentencepiece_model_keeps_all_its_tokens(made, text):
    folder = made("xlm-roberta")
    chosen = chosen_for(folder / MODEL, text)
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / MODEL))
    symbols = chosen.encoder.dictionary.symbols
    assert sorted(symbols[4:]) == sorted(model.id_to_piece(i) for i in range(3, len(model)))
    for line, row in zip(TEXTS[:1], rows(chosen.encoder, TEXTS[:1]), strict=True):
        assert [symbols[i] for i in row] == [*model.encode(line, out_type=str), "</s>"]


def test_a_trained_tokenizer_fits_the_text(text):
    chosen = chosen_for("train", text)
    assert len(parse_model(chosen.model, "trained")) > 30
    assert 30 < len(chosen.encoder.dictionary) < carried_size([str(text)])
    found = rows(chosen.encoder, tiny_tokenizers.lines())
    assert 3 not in {i for row in found for i in row}  # no unknown tokens


@pytest.mark.parametrize(("words", "size"), [(10, 500), (2_600, 1000), (100_000, 16_000)])
def test_the_size_of_a_trained_tokenizer_follows_the_words(tmp_path, words, size):
    (tmp_path / "text").write_text(" ".join(f"w{i}" for i in range(words)) + "\n")
    assert carried_size([str(tmp_path / "text")]) == size


def test_folders_name_their_tokenizer(tmp_path):
    folder = tiny_tokenizers.xlm_roberta(tmp_path / "exported")
    assert locate(str(folder)).transformers == str(folder)
    (folder / "dict.txt").write_text("a 1\n")
    assert locate(str(folder)).transformers == str(folder)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BartphoTokenizer"}')
    assert locate(str(folder)).model == folder / MODEL
    (folder / "tokenizer_config.json").unlink()
    assert locate(str(folder)).model == folder / MODEL
    converted = tmp_path / "converted"
    tiny_tokenizers.camembert(converted / "tokenizer")
    (converted / "dict.txt").write_text("a 1\n")
    assert locate(str(converted)).transformers == str(converted / "tokenizer")
    data = tmp_path / "data"
    (data / "tokenizer").mkdir(parents=True)
    (data / "preprocess.json").write_text(json.dumps({"tokenizer": {"kind": "transformers"}}))
    assert locate(str(data)).transformers == str(data / "tokenizer")


def test_names_that_may_be_on_the_hub():
    assert all(map(is_hub_name, ("camembert-base", "almanach/camembert-base", "roberta-v1.5")))
    paths = ("./camembert-base", "~/model", "a/b/c", "model.pt", "tokenizer.model", "my folder")
    assert not any(map(is_hub_name, paths))


@pytest.mark.parametrize(
    ("name", "named"), [("empty", "empty"), ("missing.model", "missing.model"), ("weights", "dict.txt")]
)
def test_what_is_no_tokenizer_is_refused(tmp_path, monkeypatch, text, name, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/dict.txt").write_text("ab 1\n")
    with pytest.raises(UserError) as error:
        chosen_for(name, text)
    assert named in str(error.value)
