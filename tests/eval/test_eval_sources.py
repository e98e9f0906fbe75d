"""Files that do not belong to a checkpoint are refused (checkpoint.py, sources.py, runs.py)."""

import shutil

import pytest
import torch
from data_folders import write_data
from tiny_runs import make_run, write_manifest
from training import SIZES, STEPS, STOCK, build_trainer, save

from common.errors import UserError
from eval import SentenceClassifier
from eval.loading.checkpoint import read_checkpoint
from eval.loading.runs import find_run, find_runs
from fairseq_plugin.checkpoints.loading import load_checkpoint


def change(path, edit):
    state = load_checkpoint(path)
    edit(state)
    torch.save(state, path)


def test_another_dictionary_is_refused(trained, tmp_path):
    lines = (trained.root / "dict.txt").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "dict.txt").write_text("".join([lines[1], lines[0], *lines[2:]]), "utf-8")
    with pytest.raises(UserError, match=r"dict\.txt: .*--dict"):
        SentenceClassifier.from_run(trained.run, dictionary=tmp_path / "dict.txt")


def test_another_sentencepiece_model_is_refused(trained, tmp_path):
    (tmp_path / "other.model").write_bytes((trained.root / "spm.model").read_bytes() + b"\0")
    with pytest.raises(UserError, match=r"other\.model: .*--sentencepiece-model"):
        SentenceClassifier.from_run(trained.run, sentencepiece_model=tmp_path / "other.model")


def test_run_without_its_data_folder(trained, copied_run, tmp_path):
    write_manifest(copied_run, tmp_path / "gone")
    with pytest.raises(UserError, match="--dict"):
        SentenceClassifier.from_run(copied_run)
    with pytest.raises(UserError, match="--sentencepiece-model"):
        SentenceClassifier.from_run(copied_run, dictionary=trained.root / "dict.txt")
    files = {"dictionary": trained.root / "dict.txt", "sentencepiece_model": str(trained.root / "spm.model")}
    moved = SentenceClassifier.from_run(copied_run, **files)
    assert moved.classes == ["neg", "pos"]
    assert moved.predict(trained.texts) == SentenceClassifier.from_run(trained.run).predict(trained.texts)


def test_checkpoint_of_stock_fairseq(trained, tmp_path):
    """fairseq's own task and model remember no class names: the data folder has them."""
    arguments = [trained.data, *STOCK, *SIZES, *STEPS, "--optimizer", "adam", "--max-positions", "32"]
    arguments += ["--init-token", "0", "--shorten-method", "truncate"]
    _, trainer = build_trainer(arguments)
    save(trainer, tmp_path / "stock.pt")
    classifier = SentenceClassifier.from_run(tmp_path / "stock.pt", precision="fp32")
    assert classifier.classes == ["neg", "pos"]
    trainer.model.eval()
    for text in trained.texts[:5]:
        tokens = torch.from_numpy(classifier.encode([text])[0])[None]
        with torch.no_grad():
            logits, _ = trainer.model(
                tokens, features_only=True, classification_head_name="sentence_classification_head"
            )
        expected = torch.softmax(logits, -1)[0].tolist()
        assert classifier.probabilities([text])[0] == pytest.approx(expected, abs=1e-6)


BAD = {
    "no classification head": lambda state: [
        state["model"].pop(key) for key in list(state["model"]) if key.startswith("classification_heads")
    ],
    "architecture 'transformer'": lambda state: setattr(state["cfg"]["model"], "arch", "transformer"),
    "task 'masked_lm'": lambda state: state["cfg"]["task"].__setitem__("_name", "masked_lm"),
    "weights do not fit": lambda state: state["model"].__setitem__(
        "encoder.sentence_encoder.layers.0.fc1.weight", torch.zeros(3, 3)
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_checkpoints_that_are_no_classifier(copied_run, message):
    change(copied_run / "checkpoint_best.pt", BAD[message])
    with pytest.raises(UserError, match=message):
        SentenceClassifier.from_run(copied_run)


def test_missing_and_truncated_checkpoint(copied_run):
    path = copied_run / "checkpoint_best.pt"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"checkpoint_best\.pt: not a checkpoint"):
        read_checkpoint(path)
    path.unlink()
    with pytest.raises(UserError, match=r"no checkpoint_best\.pt in or below it"):
        find_run(copied_run)
    with pytest.raises(UserError, match="no such checkpoint"):
        find_run(copied_run / "absent.pt")


def test_folder_of_runs(trained, tmp_path, capsys):
    for seed in (10, 9, 1):
        folder = tmp_path / f"fairseq/random/seed{seed}"
        shutil.copytree(trained.run, folder)
        write_manifest(folder, trained.data, seed, status="failed" if seed == 9 else "finished")
    assert [run.name for run in find_runs([tmp_path])] == ["fairseq/random/seed1", "fairseq/random/seed10"]
    assert "fairseq/random/seed9" in capsys.readouterr().err
    with pytest.raises(UserError, match="2 runs below it"):
        find_run(tmp_path)
    with pytest.raises(UserError, match=r"seed1/checkpoint_best\.pt: given twice"):
        find_runs([tmp_path, tmp_path / "fairseq/random/seed1/checkpoint_best.pt"])


def test_a_folder_with_two_models_is_refused(trained, tmp_path):
    for name in ("model.pt", "model.safetensors"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"model\.safetensors and model\.pt"):
        find_run(tmp_path)


def test_two_sweeps_with_the_same_names(trained, tmp_path):
    for sweep in ("a", "b"):
        shutil.copytree(trained.run, tmp_path / sweep / "fairseq/random/seed1")
    runs = find_runs([tmp_path / "a", tmp_path / "b"])
    assert [run.group for run in runs] == [str(tmp_path / sweep / "fairseq/random") for sweep in ("a", "b")]
    assert [run.name for run in runs] == [f"{run.group}/seed1" for run in runs]


def test_more_logits_than_labels_get_names(tmp_path):
    data = write_data(tmp_path / "data")
    make_run(data, tmp_path / "run", "--num-classes", "3")
    checkpoint = read_checkpoint(tmp_path / "run" / "checkpoint_best.pt")
    from eval.loading.sources import class_names_of, data_folder

    found = data_folder(find_run(tmp_path / "run"), checkpoint)
    assert class_names_of(checkpoint, found) == ["0", "1", "unnamed2"]
