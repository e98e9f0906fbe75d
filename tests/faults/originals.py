"""One good file of every kind that the project reads, all of one tiny experiment."""

import hashlib
import json
import shutil
from pathlib import Path

import sentencepiece
import torch
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from roberta_small.common import manifest, predictions
from roberta_small.common.data_folder import REPORT
from roberta_small.common.predictions import Prediction
from roberta_small.experiments.sweep import classifiers
from roberta_small.fairseq_plugin.checkpoints import fp16
from tests.support.data_folders import PIECES, write_data
from tests.support.parsed import train_settings
from tests.support.training import FAST, INPUT, OURS, SIZES, STEPS, build_trainer, save

TEXT = ["un livre captivant", "un roman ennuyeux", "une lecture agréable", "une histoire décevante"] * 12
RUN = "runs/fairseq/start/seed1"
RECIPE = "--lr 1e-4\n--max-epoch 3   # three\n--adam-betas '(0.9, 0.98)'\n--valid-subset valid,test\n"
KINDS = {
    "checkpoint": "model.pt",
    "safetensors": "model.safetensors",
    "dictionary": "data/input0/dict.txt",
    "labels": "data/label/dict.txt",
    "index": "data/input0/train.idx",
    "binary": "data/input0/train.bin",
    "report": "data/preprocess.json",
    "sentencepiece": "spm.model",
    "events": "tensorboard/events.out.tfevents.1.x",
    "manifest": f"{RUN}/manifest.json",
    "recipe": "quick.txt",
    "predictions": f"{RUN}/predictions-test.jsonl",
}
"""Kind -> its file in the folder."""


def write(folder):
    """All of them below the folder, which is the working directory."""
    write_data(folder / "data")
    sentencepiece_model(folder)
    report(folder / "data")
    weights(folder)
    events(folder / KINDS["events"])
    (folder / KINDS["recipe"]).write_text(RECIPE)
    run = folder / RUN
    run.mkdir(parents=True)
    sweep = experiment()
    content = {
        "schema": 1, "status": "interrupted", "arm": "fairseq", "init": "start", "seed": 1,
        "recipe": "quick", "command": ["fairseq-train", "data"], "started": "2026-01-02T03:04:05+00:00",
        "ended": None, "seconds": 1.5, "packages": {"torch": "2"}, "hardware": {"cores": 2},
        "git_commit": None, "git_changed": False, "precision": "fp32",
    }  # fmt: skip
    manifest.write(run, content | dict(sweep.trainings[0].identity))
    shutil.copy(folder / "model.pt", run / "checkpoint_last.pt")
    answers = [Prediction(i, str(i % 2), {"0": i / 16, "1": 1 - i / 16}) for i in range(16)]
    predictions.write(folder / KINDS["predictions"], answers)


def experiment():
    """The sweep that the manifest is of, its inputs checked."""
    words = ["--data", "data", "--recipe", KINDS["recipe"], "--inits", f"start={KINDS['safetensors']}"]
    return classifiers(train_settings([*words, "--seeds", "1"], {}), Path("data"), fit=False)


def sentencepiece_model(folder):
    (folder / "text").write_text("".join(f"{line}\n" for line in TEXT), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "spm"), vocab_size=PIECES,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip


def report(data):
    """As `prepare` writes it, of all files of the folder."""
    files = {
        str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(data.rglob("*.*"))
    }
    model = hashlib.sha256((data.parent / "spm.model").read_bytes()).hexdigest()
    content = {
        "options": {"sentencepiece_model": "spm.model", "normalize_apostrophes": False},
        "sha256": {"spm.model": model},
        "files": files,
    }
    (data / REPORT).write_text(json.dumps(content, indent=2))


def weights(folder):
    """A checkpoint after one update, optimizer and all, and its weights in safetensors."""
    sizes = [word.replace("2", "1") if word == "2" else word for word in SIZES]
    torch.manual_seed(1)
    _, trainer = build_trainer(["data", *OURS, *INPUT, *STEPS, *sizes, *FAST])
    iterator = trainer.get_train_iterator(epoch=1, load_dataset=True)
    trainer.train_step([next(iterator.next_epoch_itr())])
    save(trainer, folder / "model.pt")
    fp16.write(folder / "model.pt", folder / "model.safetensors")


def events(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as stream:
        writer = RecordWriter(stream)
        writer.write(Event(wall_time=1.7e9, file_version="brain.Event:2").SerializeToString())
        for step in range(1, 30):
            value = Summary.Value(tag=("loss", "accuracy")[step % 2], simple_value=1 / step)
            event = Event(wall_time=1.7e9 + step, step=step, summary=Summary(value=[value]))
            writer.write(event.SerializeToString())
