"""Logs as other trainers lay them out, written with torch's own SummaryWriter; copied from real runs."""

import json

from torch.utils.tensorboard import SummaryWriter

EPOCHS = (25, 50)
"""The steps of the validations."""


def write_fairseq(folder, valid=(50.0, 60.0), test=(51.0, 59.0), loss=0.7):
    """`fairseq-train --tensorboard-logdir FOLDER --valid-subset valid,test`: a folder a subset."""
    for subset, accuracies in (("valid", valid), ("test", test), ("train", valid)):
        with SummaryWriter(str(folder / subset)) as writer:
            writer.add_text("sys.argv", "fairseq-train data --seed 1")
            for step, accuracy in zip(EPOCHS, accuracies, strict=True):
                writer.add_scalar("loss", loss, step)
                writer.add_scalar("accuracy", accuracy, step)
    with SummaryWriter(str(folder / "train_inner")) as writer:
        writer.add_text("sys.argv", "fairseq-train data --seed 1")
        for step in range(10, 51, 10):
            writer.add_scalar("loss", loss, step)
            writer.add_scalar("lr", 1e-3, step)


def write_transformers(folder, valid=(0.5, 0.6), test=0.59):
    """`transformers.Trainer(output_dir=FOLDER)`: one folder, a file for training and one for the test."""
    folder = folder / "runs" / "Nov21_08-16-38_host"
    with SummaryWriter(str(folder), filename_suffix=".0") as writer:
        writer.add_text("args", json.dumps({"output_dir": "out"}))
        for step in range(10, 51, 10):
            writer.add_scalar("train/loss", 0.7, step)
            writer.add_scalar("train/learning_rate", 1e-3, step)
            writer.add_scalar("train/epoch", step / 25, step)
        for step, accuracy in zip(EPOCHS, valid, strict=True):
            writer.add_scalar("eval/loss", 0.69, step)
            writer.add_scalar("eval/accuracy", accuracy, step)
        writer.add_scalar("train/train_runtime", 0.77, 50)
    with SummaryWriter(str(folder), filename_suffix=".1") as writer:
        writer.add_scalar("train/epoch", 2.0, 50)
        writer.add_scalar("test/accuracy", test, 50)


def fairseq_json_lines():
    """What `fairseq-train --log-format json` prints: updates, then valid, test and train of each epoch."""
    for epoch, step in enumerate(EPOCHS, start=1):
        inner = {"loss": "1.016", "num_updates": f"{step - 15}"}
        yield "train_inner", {"epoch": epoch, "update": epoch - 0.6} | inner
        for subset, accuracy in (("valid", "49.5"), ("test", "50.25"), ("train", "51")):
            stats = {"loss": "1.001", "accuracy": accuracy, "num_updates": str(step), "wps": "157855"}
            yield subset, {"epoch": epoch} | {f"{subset}_{key}": value for key, value in stats.items()}


def write_json_log(path, prefix=True):
    """fairseq's log with other lines in between; the console shows a prefix, `--log-file` has none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["{'_name': None, 'common': {'seed': 1}}"]
    for name, stats in fairseq_json_lines():
        before = f"2026-11-21 08:16:38 | INFO | {name} | " if prefix else ""
        lines.append(before + json.dumps(stats))
        lines.append("2026-11-21 08:16:38 | INFO | fairseq.trainer | begin training epoch 2")
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_export(path, rows):
    """A file as TensorBoard exports it: `rows` are (wall time, step, value)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["Wall time,Step,Value", *(f"{wall},{step},{value}" for wall, step, value in rows)]
    path.write_bytes("".join(f"{line}\r\n" for line in lines).encode())
