"""The manifest of a run: `manifest.json` in the run folder (`common.run`).

Methods write it, and all other commands read it. A run is finished if its manifest has the status "finished".
The manifest is a JSON object with these keys:

    schema          1
    status          "running", "finished", "failed" or "interrupted"
    arm             the method: "fairseq", "causal", "transformers", "lora", "lora-causal", "tfidf",
                    or "pretrain" for language-model runs; in a grid with the setting, "fairseq,lr=1e-4"
    init            "random", "pretrained", ... (the initial weights)
    seed            integer
    recipe          name of the recipe
    recipe_flags    list of words: its flags and those after --; a run resumes only with the same flags
    command         list of words, as a user would type them
    data            {"path": folder, "sha256": {file: digest}}
    columns         {role: column} of the file that the data were prepared from: text, more_text, pair, ...
    checkpoint      {"path": file, "sha256": digest} of the initial weights, or null; with "source", a
                    folder or hub name, if they were converted from a Transformers model
    git_commit      of this project, or null outside a clone
    git_changed     whether files differed from that commit
    packages        {name: version}
    hardware        {"cpu", "cores", "threads", "memory_bytes", "gpu"}
    precision       "fp32" or "bf16", of the matrix products; absent if the trainer did not log it
    started, ended  ISO 8601 in UTC; ended is null while running
    seconds         time spent training, summed over resumptions
    teacher_seconds  of a distillation: time that the teacher took to read the text, not part of `seconds`
    cpu_seconds     CPU time of the training, summed over resumptions; without data-parallel workers
    peak_memory_bytes  largest memory of the process, or allocated on the GPU; absent if not measured
    parameters, trainable_parameters  numbers of parameters of the network; absent if not logged
    best            of a finished run, its best validation: {"metric", "epoch", "subset": the validation set,
                    "scores": {subset: value}, "labels": SHA-256 of the labels of valid, or null if unknown}
    label_kind      "multi_label_classification" or "regression" (common.label_kinds); absent for one class
                    per text
    continued       of a run that was finished and got more epochs: the flags of its earlier lengths and
                    schedules, a list of words for each; otherwise absent
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import NoneType
from typing import Any

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write, parse_json

SCHEMA = 1
NAME = "manifest.json"
STATUSES = ("running", "finished", "failed", "interrupted")
Types = dict[str, type | tuple[type, ...]]
REQUIRED: Types = {
    **dict.fromkeys(("schema", "seed"), int),
    **dict.fromkeys(("status", "arm", "init", "recipe"), str),
    "command": list,
    "data": dict,
}
OPTIONAL: Types = {
    **dict.fromkeys(("recipe_flags", "continued"), list),
    **dict.fromkeys(("packages", "hardware", "best", "columns"), dict),
    **dict.fromkeys(("precision", "started", "label_kind"), str),
    **dict.fromkeys(("seconds", "teacher_seconds", "cpu_seconds"), (int, float)),
    **dict.fromkeys(("peak_memory_bytes", "parameters", "trainable_parameters"), int),
    "checkpoint": (dict, NoneType),
    "ended": (str, NoneType),
}

Manifest = dict[str, Any]
REMEDY = "delete the run folder and run it again"


def validate(manifest: object, where: str | os.PathLike[str]) -> Manifest:
    """Check and return a manifest; raises `UserError` with the file and the key."""
    if not isinstance(manifest, dict):
        raise UserError(f"{where}: not a JSON object; {REMEDY}")
    for key, kind in (REQUIRED | OPTIONAL).items():
        if key in manifest:
            _check_type(manifest[key], kind, key, where)
        elif key in REQUIRED:
            raise UserError(f"{where}: key '{key}' is missing; {REMEDY}")
    for key in ("data", "checkpoint"):
        if (digests := (manifest.get(key) or {}).get("sha256")) is not None:
            _check_type(digests, dict if key == "data" else str, f"{key}: sha256", where)
    if manifest["schema"] != SCHEMA:
        raise UserError(f"{where}: schema {manifest['schema']}, but this version reads {SCHEMA}; {REMEDY}")
    if manifest["status"] not in STATUSES:
        raise UserError(f"{where}: unknown status '{manifest['status']}'; {REMEDY}")
    return manifest


def _check_type(
    value: object, kind: type | tuple[type, ...], key: str, where: str | os.PathLike[str]
) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UserError(f"{where}: key '{key}' has the wrong type; {REMEDY}")


def read(run: str | os.PathLike[str]) -> Manifest | None:
    """Read the manifest of a run folder; None if there is none. Raises `UserError` if it is not valid."""
    path = Path(run) / NAME
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: not a regular file; {REMEDY}")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8; {REMEDY}") from None
    return validate(parse_json(text, path, REMEDY), path)


def write(run: str | os.PathLike[str], manifest: Manifest) -> None:
    """Validate a manifest and write it atomically."""
    path = Path(run) / NAME
    validate(manifest, path)
    atomic_write(path, json.dumps(manifest, indent=2, ensure_ascii=False, sort_keys=True) + "\n")
