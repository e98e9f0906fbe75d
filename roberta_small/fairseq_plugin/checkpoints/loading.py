"""Load fairseq checkpoints without executing code.

A checkpoint is a pickle, and a pickle can run any program. `torch.load(weights_only=True)` reads tensors,
containers and the classes of an allow-list, nothing else. fairseq's checkpoints need the allow-list below
because they contain the configuration of the run.

The file is a zip archive with a checksum for each member. torch does not compare them, so a flipped bit would
silently change a weight. Here they are verified first. Weights can also be stored as safetensors (`fp16.py`).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import ctypes
import hashlib
import json
import mmap
import os
import pickle
import re
import struct
import typing
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import omegaconf
import torch
from fairseq.dataclass import constants
from fairseq.dataclass.utils import overwrite_args_by_name
from safetensors import SafetensorError, safe_open
from torch import Tensor

from roberta_small.common.errors import UserError
from roberta_small.common.families import TIED, TOKENS
from roberta_small.common.files import atomic_open
from roberta_small.common.label_kinds import SCALING

LM_HEAD = "encoder.lm_head."
"""Prefix of the weights of the language model's head."""
OPTIMIZER_STATE = "last_optimizer_state"
"""fairseq's key of Adam's moments."""
WRAPPED = "module."
SUFFIX = ".safetensors"
FORMAT = "fairseq-roberta"
"""Metadata entry `kind` of the safetensors files that `fp16.write` writes."""
NAMESPACE = "argparse.Namespace"
"""JSON key that marks an `argparse.Namespace` in the stored configuration."""


class Meter:
    """Stands for fairseq's meters of training in checkpoints before 0.9, which are read but not used."""


SCALAR = np._core.multiarray.scalar  # type: ignore[attr-defined]  # private, but the name in pickles
ALLOWED = [
    # Plain data classes: unpickling them sets attributes and calls no function that the file chooses.
    *(argparse.Namespace, omegaconf.DictConfig, omegaconf.ListConfig),
    *(omegaconf.base.ContainerMetadata, omegaconf.base.Metadata),
    *(omegaconf.nodes.AnyNode, omegaconf.nodes.BooleanNode, omegaconf.nodes.EnumNode),
    *(omegaconf.nodes.FloatNode, omegaconf.nodes.IntegerNode, omegaconf.nodes.StringNode),
    *(collections.defaultdict, collections.OrderedDict, typing.Any),
    *(dict, list, int, float, str, bool),
    # Metrics computed with NumPy: a scalar is pickled as its type and its bytes.
    SCALAR,
    (SCALAR, "numpy.core.multiarray.scalar"),  # its name in NumPy 1
    np.dtype,
    *(np.dtypes.Float64DType, np.dtypes.Float32DType, np.dtypes.Int64DType),
    *(
        value
        for value in vars(constants).values()
        if isinstance(value, type) and issubclass(value, constants.Enum)
    ),
    *(
        (Meter, f"fairseq.{module}.{name}")
        for module in ("meters", "logging.meters")
        for name in ("AverageMeter", "TimeMeter", "StopwatchMeter", "SumMeter")
    ),
]
FILE_ERRORS = (
    *(RuntimeError, OSError, EOFError, ValueError, LookupError, OverflowError),
    *(AssertionError, MemoryError, struct.error, zipfile.BadZipFile, zlib.error),
)
"""Raised by torch and NumPy for files that are truncated, empty or in another format."""
READ_ERRORS = (*FILE_ERRORS, AttributeError, TypeError)
"""The same of files with pickled objects."""
ZIP_MAGIC = b"PK\x03\x04"
LOCAL_HEADER, LOCAL_LENGTHS = 30, 26
"""Of a zip member (APPNOTE 4.3.7): bytes before its name, offset of the lengths of name and extra field."""
CHUNK, PORTION = 1 << 20, 16 << 20
"""Bytes that are in memory at a time: of a compressed member, of a mapped file."""


def allow_fairseq_objects() -> None:
    """Let `torch.load(weights_only=True)`, torch's default, read the classes in `ALLOWED`."""
    torch.serialization.add_safe_globals(ALLOWED)


def load_checkpoint(path: str | os.PathLike[str], *, optimizer: bool = True) -> dict[str, Any]:
    """Read a fairseq checkpoint to the CPU, from a .pt or a .safetensors file.

    Returns fairseq's state: a dictionary with the keys `model`, `cfg`, `extra_state`, ... With `optimizer`
    false, it lacks `last_optimizer_state`, which is two thirds of a checkpoint and is then not read, except
    for its checksums; and the language model's head of the student of a distillation, which learns hidden
    states, so that its head is still random.

    Raises `UserError` for a file that is missing, truncated, corrupt, not a fairseq checkpoint, or that
    contains anything outside the allow-list.
    """
    return _read(Path(path), weights=True, optimizer=optimizer)


def read_outline(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the configuration of a checkpoint and the shapes of its weights, but not the weights.

    Returns fairseq's state as `load_checkpoint` does, with tensors on torch's device `meta`. Checksums are
    not compared. Raises `UserError` as `load_checkpoint` does.
    """
    return _read(Path(path), weights=False, optimizer=True)


def _read(path: Path, *, weights: bool, optimizer: bool) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{path}: no such checkpoint")
    if path.suffix == SUFFIX:
        try:
            return _read_safetensors(path, weights=weights)
        except (SafetensorError, OSError, LookupError, ValueError, TypeError, AttributeError):
            raise UserError(f"{path}: truncated or corrupt; copy the file again") from None
    allow_fairseq_objects()
    with path.open("rb") as stream:
        try:
            if not weights:
                with torch.serialization.skip_data():
                    state = torch.load(stream, map_location="meta", weights_only=True)
            elif verify_checksums(stream) and not optimizer:
                state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            else:
                state = torch.load(stream, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise UserError(f"{path}: {refusal(error)}") from None
        except READ_ERRORS:
            raise UserError(
                f"{path}: not a valid checkpoint (truncated or corrupt); copy the file again or train again"
            ) from None
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError(f"{path}: not a fairseq checkpoint (no key 'model')")
    cfg, settings = state.get("cfg"), Mapping | argparse.Namespace | None
    expected = [("cfg", cfg, Mapping | None), ("extra_state", state.get("extra_state"), Mapping | None)]
    if isinstance(cfg, Mapping):
        expected += [("cfg.model", cfg.get("model"), settings), ("cfg.task", cfg.get("task"), settings)]
    for key, value, types in [*expected, ("args", state.get("args"), settings)]:
        if not isinstance(value, types):
            raise UserError(f"{path}: not a fairseq checkpoint ('{key}' contains no settings)")
    model = {name.removeprefix(WRAPPED): weight for name, weight in state["model"].items()}
    state["model"] = model
    if weights and TIED in model and TOKENS in model:
        # From a GPU, fairseq saves the token embeddings twice: as the matrix of the head, too.
        head, tokens = model[TIED], model[TOKENS]
        tied = head.data_ptr() == tokens.data_ptr()
        if not tied and head.dtype == tokens.dtype and torch.equal(head, tokens):
            model[TIED] = tokens
    if weights and not optimizer:
        state.pop(OPTIMIZER_STATE, None)
        if task_settings(state).get("_name") == "distillation":
            state["model"] = {name: w for name, w in model.items() if not name.startswith(LM_HEAD)}
        return _out_of_file(state)
    return state


def _out_of_file(state: dict[str, Any]) -> dict[str, Any]:
    """A copy of a state whose tensors are in a mapped file, which another program may overwrite later.

    Tied weights stay tied. The pages of what has been copied leave memory, so that it is not there twice.
    """
    known: dict[int, Any] = {}
    model = {}
    for name, weight in state["model"].items():
        model[name] = copy.deepcopy(weight, known)
        if isinstance(weight, Tensor):
            storage = weight.untyped_storage()
            first = -(-storage.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
            end = (storage.data_ptr() + storage.nbytes()) // mmap.PAGESIZE * mmap.PAGESIZE
            if end > first:
                address, size = ctypes.c_void_p(first), ctypes.c_size_t(end - first)
                ctypes.CDLL(None).madvise(address, size, mmap.MADV_DONTNEED)
    return copy.deepcopy(state | {"model": {}}, known) | {"model": model}


def verify_checksums(stream: IO[bytes]) -> bool:
    """Verify the checksum of every member of a checkpoint; files written by torch before 1.6 have none.

    Returns whether the members can be mapped into memory. Raises one of `READ_ERRORS`. Rewinds the stream.
    """
    magic = stream.read(len(ZIP_MAGIC))
    stream.seek(0)
    if magic != ZIP_MAGIC:
        return False
    # Over mapped memory, because `ZipFile.testzip` copies everything in small portions.
    with (
        zipfile.ZipFile(stream) as archive,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as content,
    ):
        members = archive.infolist()
        for member in members:
            with archive.open(member) as opened:  # compares the two headers
                if member.compress_type != zipfile.ZIP_STORED:
                    while opened.read(CHUNK):
                        pass  # compares the checksum at the end
                    continue
            lengths = struct.unpack_from("<HH", content, member.header_offset + LOCAL_LENGTHS)
            begin = member.header_offset + LOCAL_HEADER + sum(lengths)
            end = begin + member.file_size
            found = 0
            for start in range(begin, min(end, len(content)), PORTION):
                stop = min(start + PORTION, end)
                with content[start:stop] as data:
                    found = zlib.crc32(data, found)
                page = start // mmap.PAGESIZE * mmap.PAGESIZE
                mapped.madvise(mmap.MADV_DONTNEED, page, min(stop, len(content)) - page)  # leaves memory
            if end > len(content) or found != member.CRC:
                raise zipfile.BadZipFile(member.filename)
    stream.seek(0)
    return all(member.compress_type == zipfile.ZIP_STORED for member in members)


def refusal(error: pickle.UnpicklingError) -> str:
    """Why `torch.load` refused a file, as one clause."""
    if found := re.search(r"GLOBAL (\S+)", str(error)):
        return f"refused: loading it would execute {found[1]}, which is not part of a fairseq checkpoint"
    return "not a checkpoint that can be loaded without executing code, or truncated"


def _read_safetensors(path: Path, *, weights: bool) -> dict[str, Any]:
    """Read a file written by `fp16.write` as a fairseq state, with the weights in float32 or only outlined.

    Raises `UserError` for a file that `fp16.write` did not write, and other errors if it is corrupt.
    """
    with safe_open(path, framework="pt") as stored:
        metadata, names = stored.metadata() or {}, list(stored.keys())
        if weights:
            model = {name: stored.get_tensor(name) for name in names}
        else:
            shapes = {name: stored.get_slice(name).get_shape() for name in names}
            model = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    if metadata.get("kind") != FORMAT:
        raise UserError(
            f"{path}: not written by roberta-small export fairseq; convert a Transformers model with "
            "roberta-small export fairseq"
        )
    text = metadata["configuration"]
    if weights and metadata.get("sha256") not in (None, checksum(text, model)):
        raise ValueError("checksum mismatch")
    # The stored `args`, `cfg` and `tied`.
    state = json.loads(
        text,
        object_hook=lambda value: (
            argparse.Namespace(**value[NAMESPACE]) if set(value) == {NAMESPACE} else value
        ),
    )
    model = {name: weight.float() for name, weight in model.items()}
    model |= {name: model[first] for name, first in state.pop("tied").items()}
    return bare_state(model) | state if weights else state | {"model": model}


def checksum(configuration: str, weights: dict[str, Tensor]) -> str:
    """SHA-256 of configuration and weights; the safetensors format has no checksum."""
    digest = hashlib.sha256(configuration.encode())
    for name in sorted(weights):
        digest.update(f"{name} {weights[name].dtype} {tuple(weights[name].shape)}".encode())
        digest.update(weights[name].numpy().tobytes())
    return digest.hexdigest()


_instead: dict[str, dict[str, Any]] = {}


@contextlib.contextmanager
def reading_instead(path: Path, state: dict[str, Any]) -> Iterator[None]:
    """A context in which fairseq gets `state` for the checkpoint `path`."""
    _instead[str(path)] = state
    try:
        yield
    finally:
        del _instead[str(path)]


def reading_safetensors(
    original: Callable[..., Any],
    path: str,
    arg_overrides: dict[str, Any] | None = None,
    load_on_all_ranks: bool = False,
) -> Any:
    """Replace `checkpoint_utils.load_checkpoint_to_cpu`: load checkpoints in safetensors format.

    Within `reading_instead`, nothing is read.
    """
    if (given := _instead.get(str(path))) is not None:
        return given
    if not str(path).endswith(SUFFIX):
        return original(path, arg_overrides, load_on_all_ranks)
    state = load_checkpoint(path)
    state["cfg"] = omegaconf.OmegaConf.create(state["cfg"], flags={"allow_objects": True})
    if arg_overrides is not None:
        overwrite_args_by_name(state["cfg"], arg_overrides)
    return state


def task_settings(state: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the task of a checkpoint; before `cfg`, they were among all arguments.

    The `cfg` of a task that fairseq configures by argparse contains a namespace.
    """
    cfg = state.get("cfg")
    settings = state.get("args") if cfg is None else cfg.get("task")
    return dict(vars(settings) if isinstance(settings, argparse.Namespace) else settings or {})


def task_record(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the task of a classifier recorded in a checkpoint; empty for other checkpoints."""
    return (state.get("extra_state") or {}).get("SentenceClassificationTask") or {}


def bare_state(
    weights: dict[str, Tensor], cfg: Any = None, extra: dict[str, Any] | None = None
) -> dict[str, Any]:
    """fairseq's state with weights that have not been trained yet, or without anything of their training.

    `cfg` is the configuration, `extra` what a task records. fairseq reads the other two entries of every
    checkpoint, even with --reset-optimizer and --reset-dataloader.
    """
    return {
        "args": None,
        "cfg": cfg,
        "model": weights,
        "optimizer_history": [{"criterion_name": "", "lr_scheduler_state": {}, "num_updates": 0}],
        "extra_state": {"train_iterator": {"epoch": 1}, **(extra or {})},
    }


def save_weights(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy a checkpoint without optimizer and data state, a third of the size.

    The copy contains what fairseq's `--restore-file` and `from_pretrained` need.
    """
    state = load_checkpoint(source, optimizer=False)
    weights = {key: state.get(key) for key in ("args", "cfg", "model")}
    # fairseq's trainer reads these two from every checkpoint.
    weights["optimizer_history"] = state.get("optimizer_history", [])[-1:]
    # Without the scaling of numeric labels, the outputs have no meaning.
    record = task_record(state)
    weights["extra_state"] = {"SentenceClassificationTask": record} if SCALING in record else {}
    with atomic_open(target, "wb") as stream:
        torch.save(weights, stream)
