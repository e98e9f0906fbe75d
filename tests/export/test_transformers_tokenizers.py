"""`export transformers` of runs on data with a tokenizer of RoBERTa, CamemBERT or XLM-R."""

import shutil

import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from roberta_small.common.errors import UserError
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.model import open_model
from roberta_small.export.transformers.to_fairseq import convert_back
from roberta_small.export.transformers.to_transformers import convert
from roberta_small.preprocess.__main__ import main as preprocess
from tests.support import tiny_tokenizers
from tests.support.tiny_runs import make_run

IDS = {"roberta": (0, 2), "camembert": (5, 6), "xlm-roberta": (0, 2)}


def trained(folder, family, *flags, pairs=False, options=()):
    """A run on data with the tokenizer of a family."""
    tokenizer = tiny_tokenizers.FAMILIES[family](folder / "tokenizer")
    tiny_tokenizers.write_csv(folder / "reviews.csv", ("bad", "good"), pairs)
    words = [str(folder / "reviews.csv"), "--tokenizer", str(tokenizer), "--text-column", "text", *options]
    words += ["--pair-column", "text2"] if pairs else []
    assert preprocess(["prepare", *words, "--out", str(folder / "data")]) == 0
    init, separator = map(str, IDS[family])
    special = ["--init-token", init, "--separator-token", separator]
    make_run(folder / "data", folder / "run", *special, *flags, updates=1)
    return folder / "run"


@pytest.mark.parametrize(
    ("family", "flags", "pairs"),
    [("camembert", [], False), ("xlm-roberta", ["--keep-eos"], False), ("roberta", [], True)],
    ids=["camembert", "xlm-roberta", "roberta-pairs"],
)
def test_model_and_tokenizer_equal_those_of_training(tmp_path, family, flags, pairs):
    run = trained(tmp_path, family, *flags, pairs=pairs)
    found = convert(run, tmp_path / "folder")
    assert found.texts == 60
    assert found.difference < 1e-5
    # The long text is truncated; Transformers ends it in </s>. Pairs are truncated alike.
    assert found.standard == (60 if flags or pairs else 59)
    network = AutoModelForSequenceClassification.from_pretrained(tmp_path / "folder")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "folder")
    # Names of special tokens in a text are text, as in training.
    named = "un </s> livre <mask> bon <s>"
    named = (named, named) if pairs else named
    (wanted,) = open_model(run).text_input.encode([named]).rows
    assert tokenizer(*((named,) if isinstance(named, str) else named), truncation=True)["input_ids"] == [
        *wanted
    ]
    assert (tokenizer.cls_token_id, tokenizer.sep_token_id) == IDS[family]
    assert (network.config.bos_token_id, network.config.eos_token_id) == IDS[family]
    assert tokenizer.model_max_length == 32
    assert network.config.id2label in ({0: "bad", 1: "good"}, {0: "good", 1: "bad"})
    card = (tmp_path / "folder/README.md").read_text(encoding="utf-8")
    assert type(AutoTokenizer.from_pretrained(tmp_path / "tokenizer")).__name__ in card
    assert "trust_remote_code" not in card

    convert_back(tmp_path / "folder", tmp_path / "back/model.pt")
    texts = ["un livre pas bon", "", "été " * 50]
    if not pairs:
        wanted = SentenceClassifier.from_run(run).probabilities(texts)
        again = SentenceClassifier.from_run(tmp_path / "back/model.pt")
        assert again.probabilities(texts) == pytest.approx(wanted, abs=1e-6)


def test_normalized_apostrophes_are_an_error(tmp_path):
    run = trained(tmp_path, "camembert", options=["--normalize-apostrophes"])
    with pytest.raises(UserError, match="--normalize-apostrophes"):
        convert(run, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_other_special_tokens_and_a_tokenizer_with_another_dictionary_are_errors(tmp_path):
    run = trained(tmp_path, "xlm-roberta")
    make_run(tmp_path / "data", tmp_path / "other", "--init-token", "5")
    with pytest.raises(UserError, match="--init-token 5"):
        convert(tmp_path / "other", tmp_path / "folder")
    convert(run, tmp_path / "folder")
    convert_back(tmp_path / "folder", tmp_path / "back/model.pt")
    tokenizer = tmp_path / "back/tokenizer"
    assert open_model(tmp_path / "back/model.pt").tokenizer.transformers == str(tokenizer)
    shutil.rmtree(tokenizer)
    tiny_tokenizers.camembert(tokenizer)
    with pytest.raises(UserError, match=r"dict\.txt: "):
        SentenceClassifier.from_run(tmp_path / "back/model.pt")
