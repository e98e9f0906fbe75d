"""Load fairseq checkpoints without executing code.

A checkpoint is a pickle, and a pickle can run any program. `torch.load(weights_only=True)` reads tensors,
containers and the classes of an allow-list, nothing else. fairseq's checkpoints need the allow-list below
because they contain the configuration of the run.

The file is a zip archive with a checksum for each member. torch does not compare them, so a flipped bit would
silently change a weight. Here they are verified first.

Weights can also be stored as safetensors, which cannot contain code: `fp16.py` writes such files.
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

TASK_STATE = "SentenceClassificationTask"
"""Key of `extra_state` for what the task of a classifier records."""
LM_HEAD = "encoder.lm_head."
"""Prefix of the weights of the language model's head."""
# Plain data classes: unpickling them sets attributes and calls no function that the file chooses.
CONFIGURATION = [
    argparse.Namespace,
    omegaconf.DictConfig,
    omegaconf.ListConfig,
    omegaconf.base.ContainerMetadata,
    omegaconf.base.Metadata,
    omegaconf.nodes.AnyNode,
    omegaconf.nodes.BooleanNode,
    omegaconf.nodes.EnumNode,
    omegaconf.nodes.FloatNode,
    omegaconf.nodes.IntegerNode,
    omegaconf.nodes.StringNode,
    collections.defaultdict,
    collections.OrderedDict,
    typing.Any,
    dict,
    list,
    int,
    float,
    str,
    bool,
]
# Metrics computed with NumPy: a scalar is pickled as its type and its bytes.
NUMPY = [
    np._core.multiarray.scalar,  # type: ignore[attr-defined]  # private, but the name in pickles
    np.dtype,
    np.dtypes.Float64DType,
    np.dtypes.Float32DType,
    np.dtypes.Int64DType,
]


class Meter:
    """Stands for fairseq's meters of training in checkpoints before 0.9, which are read but not used."""


METERS = [
    (Meter, f"fairseq.{module}.{name}")
    for module in ("meters", "logging.meters")
    for name in ("AverageMeter", "TimeMeter", "StopwatchMeter", "SumMeter")
]
# The names of the same functions in NumPy 1.
NUMPY_1 = [(np._core.multiarray.scalar, "numpy.core.multiarray.scalar")]  # type: ignore[attr-defined]
ENUMS = [
    value
    for value in vars(constants).values()
    if isinstance(value, type) and issubclass(value, constants.Enum)
]
READ_ERRORS = (
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    OverflowError,
    AssertionError,
    RecursionError,
    MemoryError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""Raised by `torch.load` for files that are truncated, empty or in another format."""
ZIP_MAGIC = b"PK\x03\x04"
LOCAL_HEADER = 30
"""Bytes before the name of a member in a zip archive (APPNOTE 4.3.7)."""
LOCAL_LENGTHS = 26
"""Offset of the lengths of its name and of the field after it."""
CHUNK = 1 << 20
"""Bytes of a compressed member that are read at a time."""
PORTION = 16 << 20
"""Bytes of a mapped file that are in memory at a time."""
ALLOWED = [*CONFIGURATION, *NUMPY, *NUMPY_1, *ENUMS, *METERS]
WRAPPED = "module."
OPTIMIZER_STATE = "last_optimizer_state"
"""fairseq's key of Adam's moments."""
SUFFIX = ".safetensors"
FORMAT = "fairseq-roberta"
"""Metadata entry `kind` of the safetensors files that `fp16.write` writes."""
NAMESPACE = "argparse.Namespace"
"""JSON key that marks an `argparse.Namespace` in the stored configuration."""


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
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such checkpoint")
    if path.suffix == SUFFIX:
        return read_safetensors(path)
    state = _read_pickle(path, optimizer=optimizer)
    if not optimizer and task_settings(state).get("_name") == "distillation":
        state["model"] = {name: w for name, w in state["model"].items() if not name.startswith(LM_HEAD)}
    return state


def read_outline(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the configuration of a checkpoint and the shapes of its weights, but not the weights.

    Returns fairseq's state as `load_checkpoint` does, with tensors on torch's device `meta`. Checksums are
    not compared. Raises `UserError` as `load_checkpoint` does.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such checkpoint")
    if path.suffix == SUFFIX:
        with _reporting_corrupt(path), safe_open(path, framework="pt") as stored:
            configuration = _configuration(path, stored.metadata() or {})
            tied = configuration.pop("tied")
            shapes = {name: stored.get_slice(name).get_shape() for name in stored.keys()}  # noqa: SIM118
            shapes |= {name: shapes[first] for name, first in tied.items()}
            return configuration | {
                "model": {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
            }
    return _read_pickle(path, weights=False)


def _read_pickle(path: Path, *, weights: bool = True, optimizer: bool = True) -> dict[str, Any]:
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
    if (key := _malformed(state)) is not None:
        raise UserError(f"{path}: not a fairseq checkpoint ('{key}' contains no settings)")
    if any(name.startswith(WRAPPED) for name in state["model"]):  # saved from within DistributedDataParallel
        state["model"] = {name.removeprefix(WRAPPED): weight for name, weight in state["model"].items()}
    if weights:
        _tie(state["model"])
    if weights and not optimizer:
        state.pop(OPTIMIZER_STATE, None)
        state = _out_of_file(state)
    return state


def _malformed(state: Mapping[str, Any]) -> str | None:
    """The first part of a state, without its weights, that has another type than fairseq writes, or None."""
    cfg = state.get("cfg")
    if not isinstance(cfg, Mapping | None):
        return "cfg"
    if not isinstance(state.get("extra_state"), Mapping | None):
        return "extra_state"
    settings = {f"cfg.{key}": (cfg or {}).get(key) for key in ("model", "task")} | {"args": state.get("args")}
    accepted = Mapping | argparse.Namespace | None
    return next((key for key, value in settings.items() if not isinstance(value, accepted)), None)


def _tie(model: dict[str, Any]) -> None:
    """Tie the head of a language model to equal token embeddings: from a GPU, fairseq saves both."""
    head, tokens = model.get(TIED), model.get(TOKENS)
    if head is None or tokens is None or head.data_ptr() == tokens.data_ptr():
        return
    if head.dtype == tokens.dtype and torch.equal(head, tokens):
        model[TIED] = tokens


def _out_of_file(state: dict[str, Any]) -> dict[str, Any]:
    """A copy of a state whose tensors are in a mapped file, which another program may overwrite later.

    Tied weights stay tied. What has been copied leaves memory, so that it is not there twice.
    """
    known: dict[int, Any] = {}
    model = {}
    for name, weight in state["model"].items():
        model[name] = copy.deepcopy(weight, known)
        if isinstance(weight, Tensor):
            _release(weight.untyped_storage())
    return copy.deepcopy(state | {"model": {}}, known) | {"model": model}


def _release(storage: torch.UntypedStorage) -> None:
    """Let the pages of a storage in a mapped file leave memory; they would be read from the file again."""
    first = -(-storage.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (storage.data_ptr() + storage.nbytes()) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if size > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


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
            if end > len(content) or _crc32(mapped, content, begin, end) != member.CRC:
                raise zipfile.BadZipFile(member.filename)
    stream.seek(0)
    return all(member.compress_type == zipfile.ZIP_STORED for member in members)


def _crc32(mapped: mmap.mmap, content: memoryview, begin: int, end: int) -> int:
    """The checksum of a part of a mapped file; what has been read leaves memory."""
    found = 0
    for start in range(begin, end, PORTION):
        stop = min(start + PORTION, end)
        with content[start:stop] as data:
            found = zlib.crc32(data, found)
        page = start // mmap.PAGESIZE * mmap.PAGESIZE
        mapped.madvise(mmap.MADV_DONTNEED, page, stop - page)
    return found


def refusal(error: pickle.UnpicklingError) -> str:
    """Why `torch.load` refused a file, as one clause."""
    if found := re.search(r"GLOBAL (\S+)", str(error)):
        return f"refused: loading it would execute {found[1]}, which is not part of a fairseq checkpoint"
    return "not a checkpoint that can be loaded without executing code, or truncated"


def read_safetensors(path: Path) -> dict[str, Any]:
    """Read a file written by `fp16.write` as a fairseq state, with the weights in float32.

    Raises `UserError` for a file that is corrupt or was not written by `fp16.write`.
    """
    with _reporting_corrupt(path):
        with safe_open(path, framework="pt") as stored:
            metadata = stored.metadata() or {}
            weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        stored_state = _configuration(path, metadata)
        if metadata.get("sha256") not in (None, checksum(metadata["configuration"], weights)):
            raise ValueError("checksum mismatch")
        weights = {name: weight.float() for name, weight in weights.items()}
        weights |= {name: weights[first] for name, first in stored_state.pop("tied").items()}
    return bare_state(weights) | stored_state


@contextlib.contextmanager
def _reporting_corrupt(path: Path) -> Iterator[None]:
    """Raise `UserError` for whatever reading a corrupt safetensors file raises."""
    try:
        yield
    except (SafetensorError, OSError, LookupError, ValueError, TypeError, AttributeError):
        raise UserError(f"{path}: truncated or corrupt; copy the file again") from None


def _configuration(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """The stored `args`, `cfg` and `tied`; raises `UserError` for a file that `fp16.write` did not write."""
    if metadata.get("kind") != FORMAT:
        raise UserError(
            f"{path}: not written by roberta-small export fairseq; convert a Transformers model with "
            "roberta-small export fairseq"
        )
    return json.loads(metadata["configuration"], object_hook=_from_json)


def checksum(configuration: str, weights: dict[str, Tensor]) -> str:
    """SHA-256 of configuration and weights; the safetensors format has no checksum."""
    digest = hashlib.sha256(configuration.encode())
    for name in sorted(weights):
        digest.update(f"{name} {weights[name].dtype} {tuple(weights[name].shape)}".encode())
        digest.update(weights[name].numpy().tobytes())
    return digest.hexdigest()


def _from_json(value: dict[str, Any]) -> Any:
    return argparse.Namespace(**value[NAMESPACE]) if set(value) == {NAMESPACE} else value


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
    """Replace `checkpoint_utils.load_checkpoint_to_cpu`: read .safetensors files with `load_checkpoint`.

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
    recorded = (state.get("extra_state") or {}).get(TASK_STATE) or {}
    # Without the scaling of numeric labels, the outputs have no meaning.
    weights["extra_state"] = {TASK_STATE: recorded} if SCALING in recorded else {}
    with atomic_open(target, "wb") as stream:
        torch.save(weights, stream)
