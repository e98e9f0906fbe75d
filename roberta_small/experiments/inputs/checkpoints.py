"""The checkpoint of an initialization: a fairseq checkpoint, or a Transformers model that is converted once.

`resolve` finds it for what the user wrote: a file, a folder with a checkpoint, a folder of `save_pretrained`,
or a name on the Hugging Face hub. A Transformers model is converted into a folder of the cache:

    CACHE/<SHA-256 of the source files>/{model.pt, dict.txt, tokenizer/, conversion.json}

CACHE is $RS_CACHE, or ~/.cache/fairseq-roberta-small. Finding a converted model imports neither torch nor
Transformers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_small.common.errors import UNWRITABLE, UserError, enumerate_some
from roberta_small.common.families import POOLING
from roberta_small.common.files import (
    SHIPPED,
    SHIPPED_NAME,
    atomic_folder,
    atomic_write,
    cache_folder,
    exclusive,
    sha256,
    shown_path,
)
from roberta_small.common.optional import needed_by
from roberta_small.common.run import BEST_CHECKPOINT, find_checkpoint
from roberta_small.experiments.inputs.files import require_checkpoint, symbols

CONVERSION = 4
"""Version of the conversion, part of the key; to be raised when the same source gives another checkpoint."""
MODEL, RECORD = "model.pt", "conversion.json"
CONFIG = "config.json"
TEXT_SUFFIXES = (".json", ".txt", ".model", ".codes")
"""Of configuration, dictionary and tokenizer."""
SAFETENSORS, PICKLES = "*.safetensors", "pytorch_model*.bin"
TOP_LEVEL = "*/*"
"""Files below the top level of a hub repository: other formats of the model, and `POOLING`."""


def written(text: str) -> Path:
    """What the user wrote as a path; of a folder or shipped name with a fairseq checkpoint, its file."""
    path = Path(text)
    if text == SHIPPED_NAME and not path.exists():
        return find_checkpoint(SHIPPED) or SHIPPED
    if text.startswith(".") and not path.exists():
        return path.absolute()  # "./name" is never a name on the hub
    return path if transformers_folder(path) is not None else find_checkpoint(path) or path


@dataclass(frozen=True)
class Resolved:
    """A local fairseq checkpoint."""

    path: Path
    source: str | None = None
    """The folder or hub name that it was converted from; None for a fairseq checkpoint of the user."""
    digest: str | None = None
    """Its SHA-256, if known."""
    note: str = ""
    """How it was converted, for the plan."""

    def fingerprint(self) -> dict[str, Any]:
        """The manifest's `checkpoint`: file and SHA-256, and the source of a converted one."""
        found = {"path": shown_path(self.path), "sha256": self.digest or sha256(self.path)}
        return found if self.source is None else found | {"source": self.source}


def resolve(given: Path, flag: str) -> Resolved:
    """The fairseq checkpoint that `given`, a path or hub name in the option `flag`, stands for.

    Downloads and converts a model where necessary, with progress on standard error. Raises `UserError` if
    there is no such file, folder or model, or if it cannot be converted.
    """
    if (folder := transformers_folder(given)) is not None:
        return _converted(folder, shown_path(folder))
    if not _is_on_hub(given):
        return Resolved(_file(given, flag))
    folder = _downloaded(str(given), flag)
    try:
        return _converted(folder, str(given))
    except UserError as error:
        raise UserError(str(error).replace(str(folder), str(given))) from None


def require_convertible(given: Path, flag: str) -> None:
    """Raise `UserError` if a model of Transformers cannot be represented in fairseq; loads one on the hub."""
    if (folder := transformers_folder(given)) is not None:
        _require_family(folder, str(given))
    elif _is_on_hub(given):
        _downloaded(str(given), flag)


def _is_on_hub(given: Path) -> bool:
    from roberta_small.preprocess.tokenization.choice import is_hub_name  # slow to import

    return not given.exists() and is_hub_name(str(given))


def _require_family(folder: Path, source: str) -> None:
    """Raise `UserError`, naming `source`, if its model cannot be represented in fairseq."""
    from roberta_small.common import families

    if not (folder / CONFIG).is_file():
        return
    try:
        reason = families.refusal(families.read_config(folder / CONFIG))
    except UserError as error:
        raise UserError(str(error).replace(str(folder), source)) from None
    if reason is not None:
        raise UserError(f"{source}: {reason}")


def flag_of(init: str) -> str:
    """The option that names the checkpoint of an initialization, for messages."""
    return "--pretrained" if init == "pretrained" else "--inits"


def resolve_all(inits: Mapping[str, Path | None], data: Path) -> dict[str, Resolved | None]:
    """The checkpoint of each initialization; raises `UserError` as `resolve` and `require_dictionary`."""
    found = {init: None if given is None else resolve(given, flag_of(init)) for init, given in inits.items()}
    for checkpoint in found.values():
        if checkpoint is not None:
            require_dictionary(checkpoint, data / "input0" / "dict.txt")
    return found


def transformers_folder(path: Path) -> Path | None:
    """The folder of `save_pretrained` that a path is, or whose weights it is; None for other paths."""
    if not ((path.parent if path.is_file() else path) / CONFIG).is_file():
        return None
    if path.is_file():
        are_weights = path.suffix == ".bin" or (path.suffix == ".safetensors" and not _is_ours(path))
        return path.parent if are_weights else None
    fairseq = (path / MODEL).is_file() or (path / BEST_CHECKPOINT).is_file()
    weights = path / "model.safetensors"
    return None if fairseq or (weights.is_file() and _is_ours(weights)) else path


def tokenizer_source(given: Path, flag: str) -> str:
    """The folder or hub name with the tokenizer of a checkpoint; raises `UserError` if there is neither."""
    if (folder := transformers_folder(given)) is not None:
        return shown_path(folder)
    return str(given) if _is_on_hub(given) else shown_path(_file(given, flag).parent)


def _file(given: Path, flag: str) -> Path:
    """The fairseq checkpoint at a path or alone in a folder; raises `UserError` for none or several."""
    path = find_checkpoint(given) or given
    if path.is_dir():
        files = sorted(path.glob("*.pt"))
        if not files:
            raise UserError(
                f"{path}: a folder without a checkpoint ({MODEL}, model.safetensors, {BEST_CHECKPOINT}) and "
                f"without {CONFIG} of Transformers; correct {flag}"
            )
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise UserError(f"{path}: contains {len(files)} checkpoints ({names}); specify the file of one")
        path = files[0]
    require_checkpoint(path, flag)
    return path


def require_dictionary(resolved: Resolved, ours: Path, remedy: str = "") -> None:
    """Raise `UserError` if the dictionary beside a converted checkpoint is not that of the binarized data.

    `remedy` replaces that for labelled data.
    """
    theirs = resolved.path.parent / "dict.txt"
    if resolved.source is not None and symbols(theirs) != symbols(ours):
        command = f"roberta-small prepare FILE --tokenizer {resolved.source} --out DATA"
        remedy = remedy or f"prepare the data with its tokenizer: {command}"
        raise UserError(f"{ours}: not the vocabulary of {resolved.source}; {remedy}")


def _is_ours(path: Path) -> bool:
    """Whether `roberta-small export fairseq` wrote the safetensors file, whose header contains this entry."""
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        return b'"kind":"fairseq-roberta"' in stream.read(min(size, 1 << 24)).replace(b" ", b"")


def _downloaded(name: str, flag: str) -> Path:
    """The files of a model on the hub; raises `UserError` for none, and before the weights are downloaded."""
    with needed_by(name):
        from huggingface_hub import snapshot_download
    print(f"{name}: loading from the Hugging Face hub", file=sys.stderr)  # without a network it retries
    text = [f"*{suffix}" for suffix in TEXT_SUFFIXES]
    try:
        folder = Path(snapshot_download(name, allow_patterns=[CONFIG], ignore_patterns=TOP_LEVEL))
        _require_family(folder, name)
        folder = Path(snapshot_download(name, allow_patterns=[*text, SAFETENSORS], ignore_patterns=TOP_LEVEL))
        if not any(folder.glob(SAFETENSORS)):
            snapshot_download(name, allow_patterns=[PICKLES], ignore_patterns=TOP_LEVEL)
        snapshot_download(name, allow_patterns=[POOLING])
    except Exception as error:  # the hub's library raises errors of many kinds
        if isinstance(error, UserError) or getattr(error, "errno", None) in UNWRITABLE:
            raise
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{name}: no such file or folder, and no model of this name can be loaded from the Hugging Face "
            f"hub ({type(error).__name__}: {reason}); correct {flag}"
        ) from None
    return folder


def _converted(folder: Path, source: str) -> Resolved:
    """The converted model of a folder of `save_pretrained`, from the cache or new."""
    # All files that the conversion may read.
    weights = sorted(folder.glob(SAFETENSORS)) or sorted(folder.glob(PICKLES))
    text = [path for path in sorted(folder.iterdir()) if path.is_file() and path.suffix in TEXT_SUFFIXES]
    files = {path.name: sha256(path) for path in [*text, *weights]}
    if (folder / POOLING).is_file():
        files[POOLING] = sha256(folder / POOLING)
    key = hashlib.sha256(json.dumps([CONVERSION, sorted(files.items())]).encode()).hexdigest()
    target = cache_folder() / key
    record, cached = _read_record(target), True
    if record is None:
        with exclusive(
            target.with_suffix(".lock"), f"{source}: waiting for another process that converts it"
        ):
            record = _read_record(target)
            if record is None:  # otherwise another process has converted it meanwhile
                record, cached = _convert(folder, source, files, target), False
    note = f"converted from {source}, largest difference of a logit "
    note += f"{record['difference']:.1e}{' (from the cache)' if cached else ''}"
    note = "; ".join([note, *record["notes"]])
    if record["random"]:
        note += "; its LM head is random"
    if record["unused"]:
        note += f"; not used: {enumerate_some(record['unused'])}"
    return Resolved(target / MODEL, source, record["sha256"], note)


def _convert(folder: Path, source: str, files: dict[str, str], target: Path) -> dict[str, Any]:
    print(f"{source}: converting to fairseq, once", file=sys.stderr, flush=True)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # Before fairseq is imported, which would otherwise let the root logger print everything.
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    with needed_by(source):
        from roberta_small.export.transformers.to_fairseq import convert_back
    with atomic_folder(target) as new:
        found = convert_back(folder, new / MODEL)
        record = {
            "source": source,
            "files": files,
            "sha256": sha256(new / MODEL),
            "difference": found.difference,
            "random": list(found.random),
            "unused": list(found.unused),
            "notes": list(found.notes),
        }
        atomic_write(new / RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    return record


def _read_record(target: Path) -> dict[str, Any] | None:
    """The record of a converted model; None if there is none, or if the model is corrupt."""
    try:
        record = json.loads((target / RECORD).read_text(encoding="utf-8"))
        intact = (target / "dict.txt").is_file() and sha256(target / MODEL) == record["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if intact else None
