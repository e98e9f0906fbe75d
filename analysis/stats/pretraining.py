"""How many tokens of pre-training are behind each arm and init."""

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

from common import manifest
from common.errors import UserError, enumerate_some
from common.files import read_lines, sha256

from ..read.load import read_runs
from ..read.runs import Run, run_at
from .settings import values_in

logger = logging.getLogger(__name__)

PRETRAIN_ARM = "pretrain"
KEPT = re.compile(r"checkpoint_\d+_(\d+)\.pt")
"""fairseq's name of a checkpoint in the middle of a training (--keep-interval-updates): epoch and update."""
COLUMNS = ("init", "tokens")
FACTORS = ("max-update", "batch-size", "tokens-per-sample")
REMEDY = "give --tokens FILE, a CSV file with the columns init and tokens"


def find_tokens(runs: Iterable[Run], known: Mapping[str, int] | None = None) -> dict[tuple[str, str], int]:
    """Tokens seen in pre-training by the arms and inits of which that can be told.

    The number is that of the init in `known`; else 0 where the manifest of the run says that it started from
    no checkpoint; else what the manifest beside the checkpoint says (`pretrained_tokens`). The others are
    left out with a warning. Raises `UserError` where none has been pre-trained.
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
        content = manifest.read(run.path)
        if content is None or "checkpoint" not in content:
            unknown[group] = "its manifest names no checkpoint"
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
        logger.warning("left out, tokens of pre-training unknown: %s; %s", names, REMEDY)
    if not any(found.values()):
        raise UserError(f"no run has a known number of tokens of pre-training above 0; {REMEDY}")
    return found


def kept_update(checkpoint: Path) -> int | None:
    """After which update a checkpoint was kept, as its name says it; None for any other name."""
    matched = KEPT.fullmatch(checkpoint.name)
    return None if matched is None else int(matched[1])


def pretrained_tokens(content: manifest.Manifest, updates: int | None = None) -> int | None:
    """Tokens of a pre-training, from its flags: updates times the tokens of a full batch.

    After `updates` updates, or at the end of a finished run. With the tokens of the checkpoint that it
    started from, where that was pre-trained itself. None where the manifest is of no such run, or its flags
    do not say: `--batch-size`, `--tokens-per-sample`, and for the end `--max-update` and no other limit.
    """
    if content["arm"] != PRETRAIN_ARM:
        return None
    values = values_in(content.get("recipe_flags") or (), (*FACTORS, "update-freq", "max-epoch"))
    if updates is not None:
        values = values | {"max-update": str(updates)}
    elif content["status"] != "finished" or "max-epoch" in values:
        return None
    factors = [_whole(values.get(flag, "")) for flag in FACTORS]
    often = _whole(values.get("update-freq", "1"))
    if None in factors or often is None:
        return None
    before = 0
    if start := content.get("checkpoint"):
        # A PPMI-SVD initialization has no manifest: no token was trained on.
        before = _tokens_of(start)[0] or 0
    return before + math.prod(factors) * often


def read_tokens(path: str | os.PathLike[str]) -> dict[str, int]:
    """Tokens by init from a CSV file with the columns `init` and `tokens`: 10000000 or 1e7.

    Raises `UserError` naming file and line for a missing column, an init twice, or what is no whole number.
    """
    rows = csv.reader(io.StringIO("\n".join(read_lines(path))))
    header = [name.strip() for name in next(rows, [])]
    if missing := [name for name in COLUMNS if name not in header]:
        raise UserError(f"{path}, line 1: no column {' and '.join(missing)}; write init,tokens")
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
            raise UserError(f"{where}: tokens {cells['tokens']!r} is no whole number; write 10000000 or 1e7")
        if init in found:
            raise UserError(f"{where}: '{init}' stands there twice; keep one")
        found[init] = tokens
    return found


def training_of(checkpoint: Mapping[str, Any]) -> tuple[manifest.Manifest | None, str]:
    """The manifest of the training that wrote a checkpoint, as another manifest records it; or why there is
    none."""
    path = Path(checkpoint["path"])
    if not path.is_file():
        return None, f"{path} is not there"
    content = manifest.read(path.parent)
    if content is None:
        return None, f"no {manifest.NAME} beside {path}"
    if sha256(path) != checkpoint["sha256"]:
        return None, f"{path} is not the file that it started from"
    return content, f"{path.parent / manifest.NAME} does not tell"


def _tokens_of(checkpoint: Mapping[str, Any]) -> tuple[int | None, str]:
    """Tokens behind a checkpoint, or why they are not known."""
    content, why = training_of(checkpoint)
    updates = kept_update(Path(checkpoint["path"]))
    return (None if content is None else pretrained_tokens(content, updates)), why


def _whole(text: str) -> int | None:
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        return None
    return int(number) if 0 <= number < math.inf and number == int(number) else None


SUBSET, METRIC = "valid", "ppl"


def find_perplexities(runs: Iterable[Run]) -> dict[tuple[str, str], float]:
    """Perplexity behind the arms and inits that started from a checkpoint of a pre-training with logs.

    Of a checkpoint that is kept under the number of its update, the perplexity at that update; of any other
    (`model.pt`) the lowest, which chose it.
    """
    found: dict[tuple[str, str], float] = {}
    logged = cache(_logged)  # many runs start from the checkpoints of one pre-training
    for run in runs:
        checkpoint = (manifest.read(run.path) or {}).get("checkpoint")
        if checkpoint is None or (run.arm, run.init) in found:
            continue
        value = _perplexity(checkpoint, logged)
        if math.isfinite(value):
            found[run.arm, run.init] = value
    return found


def _perplexity(checkpoint: Mapping[str, Any], logged: Callable[[Path], pd.DataFrame | None]) -> float:
    """NaN where nothing is known, or the file is another by now."""
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
    """The perplexities of held-out text that a pre-training logged; None where it has no logs to read."""
    try:
        run = run_at(folder)
        table = None if run is None else read_runs([run])
    except UserError:
        return None
    return None if table is None else table[(table["subset"] == SUBSET) & (table["metric"] == METRIC)]
