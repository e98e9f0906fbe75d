"""fairseq's checkpoints, read without executing code.

A checkpoint is a pickle, and a pickle can run any program. torch reads one safely with
`weights_only=True`: tensors, containers and the classes of an allow-list, nothing else. fairseq's
files need the allow-list below, because they carry the configuration of the run.

The file is a zip archive with a checksum for each part. torch does not look at them, so that a flipped bit
is another weight and nobody is told; here they are checked first.
"""

from __future__ import annotations

import argparse
import collections
import functools
import os
import pickle
import re
import struct
import typing
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import omegaconf
import torch
from fairseq.dataclass import constants
from fairseq.dataclass.utils import overwrite_args_by_name

from common.errors import UserError
from common.files import atomic_open

# Plain data classes: rebuilding them sets attributes and calls nothing of the file's choosing.
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
# Metrics that numpy computed: a scalar is its type and its bytes.
NUMPY = [
    np._core.multiarray.scalar,
    np.dtype,
    np.dtypes.Float64DType,
    np.dtypes.Float32DType,
    np.dtypes.Int64DType,
]
ENUMS = [
    value
    for value in vars(constants).values()
    if isinstance(value, type) and issubclass(value, constants.Enum)
]
# What torch.load raises on files that are cut, empty or of another kind.
DAMAGED = (
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
ZIP_BEGINS = b"PK\x03\x04"
ALLOWED = CONFIGURATION + NUMPY + ENUMS
SUFFIX = ".safetensors"


def allow_fairseq_objects() -> None:
    """Let `torch.load(weights_only=True)`, torch's default, read the classes in `ALLOWED`."""
    torch.serialization.add_safe_globals(ALLOWED)


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a fairseq checkpoint to the CPU: keys `model`, `cfg`, `extra_state`, ...

    NAME.safetensors is read by `fp16.read`. Raises `UserError` for a file that is missing,
    truncated, no fairseq checkpoint, or that holds anything outside the allow-list.
    """
    allow_fairseq_objects()
    path = Path(path)
    if path.suffix == SUFFIX:
        from .fp16 import read  # which reads checkpoints with this module

        return read(path)
    if not path.is_file():
        raise UserError(f"{path}: no such checkpoint")
    with path.open("rb") as stream:
        try:
            check_parts(stream)
            state = torch.load(stream, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise UserError(f"{path}: {reason(error)}") from None
        except DAMAGED:
            raise UserError(
                f"{path}: not a checkpoint, or cut short, or damaged; copy or train it again"
            ) from None
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError(f"{path}: not a fairseq checkpoint (no key 'model')")
    return state


def reading_safetensors(original: Callable[..., Any]) -> Callable[..., Any]:
    """`checkpoint_utils.load_checkpoint_to_cpu` that reads safetensors with `load_checkpoint`."""

    @functools.wraps(original)
    def load(path: str, arg_overrides: dict[str, Any] | None = None, load_on_all_ranks: bool = False) -> Any:
        if not str(path).endswith(SUFFIX):
            return original(path, arg_overrides, load_on_all_ranks)
        state = load_checkpoint(path)
        state["cfg"] = omegaconf.OmegaConf.create(state["cfg"], flags={"allow_objects": True})
        if arg_overrides is not None:
            overwrite_args_by_name(state["cfg"], arg_overrides)
        return state

    return load


def check_parts(stream: IO[bytes]) -> None:
    """Compare every part of a checkpoint with its checksum; files of torch before 1.6 have none.

    Raises one of `DAMAGED`. Leaves the stream at its beginning.
    """
    begins = stream.read(len(ZIP_BEGINS))
    stream.seek(0)
    if begins == ZIP_BEGINS:
        with zipfile.ZipFile(stream) as archive:
            if (damaged := archive.testzip()) is not None:
                raise zipfile.BadZipFile(damaged)
        stream.seek(0)


def reason(error: pickle.UnpicklingError) -> str:
    """Why torch refused a file, as one clause."""
    if found := re.search(r"GLOBAL (\S+)", str(error)):
        return f"refused: it would run or build {found[1]}, which is no part of a fairseq checkpoint"
    return "not a checkpoint that can be read without running code from it, or cut short"


def save_weights(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy a checkpoint without its optimizer and data state: a third of the size.

    The copy keeps what fairseq's `--restore-file` and `from_pretrained` need.
    """
    state = load_checkpoint(source)
    kept = {key: state.get(key) for key in ("args", "cfg", "model")}
    # fairseq's trainer reads these two of every checkpoint it restores.
    kept["optimizer_history"] = state.get("optimizer_history", [])[-1:]
    kept["extra_state"] = {}
    with atomic_open(target, "wb") as stream:
        torch.save(kept, stream)
