"""What training needs of a batch on the host, computed while the batch is loaded.

On a GPU, asking a tensor for its values waits until all work before it is done, and the GPU is idle until the
next operation is launched. Positions, lengths and numbers of tokens are therefore computed on the CPU, in
fairseq's loading thread, and moved to the GPU with the batch. A batch without them is still valid: a GPU then
waits.

Shapes: B sentences, L length of the longest, M positions with a target.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from fairseq.data.iterators import EpochBatchIterator
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMTask
from torch import Tensor

from roberta_small.fairseq_plugin.models.packed import Packing

FAIRSEQS = (MaskedLMTask, LanguageModelingTask)
"""fairseq's tasks whose batches are padded on the right; those of this plugin have `pads_right`."""


def describing_batches(
    original: Callable[..., EpochBatchIterator], task: FairseqTask, *args: Any, **kwargs: Any
) -> EpochBatchIterator:
    """Replace `FairseqTask.get_batch_iterator`: a GPU would wait for what batches bring with them.

    Batches padded on the right come from `described`. Validation is over all blocks: fairseq would drop the
    last ones if their number is not a multiple of --required-batch-size-multiple, 8 by default.
    """
    right = getattr(task, "pads_right", False) or isinstance(task, FAIRSEQS)
    if right and "grouped_shuffling" not in kwargs:  # which the trainer passes for training data only
        kwargs["required_batch_size_multiple"] = 1
    iterator = original(task, *args, **kwargs)
    if right and getattr(iterator.collate_fn, "func", None) is not described:
        iterator.collate_fn = partial(described, iterator.collate_fn, task.source_dictionary.pad())
    return iterator


def described(
    collate: Callable[[list[Any]], dict[str, Any]], padding_idx: int, samples: list[Any]
) -> dict[str, Any]:
    """A batch with what `packing_of`, `scored_of` and `host_targets` return; an empty one stays empty."""
    sample = collate(samples)
    if not sample:
        return sample
    sample["packing"] = dict(vars(packing_of(sample, padding_idx)))
    target = sample.get("target")
    if torch.is_tensor(target) and target.shape == sample["net_input"]["src_tokens"].shape:
        sample["scored"] = scored_of(sample, padding_idx)
    elif torch.is_tensor(target):
        sample["host_targets"] = host_targets(sample).numpy()  # fairseq leaves it on the host
    return sample


def packing_of(sample: dict[str, Any], padding_idx: int) -> Packing:
    """The positions of the tokens of a batch."""
    if "packing" in sample:
        return Packing(**sample["packing"])
    return Packing.of(sample["net_input"]["src_tokens"], padding_idx)


def scored_of(sample: dict[str, Any], padding_idx: int) -> tuple[Tensor, Tensor]:
    """The positions with a target in the flattened batch (B * L), and their targets: both int64 (M,)."""
    if "scored" in sample:
        index_M, target_M = sample["scored"]
        return index_M, target_M
    target_N = sample["target"].flatten()
    index_M = target_N.ne(padding_idx).nonzero().squeeze(1)
    return index_M, target_N.index_select(0, index_M)


def host_targets(sample: dict[str, Any]) -> Tensor:
    """The targets of a classifier's batch on the CPU: soft labels (B, K) if it has them, or classes (B,)."""
    if "host_targets" in sample:
        return torch.from_numpy(sample["host_targets"])
    return sample.get("soft_target", sample["target"].view(-1)).cpu()


def known_packing(model: BaseFairseqModel, sample: dict[str, Any]) -> dict[str, Packing]:
    """The argument `packing` of a model that has it, if the batch contains it."""
    if "packing" not in sample or not getattr(model, "takes_packing", False):
        return {}
    return {"packing": Packing(**sample["packing"])}
