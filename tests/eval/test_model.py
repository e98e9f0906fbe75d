"""`open_model`: the files of a checkpoint or run that are found, and what is an error."""

import json
import shutil

import numpy as np
import pytest
import torch

from roberta_small.common.errors import UserError
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.model import open_model
from roberta_small.eval.origin import find_run, find_runs
from roberta_small.eval.texts import batches
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from roberta_small.preprocess.tokenization import encoder
from tests.support.data_folders import write_data
from tests.support.tiny_runs import make_run, write_manifest
from tests.support.training import SIZES, STEPS, STOCK, build_trainer, save


def test_dictionary_and_sentencepiece_model_of_other_data_are_errors(trained, tmp_path):
    lines = (trained.root / "dict.txt").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "dict.txt").write_text("".join([lines[1], lines[0], *lines[2:]]), "utf-8")
    with pytest.raises(UserError, match=r"dict\.txt: .*--dict"):
        SentenceClassifier.from_run(trained.run, dictionary=tmp_path / "dict.txt")
    (tmp_path / "other.model").write_bytes((trained.root / "spm.model").read_bytes() + b"\0")
    with pytest.raises(UserError, match=r"other\.model: .*--sentencepiece-model"):
        SentenceClassifier.from_run(trained.run, sentencepiece_model=tmp_path / "other.model")


def test_run_without_its_data_folder_needs_its_files(trained, copied_run, tmp_path, caplog):
    write_manifest(copied_run, tmp_path / "gone")
    with pytest.raises(UserError, match=r"gone/input0/dict\.txt: .*--dict"):
        SentenceClassifier.from_run(copied_run)
    with pytest.raises(UserError, match=r"gone/preprocess\.json: .*--sentencepiece-model"):
        SentenceClassifier.from_run(copied_run, dictionary=trained.root / "dict.txt")
    files = {"dictionary": trained.root / "dict.txt", "sentencepiece_model": str(trained.root / "spm.model")}
    moved = SentenceClassifier.from_run(copied_run, **files)
    assert moved.classes == ["neg", "pos"]
    assert moved.predict(trained.texts) == SentenceClassifier.from_run(trained.run).predict(trained.texts)
    assert "apostrophes were normalized" in caplog.text  # which the files do not record


def test_checkpoint_of_stock_fairseq(trained, tmp_path):
    """A checkpoint of fairseq's own task has no class names; they are read from the data folder."""
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


UNUSABLE = {
    "--pretrained": lambda state: [
        state["model"].pop(key) for key in list(state["model"]) if key.startswith("classification_heads")
    ],
    "'transformer'": lambda state: setattr(state["cfg"]["model"], "arch", "transformer"),
    "'masked_lm'": lambda state: state["cfg"]["task"].__setitem__("_name", "masked_lm"),
    "no architecture": lambda state: state["cfg"].pop("model"),
    "no task": lambda state: state["cfg"].pop("task"),
    r"layers\.0\.fc1\.weight is \(3, 3\) ": lambda state: state["model"].__setitem__(
        "encoder.sentence_encoder.layers.0.fc1.weight", torch.zeros(3, 3)
    ),
    r"head\.dense\.weight": lambda state: setattr(state["cfg"]["model"], "head", "linear"),
}


@pytest.mark.parametrize("fact", UNUSABLE)
def test_checkpoint_that_is_no_classifier(copied_run, fact):
    state = load_checkpoint(copied_run / "checkpoint_best.pt")
    UNUSABLE[fact](state)
    torch.save(state, copied_run / "checkpoint_best.pt")
    with pytest.raises(UserError, match=rf"checkpoint_best\.pt: .*{fact}"):
        SentenceClassifier.from_run(copied_run)


def test_missing_and_truncated_checkpoint(copied_run):
    path = copied_run / "checkpoint_best.pt"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UserError, match=rf"^{path}: "):
        open_model(path)
    path.unlink()
    with pytest.raises(UserError, match=rf"^{copied_run}: .*checkpoint_best\.pt"):
        find_run(copied_run)
    with pytest.raises(UserError, match=rf"^{copied_run}/absent\.pt: "):
        find_run(copied_run / "absent.pt")


def test_folder_with_runs(trained, tmp_path, capsys):
    for seed in (10, 9, 1):
        folder = tmp_path / f"fairseq/random/seed{seed}"
        shutil.copytree(trained.run, folder)
        write_manifest(folder, trained.data, seed, status="failed" if seed == 9 else "finished")
    assert [run.name for run in find_runs([tmp_path])] == ["fairseq/random/seed1", "fairseq/random/seed10"]
    assert "fairseq/random/seed9" in capsys.readouterr().err
    with pytest.raises(UserError, match=rf"^{tmp_path}: .*\b2 runs.*fairseq/random/seed1$"):
        find_run(tmp_path)
    with pytest.raises(UserError, match=r"seed1/checkpoint_best\.pt: "):
        find_runs([tmp_path, tmp_path / "fairseq/random/seed1/checkpoint_best.pt"])


def test_runs_of_the_same_name_are_named_by_folder(trained, tmp_path):
    for sweep in ("a", "b"):
        shutil.copytree(trained.run, tmp_path / sweep / "fairseq/random/seed1")
    runs = find_runs([tmp_path / "a", tmp_path / "b"])
    assert [run.group for run in runs] == [str(tmp_path / sweep / "fairseq/random") for sweep in ("a", "b")]
    assert [run.name for run in runs] == [f"{run.group}/seed1" for run in runs]


def test_logits_without_label_get_names(tmp_path):
    data = write_data(tmp_path / "data")
    make_run(data, tmp_path / "run", "--num-classes", "3")
    assert open_model(tmp_path / "run").classes == ["0", "1", "unnamed2"]


@pytest.mark.parametrize("max_tokens", [1, 10, 64, 10_000])
def test_batches_have_every_sentence_once_within_max_tokens(max_tokens):
    lengths = np.random.default_rng(0).integers(1, 30, size=200)
    found = list(batches(lengths, max_tokens))
    assert sorted(np.concatenate(found).tolist()) == list(range(200))
    assert all(len(b) * lengths[b].max() <= max_tokens or len(b) == 1 for b in found)
    assert lengths[found[0][0]] == lengths.max()
    # The next sentence would not have fit into any batch.
    for batch in found[:-1]:
        assert (len(batch) + 1) * lengths[batch[0]] > max_tokens


def test_a_tokenizer_loaded_in_advance_is_the_one_of_the_encoder(trained, monkeypatch):
    expected = open_model(trained.run).encoder
    model = open_model(trained.run, text=True)
    monkeypatch.setattr(encoder, "parse_model", None)  # it is not loaded a second time
    assert model.encoder.table.tolist() == expected.table.tolist()


def test_a_broken_tokenizer_loaded_in_advance_is_an_error_when_it_is_needed(tmp_path):
    (tmp_path / "no.model").write_bytes(b"text")
    encoder.load_in_advance(str(tmp_path / "no.model"))
    with pytest.raises(UserError, match=r"no\.model: not a SentencePiece model"):
        encoder.load_model(str(tmp_path / "no.model"))


def test_a_language_model_has_what_is_not_that_of_a_classifier(masked_lm):
    data, checkpoint = masked_lm
    model = open_model(checkpoint)
    assert model.data.path == data
    assert model.dictionary == checkpoint.with_name("dict.txt")
    (row,) = model.text_input.encode(["un livre"]).rows
    assert (row[0], row[-1]) == (0, 2)
    for name in ("classes", "network"):
        with pytest.raises(UserError, match=rf"{checkpoint}: .*--pretrained"):
            getattr(model, name)


def test_data_without_a_test_set_have_no_test_examples(trained, tmp_path):
    shutil.copytree(trained.data, tmp_path / "data")
    report = json.loads((tmp_path / "data/preprocess.json").read_text())
    report["options"]["test"] = "none"
    (tmp_path / "data/preprocess.json").write_text(json.dumps(report))
    model = open_model(trained.run)
    with pytest.raises(UserError, match=r"--test none.*--split valid"):
        model.examples("test", tmp_path / "data")
    assert len(model.examples("valid", tmp_path / "data").labels) == 12
