"""The input files of a run: checks before the start, and checksums for the manifest."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_small.common import install_fairseq
from roberta_small.common.class_weights import label_counts
from roberta_small.common.data_folder import (
    REPORT,
    find_soft_labels,
    read_report,
    recorded_checksums,
    require_recorded,
    shards_of,
)
from roberta_small.common.errors import UserError
from roberta_small.common.files import SHIPPED, read_lines, sha256, shown_path
from roberta_small.common.label_kinds import KINDS, REGRESSION, SCALING, LabelKind, Scaling, kind_of_report
from roberta_small.common.run import find_checkpoint
from roberta_small.preprocess.dictionary import OVERWRITE, PADDING_PREFIX
from roberta_small.preprocess.options import NO_TEST


def label_kind(data: Path) -> LabelKind:
    """The kind of the labels of a data folder; raises `UserError` if its report has an unknown one.

    Without a report, numbers are recognized by their file, as fairseq's examples write it.
    """
    report, labels = read_report(data), data / "label"
    if not report and (labels / "train.label").is_file() and not (labels / "dict.txt").is_file():
        return KINDS[REGRESSION]
    return kind_of_report(report, data / REPORT)


def classification_files(data: Path, subsets: Sequence[str]) -> list[str]:
    """Names below `data` of the files that a classifier reads; raises `UserError` listing missing files."""
    if not data.is_dir():
        raise UserError(f"{data}: no such file or folder; --data is a file of labelled text or a data folder")
    has_classes = label_kind(data).has_classes
    labels = ["label"] if has_classes else []
    parts = ["input0", *labels, *(["input1"] if (data / "input1").is_dir() else [])]
    names = ["input0/dict.txt", *(f"{part}/dict.txt" for part in labels)]
    names += [f"{part}/{subset}" for part in parts for subset in subsets]
    names += [] if has_classes else [f"label/{subset}.label" for subset in subsets]
    found = _require_files(data, names, "input0/ and label/ as written by `roberta-small prepare`")
    soft = [find_soft_labels(data, subset) for subset in subsets]
    return [*found, *(path.relative_to(data).as_posix() for path in soft if path is not None)]


def masked_lm_files(data: Path, subsets: Sequence[str]) -> list[str]:
    """Names below `data` of the files that a language model reads; raises `UserError` listing missing files.

    In a folder of shards, every shard contains train and only the first contains the other subsets.
    """
    if os.pathsep in str(data):
        raise UserError(
            f"{data}: the path contains '{os.pathsep}', at which fairseq splits paths; rename the folder"
        )
    names: list[str] = []
    for number, shard in enumerate(shards_of(data)):
        here = ["dict.txt", *(subset for subset in subsets if number == 0 or subset == "train")]
        names += [(shard / name).relative_to(data).as_posix() for name in here]
    layout = "dict.txt and binarized text as written by `roberta-small prepare --corpus`"
    if not data.is_dir():
        raise UserError(f"{data}: no such folder; --data is the folder with {layout}")
    return _require_files(data, names, layout)


def _require_files(data: Path, names: list[str], layout: str) -> list[str]:
    """The names of the files; one that is no text stands for an index and what it refers to."""
    files: list[str] = []
    for name in names:
        files += [name] if name.endswith((".txt", ".label")) else [f"{name}.bin", f"{name}.idx"]
    if missing := [name for name in files if not (data / name).is_file()]:
        raise UserError(f"{data}: missing {', '.join(missing)}; --data is the folder with {layout}")
    return files


def special_token_flags(data: Path) -> list[str]:
    """The flags for data whose tokenizer begins and separates texts with other ids than `<s>` and `</s>`."""
    tokenizer = read_report(data).get("tokenizer") or {}
    begin, separator = tokenizer.get("init_token", 0), tokenizer.get("separator_token", 2)
    usual = (begin, separator) == (0, 2)
    return [] if usual else ["--init-token", str(begin), "--separator-token", str(separator)]


def subset_flags(data: Path) -> list[str]:
    """The flag for data without a test set: prepared so, or by fairseq's examples without its labels."""
    prepared = (report := read_report(data)).get("options") or {}
    labelled = {path.stem for path in (data / "label").glob("*")} - {"dict"}
    without = prepared.get("test") == NO_TEST if report else labelled == {"train", "valid"}
    return ["--valid-subset", "valid"] if without else []


def class_names(dictionary: Path) -> list[str]:
    """The classes in a label dictionary; raises `UserError` for a malformed line or fewer than two."""
    names = []
    for number, line in enumerate(read_lines(dictionary), start=1):
        label, _, count = line.rpartition(" ")
        if not label or not count.isdigit():
            raise UserError(
                f"{dictionary}, line {number}: {line!r} is not '<label> <count>'; prepare the data again"
            )
        if not label.startswith(PADDING_PREFIX):
            names.append(label)
    if len(names) < 2:
        raise UserError(
            f"{dictionary}: {len(names)} class(es), but a classifier needs at least 2; check the labels"
        )
    return names


@dataclass(frozen=True)
class Majority:
    """What a model reaches that always predicts the most frequent class of a split, or the mean of train."""

    name: str
    value: float
    """Of the metric."""
    examples: int
    """Of the split."""
    metric: str = "accuracy"


def majorities(
    data: Path, subsets: Sequence[str], classes: Sequence[str], metric: str = "accuracy"
) -> dict[str, Majority]:
    """The majority class, or the mean, of each subset of a data folder whose labels can be read.

    Empty for multi-label data, and for numbers if the metric is another one than those below.
    """
    found: dict[str, Majority] = {}
    kind = label_kind(data)
    for subset in subsets:
        # Another index format, or a mistake that is reported later.
        with contextlib.suppress(UserError, OSError, ValueError):
            if kind.exclusive:
                counts_K = label_counts(data, subset, len(classes))
                most, total = int(counts_K.argmax()), int(counts_K.sum())
                found[subset] = Majority(classes[most], 100 * float(counts_K[most] / total), total)
            elif metric in ("pearson", "rmse"):
                mean = Scaling.from_record(read_report(data).get(SCALING), data).mean
                values = [float(line) for line in read_lines(data / f"label/{subset}.label")]
                rmse = math.dist(values, [mean] * len(values)) / math.sqrt(len(values))
                value = rmse if metric == "rmse" else 0.0
                found[subset] = Majority(f"mean {mean:.4g}", value, len(values), metric)
    return found


def lacks_examples(data: Path, classes: Sequence[str]) -> bool:
    """Whether one of several exclusive classes has no training example, as far as the labels can be read."""
    with contextlib.suppress(UserError, OSError, ValueError):  # as for `majorities`
        return label_kind(data).exclusive and not label_counts(data, "train", len(classes)).all()
    return False


def labels_digest(data: Path) -> str | None:
    """SHA-256 of the labels of valid below a data folder or its line files; None if there are none."""
    found = [path for path in (data / "valid.label", data / "text" / "valid.label") if path.is_file()]
    return sha256(found[0]) if found else None


def require_checkpoint(path: Path, flag: str) -> None:
    """Raise `UserError` unless `path` is a readable, non-empty file."""
    if not path.is_file():
        raise UserError(
            f"{path}: no such file; correct {flag}, or pre-train a checkpoint with `roberta-small pretrain`"
        )
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the checkpoint file is empty; create or download it again")


def require_writable(out: Path) -> None:
    """Raise `UserError` unless runs can be written below `out` (which need not exist yet)."""
    existing = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise UserError(
            f"{existing}: is not a folder, so --out {out} cannot be created; choose another --out"
        )
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"{existing}: no permission to write; choose another --out")


def require_fairseq() -> None:
    """Raise `UserError` if fairseq is not installed for this interpreter, or lacks a change that it needs."""
    if importlib.util.find_spec("fairseq_cli") is None:
        raise UserError(
            f"fairseq is not installed for {sys.executable}; in a clone run `make install` or set PYTHON to "
            f"the right interpreter, otherwise run `{install_fairseq.COMMAND}`"
        )
    install_fairseq.require_changes()


def fingerprint_data(data: Path, names: Sequence[str]) -> dict[str, Any]:
    """The manifest's `data`: the folder and the SHA-256 of its files.

    Raises `UserError` if a file differs from the checksum recorded in the folder. That of shards after the
    first is not compared: the plugin does it when it opens the shard (`fairseq_plugin/tasks/datasets.py`).
    """
    recorded = recorded_checksums(data)
    later = tuple(f"{shard.name}/" for shard in shards_of(data)[1:])
    digests = {}
    for name in names:
        trusted = name in recorded and name.startswith(later)
        digests[name] = recorded[name] if trusted else sha256(data / name)
        require_recorded(data / name, digests[name], recorded.get(name), data)
    return {"path": shown_path(data), "sha256": digests}


def shipped() -> Path | None:
    """The repository's checkpoint, None in a copy without it."""
    return find_checkpoint(SHIPPED)


def shipped_for(data: Path) -> Path | None:
    """The repository's checkpoint if its dictionary is that of the binarized `data`, else None."""
    dictionary = data / "input0" / "dict.txt"
    weights = shipped()
    if weights is None or not dictionary.is_file():
        return None
    return weights if symbols(SHIPPED / "dict.txt") == symbols(dictionary) else None


def symbols(dictionary: Path) -> list[str]:
    """The entries of a dict.txt in the order of their ids, without counts."""
    return [line.removesuffix(f" {OVERWRITE}").rpartition(" ")[0] for line in read_lines(dictionary)]
