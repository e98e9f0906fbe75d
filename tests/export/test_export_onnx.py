"""The command `export`: ONNX graphs against the network of Transformers and against eval's accuracy."""

import json
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from exported_runs import PAD, make_masked_lm, padded_ids

from common.errors import UserError
from common.files import sha256
from eval import SentenceClassifier
from export.__main__ import main
from export.classifier import find_classifier
from export.onnx import check
from export.transformers.folder import load_folder


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """fp32 and int8, and what the command said of the second."""
    root = tmp_path_factory.mktemp("onnx")
    assert main(["onnx", str(trained[1]), str(root / "fp32.onnx")]) == 0
    assert main(["onnx", str(trained[1]), str(root / "int8.onnx"), "--int8"]) == 0
    return root


def answers(path, ids_BL):
    session = onnxruntime.InferenceSession(path)
    feed = {"input_ids": ids_BL.numpy(), "attention_mask": (ids_BL != PAD).long().numpy()}
    return session.run(None, feed)[0]


@pytest.mark.parametrize("lengths", [(1,), (2,), (32,), (32, 1, 7), (3, 3, 3, 3, 3), (9, 20)], ids=str)
def test_any_batch_and_length_equal_torchs(exported, classifier_folder, lengths):
    model = load_folder(classifier_folder)
    ids_BL = padded_ids(model.config.vocab_size, lengths)
    with torch.no_grad():
        wanted_BK = model(ids_BL, attention_mask=ids_BL != PAD).logits.numpy()
    np.testing.assert_allclose(answers(exported / "fp32.onnx", ids_BL), wanted_BK, atol=1e-5)
    assert np.abs(answers(exported / "int8.onnx", ids_BL) - wanted_BK).max() < 0.1


def test_graph_names_its_axes_and_classes(exported):
    graph = onnx.load(exported / "fp32.onnx")
    metadata = {entry.key: entry.value for entry in graph.metadata_props}
    assert json.loads(metadata["classes"]) == ["neg", "pos"]
    assert metadata["longest"] == "32"
    session = onnxruntime.InferenceSession(exported / "fp32.onnx")
    assert [(i.name, i.shape) for i in session.get_inputs()] == [
        ("input_ids", ["batch", "length"]),
        ("attention_mask", ["batch", "length"]),
    ]
    assert (exported / "int8.onnx").stat().st_size < (exported / "fp32.onnx").stat().st_size


def test_accuracy_is_evals(trained, tmp_path, capsys):
    data, run = trained
    words = ["onnx", str(run), str(tmp_path / "model.onnx"), "--int8", "--report", str(tmp_path / "r.json")]
    assert main(words) == 0
    table = capsys.readouterr().out
    texts = (data.parent / "test.input0").read_text(encoding="utf-8").splitlines()
    gold = (data.parent / "test.label").read_text().splitlines()
    predictions = SentenceClassifier.from_run(run).predict(texts)
    accuracy = 100 * np.mean([p.predicted == label for p, label in zip(predictions, gold, strict=True)])
    assert "31 sentences of test" in table
    for form in ("torch, fp32", "ONNX, fp32"):
        assert f"| {form} | {accuracy:.2f} | 100.00 |" in table
    assert "| ONNX, int8 |" in table
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["file"], report["split"], report["sentences"]) == ("model.onnx", "test", 31)
    assert report["sha256"] == sha256(tmp_path / "model.onnx")
    assert [form["accuracy"] for form in report["forms"][:2]] == [pytest.approx(accuracy)] * 2
    assert report["forms"][1] | {"interval": [0.0, 0.0], "points": 0.0, "p": 1.0} == report["forms"][1]


def test_a_form_is_compared_sentence_by_sentence():
    """Against counts by hand: of eight sentences int8 loses two and wins one."""
    gold_N = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    torch_N, int8_N = np.array([0, 0, 0, 1, 1, 1, 1, 0]), np.array([1, 0, 0, 0, 1, 1, 0, 0])
    measured = [
        check.Measured(name, np.eye(2, dtype=np.float32)[predicted_N], 0.5, size)
        for name, predicted_N, size in (("torch, fp32", torch_N, None), ("ONNX, int8", int8_N, 5.0))
    ]
    report = check.document(measured, gold_N, "test")
    first, last = report["forms"]
    assert (first["accuracy"], last["accuracy"], last["points"]) == (75.0, 62.5, -12.5)
    assert (last["only_this"], last["only_torch"], last["p"]) == (1, 2, 1.0)
    assert last["same_class"] == 62.5
    assert last["seconds_per_1000"] == 62.5
    low, high = last["interval"]
    assert -62.5 <= low < -12.5 < high <= 37.5
    assert "ONNX, int8 against torch: -12.50 points [" in check.table(report)


def test_folders_are_exported_and_measured(trained, classifier_folder, tmp_path, capsys):
    assert main(["onnx", str(classifier_folder), str(tmp_path / "a.onnx")]) == 0
    assert "accuracy was not measured" in capsys.readouterr().out
    arguments = ["onnx", str(classifier_folder), str(tmp_path / "b.onnx"), "--data", str(trained[0])]
    assert main([*arguments, "--split", "valid"]) == 0
    assert "12 sentences of valid" in capsys.readouterr().out


def test_rows_of_a_folder_are_those_of_its_run(trained, classifier_folder):
    ours, theirs = (
        find_classifier(path).examples(trained[0], "test") for path in (classifier_folder, trained[1])
    )
    assert all(np.array_equal(a, b) for a, b in zip(ours.rows, theirs.rows, strict=True))
    assert np.array_equal(ours.labels, theirs.labels)


def test_a_graph_that_differs_is_not_written(trained, tmp_path, monkeypatch, capsys):
    class Wrong(check.Session):
        def __call__(self, ids_BL):
            return super().__call__(ids_BL) + 0.01

    monkeypatch.setattr(check, "Session", Wrong)
    assert main(["onnx", str(trained[1]), str(tmp_path / "model.onnx")]) == 1
    assert "differ from torch's by 1.0e-02; nothing was written" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exported(trained, masked_lm_folder, classifier_folder, tmp_path, capsys):
    def refused(*arguments):
        assert main(["onnx", *map(str, arguments)]) == 1
        return capsys.readouterr().err.splitlines()[-1]

    out = tmp_path / "model.onnx"
    assert "a masked language model; export takes classifiers" in refused(masked_lm_folder, out)
    assert "none: no such checkpoint or folder of runs" in refused(tmp_path / "none", out)
    assert f"{tmp_path}: is a folder; name a file with --report" in refused(
        trained[1], out, "--report", tmp_path
    )
    assert "none: no such folder" in refused(trained[1], out, "--data", tmp_path / "none")
    other = shutil.copytree(trained[0], tmp_path / "other")
    lines = (other / "input0/dict.txt").read_text(encoding="utf-8").splitlines()
    (other / "input0/dict.txt").write_text(
        "\n".join([lines[1], lines[0], *lines[2:]]) + "\n", encoding="utf-8"
    )
    assert "not the dictionary of" in refused(classifier_folder, out, "--data", other)
    assert "--dict" in refused(trained[1], out, "--data", other)
    out.write_text("mine")
    assert "exists" in refused(trained[1], out)
    assert out.read_text() == "mine"


def test_masked_lm_checkpoint_is_told_to_be_fine_tuned(tmp_path):
    _, checkpoint = make_masked_lm(tmp_path)
    with pytest.raises(UserError, match="fine-tune it first"):
        find_classifier(checkpoint)
