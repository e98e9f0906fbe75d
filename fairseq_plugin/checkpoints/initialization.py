"""Where a run's weights come from: random, or a checkpoint that is there and fits.

Stock fairseq logs one line and trains from random weights when `--restore-file` is missing, and
fails in the middle of loading when it does not fit. Here both stop before the first update with a
line that says what differs.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from fairseq.file_io import PathManager
from fairseq.models import BaseFairseqModel
from fairseq.trainer import Trainer
from torch import Tensor

from common.errors import UserError

from ..tasks.sentence_classification import load_dictionary
from .loading import load_checkpoint

logger = logging.getLogger(__name__)
HEAD = "classification_heads."
SHOWN = 3
LAST = "checkpoint_last.pt"
PACKAGE = "fairseq_plugin"


def checking_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """`checkpoint_utils.load_checkpoint`, which `fairseq-train` calls once, with `check` before it."""

    @functools.wraps(original)
    def load(cfg: Any, trainer: Any, **kwargs: Any) -> Any:
        if isinstance(trainer, Trainer):  # fairseq's own tests call it with mocks
            check(cfg, trainer.get_model(), trainer.task, trainer.get_criterion())
        return original(cfg, trainer, **kwargs)

    return load


def check(cfg: Any, model: BaseFairseqModel, task: Any, criterion: Any) -> None:
    """Check the checkpoint that fairseq is about to load; `cfg` is its `CheckpointConfig`."""
    path = checkpoint_path(cfg)
    if path is None:
        logger.info("initialisation: random weights")
        return
    if not path.is_file():
        flag, given = "--finetune-from-model", cfg.finetune_from_model
        if cfg.restore_file != LAST:
            flag, given = "--restore-file", cfg.restore_file
        if flag == "--restore-file" and not is_ours(model, task):
            return  # fairseq warns and starts from random weights, which its own commands rely on
        raise UserError(
            f"{flag} {given}: no such checkpoint; name one that exists, "
            "or leave the flag out to start from random weights"
        )
    state = load_checkpoint(path)
    check_criterion(path, state, cfg, criterion)
    check_dictionary(path, getattr(task, "source_dictionary", None))
    check_keys(path, state["model"], model)
    logger.info("initialisation: weights of %s", path)


def is_ours(model: BaseFairseqModel, task: Any) -> bool:
    """Whether the model or the task is of this plugin, not of fairseq."""
    return any(type(part).__module__.startswith(f"{PACKAGE}.") for part in (model, task))


def checkpoint_path(cfg: Any) -> Path | None:
    """The local file that a run starts from, or None for random weights.

    URLs such as `file:///models/model.pt` are resolved by fairseq's `PathManager`, which needs the package
    iopath for them.
    """
    if cfg.restore_file != LAST:
        return local_path(cfg.restore_file)
    if cfg.save_dir is not None and (last := Path(cfg.save_dir) / LAST).is_file():
        return last
    return local_path(cfg.finetune_from_model) if cfg.finetune_from_model else None


def local_path(path: str) -> Path:
    """The file behind a path or URL; a URL that cannot be resolved is kept as it is."""
    try:
        return Path(PathManager.get_local_path(str(path)))
    except (OSError, ValueError, RuntimeError, AssertionError):
        return Path(path)


def check_criterion(path: Path, state: dict[str, Any], cfg: Any, criterion: Any) -> None:
    """The optimizer's state of another kind of training cannot be gone on with."""
    history = state.get("optimizer_history") or [{}]
    theirs, ours = history[-1].get("criterion_name"), type(criterion).__name__
    goes_on = state.get("last_optimizer_state") is not None and not cfg.reset_optimizer
    if goes_on and path != local_path(cfg.finetune_from_model or "") and theirs != ours:
        raise UserError(
            f"--restore-file {path} was trained with {theirs}, this run trains with {ours}; to take its "
            "weights only, add --reset-optimizer --reset-dataloader --reset-meters --reset-lr-scheduler"
        )


def check_keys(path: Path, weights: dict[str, Tensor], model: BaseFairseqModel) -> None:
    """Compare names and shapes; a missing classification head is expected, and said."""
    wanted = model.state_dict()
    if any(key.startswith(HEAD) for key in wanted) and not any(key.startswith(HEAD) for key in weights):
        logger.info("%s has no classification head: the new one starts from random weights", path)
    weights = dict(weights)
    model.upgrade_state_dict(weights)
    differences = [
        f"{key} is {tuple(weights[key].shape)} in the file and {tuple(wanted[key].shape)} in the model"
        for key in wanted
        if key in weights and weights[key].shape != wanted[key].shape
    ]
    differences += [f"{key} is missing" for key in wanted if key not in weights]
    differences += [f"{key} is not part of the model" for key in weights if key not in wanted]
    if differences:
        more = f", and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
        raise UserError(
            f"{path} does not fit the model: {'; '.join(differences[:SHOWN])}{more}; "
            "use the --arch, the sizes and the dictionary it was trained with"
        )


def check_dictionary(path: Path, dictionary: Dictionary | None) -> None:
    """Compare the data's dictionary with a `dict.txt` beside the checkpoint, where there is one."""
    beside = path.parent / "dict.txt"
    if dictionary is None or not beside.is_file():
        return
    theirs, ours = words(load_dictionary(beside)), words(dictionary)
    if theirs == ours:
        return
    at = next((i for i, pair in enumerate(zip(theirs, ours, strict=False)) if pair[0] != pair[1]), None)
    place = (
        f"{len(theirs)} types there, {len(ours)} in the data"
        if at is None
        else f"type {at} is {theirs[at]!r} there and {ours[at]!r} in the data"
    )
    raise UserError(
        f"{beside}: not the dictionary of the data ({place}); binarize the data with --srcdict {beside}"
    )


def words(dictionary: Dictionary) -> list[str]:
    """The symbols without `<mask>`, which tasks add by themselves."""
    return [symbol for symbol in dictionary.symbols if symbol != "<mask>"]
