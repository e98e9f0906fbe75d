"""transformers_encoder.py: ids against the tokenizer itself, and the names of special tokens as text."""

import io
import sys
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, FlaubertTokenizer, PhobertTokenizer, PreTrainedTokenizerFast

from roberta_small.common.errors import UserError
from roberta_small.preprocess.dictionary import EOS, MASK, PAD, UNK
from roberta_small.preprocess.tokenization.transformers_encoder import TransformersEncoder
from tests.support import tiny_tokenizers
from tests.support.encoded import keeps_ids, rows

WITH_OFFSETS = tiny_tokenizers.FAMILIES | {"bert": tiny_tokenizers.bert}
FAMILIES = WITH_OFFSETS | {"flaubert": tiny_tokenizers.flaubert}
PARTS = ["le livre", "été", " ", "</s", ">", "<", "[", "SEP]", "mas", "漢字", "🙂", "l'auteur", "\t", "bon"]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    return {name: TransformersEncoder(str(make(folder / name))) for name, make in FAMILIES.items()}


def own_ids(encoder, row):
    return [int(encoder.order[i]) for i in row]


@pytest.mark.parametrize("family", FAMILIES)
@given(text=st.lists(st.sampled_from(PARTS), max_size=12).map("".join))
def test_ids_of_any_text_without_names_of_special_tokens_are_those_of_the_tokenizer(family, text, encoders):
    encoder = encoders[family]
    if any(name in text for name in encoder.tokenizer.all_special_tokens):
        return
    (row,) = rows(encoder, [text])
    assert own_ids(encoder, [encoder.init_token, *row]) == encoder.tokenizer(text)["input_ids"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_name_of_a_special_token_in_a_text_is_text(family, encoders):
    encoder = encoders[family]
    specials = set(encoder.tokenizer.all_special_ids) - {encoder.tokenizer.unk_token_id}
    names = encoder.tokenizer.all_special_tokens
    lines = ["le livre", *(f"le {name} livre {name}" for name in names), "bon"]
    found = rows(encoder, lines)
    for name, row in zip(names, found[1:-1], strict=True):
        assert row[-1] == encoder.separator_token
        assert not specials & set(own_ids(encoder, row[:-1]))
        # More than a name of one token would give: it is split into parts, or unknown to a tiny vocabulary.
        assert len(row) > len(found[0]), name
    assert [found[0], found[-1]] == rows(encoder, ["le livre", "bon"])


def test_bytes_of_a_special_name_are_kept_by_a_byte_level_tokenizer(encoders):
    encoder = encoders["roberta"]
    (row,) = rows(encoder, ["un </s> <mask> livre"])
    assert encoder.tokenizer.decode(own_ids(encoder, row[:-1])) == "un </s> <mask> livre"


@pytest.mark.parametrize("family", WITH_OFFSETS)
@pytest.mark.parametrize(
    "text",
    [
        "le livre, n'est pas  très bon !",
        "L'été, j'adore 漢字 🙂.",
        " déçu",
        "",
        "le [SEP] livre </s> <unk> <mask>",
    ],
)
def test_the_written_tokens_are_the_words_of_the_text(family, text, encoders):
    encoder = encoders[family]
    written = encoder.written(text)
    (row,) = rows(encoder, [text])
    assert len(written) == len(row) - 1
    assert "".join(written).replace("▁", " ").split() == text.split()


def test_a_packed_tokenizer_that_is_corrupt_names_its_file(encoders):
    content = encoders["bert"].packed()
    assert rows(TransformersEncoder.unpacked(content, "a.onnx"), ["le livre"]) == rows(
        encoders["bert"], ["le livre"]
    )
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    for broken in (content[:-40], empty.getvalue()):
        with pytest.raises(UserError, match=r"^a\.onnx: "):
            TransformersEncoder.unpacked(broken, "a.onnx")


def test_the_written_tokens_of_a_tokenizer_without_offsets(tmp_path):
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = [*(f"{letter}@@" for letter in letters), *letters, "li@@", "vre"]
    (tmp_path / "vocab.txt").write_text("".join(f"{token} 1\n" for token in tokens))
    (tmp_path / "bpe.codes").write_text("l i 9\nr e</w> 8\nv re</w> 7\n")
    made = PhobertTokenizer(str(tmp_path / "vocab.txt"), str(tmp_path / "bpe.codes"))
    made.save_pretrained(tmp_path / "saved")
    encoder = TransformersEncoder(str(tmp_path / "saved"))
    assert not encoder.tokenizer.is_fast
    written = encoder.written("un livre")
    assert len(written) == len(rows(encoder, ["un livre"])[0]) - 1
    assert [token.startswith("▁") for token in written] == [True, False, True, False]
    assert [token.strip("▁@") for token in written] == ["u", "n", "li", "vre"]


@pytest.mark.parametrize("family", tiny_tokenizers.FAMILIES)
def test_the_tokenizers_of_robertas_keep_their_ids(family, encoders):
    assert keeps_ids(encoders[family])
    assert encoders[family].separates_pairs


def test_the_ids_of_bert_are_permuted(encoders):
    encoder = encoders["bert"]
    own = encoder.tokenizer
    assert not keeps_ids(encoder)
    assert not encoder.separates_pairs
    assert (encoder.init_token, encoder.separator_token) == (0, EOS)
    assert own_ids(encoder, [0, PAD, EOS, UNK]) == [
        own.cls_token_id, own.pad_token_id, own.sep_token_id, own.unk_token_id,
    ]  # fmt: skip
    assert sorted(encoder.order) == list(range(len(own)))
    assert own_ids(encoder, [encoder.dictionary.index[MASK]]) == [own.mask_token_id]
    vocabulary = own.get_vocab()
    for symbol, index in encoder.dictionary.index.items():
        if index > UNK and symbol != MASK:
            assert vocabulary[symbol] == encoder.order[index]


def test_a_tokenizer_without_separator_is_refused(tmp_path):
    folder = tiny_tokenizers.bert(tmp_path / "bert")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.sep_token = None
    tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(UserError, match="no sep_token"):
        TransformersEncoder(str(tmp_path / "other"))


def test_flaubert_begins_a_text_with_bos_though_its_cls_token_is_the_separator(encoders):
    encoder = encoders["flaubert"]
    own = encoder.tokenizer
    assert type(own) is FlaubertTokenizer
    assert (own.bos_token_id, own.cls_token_id, own.sep_token_id, own("")["input_ids"]) == (0, 1, 1, [0, 1])
    assert (encoder.init_token, encoder.separator_token) == (0, EOS)
    assert own_ids(encoder, [0, PAD, EOS, UNK]) == [0, own.pad_token_id, 1, own.unk_token_id]
    assert own_ids(encoder, [encoder.dictionary.index[MASK]]) == [own.mask_token_id]
    assert not encoder.separates_pairs
    first, second = rows(encoder, ["le livre", "un film"])
    assert own_ids(encoder, [encoder.init_token, *first, *second]) == own("le livre", "un film")["input_ids"]


def general(folder, template):
    """A tokenizer of words without a class of its own, whose template has the special tokens of a text."""
    special = {"bos_token": "<s>", "cls_token": "</s>", "sep_token": "</s>", "pad_token": "<pad>"}
    special |= {"unk_token": "<unk>", "mask_token": "<mask>", "eos_token": "</s>"}
    tokens = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", *tiny_tokenizers.WORDS]
    model = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="<unk>"))
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    if template:
        model.post_processor = processors.TemplateProcessing(
            single=f"{template} $A {template}",
            pair=f"{template} $A {template} $B {template}",
            special_tokens=[(template, tokens.index(template))],
        )
    PreTrainedTokenizerFast(tokenizer_object=model, **special).save_pretrained(folder)
    return str(folder)


def test_a_tokenizer_may_begin_a_text_with_its_separator(tmp_path):
    encoder = TransformersEncoder(general(tmp_path / "xlm", "</s>"))
    assert (encoder.init_token, encoder.separator_token) == (EOS, EOS)
    assert not encoder.separates_pairs
    (row,) = rows(encoder, ["le livre"])
    assert own_ids(encoder, [encoder.init_token, *row]) == encoder.tokenizer("le livre")["input_ids"]


def test_a_tokenizer_that_adds_nothing_to_a_text_is_refused(tmp_path):
    with pytest.raises(UserError, match="adds 0 special tokens"):
        TransformersEncoder(general(tmp_path / "plain", None))


def test_the_package_that_flauberts_tokenizer_needs_is_named(tmp_path, monkeypatch):
    folder = tiny_tokenizers.flaubert(tmp_path / "flaubert")
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(UserError, match="pip install sacremoses"):
        TransformersEncoder(str(folder))
