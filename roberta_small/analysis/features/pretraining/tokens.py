"""Tokens and perplexity of the pre-training from which each method and init started."""

from __future__ import annotations

import csv
import io
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from roberta_small.analysis.features.best_settings.choice import values_in
from roberta_small.analysis.read.long_table import read_runs
from roberta_small.analysis.read.runs import LoggedRun, run_at
from roberta_small.common import manifest
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.files import read_lines, sha256

logger = logging.getLogger(__name__)

PRETRAIN_ARM = "pretrain"
KEPT = re.compile(r"checkpoint_\d+_(\d+)\.pt")
"""fairseq's name of an intermediate checkpoint (--keep-interval-updates): epoch and update."""
COLUMNS = ("init", "tokens")
FACTORS = ("max-update", "batch-size", "tokens-per-sample")
REMEDY = "give --tokens FILE, a CSV file with the columns init and tokens"
SUBSET, METRIC = "valid", "ppl"


def find_tokens(
    runs: Iterable[LoggedRun], known: Mapping[str, int] | None = None
) -> dict[tuple[str, str], int]:
    """(arm, init) -> tokens seen in pre-training.

    Taken from `known` (init -> tokens); else 0 if the run's manifest records no checkpoint; else from the
    manifest beside the checkpoint (`pretrained_tokens`). Groups for which none of these is available are
    excluded with a warning. Raises `UserError` if no group was pre-trained.
    """
    found: dict[tuple[str, str], int] = {}
    unknown: dict[tuple[str, str], str] = {}
    for run in runs:
        group = run.arm, run.init
        if group in found or group in unknown:
            continue
        if known and run.init in known:
            found[group] = known[run.init]
            continue
        content = run.read_manifest()
        if content is None or "checkpoint" not in content:
            unknown[group] = "no checkpoint in its manifest"
        elif content["checkpoint"] is None:
            found[group] = 0
        else:
            tokens, why = _tokens_of(content["checkpoint"])
            if tokens is None:
                unknown[group] = why
            else:
                found[group] = tokens
    if unknown:
        names = enumerate_some(f"{'/'.join(group)} ({why})" for group, why in unknown.items())
        logger.warning("excluded, pre-training tokens unknown: %s; %s", names, REMEDY)
    if not any(found.values()):
        raise UserError(f"no run has a known number of pre-training tokens above 0; {REMEDY}")
    return found


def kept_update(checkpoint: Path) -> int | None:
    """The update in the name of an intermediate checkpoint; None for other names."""
    matched = KEPT.fullmatch(checkpoint.name)
    return None if matched is None else int(matched[1])


def pretrained_tokens(content: manifest.Manifest, updates: int | None = None) -> int | None:
    """Tokens of a pre-training run, from its flags: updates times the tokens of a full batch.

    After `updates` updates, or at the end of a finished run. Includes the tokens of the pre-training of the
    checkpoint from which it started. None if the manifest is not of a pre-training run or lacks a flag:
    `--batch-size`, `--tokens-per-sample`, and for the end `--max-update` without another limit.
    """
    if content["arm"] != PRETRAIN_ARM:
        return None
    values = values_in(content.get("recipe_flags") or (), (*FACTORS, "update-freq", "max-epoch"))
    if updates is not None:
        values = values | {"max-update": str(updates)}
    elif content["status"] != "finished" or "max-epoch" in values:
        return None
    factors = [size for flag in FACTORS if (size := _whole(values.get(flag, ""))) is not None]
    update_freq = _whole(values.get("update-freq", "1"))
    if len(factors) < len(FACTORS) or update_freq is None:
        return None
    before = 0
    if start := content.get("checkpoint"):
        # A PPMI-SVD initialization has no manifest: it was not trained on any tokens.
        before = _tokens_of(start)[0] or 0
    return before + math.prod(factors) * update_freq


def read_tokens(path: str | os.PathLike[str]) -> dict[str, int]:
    """init -> tokens, from a CSV file with the columns `init` and `tokens` (10000000 or 1e7).

    Raises `UserError` with file and line for a missing column, a repeated init, or tokens that are not a
    whole number.
    """
    rows = csv.reader(io.StringIO("\n".join(read_lines(path))))
    header = [name.strip() for name in next(rows, [])]
    if missing := [name for name in COLUMNS if name not in header]:
        raise UserError(f"{path}, line 1: missing column {' and '.join(missing)}; the heading is init,tokens")
    found: dict[str, int] = {}
    for row in rows:
        if not row:
            continue
        where = f"{path}, line {rows.line_num}"
        if len(row) != len(header):
            raise UserError(f"{where}: {len(row)} values for {len(header)} columns")
        cells = {name: cell.strip() for name, cell in zip(header, row, strict=True)}
        init, tokens = cells["init"], _whole(cells["tokens"])
        if tokens is None:
            raise UserError(f"{where}: tokens {cells['tokens']!r} is not an integer (10000000 or 1e7)")
        if init in found:
            raise UserError(f"{where}: repeated init '{init}'; keep one of the lines")
        found[init] = tokens
    return found


def training_of(checkpoint: Mapping[str, Any]) -> tuple[manifest.Manifest | None, str]:
    """The manifest of the training run that wrote a checkpoint, and a reason for missing values.

    `checkpoint` is the entry in the manifest of a run that started from it. The manifest is None if the
    checkpoint or its manifest is missing, or if the checkpoint has another SHA-256 by now.
    """
    path = Path(checkpoint["path"])
    if not path.is_file():
        return None, f"{path} does not exist"
    content = manifest.read(path.parent)
    if content is None:
        return None, f"no {manifest.NAME} beside {path}"
    if sha256(path) != checkpoint["sha256"]:
        return None, f"{path} has changed since (SHA-256)"
    return content, f"{path.parent / manifest.NAME} has no number of tokens"


def _tokens_of(checkpoint: Mapping[str, Any]) -> tuple[int | None, str]:
    """Pre-training tokens of a checkpoint (None if unknown), and why they are unknown."""
    content, why = training_of(checkpoint)
    updates = kept_update(Path(checkpoint["path"]))
    return (None if content is None else pretrained_tokens(content, updates)), why


def _whole(text: str) -> int | None:
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        return None
    return int(number) if 0 <= number < math.inf and number == int(number) else None


def find_perplexities(runs: Iterable[LoggedRun]) -> dict[tuple[str, str], float]:
    """(arm, init) -> perplexity of the pre-trained checkpoint on held-out text, where its logs exist.

    For an intermediate checkpoint, the perplexity at its update; for others (`model.pt`) the lowest, because
    they are selected by it.
    """
    found: dict[tuple[str, str], float] = {}
    logged = cache(_logged)  # many runs start from the checkpoints of one pre-training
    for run in runs:
        checkpoint = (run.read_manifest() or {}).get("checkpoint")
        if checkpoint is None or (run.arm, run.init) in found:
            continue
        value = _perplexity(checkpoint, logged)
        if math.isfinite(value):
            found[run.arm, run.init] = value
    return found


def _perplexity(checkpoint: Mapping[str, Any], logged: Callable[[Path], pd.DataFrame | None]) -> float:
    """NaN if there are no logs, or if the checkpoint has changed since."""
    path = Path(checkpoint["path"])
    try:
        content, _ = training_of(checkpoint)
    except UserError:
        return math.nan
    if content is None or content["arm"] != PRETRAIN_ARM:
        return math.nan
    rows = logged(path.parent)
    if rows is None:
        return math.nan
    update = kept_update(path)
    if update is None:
        return float(rows["value"].min())
    values = rows.loc[rows["step"] == update, "value"]
    return float(values.iloc[0]) if len(values) else math.nan


def _logged(folder: Path) -> pd.DataFrame | None:
    """The logged perplexities on held-out text of a pre-training run; None, with a warning, without logs."""
    try:
        run = run_at(folder)
        table = None if run is None else read_runs([run])
    except UserError as error:
        logger.warning("perplexity unknown: %s", error)
        return None
    return None if table is None else table[(table["subset"] == SUBSET) & (table["metric"] == METRIC)]
