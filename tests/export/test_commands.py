"""Options of `python -m export`, and `export fairseq` of a checkpoint."""

import pytest
import torch
from safetensors.torch import load_file

from roberta_small.export.__main__ import main
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint

EMBEDDINGS = [f"encoder.sentence_encoder.{name}.weight" for name in ("embed_tokens", "embed_positions")]


def weights_of(path):
    return load_checkpoint(path)["model"]


def test_fp16_rounds_every_weight_and_copies_the_dictionary(masked_lm, tmp_path, capsys):
    checkpoint, out = masked_lm[1], tmp_path / "model.safetensors"
    assert main(["fairseq", str(checkpoint), "--out", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    assert {weight.dtype for weight in load_file(out).values()} == {torch.float16}
    before, after = weights_of(checkpoint), weights_of(out)
    assert before.keys() == after.keys()
    for name, weight in before.items():
        assert torch.equal(after[name], weight.half().float()), name
    assert (tmp_path / "dict.txt").read_bytes() == checkpoint.with_name("dict.txt").read_bytes()


def test_fp16_rescales_the_embeddings(masked_lm, tmp_path):
    checkpoint, out = masked_lm[1], tmp_path / "model.safetensors"
    assert main(["fairseq", str(checkpoint), "--out", str(out), "--embedding-scale", "0.25"]) == 0
    before, after = weights_of(checkpoint), weights_of(out)
    for name in EMBEDDINGS:
        assert torch.equal(after[name], (0.25 * before[name]).half().float()), name
    name = "encoder.sentence_encoder.layers.0.fc1.weight"
    assert torch.equal(after[name], before[name].half().float())


@pytest.mark.parametrize(
    ("name", "options", "facts"),
    [
        ("model.pt", [], ["model.pt: ", ".safetensors"]),
        ("model.safetensors", ["--embedding-scale", "0"], ["--embedding-scale 0"]),
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
