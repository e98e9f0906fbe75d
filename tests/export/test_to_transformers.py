"""`python -m export transformers`: a folder that equals fairseq in ids and logits, or an error."""

import json
import re
import shutil
import sys

import numpy as np
import pytest
import torch
from transformers import pipeline

from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from roberta_small.common.predictions import Prediction, write
from roberta_small.eval import SentenceClassifier
from roberta_small.export.__main__ import main
from roberta_small.export.transformers import to_transformers
from roberta_small.export.transformers.to_fairseq import convert_back
from roberta_small.export.transformers.to_transformers import convert
from roberta_small.preprocess.tokenization.choice import TokenizerOptions
from tests.support.exported_runs import dictionary_of, stock_model
from tests.support.tiny_runs import make_data, make_run

ROOT = __file__.rsplit("/tests/", 1)[0]


def test_pipeline_probabilities_equal_fairseqs(trained, classifier_folder, own_modules_cache):
    data, run = trained
    texts = (data.parent / "test.input0").read_text(encoding="utf-8").splitlines()
    texts.append("livre " * 80)  # truncated
    classify = pipeline(
        "text-classification", model=str(classifier_folder), trust_remote_code=True, top_k=None
    )
    found = [
        {score["label"]: score["score"] for score in scores} for scores in classify(texts, truncation=True)
    ]
    wanted = [prediction.probabilities for prediction in SentenceClassifier.from_run(run).predict(texts)]
    assert set(found[0]) == {"neg", "pos"}
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)
    assert np.std([scores["pos"] for scores in found]) > 1e-4


def test_fill_mask_probabilities_equal_fairseqs(masked_lm, masked_lm_folder, own_modules_cache):
    data, checkpoint = masked_lm
    fill = pipeline("fill-mask", model=str(masked_lm_folder), trust_remote_code=True, top_k=5)
    found = fill("un livre <mask> magnifique")
    ids = fill.tokenizer("un livre <mask> magnifique")["input_ids"]
    dictionary = dictionary_of(data / "dict.txt")
    assert ids.count(dictionary.index("<mask>")) == 1
    with torch.no_grad():
        scores_1LV, _ = stock_model(checkpoint, dictionary)(torch.tensor([ids]))
    probabilities_V = scores_1LV[0, ids.index(dictionary.index("<mask>"))].softmax(-1)
    for entry in found:
        assert entry["score"] == pytest.approx(float(probabilities_V[entry["token"]]), abs=1e-6)


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (["--keep-eos"], {}),
        (["--shorten-method", "none", "--max-positions", "256"], {}),
        ([], {"pairs": True}),
        ([], {"normalize_apostrophes": True}),
        (["--encoder", "padded", "--activation-fn", "gelu_accurate"], {}),
        (["--arch", "roberta_base", "--encoder-attention-heads", "4", "--layer-norm-eps", "0.01"], {}),
    ],
    ids=str,
)
def test_models_trained_with_other_flags_are_equal_after_export(trained, tmp_path, flags, options):
    run, data = tmp_path / "run", make_data(tmp_path / "data", **options) if options else trained[0]
    make_run(data, run, *flags, updates=1)
    verification = convert(run, tmp_path / "folder")
    assert verification.where == "train, valid, test"
    assert verification.texts == 83
    assert verification.difference < 1e-5
    if "normalize_apostrophes" in options:
        assert verification.standard == 0  # the tokenizer needs its own code
        convert_back(tmp_path / "folder", tmp_path / "back/model.pt")
        text = ["l’ennui de l’été", "l'ennui de l'été"]
        ours, theirs = (SentenceClassifier.from_run(path).predict(text) for path in (tmp_path / "back", run))
        assert ours[0].probabilities == ours[1].probabilities
        assert ours[0].probabilities == pytest.approx(theirs[0].probabilities, abs=1e-6)
        for proposed in (tmp_path / "back", tmp_path / "folder"):  # as messages do for --tokenizer
            recorded, _ = TokenizerOptions(tokenizer=str(proposed)).tokenizer_request()
            assert recorded["normalize_apostrophes"] is True
    elif flags == ["--keep-eos"] or "none" in flags or options.get("pairs"):
        assert verification.standard == 83
    else:
        assert 0 < verification.standard < 83  # all but truncated texts


def test_the_comparison_is_printed_and_the_model_card_describes_the_run(trained, tmp_path, capsys):
    run = shutil.copytree(trained[1], tmp_path / "run")
    predicted = [
        Prediction(i, "pos", {"neg": 0.4, "pos": 0.6} if i else {"neg": 0.9, "pos": 0.1}) for i in range(4)
    ]
    write(run / "predictions-test.jsonl", predicted)
    assert main(["transformers", str(run), "--out", str(tmp_path / "folder")]) == 0
    out = capsys.readouterr().out
    assert "83 of 83" in out
    assert "train, valid, test" in out
    card = (tmp_path / "folder/README.md").read_text(encoding="utf-8")
    facts = ("fairseq/random/seed1", "75.00 % of 4", "pipeline_tag: text-classification", "neg, pos")
    assert all(fact in card for fact in (*facts, "at most 32"))
    verification = json.loads((tmp_path / "folder/proof.json").read_text())
    assert (verification["texts"], verification["where"]) == (83, "train, valid, test")
    assert 0 <= verification["difference"] <= verification["tolerance"] == 1e-4
    assert verification["sha256"] == {
        "checkpoint": sha256(run / "checkpoint_best.pt"),
        "dictionary": sha256(trained[0] / "input0/dict.txt"),
        "sentencepiece_model": sha256(trained[0].parent / "spm.model"),
    }
    config = json.loads((tmp_path / "folder/config.json").read_text())
    assert config["id2label"] == {"0": "neg", "1": "pos"}
    assert not list(tmp_path.glob(".folder*"))


def test_without_raw_text_sample_sentences_are_compared(trained, tmp_path):
    data, run = trained
    checkpoint = shutil.copy(run / "checkpoint_best.pt", tmp_path / "alone.pt")
    files = {"dictionary": data / "input0/dict.txt", "sentencepiece_model": data.parent / "spm.model"}
    shutil.copytree(data, tmp_path / "data")
    shutil.rmtree(tmp_path / "data/label")
    (tmp_path / "data/preprocess.json").unlink()
    verification = convert(checkpoint, tmp_path / "folder", data=tmp_path / "data", **files)
    assert verification.where == "sample sentences"
    assert verification.texts > 100


def test_apostrophes_are_an_option_if_the_data_do_not_record_them(masked_lm, tmp_path, capsys, caplog):
    model = str(masked_lm[0].parent / "spm.model")
    state = torch.load(masked_lm[1], weights_only=False)
    state["cfg"]["task"]["data"] = str(tmp_path / "gone")
    torch.save(state, tmp_path / "model.pt")
    shutil.copy(masked_lm[1].with_name("dict.txt"), tmp_path)
    line = ["transformers", str(tmp_path / "model.pt"), "--sentencepiece-model", model]
    assert main([*line, "--out", str(tmp_path / "plain")]) == 0
    assert "preprocess.json" in caplog.text
    assert "--normalize-apostrophes" in caplog.text
    caplog.clear()
    assert main([*line, "--out", str(tmp_path / "normalized"), "--normalize-apostrophes"]) == 0
    assert not caplog.text
    settings = [
        json.loads((tmp_path / name / "tokenizer_config.json").read_text())
        for name in ("plain", "normalized")
    ]
    assert [one["normalize_apostrophes"] for one in settings] == [False, True]
    capsys.readouterr()
    line += ["--out", str(tmp_path / "other"), "--data", str(masked_lm[0]), "--normalize-apostrophes"]
    assert main(line) == 1
    assert re.search("--normalize-apostrophes: .*preprocess.json", capsys.readouterr().err)


def test_different_logits_are_an_error(trained, tmp_path, monkeypatch):
    def wrong(*arguments):
        model = right(*arguments)
        with torch.no_grad():
            model.roberta.encoder.layer[1].output.dense.bias[0] += 0.1
        return model

    right = to_transformers.converted
    monkeypatch.setattr(to_transformers, "converted", wrong)
    with pytest.raises(UserError, match=r"\.pt: .* \d\.\de[+-]\d+"):
        convert(trained[1], tmp_path / "folder")
    assert not list(tmp_path.iterdir())


def test_nan_logits_are_an_error(trained, tmp_path):
    run = shutil.copytree(trained[1], tmp_path / "run")
    state = torch.load(run / "checkpoint_best.pt", weights_only=False)
    state["model"]["encoder.sentence_encoder.layers.0.fc1.bias"][0] = float("nan")
    torch.save(state, run / "checkpoint_best.pt")
    with pytest.raises(UserError, match=r"checkpoint_best\.pt: .* nan"):
        convert(run, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_an_unsupported_lm_head_is_an_error(masked_lm, tmp_path):
    state = torch.load(masked_lm[1], weights_only=False)
    state["cfg"]["model"].activation_fn = "relu"
    torch.save(state, tmp_path / "model.pt")
    shutil.copy(masked_lm[1].with_name("dict.txt"), tmp_path)
    with pytest.raises(UserError, match=r"\.pt: .* \d\.\de[+-]\d+"):
        convert(tmp_path / "model.pt", tmp_path / "folder", data=masked_lm[0])
    assert not (tmp_path / "folder").exists()


def test_different_token_ids_are_an_error(trained, tmp_path, monkeypatch):
    def without_eos(self, ids, pair=None):
        return [self.cls_token_id, *ids]

    monkeypatch.setattr(
        "roberta_small.export.transformers.tokenization_pieces.PieceTokenizer.build_inputs_with_special_tokens",
        without_eos,
    )
    with pytest.raises(UserError, match=r"train, valid, test: .* token \d+ of ."):
        convert(trained[1], tmp_path / "folder")
    assert not list(tmp_path.iterdir())


def error_of(arguments, capsys):
    """The error message of the command for source, target and options."""
    source, target, *options = map(str, arguments)
    assert main(["transformers", source, "--out", target, *options]) == 1
    return capsys.readouterr().err.splitlines()[-1]


def test_an_existing_target_is_never_overwritten(trained, tmp_path, capsys):
    (tmp_path / "mine").write_text("precious")
    assert str(tmp_path / "mine") in error_of([trained[1], tmp_path / "mine"], capsys)
    assert str(tmp_path) in error_of([trained[1], tmp_path], capsys)
    assert (tmp_path / "mine").read_text() == "precious"


def test_missing_files_and_those_of_another_model_are_errors(trained, masked_lm, tmp_path, capsys):
    data, run = trained
    out = tmp_path / "folder"
    assert "none.pt: " in error_of([tmp_path / "none.pt", out], capsys)
    assert "none.model: " in error_of([run, out, "--sentencepiece-model", tmp_path / "none.model"], capsys)
    (tmp_path / "short.txt").write_text("▁un 1\n", encoding="utf-8")
    assert "--dict" in error_of([run, out, "--dict", tmp_path / "short.txt"], capsys)
    corpus, checkpoint = masked_lm
    own = [checkpoint, out, "--data", corpus, "--dict"]
    assert "short.txt: 6 " in error_of([*own, tmp_path / "short.txt"], capsys)
    # fairseq-preprocess pads a dictionary to a multiple of 8 entries, which count.
    padded = (corpus / "dict.txt").read_text(encoding="utf-8") + "madeupword0000 0\n"
    (tmp_path / "dict.txt").write_text(padded, encoding="utf-8")
    assert re.search(rf"{tmp_path}/dict\.txt: .*--dict", error_of([*own, tmp_path / "dict.txt"], capsys))
    assert "--sentencepiece-model" in error_of([checkpoint, out, "--data", data / "label"], capsys)
    assert not out.exists()


@pytest.mark.parametrize("flags", ["--keep-eos --separator-token 4", "--init-token 2"])
def test_other_special_tokens_are_an_error(trained, tmp_path, capsys, flags):
    make_run(trained[0], tmp_path / "run", *flags.split())
    message = error_of([tmp_path / "run", tmp_path / "folder"], capsys)
    assert flags.removeprefix("--keep-eos ") in message


def test_a_missing_package_is_an_error_that_names_it(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("roberta_small.export.transformers")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    message = error_of(["run", "folder"], capsys)
    assert "pip install transformers" in message
