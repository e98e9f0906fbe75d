"""Small run trees, whose records TensorBoard's own writer writes."""

import itertools
import json
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

STEPS_PER_EPOCH = 225
NUMBERS = itertools.count()
"""Of event files."""


def write_events(folder, rows, wall_time=1_700_000_000.0, suffix=""):
    """One event file with (step, tag, value) rows, one second apart; returns its path."""
    path = Path(folder) / f"events.out.tfevents.{next(NUMBERS):010d}.host{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as stream:
        writer = RecordWriter(stream)
        writer.write(Event(wall_time=wall_time, file_version="brain.Event:2").SerializeToString())
        for index, (step, tag, value) in enumerate(rows):
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            event = Event(wall_time=wall_time + index, step=step, summary=summary)
            writer.write(event.SerializeToString())
    return path


def write_manifest(run, arm, init, seed, status="finished", **more):
    """A manifest with the keys that the contract requires."""
    manifest = {
        "schema": 1, "status": status, "arm": arm, "init": init, "seed": seed,
        "recipe": "reference", "command": ["fairseq-train"], "data": {}, **more,
    }  # fmt: skip
    run.mkdir(parents=True, exist_ok=True)
    (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def write_run(root, init, seed, valid, test, arm="fairseq", status="finished", metric="accuracy", **more):
    """A run with one validation an epoch: `valid` and `test` are the values of the epochs."""
    run = Path(root) / arm / init / f"seed{seed}"
    write_manifest(run, arm, init, seed, status, **more)
    for subset, values in (("valid", valid), ("test", test)):
        rows = [(STEPS_PER_EPOCH * epoch, metric, value) for epoch, value in enumerate(values, start=1)]
        write_events(run / "tensorboard" / subset, rows)
    return run


def write_six_runs(root):
    """Two inits x three seeds x three epochs; pretrained/seed2 ties in epochs 1 and 3."""
    write_run(root, "pretrained", 1, [70.0, 81.0, 80.0], [69.0, 79.25, 78.0], seconds=135.0)
    write_run(root, "pretrained", 2, [80.0, 75.0, 80.0], [78.0, 77.5, 78.5])
    write_run(root, "pretrained", 3, [70.0, 80.0, 83.5], [71.0, 79.0, 80.0])
    write_run(root, "random", 1, [50.0, 62.0, 61.0], [50.5, 65.5, 64.0])
    write_run(root, "random", 2, [65.0, 60.0, 61.0], [66.75, 60.0, 61.0])
    write_run(root, "random", 3, [50.0, 60.0, 62.5], [51.0, 60.0, 68.25])
    return root
