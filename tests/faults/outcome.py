"""The results of a sweep or a pre-training that must not depend on how often it was killed."""

import hashlib

import torch

from roberta_small.analysis import load_runs
from roberta_small.analysis.__main__ import main as analysis
from roberta_small.common import manifest
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from roberta_small.fairseq_plugin.training.curves import TIMING_METRICS
from tests.faults import tiny

CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt")
OF_TIME = {"metrics", "previous_training_time"}
"""Parts of a checkpoint that contain meters of speed."""


def outcome(folder, work=tiny.SWEEP):
    """Name -> content: parts of each checkpoint, the status of each run, the long table, the tables."""
    found = {}
    for name in work.runs:
        run = folder / name
        found[f"{name} status"] = manifest.read(run)["status"]
        for checkpoint in CHECKPOINTS:
            state = load_checkpoint(run / checkpoint)
            parts = {key: state[key] for key in ("model", "last_optimizer_state")}
            parts["schedule"] = state["optimizer_history"][-1]  # one entry for each start
            extra = {key: value for key, value in state["extra_state"].items() if key not in OF_TIME}
            for part, content in (parts | extra).items():
                found[f"{name} {checkpoint} {part}"] = digest(content)
        if (run / "model.pt").exists():  # of a pre-training
            found[f"{name} model.pt"] = digest(load_checkpoint(run / "model.pt")["model"])
    runs = folder / work.runs[0].split("/")[0]
    table = load_runs(runs)
    found["metrics"] = table[~table["metric"].isin(TIMING_METRICS)].to_csv(index=False)
    if work.command == tiny.SWEEP.command:
        assert analysis(["tables", str(runs), "--out", str(folder / "report")]) == 0
        for path in sorted((folder / "report").iterdir()):
            found[f"table {path.name}"] = path.read_text().replace(str(folder), "")
    return found


def digest(content):
    """Of all numbers in tensors and containers, to the last bit."""
    state = hashlib.sha256()

    def add(value):
        if torch.is_tensor(value):
            state.update(repr((value.dtype, value.shape)).encode() + value.contiguous().numpy().tobytes())
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                state.update(repr(key).encode())
                add(value[key])
        elif isinstance(value, list | tuple):
            state.update(repr(len(value)).encode())
            for item in value:
                add(item)
        else:
            state.update(repr(value).encode())

    add(content)
    return state.hexdigest()


def differences(one, other):
    """Names of what is not the same."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
