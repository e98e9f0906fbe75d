"""`python -m export fairseq`: checkpoints that fairseq and eval load."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from roberta_small.common.errors import UserError
from roberta_small.eval import SentenceClassifier
from roberta_small.export.__main__ import main
from roberta_small.export.transformers.to_fairseq import convert_back
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from tests.support.exported_runs import LENGTH, MASKED_LM
from tests.support.training import INPUT, OURS, SIZES, SLOW, STEPS, losses_of, started

BEST = "checkpoint_best.pt"


def same_weights(one, other):
    ours, theirs = load_checkpoint(one)["model"], load_checkpoint(other)["model"]
    return set(ours) == set(theirs) and all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_classifier_is_the_same_after_a_round_trip(trained, classifier_folder, tmp_path, capsys):
    data, run = trained
    back = tmp_path / "back/model.pt"
    assert main(["fairseq", str(classifier_folder), "--out", str(back)]) == 0
    assert str(back) in capsys.readouterr().out
    assert same_weights(back, run / BEST)
    assert (back.parent / "dict.txt").read_bytes() == (data / "input0/dict.txt").read_bytes()
    ours, theirs = load_checkpoint(back)["cfg"], load_checkpoint(run / BEST)["cfg"]
    for name in (
        "arch", "encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads",
        "max_positions", "dropout", "attention_dropout", "activation_dropout", "pooler_dropout",
        "activation_fn", "encoder_kind",
    ):  # fmt: skip
        assert getattr(ours["model"], name) == getattr(theirs["model"], name), name
    for name in ("_name", "init_token", "separator_token", "shorten_method", "keep_eos"):
        assert ours["task"][name] == theirs["task"][name], name
    text = ["un livre magnifique", "livre banal " * 40]
    assert (back.parent / "sentencepiece.bpe.model").read_bytes() == (data.parent / "spm.model").read_bytes()
    classifier = SentenceClassifier.from_run(back)  # dictionary and tokenizer beside the checkpoint
    wanted = SentenceClassifier.from_run(run).predict(text)
    assert classifier.classes == ["neg", "pos"]
    for ours, theirs in zip(classifier.predict(text), wanted, strict=True):
        assert ours.probabilities == pytest.approx(theirs.probabilities, abs=1e-6)


def test_a_masked_lm_is_fine_tuned_or_continued_after_a_round_trip(
    trained, masked_lm, masked_lm_folder, tmp_path, caplog
):
    back = tmp_path / "model.pt"
    convert_back(masked_lm_folder, back)
    assert same_weights(back, masked_lm[1])
    resets = [f"--reset-{what}" for what in ("optimizer", "dataloader", "meters", "lr-scheduler")]
    common = [*STEPS, *SIZES, *SLOW, "--restore-file", back, "--save-dir", tmp_path / "save"]
    with caplog.at_level("INFO"):
        losses_of(started([trained[0], *OURS, *INPUT, *common, *resets]), 2)
    assert f"weights of {back}" in caplog.text
    losses_of(started([masked_lm[0], *MASKED_LM, *LENGTH, *common]), 2)


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("corrupt", "fact"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json: "),
        (lambda f: (f / "config.json").write_text("{"), "config.json, line 1: "),
        (lambda f: change_config(f, model_type="bert"), "weights are missing: bert."),
        (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "pytorch_model.bin"),
        (lambda f: (f / "dict.txt").unlink(), "dict.txt: "),
        (lambda f: (f / "dict.txt").write_text("▁un 1\n", encoding="utf-8"), "dict.txt: 6 "),
        (lambda f: (f / "fairseq.json").write_text("[]"), "fairseq.json: "),
        (lambda f: (f / "fairseq_extra.safetensors").write_bytes(b"x"), "fairseq_extra.safetensors: "),
    ],
)
def test_malformed_folders_are_errors(classifier_folder, tmp_path, capsys, corrupt, fact):
    folder = shutil.copytree(classifier_folder, tmp_path / "folder")
    corrupt(folder)
    assert main(["fairseq", str(folder), "--out", str(tmp_path / "model.pt")]) == 1
    assert fact in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "model.pt").exists()


def test_fp16_rounds_every_weight_and_copies_the_dictionary(masked_lm, tmp_path, capsys):
    checkpoint, out = masked_lm[1], tmp_path / "model.safetensors"
    assert main(["fairseq", str(checkpoint), "--out", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    assert {weight.dtype for weight in load_file(out).values()} == {torch.float16}
    before, after = (load_checkpoint(path)["model"] for path in (checkpoint, out))
    assert before.keys() == after.keys()
    for name, weight in before.items():
        assert torch.equal(after[name], weight.half().float()), name
    assert (tmp_path / "dict.txt").read_bytes() == checkpoint.with_name("dict.txt").read_bytes()


@pytest.mark.parametrize(
    ("name", "options", "facts"),
    [
        ("model.pt", [], ["model.pt: ", ".safetensors"]),
        ("model.safetensors", ["--embedding-scale", "-1"], ["--embedding-scale -1"]),
    ],
)
def test_fp16_reports_a_wrong_target_or_scale(masked_lm, tmp_path, capsys, name, options, facts):
    assert main(["fairseq", str(masked_lm[1]), "--out", str(tmp_path / name), *options]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert all(fact in message for fact in facts), message
    assert not (tmp_path / name).exists()


def test_fp16_reports_a_missing_checkpoint(tmp_path, capsys):
    assert main(["fairseq", str(tmp_path / "none.pt"), "--out", str(tmp_path / "model.safetensors")]) == 1
    assert "none.pt: " in capsys.readouterr().err


def test_existing_files_are_never_overwritten(classifier_folder, tmp_path):
    (tmp_path / "model.pt").write_text("mine")
    with pytest.raises(UserError, match=r"model\.pt: "):
        convert_back(classifier_folder, tmp_path / "model.pt")
    (tmp_path / "dict.txt").write_text("▁un 1\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"dict\.txt: "):
        convert_back(classifier_folder, tmp_path / "other.pt")
    assert (tmp_path / "model.pt").read_text() == "mine"
    assert not (tmp_path / "other.pt").exists()
