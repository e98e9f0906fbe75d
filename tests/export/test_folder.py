"""The tokenizer of a from_pretrained folder against SentencePiece and fairseq."""

import numpy as np
import pytest
import sentencepiece
from transformers import AutoTokenizer, BartphoTokenizer, RobertaConfig

from roberta_small.common.errors import UserError
from roberta_small.export.transformers.folder import TextFormat, write_tokenizer
from tests.support.exported_runs import SpmThenFairseq
from tests.support.tiny_runs import sentences

LONGEST = 24
ODD = [
    "",
    "   ",
    "un  livre   magnifique ",
    "Œuvre à 5 € — l’été…",
    "中文 и 😀😀 roman",
    "un <mask> livre </s> <s> <unk> <pad>",
    "roman\u0085 style\u2028ennui a\u0085b\u3000\t\x0b c",
    "ennui\nplaisir",
    "livre " * 60,
    "magnifique" * 30,
    "j’ai lu c’est",
]


@pytest.fixture(scope="module")
def texts():
    return [*ODD, *(text for text, _ in sentences(60, 7))]


@pytest.fixture(scope="module", params=["usual", "odd white space"])
def files(request, tmp_path_factory):
    """A SentencePiece model, and a dictionary without a third of its tokens."""
    root = tmp_path_factory.mktemp("tokenizer")
    odd = {
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "user_defined_symbols": ["\u0085", "\u2028"],
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for text, _ in sentences(200, 1)]),
        model_prefix=str(root / "spm"),
        vocab_size=60,
        minloglevel=2,
        **(odd if request.param != "usual" else {}),
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(root / "spm.model"))
    tokens = [model.id_to_piece(i) for i in range(3, len(model))]
    kept = [token for i, token in enumerate(tokens) if i % 3 and token.split() == [token]]
    (root / "dict.txt").write_text("".join(f"{token} 1\n" for token in reversed(kept)), encoding="utf-8")
    return root / "spm.model", root / "dict.txt"


def written(folder, files, **options):
    folder.mkdir()
    return write_tokenizer(folder, *files, TextFormat(LONGEST, **options))


@pytest.mark.parametrize("keep_eos", [False, True])
@pytest.mark.parametrize("pairs", [False, True], ids=["sentence", "pair"])
def test_ids_equal_those_of_training(tmp_path, files, texts, keep_eos, pairs):
    tokenizer = written(tmp_path / "folder", files, keep_eos=keep_eos)
    reference = SpmThenFairseq(*files, longest=LONGEST, keep_eos=keep_eos)
    truncated = unknown = 0
    for text, other in zip(texts, reversed(texts), strict=True):
        parts = [part.replace("\n", " ") for part in ((text, other) if pairs else (text,))]
        wanted = reference(*parts)
        assert tokenizer(*parts, truncation=True)["input_ids"] == wanted, text
        truncated += len(wanted) == LONGEST
        unknown += 3 in wanted
    assert truncated > 2
    assert unknown > 5


def test_without_trusted_code_only_the_end_of_truncated_texts_differs(tmp_path, files, texts):
    tokenizer = written(tmp_path / "folder", files)
    RobertaConfig(vocab_size=60).save_pretrained(tmp_path / "folder")
    plain = AutoTokenizer.from_pretrained(tmp_path / "folder")
    assert type(plain) is BartphoTokenizer
    cut = 0
    for text in texts:
        if "\u0085" in text or "\n" in text:  # fairseq drops what Python treats as white space
            continue
        wanted, found = (each(text, truncation=True)["input_ids"] for each in (tokenizer, plain))
        if len(tokenizer(text)["input_ids"]) > LONGEST:
            cut += 1
            assert found[:-1] == wanted[:-1]
            assert found[-1] == 2
        else:
            assert found == wanted
    assert cut > 1


def test_trusted_code_is_saved_with_the_folder(tmp_path, files, texts, own_modules_cache):
    tokenizer = written(tmp_path / "folder", files, keep_eos=True, normalize_apostrophes=True)
    RobertaConfig(vocab_size=60).save_pretrained(tmp_path / "folder")
    trusted = AutoTokenizer.from_pretrained(tmp_path / "folder", trust_remote_code=True)
    trusted.save_pretrained(tmp_path / "again")
    again = AutoTokenizer.from_pretrained(tmp_path / "again", trust_remote_code=True)
    assert type(trusted).__name__ == type(again).__name__ == "PieceTokenizer"
    for text in texts:
        wanted = tokenizer(text, truncation=True)["input_ids"]
        assert trusted(text, truncation=True)["input_ids"] == wanted
        assert again(text, truncation=True)["input_ids"] == wanted


def test_special_tokens_in_a_text_are_ordinary_text_by_default(tmp_path, files):
    text = "un <mask> livre"
    plain = written(tmp_path / "plain", files)
    assert plain.mask_token_id not in plain(text)["input_ids"]
    masked = written(tmp_path / "masked", files, plain_text=False)
    assert masked(text)["input_ids"].count(masked.mask_token_id) == 1
    assert masked.mask_token_id == len(masked) - 1


@pytest.mark.parametrize("keep_eos", [False, True])
@pytest.mark.parametrize("stride", [0, 5])
def test_overflowing_tokens_are_those_that_do_not_fit(tmp_path, files, keep_eos, stride):
    tokenizer = written(tmp_path / "folder", files, keep_eos=keep_eos)
    text, whole = "livre " * 60, tokenizer("livre " * 60)["input_ids"]
    found = tokenizer(
        text, truncation=True, stride=stride, return_overflowing_tokens=True, return_special_tokens_mask=True
    )
    assert found["special_tokens_mask"] == [1, *[0] * (LONGEST - 2), int(keep_eos)]
    kept = found["input_ids"][1 : LONGEST - keep_eos]
    assert kept[: len(kept) - stride] + found["overflowing_tokens"] == whole[1:-1]
    assert found["num_truncated_tokens"] == len(whole) - LONGEST
    assert "overflowing_tokens" not in tokenizer("un", truncation=True, return_overflowing_tokens=True)
    batch = tokenizer([text, "un"], truncation=True, padding=True, return_tensors="np")
    assert batch["input_ids"].shape == (2, LONGEST)
    assert np.array_equal(batch["attention_mask"], batch["input_ids"] != 1)
    with pytest.raises(ValueError, match="return_overflowing_tokens"):
        tokenizer(text, text, truncation="only_second", return_overflowing_tokens=True)


def test_offsets_are_an_error(tmp_path, files):
    tokenizer = written(tmp_path / "folder", files)
    for texts in ("un livre", ["un livre", "un"]):
        with pytest.raises(NotImplementedError, match="return_offsets_mapping"):
            tokenizer(texts, return_offsets_mapping=True)


def test_a_dictionary_with_duplicates_is_an_error(tmp_path, files):
    model, dictionary = files
    lines = dictionary.read_text(encoding="utf-8").splitlines()
    lines.insert(3, f"{lines[0]} #fairseq:overwrite")
    (tmp_path / "dict.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"dict\.txt: '.*' .* \d+ in fairseq"):
        written(tmp_path / "folder", (model, tmp_path / "dict.txt"))
