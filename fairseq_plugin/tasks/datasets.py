"""One split of binarized data, checked at the border, and the cut that keeps `</s>`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset, Dictionary, FairseqDataset, data_utils
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq.data.iterators import EpochBatchIterator

from common.binary_index import is_index
from common.data_folder import recorded_checksums, require_recorded
from common.errors import UserError
from common.files import sha256

REMEDY = "write the data folder again with python -m preprocess binarize"
UNREADABLE = (
    ValueError,
    OSError,
    AssertionError,
    LookupError,
    RuntimeError,
    OverflowError,
    MemoryError,
    struct.error,
)


def load_split(
    data: str, key: str, split: str, dictionary: Dictionary, combine: bool = False
) -> FairseqDataset:
    """Open `DATA/key/split`; raises `UserError` if it is missing, cut short or does not fit.

    Items are int64 tensors (length,), ending in `</s>`.
    """
    prefix = Path(data) / key / split
    for suffix in (".bin", ".idx"):
        if not Path(f"{prefix}{suffix}").is_file():
            known = sorted(path.stem for path in prefix.parent.glob("*.idx"))
            raise UserError(
                f"{prefix}{suffix}: no such file; splits here: {', '.join(known) or 'none'}; {REMEDY}"
            )
    if not is_index(Path(f"{prefix}.idx")):
        raise UserError(f"{prefix}.idx: not an index of fairseq data, or damaged; {REMEDY}")
    if Path(f"{prefix}.bin").stat().st_size == 0:
        raise UserError(f"{prefix}.bin: no sentences; {REMEDY}")
    try:
        dataset = data_utils.load_indexed_dataset(str(prefix), dictionary, combine=combine)
    except UNREADABLE:
        dataset = None
    if dataset is None:
        raise UserError(f"{prefix}.idx: not an index of fairseq data, or damaged; {REMEDY}")
    if isinstance(dataset, MMapIndexedDataset):
        check_binary(prefix, dataset, dictionary)
    return dataset


def check_binary(prefix: Path, dataset: MMapIndexedDataset, dictionary: Dictionary) -> None:
    """The `.bin` holds as many tokens as its index says, and none beyond the dictionary."""
    path, kind = Path(f"{prefix}.bin"), dataset._index.dtype
    wanted, found = int(dataset.sizes.sum()) * np.dtype(kind).itemsize, path.stat().st_size
    if wanted != found:
        raise UserError(f"{path}: {found} bytes, but its index counts {wanted} ({prefix}.idx); {REMEDY}")
    tokens = np.memmap(path, dtype=kind, mode="r")
    at = int(tokens.argmax())
    if tokens[at] >= len(dictionary):
        sentence = int(np.searchsorted(np.cumsum(dataset.sizes), at, side="right"))
        raise UserError(
            f"{path}, sentence {sentence + 1}: token {tokens[at]}, but {prefix.parent / 'dict.txt'} "
            f"has {len(dictionary)} types: not the dictionary of these data; {REMEDY}"
        )


def check_same_length(data: str, split: str, parts: dict[str, FairseqDataset]) -> None:
    """As many sentences as labels."""
    counts = {key: len(part) for key, part in parts.items()}
    if len(set(counts.values())) > 1:
        said = " but ".join(f"{n} in {key}" for key, n in counts.items())
        raise UserError(f"{data}, split {split}: {said}; give one label a line and {REMEDY}")


def check_labels(
    data: str, split: str, labels: FairseqDataset, dictionary: Dictionary, names: list[str]
) -> None:
    """Exactly one label a sentence, and one that the label dictionary names."""
    where = f"{Path(data) / 'label' / split}.bin, sentence"
    wrong = np.flatnonzero(np.asarray(labels.sizes) != 2)
    if wrong.size:
        raise UserError(
            f"{where} {wrong[0] + 1}: {labels.sizes[wrong[0]] - 1} labels instead of one; {REMEDY}"
        )
    first, end = dictionary.nspecial, dictionary.nspecial + len(names)
    for index in range(len(labels)):
        if not first <= int(labels[index][0]) < end:
            raise UserError(
                f"{where} {index + 1}: a label that {Path(data) / 'label' / 'dict.txt'} does not name "
                f"(it has {', '.join(names[:10])}); correct the label and {REMEDY}"
            )


def check_lengths(data: str, split: str, tokens: FairseqDataset, longest: int) -> None:
    """No sentence is longer than the model has positions (fairseq would drop it, or fail in validation)."""
    sizes = np.asarray(tokens.sizes)
    if sizes.max() > longest:
        raise UserError(
            f"{Path(data) / 'input0' / split}.bin, sentence {int(sizes.argmax()) + 1}: {sizes.max()} tokens, "
            f"more than --max-positions {longest}; cut long sentences with --shorten-method truncate"
        )


def requiring_batches(first_batch: Callable[[EpochBatchIterator], Any]) -> Callable[..., Any]:
    """`EpochBatchIterator.first_batch` with a clear error message for data without a batch.

    fairseq drops the sentences at the end that are no multiple of `--required-batch-size-multiple`, 8 by
    default; of fewer none are left.
    """

    @wraps(first_batch)
    def checked(iterator: EpochBatchIterator) -> Any:
        if len(iterator.frozen_batches) == 0:
            raise UserError(
                f"train or a validation set has no batch, of {len(iterator.dataset)} sentences or blocks; "
                "give more (at --valid-every a smaller number), or --required-batch-size-multiple 1"
            )
        return first_batch(iterator)

    return checked


class KeepEosDataset(BaseWrapperDataset):
    """Sentences of `shortened`, where those that were cut end in `</s>` again."""

    def __init__(self, shortened: FairseqDataset, original: FairseqDataset, eos: int) -> None:
        super().__init__(shortened)
        self.cut = np.asarray(shortened.sizes) < np.asarray(original.sizes)
        self.eos = eos

    def __getitem__(self, index: int) -> torch.Tensor:
        tokens = self.dataset[index]
        if not self.cut[index]:
            return tokens
        tokens = tokens.clone()
        tokens[-1] = self.eos
        return tokens


def comparing_checksums(load: Callable[..., Any]) -> Callable[..., Any]:
    """`data_utils.load_indexed_dataset` that first compares the files with their recorded checksums."""

    @wraps(load)
    def compared(path: str, *args: Any, **kwargs: Any) -> Any:
        check(Path(path))
        return load(path, *args, **kwargs)

    return compared


def check(prefix: Path) -> None:
    """Raise `UserError` where `prefix`'s .bin or .idx, or dict.txt beside it, is not the recorded file."""
    for folder in prefix.absolute().parents[:2]:  # of BIN/train, BIN/input0/train or BIN/shard0/train
        recorded = recorded_checksums(folder)
        for path in (Path(f"{prefix}.bin"), Path(f"{prefix}.idx"), prefix.parent / "dict.txt"):
            name = path.absolute().relative_to(folder).as_posix()
            if name in recorded and path.is_file():
                require_recorded(path, sha256(path), recorded[name], folder)
