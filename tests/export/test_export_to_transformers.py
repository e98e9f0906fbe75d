"""The command `convert`: folders that are proved, or nothing (to_transformers.py, proof.py, card.py)."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from exported_runs import dictionary_of, make_masked_lm, stock_model, train_classifier
from transformers import AutoModelForSequenceClassification, pipeline

from common.errors import UserError
from common.files import sha256
from common.predictions import Prediction, write
from eval import SentenceClassifier
from export.__main__ import main
from export.transformers import to_transformers
from export.transformers.to_transformers import convert

ROOT = __file__.rsplit("/tests/", 1)[0]


def test_pipeline_answers_as_fairseq_does(trained, classifier_folder, own_modules_cache):
    data, run = trained
    texts = (data.parent / "test.input0").read_text(encoding="utf-8").splitlines()
    texts.append("livre " * 80)  # cut
    classify = pipeline(
        "text-classification", model=str(classifier_folder), trust_remote_code=True, top_k=None
    )
    found = [
        {answer["label"]: answer["score"] for answer in answers}
        for answers in classify(texts, truncation=True)
    ]
    wanted = [prediction.probabilities for prediction in SentenceClassifier.from_run(run).predict(texts)]
    assert set(found[0]) == {"neg", "pos"}
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)
    assert np.std([answer["pos"] for answer in found]) > 1e-4


def test_fill_mask_answers_as_fairseq_does(masked_lm, masked_lm_folder, own_modules_cache):
    data, checkpoint = masked_lm
    fill = pipeline("fill-mask", model=str(masked_lm_folder), trust_remote_code=True, top_k=5)
    found = fill("un livre <mask> magnifique")
    ids = fill.tokenizer("un livre <mask> magnifique")["input_ids"]
    dictionary = dictionary_of(data / "dict.txt")
    assert ids.count(dictionary.index("<mask>")) == 1
    with torch.no_grad():
        scores_1LV, _ = stock_model(checkpoint, dictionary)(torch.tensor([ids]))
    probabilities_V = scores_1LV[0, ids.index(dictionary.index("<mask>"))].softmax(-1)
    for answer in found:
        assert answer["score"] == pytest.approx(float(probabilities_V[answer["token"]]), abs=1e-6)


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (["--keep-eos"], {}),
        (["--shorten-method", "none", "--max-positions", "256"], {}),
        ([], {"pairs": True}),
        (["--keep-eos", "--max-positions", "20"], {"pairs": True}),
        ([], {"normalize_apostrophes": True}),
        (["--encoder", "padded", "--activation-fn", "gelu_accurate"], {}),
    ],
    ids=str,
)
def test_every_way_of_training_is_proved(tmp_path, flags, options):
    _, run = train_classifier(tmp_path, *flags, **options)
    proof = convert(run, tmp_path / "folder")
    assert proof.where == "train, valid, test"
    assert proof.texts == 83
    assert proof.difference < 1e-5
    if "normalize_apostrophes" in options:
        assert proof.standard == 0  # it loads with its own code alone
    elif flags == ["--keep-eos"] or "none" in flags:
        assert proof.standard == 83
    else:
        assert 0 < proof.standard < 83  # texts that are cut


def test_proof_is_said_and_the_card_says_where_it_is_from(trained, tmp_path, capsys):
    run = shutil.copytree(trained[1], tmp_path / "run")
    answers = [
        Prediction(i, "pos", {"neg": 0.4, "pos": 0.6} if i else {"neg": 0.9, "pos": 0.1}) for i in range(4)
    ]
    write(run / "predictions-test.jsonl", answers)
    assert main(["transformers", str(run), str(tmp_path / "folder")]) == 0
    said = capsys.readouterr().out
    assert "ids: 83 of 83 texts equal (train, valid, test)" in said
    assert "logits: 84 sentences" in said or "logits: 83 sentences" in said
    card = (tmp_path / "folder/README.md").read_text(encoding="utf-8")
    for words in (
        "fairseq/random/seed1",
        "75.00 % of 4",
        "pipeline_tag: text-classification",
        "neg, pos",
        "32 tokens",
    ):
        assert words in card
    proof = json.loads((tmp_path / "folder/proof.json").read_text())
    assert (proof["texts"], proof["where"]) == (83, "train, valid, test")
    assert 0 <= proof["difference"] <= proof["tolerance"] == 1e-4
    assert proof["sha256"] == {
        "checkpoint": sha256(run / "checkpoint_best.pt"),
        "dictionary": sha256(trained[0] / "input0/dict.txt"),
        "sentencepiece_model": sha256(trained[0].parent / "spm.model"),
    }
    config = json.loads((tmp_path / "folder/config.json").read_text())
    assert config["id2label"] == {"0": "neg", "1": "pos"}
    assert not list(tmp_path.glob(".folder*"))


def test_without_the_data_sample_sentences_prove_it(trained, tmp_path):
    data, run = trained
    checkpoint = shutil.copy(run / "checkpoint_best.pt", tmp_path / "alone.pt")
    files = {"dictionary": data / "input0/dict.txt", "sentencepiece_model": data.parent / "spm.model"}
    shutil.copytree(data, tmp_path / "data")
    shutil.rmtree(tmp_path / "data/label")
    (tmp_path / "data/preprocess.json").unlink()
    proof = convert(checkpoint, tmp_path / "folder", data=tmp_path / "data", **files)
    assert proof.where == "sample sentences"
    assert proof.texts > 100


def test_how_text_was_read_is_told_where_no_data_say_it(masked_lm, tmp_path, capsys, caplog):
    model = str(masked_lm[0].parent / "spm.model")
    line = ["transformers", str(masked_lm[1]), "--sentencepiece-model", model]
    assert main([*line, str(tmp_path / "plain")]) == 0
    assert "no preprocess.json" in caplog.text
    assert "--normalize-apostrophes" in caplog.text
    caplog.clear()
    assert main([*line, "--out", str(tmp_path / "told"), "--normalize-apostrophes"]) == 0
    assert not caplog.text
    settings = [
        json.loads((tmp_path / name / "tokenizer_config.json").read_text()) for name in ("plain", "told")
    ]
    assert [one["normalize_apostrophes"] for one in settings] == [False, True]
    capsys.readouterr()
    line += [str(tmp_path / "other"), "--data", str(masked_lm[0]), "--normalize-apostrophes"]
    assert main(line) == 1
    assert re.search("--normalize-apostrophes: .*preprocess.json", capsys.readouterr().err)


def test_a_network_that_differs_is_not_written(trained, tmp_path, monkeypatch):
    def wrong(source, classes):
        model = right(source, classes)
        with torch.no_grad():
            model.roberta.encoder.layer[1].output.dense.bias[0] += 0.1
        return model

    right = to_transformers.converted
    monkeypatch.setattr(to_transformers, "converted", wrong)
    with pytest.raises(UserError, match="differs from fairseq's by"):
        convert(trained[1], tmp_path / "folder")
    assert not list(tmp_path.iterdir())


def test_a_network_that_answers_nan_is_not_written(trained, tmp_path):
    run = shutil.copytree(trained[1], tmp_path / "run")
    state = torch.load(run / "checkpoint_best.pt", weights_only=False)
    state["model"]["encoder.sentence_encoder.layers.0.fc1.bias"][0] = float("nan")
    torch.save(state, run / "checkpoint_best.pt")
    with pytest.raises(UserError, match="differs from fairseq's by nan"):
        convert(run, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_an_lm_head_that_transformers_lacks_is_not_written(tmp_path):
    data, checkpoint = make_masked_lm(tmp_path, "--activation-fn", "relu")
    with pytest.raises(UserError, match="differs from fairseq's by"):
        convert(checkpoint, tmp_path / "folder", data=data)
    assert not (tmp_path / "folder").exists()


def test_ids_that_differ_are_not_written(trained, tmp_path, monkeypatch):
    def without_eos(self, ids, pair=None):
        return [self.cls_token_id, *ids]

    monkeypatch.setattr(
        "export.transformers.tokenization_pieces.PieceTokenizer.build_inputs_with_special_tokens", without_eos
    )
    with pytest.raises(UserError, match=r"the tokenizer's ids differ from training's at token \d+ of ."):
        convert(trained[1], tmp_path / "folder")
    assert not list(tmp_path.iterdir())


def test_loads_as_any_model_does(classifier_folder):
    model = AutoModelForSequenceClassification.from_pretrained(classifier_folder)
    assert not any((classifier_folder / name).exists() for name in ("pytorch_model.bin", "tokenizer.json"))
    assert model.config.num_labels == 2


def refused(arguments, capsys):
    """The one line on standard error."""
    assert main(["transformers", *map(str, arguments)]) == 1
    return capsys.readouterr().err.splitlines()[-1]


def test_what_is_in_the_way_stays(trained, tmp_path, capsys):
    (tmp_path / "mine").write_text("precious")
    assert "exists" in refused([trained[1], tmp_path / "mine"], capsys)
    assert "exists" in refused([trained[1], tmp_path], capsys)
    assert (tmp_path / "mine").read_text() == "precious"


def test_files_that_are_missing_or_belong_to_another(trained, masked_lm, tmp_path, capsys):
    data, run = trained
    out = tmp_path / "folder"
    assert "no such checkpoint" in refused([tmp_path / "none.pt", out], capsys)
    assert "none.model: no such SentencePiece model" in refused(
        [run, out, "--sentencepiece-model", tmp_path / "none.model"], capsys
    )
    (tmp_path / "short.txt").write_text("▁un 1\n", encoding="utf-8")
    assert "--dict" in refused([run, out, "--dict", tmp_path / "short.txt"], capsys)
    corpus, checkpoint = masked_lm
    assert "short.txt: 6 types with <mask>" in refused(
        [checkpoint, out, "--data", corpus, "--dict", tmp_path / "short.txt"], capsys
    )
    assert "--sentencepiece-model" in refused([checkpoint, out, "--data", data / "label"], capsys)
    assert not out.exists()


def test_fillers_of_the_dictionary_count_as_types(masked_lm, tmp_path, capsys):
    """fairseq-preprocess fills a dictionary up to a multiple of 8."""
    corpus, checkpoint = masked_lm
    filled = (corpus / "dict.txt").read_text(encoding="utf-8") + "madeupword0000 0\n"
    (tmp_path / "dict.txt").write_text(filled, encoding="utf-8")
    line = refused([checkpoint, tmp_path / "out", "--data", corpus, "--dict", tmp_path / "dict.txt"], capsys)
    assert "types with <mask>, but" in line


def test_input_that_does_not_begin_as_robertas(tmp_path, capsys):
    _, run = train_classifier(tmp_path, "--init-token", "2")
    assert "--init-token 2" in refused([run, tmp_path / "folder"], capsys)


def test_missing_package_names_the_extra(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("export.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    message = refused(["run", "folder"], capsys)
    assert message.startswith("error: transformers is not installed")
    assert "extra hf" in message


def test_help_is_quick():
    program = (
        "import sys; from export.__main__ import build_parser; build_parser().format_help(); "
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_a_target_is_required(capsys):
    assert main(["transformers", "run"]) == 2
    assert "--out" in capsys.readouterr().err
