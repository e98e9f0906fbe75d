"""Splits of binarized data: loading with checks, and truncation that keeps `</s>`."""

from __future__ import annotations

import contextlib
import multiprocessing.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import (
    BaseWrapperDataset,
    Dictionary,
    FairseqDataset,
    IdDataset,
    NestedDictionaryDataset,
    NumelDataset,
    NumSamplesDataset,
    RightPadDataset,
    data_utils,
)
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq.data.iterators import EpochBatchIterator

from roberta_small.common.data_folder import (
    WRITE_AGAIN,
    find_soft_labels,
    is_index,
    recorded_checksums,
    require_recorded,
)
from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from roberta_small.fairseq_plugin.checkpoints.loading import FILE_ERRORS, READ_ERRORS
from roberta_small.preprocess.tokenization.encoder import kept_lengths


def load_split(
    data: str, key: str, split: str, dictionary: Dictionary, combine: bool = False
) -> FairseqDataset:
    """Open the split `DATA/key/split`; its items are int64 tensors (length,) that end in `</s>`.

    Raises `UserError` for a split that is missing, truncated, corrupt, or does not fit the dictionary.
    """
    prefix = Path(data) / key / split
    for suffix in (".bin", ".idx"):
        if not Path(f"{prefix}{suffix}").is_file():
            known = sorted(path.stem for path in prefix.parent.glob("*.idx"))
            raise UserError(
                f"{prefix}{suffix}: no such file; existing splits: {', '.join(known) or 'none'}; "
                f"{WRITE_AGAIN}"
            )
    dataset = None
    if is_index(Path(f"{prefix}.idx")):
        if Path(f"{prefix}.bin").stat().st_size == 0:
            raise UserError(f"{prefix}.bin: no sentences; {WRITE_AGAIN}")
        with contextlib.suppress(*FILE_ERRORS):
            dataset = data_utils.load_indexed_dataset(str(prefix), dictionary, combine=combine)
    if dataset is None:
        raise UserError(f"{prefix}.idx: not an index of fairseq data, or corrupt; {WRITE_AGAIN}")
    if isinstance(dataset, MMapIndexedDataset):
        check_binary(prefix, dataset, dictionary)
    return dataset


def examples_of(tokens: FairseqDataset, pad: int, more: dict[str, FairseqDataset]) -> FairseqDataset:
    """Examples of token ids (L,), which a batch pads on the right, with further entries."""
    padded, lengths = RightPadDataset(tokens, pad_idx=pad), NumelDataset(tokens, reduce=False)
    entries = {
        "id": IdDataset(),
        "net_input": {"src_tokens": padded, "src_lengths": lengths},
        "nsentences": NumSamplesDataset(),
        "ntokens": NumelDataset(tokens, reduce=True),
    }
    return NestedDictionaryDataset(entries | more, sizes=[tokens.sizes])


def check_binary(prefix: Path, dataset: MMapIndexedDataset, dictionary: Dictionary) -> None:
    """Raise `UserError` if the `.bin` differs in size from its index or has ids beyond the dictionary."""
    path, dtype = Path(f"{prefix}.bin"), dataset._index.dtype
    expected, found = int(dataset.sizes.sum()) * np.dtype(dtype).itemsize, path.stat().st_size
    if expected != found:
        raise UserError(
            f"{path}: {found} bytes, but its index {prefix}.idx expects {expected}; {WRITE_AGAIN}"
        )
    tokens = np.memmap(path, dtype=dtype, mode="r")
    at = int(tokens.argmax())
    if tokens[at] >= len(dictionary):
        sentence = int(np.searchsorted(np.cumsum(dataset.sizes), at, side="right"))
        raise UserError(
            f"{path}, sentence {sentence + 1}: token id {tokens[at]}, but {prefix.parent / 'dict.txt'} "
            f"has {len(dictionary)} entries, so it is not the dictionary of these data; {WRITE_AGAIN}"
        )


def check_same_length(data: str, split: str, parts: dict[str, FairseqDataset]) -> None:
    """Raise `UserError` unless all parts of a split (name -> data) have the same number of items."""
    counts = {key: len(part) for key, part in parts.items()}
    if len(set(counts.values())) > 1:
        found = " but ".join(f"{n} in {key}" for key, n in counts.items())
        raise UserError(f"{data}, split {split}: {found}; write one label per line and {WRITE_AGAIN}")


def check_labels(
    data: str, split: str, labels: FairseqDataset, dictionary: Dictionary, names: list[str]
) -> None:
    """Raise `UserError` unless each sentence has one label, which the label dictionary contains."""
    wrong = np.flatnonzero(np.asarray(labels.sizes) != 2)
    if wrong.size:
        where = f"{Path(data) / 'label' / split}.bin, sentence {wrong[0] + 1}"
        raise UserError(f"{where}: {labels.sizes[wrong[0]] - 1} labels instead of one; {WRITE_AGAIN}")
    first, end = dictionary.nspecial, dictionary.nspecial + len(names)
    for index in range(len(labels)):
        if not first <= int(labels[index][0]) < end:
            raise _unknown_label(data, split, index, names)


def _unknown_label(data: str, split: str, index: int, names: list[str]) -> UserError:
    folder = Path(data) / "label"
    return UserError(
        f"{folder / split}.bin, sentence {index + 1}: label not in {folder / 'dict.txt'}, which has "
        f"{', '.join(names[:10])}; correct the label and {WRITE_AGAIN}"
    )


def check_lengths(data: str, split: str, tokens: FairseqDataset, longest: int) -> None:
    """Raise `UserError` for sentences above `longest` tokens, which fairseq would drop or fail on."""
    sizes = np.asarray(tokens.sizes)
    if sizes.max() > longest:
        raise UserError(
            f"{Path(data) / 'input0' / split}.bin, sentence {int(sizes.argmax()) + 1}: {sizes.max()} tokens, "
            f"more than --max-positions {longest}; truncate long sentences with --shorten-method truncate"
        )


def requiring_batches(first_batch: Callable[[EpochBatchIterator], Any], iterator: EpochBatchIterator) -> Any:
    """Replace the property `EpochBatchIterator.first_batch`: a clear error for data without a batch.

    fairseq drops the last sentences if their number is not a multiple of `--required-batch-size-multiple`,
    8 by default. Of fewer than 8 sentences none are left.
    """
    if len(iterator.frozen_batches) == 0:
        raise UserError(
            f"{len(iterator.dataset)} sentences or blocks do not fill one batch; provide more data (of "
            "running text, with a larger fraction as --valid), or add --required-batch-size-multiple 1"
        )
    return first_batch(iterator)


def breaking_at_sentences(original: Callable[..., Any], sizes: Any, break_mode: Any, *args: Any) -> Any:
    """Replace `TokenBlockDataset._build_slice_indices`: eos as --sample-break-mode needs a name of NumPy 1.

    The sizes of blocks; first sentence, offset in it and last sentence; and the bounds in all tokens.
    """
    if str(break_mode) != "eos":
        return original(sizes, break_mode, *args)
    sizes = np.asarray(sizes, dtype=np.int64)
    ends, index = np.cumsum(sizes), np.arange(len(sizes))
    return sizes, np.stack([index, np.zeros_like(index), index], 1), np.stack([ends - sizes, ends], 1)


def forking_workers(
    init: Callable[..., None], iterator: EpochBatchIterator, *args: Any, **kwargs: Any
) -> None:
    """Replace `EpochBatchIterator.__init__`: processes of --num-workers start by fork, also on Python 3.14.

    That is the default on Linux until Python 3.13. With "forkserver", the default of 3.14, each worker of
    each epoch would import torch and fairseq again, which takes seconds. A method that is not the default
    is kept.
    """
    init(iterator, *args, **kwargs)
    if iterator.num_workers > 0:
        # Their sockets are in the temporary folder of this process, which removes it, and not in folders of
        # their own, which stay when the process ends before them.
        multiprocessing.util.get_temp_dir()
    default = multiprocessing.get_all_start_methods()[0]
    if iterator.num_workers > 0 and default != "fork" and multiprocessing.get_start_method() == default:
        multiprocessing.set_start_method("fork", force=True)


class KeepEosDataset(BaseWrapperDataset):
    """The sentences of `shortened`, with `</s>` as the last token of those that were truncated."""

    def __init__(self, shortened: FairseqDataset, original: FairseqDataset, eos: int) -> None:
        super().__init__(shortened)
        self.truncated = np.asarray(shortened.sizes) < np.asarray(original.sizes)
        self.eos = eos

    def __getitem__(self, index: int) -> torch.Tensor:
        tokens = self.dataset[index]
        if not self.truncated[index]:
            return tokens
        tokens = tokens.clone()
        tokens[-1] = self.eos
        return tokens


class ShortenedPairsDataset(BaseWrapperDataset):
    """Pairs of at most `longest` tokens, (L,), int64: the longer text is shortened first.

    `first` and `second` are the texts with special tokens, `starts` the number of these before each text; the
    last token is `</s>`.
    """

    def __init__(
        self, first: FairseqDataset, second: FairseqDataset, starts: tuple[int, int], longest: int
    ) -> None:
        super().__init__(first)
        self.second, self.starts, self.longest = second, starts, longest
        self._sizes = np.minimum(first.sizes + second.sizes, longest)

    def __getitem__(self, index: int) -> torch.Tensor:
        parts = self.dataset[index], self.second[index]
        special = [start + 1 for start in self.starts]
        first, second = (len(part) - own for part, own in zip(parts, special, strict=True))
        kept = kept_lengths(first, second, max(0, self.longest - sum(special)))
        rows = [
            torch.cat([part[: start + size], part[-1:]])
            for part, start, size in zip(parts, self.starts, kept, strict=True)
        ]
        return torch.cat(rows)[: self.longest]

    @property
    def sizes(self) -> np.ndarray:
        """(N,) the number of tokens of each pair."""
        return self._sizes

    def num_tokens(self, index: int) -> int:
        """The number of tokens of a pair."""
        return int(self._sizes[index])

    size = num_tokens


class TargetRows(FairseqDataset):
    """The target of each example from an array (N, ...); a batch is float32 (B, ...)."""

    def __init__(self, values_N: np.ndarray) -> None:
        self.values_N = values_N
        self.sizes = np.ones(len(values_N), dtype=np.int64)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.as_tensor(self.values_N[index], dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.values_N)

    def collater(self, samples: list[torch.Tensor]) -> torch.Tensor:
        """(B, ...)."""
        return torch.stack(samples)


def _require_recorded(path: Path, folder: Path) -> None:
    """Raise `UserError` if a file differs from its recorded checksum, if it has one."""
    recorded = recorded_checksums(folder).get(path.absolute().relative_to(folder.absolute()).as_posix())
    if recorded is not None and path.is_file():
        require_recorded(path, sha256(path), recorded, folder)


def load_label_sets(
    data: str, split: str, labels: FairseqDataset, dictionary: Dictionary, names: list[str], classes: int
) -> np.ndarray:
    """Which of the K classes each sentence has, bool (N, K).

    `names` are those of the dictionary, `classes` is K. Raises `UserError` for a label that is not in the
    dictionary.
    """
    targets_NK = np.zeros((len(labels), classes), dtype=bool)
    for index in range(len(labels)):
        ids = labels[index][:-1].numpy() - dictionary.nspecial  # without </s>
        if ids.size and not ((ids >= 0) & (ids < len(names))).all():
            raise _unknown_label(data, split, index, names)
        targets_NK[index, ids] = True
    return targets_NK


def load_numbers(data: str, split: str) -> np.ndarray:
    """The numeric labels of a split, float64 (N,).

    Raises `UserError` for a file that is missing, changed or contains something else.
    """
    path = Path(data) / "label" / f"{split}.label"
    if not path.is_file():
        raise UserError(f"{path}: no such file; {WRITE_AGAIN}")
    _require_recorded(path, Path(data))
    values = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        try:
            values.append(float(line))
        except ValueError:
            values.append(np.nan)
        if not np.isfinite(values[-1]):
            raise UserError(f"{path}, line {number}: '{line[:60]}' is not a finite number; {WRITE_AGAIN}")
    return np.array(values, dtype=np.float64)


def load_soft_labels(data: str, split: str, examples: int, labels: int, classes: int) -> TargetRows | None:
    """The class probabilities of the examples of a split, fp32 (K,), if it has them.

    `labels` is the number of labels in the dictionary, `classes` is K; the further classes of --num-classes
    have probability 0. Raises `UserError` for a file that is corrupt, changed, or does not fit the examples
    and the labels.
    """
    path = find_soft_labels(Path(data), split)
    if path is None:
        return None
    _require_recorded(path, Path(data))
    try:
        found_NK = np.load(path, allow_pickle=False)
    except READ_ERRORS:
        raise UserError(f"{path}: not an array of numpy, or truncated; {WRITE_AGAIN}") from None
    if found_NK.shape != (examples, labels) or found_NK.dtype != np.float32:
        raise UserError(
            f"{path}: {found_NK.dtype} {found_NK.shape}, but {split} has {examples} examples and "
            f"{labels} labels; {WRITE_AGAIN}"
        )
    wrong = np.flatnonzero(~((found_NK >= 0).all(1) & (np.abs(found_NK.sum(1) - 1) < 1e-3)))
    if wrong.size:
        raise UserError(f"{path}, example {wrong[0] + 1}: not probabilities with the sum 1; {WRITE_AGAIN}")
    return TargetRows(np.pad(found_NK, ((0, 0), (0, classes - labels))))


def verifying_checksums(load: Callable[..., Any], path: str, *args: Any, **kwargs: Any) -> Any:
    """Replace `data_utils.load_indexed_dataset`: compare the files with their recorded checksums first.

    Raises `UserError` if the .bin, the .idx or the dict.txt next to them differs from its record.
    """
    parent = Path(path).absolute().parent
    for folder in (parent, parent.parent):  # BIN for BIN/train, BIN/input0/train or BIN/shard0/train
        for file in (Path(f"{path}.bin"), Path(f"{path}.idx"), parent / "dict.txt"):
            _require_recorded(file, folder)
    return load(path, *args, **kwargs)
