"""`python -m export onnx`: ONNX graphs against Transformers, and their accuracy against eval."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.eval import Ensemble, SentenceClassifier
from roberta_small.eval.__main__ import build_parser as evaluate_parser
from roberta_small.eval.__main__ import main as evaluate
from roberta_small.eval.model import open_model
from roberta_small.eval.serve import load
from roberta_small.eval.serve.models import ENSEMBLE, Models
from roberta_small.export import onnx as to_onnx
from roberta_small.export.__main__ import main
from roberta_small.export.transformers.folder import load_pretrained
from tests.support.exported_runs import PAD, padded_ids

ROOT = Path(__file__).parents[2]
COLUMNS = {"text": "title", "more_text": ["body"]}


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """A folder with fp32.onnx, int8.onnx and what the second command prints: printed.txt."""
    root = tmp_path_factory.mktemp("onnx")
    manifest.write(trained[1], manifest.read(trained[1]) | {"columns": COLUMNS})
    assert main(["onnx", str(trained[1]), "--out", str(root / "fp32.onnx")]) == 0
    with pytest.MonkeyPatch.context() as patch, open(root / "printed.txt", "w") as printed:
        use_graph(patch, root / "fp32.onnx")
        with contextlib.redirect_stdout(printed):
            assert main(["onnx", str(trained[1]), "--out", str(root / "int8.onnx"), "--int8"]) == 0
    return root


def use_graph(patch, path):
    """The exporter, which takes seconds, returns the graph that it has made of the same model before."""
    patch.setattr(to_onnx, "to_onnx", lambda *arguments: onnx.load(path))


def logits(path, ids_BL):
    session = onnxruntime.InferenceSession(path)
    feed = {"input_ids": ids_BL.numpy(), "attention_mask": (ids_BL != PAD).long().numpy()}
    return session.run(None, feed)[0]


@pytest.mark.parametrize("lengths", [(1,), (32, 1, 7), (3, 3, 3, 3, 3)], ids=str)
def test_logits_equal_pytorchs_for_any_batch_and_length(exported, classifier_folder, lengths):
    model = load_pretrained(classifier_folder).model
    ids_BL = padded_ids(model.config.vocab_size, lengths)
    with torch.no_grad():
        wanted_BK = model(ids_BL, attention_mask=ids_BL != PAD).logits.numpy()
    np.testing.assert_allclose(logits(exported / "fp32.onnx", ids_BL), wanted_BK, atol=1e-5)
    assert np.abs(logits(exported / "int8.onnx", ids_BL) - wanted_BK).max() < 0.1


def test_the_accuracy_equals_that_of_eval(trained, exported):
    data, run = trained
    table = (exported / "printed.txt").read_text()
    texts = (data.parent / "test.input0").read_text(encoding="utf-8").splitlines()
    gold = (data.parent / "test.label").read_text().splitlines()
    predictions = SentenceClassifier.from_run(run).predict(texts)
    accuracy = 100 * np.mean([p.predicted == label for p, label in zip(predictions, gold, strict=True)])
    lines = [line for line in table.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert [row[0] for row in rows[2:]] == ["torch, fp32", "ONNX, fp32", "ONNX, int8"]
    assert [row[2] for row in rows[2:4]] == [f"{accuracy:.2f}"] * 2
    assert [float(row[1]) <= limit for row, limit in zip(rows[2:], (0, 1e-4, 1), strict=True)] == [True] * 3
    assert table.startswith("31 sentences of test")
    assert (exported / "int8.onnx").stat().st_size < (exported / "fp32.onnx").stat().st_size


PROGRAM = """
import asyncio, contextlib, sys
from roberta_small.eval.__main__ import build_parser, main

graph = sys.argv[sys.argv.index("--checkpoint") + 1]
main()

from roberta_small.eval.serve import load
from roberta_small.eval.serve.models import Models

args = build_parser().parse_args(["serve", graph])
with contextlib.closing(Models(load(args.runs, args), max_tokens=4096, max_waiting=9)) as models:
    (found,) = asyncio.run(models.predict(models.default, ["un livre"], explain=False))
    (info,) = models.infos.values()
print(found.model_dump_json())
assert info.explanation is None
assert not {"torch", "fairseq", "transformers"} & sys.modules.keys()
"""


def test_the_file_predicts_and_is_served_as_the_run_without_torch_and_fairseq(exported, trained, tmp_path):
    data, run = trained
    file, output, home = data.parent / "test.input0", tmp_path / "predicted.jsonl", tmp_path / "home"
    texts = file.read_text(encoding="utf-8").splitlines()
    *wanted, served = SentenceClassifier.from_run(run).predict([*texts, "un livre"])
    moved = shutil.copy(exported / "fp32.onnx", tmp_path / "elsewhere.onnx")
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(tmp_path)}
    words = ["predict", "--checkpoint", moved, "--input", file, "--out", output]
    command = [sys.executable, "-c", PROGRAM, *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    assert not list(home.rglob("*"))  # onnxruntime would write a device id there
    found = json.loads(done.stdout.splitlines()[-1])["probabilities"]
    assert found == pytest.approx(served.probabilities, abs=1e-5)
    found = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [row["index"] for row in found] == list(range(len(texts)))
    for row, prediction in zip(found, wanted, strict=True):
        assert row["probabilities"] == pytest.approx(prediction.probabilities, abs=1e-5)
    assert open_model(moved).columns == COLUMNS
    quantized = SentenceClassifier.from_run(exported / "int8.onnx").predict(texts)
    for prediction, other in zip(quantized, wanted, strict=True):
        assert prediction.probabilities == pytest.approx(other.probabilities, abs=0.05)


def test_a_run_and_its_file_are_no_ensemble(exported, trained, tmp_path, capsys):
    run, files = trained[1], [exported / "fp32.onnx", exported / "int8.onnx"]
    other = shutil.copytree(run, tmp_path / "seed2")
    state = torch.load(other / "checkpoint_best.pt", weights_only=False)
    torch.save(state | {"copy": 2}, other / "checkpoint_best.pt")  # another checkpoint
    for paths, together in (([run, files[0]], 0), (files, 0), ([run, other, *files], 2)):
        args = evaluate_parser().parse_args(["serve", *map(str, paths)])
        with contextlib.closing(Models(load(args.runs, args), max_tokens=99, max_waiting=9)) as models:
            members = models.infos[ENSEMBLE].members if ENSEMBLE in models.infos else []
        assert (len(models.infos), len(members)) == (len(paths) + (together > 0), together)
        assert not any(name.endswith(".onnx") for name in members)
        assert together or str(files[0]) in capsys.readouterr().err
    with pytest.raises(UserError, match=str(files[0])):
        Ensemble([SentenceClassifier.from_run(path) for path in files])


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["predict", "un texte", "--explain"], ["--explain", "fp32.onnx"]),
        (["predict", "--ensemble", "--checkpoint", "run"], ["--ensemble", "fp32.onnx"]),
        (["predict", "un texte", "--precision", "bf16"], ["--precision", "fp32.onnx"]),
        (["predict", "un texte", "--dict", "dict.txt"], ["--dict", "fp32.onnx"]),
        (["evaluate"], ["fp32.onnx", "predict"]),
    ],
)
def test_commands_and_options_that_a_file_does_not_have_are_errors(exported, capsys, words, facts):
    assert evaluate([*words, "--checkpoint", str(exported / "fp32.onnx")]) == 1
    error = capsys.readouterr().err
    assert all(fact in error for fact in facts)


def test_files_without_a_tokenizer_or_graph_are_errors(exported, tmp_path):
    graph = onnx.load(exported / "fp32.onnx")
    kept = {"classes": '["neg", "pos"]', "longest": "32"}
    malformed = {"text": "{", "sentencepiece": "", "dictionary": ""}
    for changes, fact in (({}, "no tokenizer"), (malformed, "malformed metadata")):
        onnx.helper.set_model_props(graph, kept | changes)
        onnx.save(graph, tmp_path / "other.onnx")
        with pytest.raises(UserError, match=rf"other\.onnx: {fact}.*export onnx"):
            open_model(tmp_path / "other.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"broken")
    with pytest.raises(UserError, match=r"broken\.onnx: .*export onnx"):
        open_model(tmp_path / "broken.onnx")
    with pytest.raises(UserError, match=r"none\.onnx: no such file"):
        open_model(tmp_path / "none.onnx")


def test_a_graph_with_other_logits_is_an_error(exported, trained, tmp_path, monkeypatch, capsys):
    use_graph(monkeypatch, exported / "fp32.onnx")
    opened = to_onnx.opened
    monkeypatch.setattr(to_onnx, "opened", lambda graph: lambda ids_BL: opened(graph)(ids_BL) + 0.01)
    assert main(["onnx", str(trained[1]), "--out", str(tmp_path / "model.onnx")]) == 1
    assert "1.0e-02" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_errors_name_the_file(trained, masked_lm, masked_lm_folder, classifier_folder, tmp_path, capsys):
    def error_of(source, target, *options):
        assert main(["onnx", str(source), "--out", str(target), *map(str, options)]) == 1
        return capsys.readouterr().err.splitlines()[-1]

    out = tmp_path / "model.onnx"
    for folder in (masked_lm_folder, classifier_folder):
        assert "export fairseq" in error_of(folder, out)
    assert str(masked_lm[1]) in error_of(masked_lm[1], out)
    assert f"{tmp_path / 'none'}: " in error_of(tmp_path / "none", out)
    assert f"{tmp_path / 'none'}: " in error_of(trained[1], out, "--data", tmp_path / "none")
    other = shutil.copytree(trained[0], tmp_path / "other")
    lines = (other / "input0/dict.txt").read_text(encoding="utf-8").splitlines()
    (other / "input0/dict.txt").write_text(
        "\n".join([lines[1], lines[0], *lines[2:]]) + "\n", encoding="utf-8"
    )
    message = error_of(trained[1], out, "--data", other)
    assert f"{other / 'input0/dict.txt'}: " in message
    assert str(trained[1]) in message
    out.write_text("mine")
    assert f"{out}: " in error_of(trained[1], out)
    assert out.read_text() == "mine"
