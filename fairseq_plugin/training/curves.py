"""A run that was ended and goes on has the curves of one that was not.

At the end of an epoch fairseq writes the checkpoint first and logs the metrics of training after it, and
where it goes on from that checkpoint it forgets what it has added up since its last line of the log. A run
that is killed between the two would lack a point of `train` for ever, and every run that goes on has another
next point of `train_inner`. And one that is killed after its last update, with the epoch not over, makes
another update when it goes on. Here the checkpoint keeps the metrics, which are logged when the run goes on;
the sums go on as well; and where all updates are made, the run ends. The schedule is told of the last
validation, and `--precision auto` stays what it has become, which a busier machine might answer otherwise.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from numbers import Number
from pathlib import Path
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.logging.progress_bar import TensorboardProgressBarWrapper
from fairseq.trainer import Trainer

from . import precision

logger = logging.getLogger(__name__)
KEY, PRECISION = "train_metrics", "precision"
EPOCH, INTERVAL = "train", "train_inner"
OF_THE_CLOCK = {"wps", "ups", "tflops", "wall", "train_wall", "gb_free"}
"""Not the same when they are computed again."""
LAST = "checkpoint_last.pt"


def saving_metrics(save: Callable[..., Any]) -> Callable[..., Any]:
    """`Trainer.save_checkpoint` that also writes the metrics of the epoch and the chosen precision."""

    @functools.wraps(save)
    def save_with_metrics(trainer: Trainer, filename: str, extra_state: dict[str, Any]) -> Any:
        kept = {KEY: of_the_epoch(), PRECISION: precision.chosen()}
        return save(trainer, filename, extra_state | kept)

    return save_with_metrics


def restoring_metrics(load: Callable[..., Any]) -> Callable[..., Any]:
    """`checkpoint_utils.load_checkpoint` that restores what `saving_metrics` wrote, in a resumed run."""

    @functools.wraps(load)
    def load_and_go_on(cfg: Any, trainer: Trainer, **kwargs: Any) -> Any:
        goes_on = _goes_on(cfg)
        extra_state, epoch_itr = load(cfg, trainer, **kwargs)
        if goes_on and extra_state is not None:
            go_on(trainer, extra_state)
        return extra_state, epoch_itr

    return load_and_go_on


def of_the_epoch() -> dict[str, float]:
    """The training metrics of the epoch so far, as fairseq logs them, without those of the clock."""
    if metrics.get_meters(EPOCH) is None:
        return {}
    values = metrics.get_smoothed_values(EPOCH).items()
    return {
        name: value.item() if torch.is_tensor(value) else value
        for name, value in values
        if name not in OF_THE_CLOCK
        and (isinstance(value, Number) or (torch.is_tensor(value) and value.numel() == 1))
    }


def go_on(trainer: Trainer, extra_state: dict[str, Any]) -> None:
    """Take up what the checkpoint left; SystemExit where no update is left."""
    precision.go_on_with(extra_state.get(PRECISION, {}))
    updates, most = trainer.get_num_updates(), trainer.cfg.optimization.max_update
    done = 0 < most <= updates
    place = extra_state["train_iterator"]
    epoch_over = place["iterations_in_epoch"] == 0
    if epoch_over and extra_state.get("val_loss") is not None:
        trainer.lr_step(place["epoch"] - 1, extra_state["val_loss"])  # the schedule has not heard of it
    if epoch_over and INTERVAL in extra_state.get("metrics", {}):
        metrics.load_state_dict({INTERVAL: extra_state["metrics"][INTERVAL]})
    folder = trainer.cfg.common.tensorboard_logdir
    if folder and (epoch_over or done) and distributed_utils.is_master(trainer.cfg.distributed_training):
        known = logged(Path(folder) / EPOCH, updates)
        lacking = {name: value for name, value in extra_state.get(KEY, {}).items() if name not in known}
        if lacking:
            TensorboardProgressBarWrapper(None, folder)._log_to_tensorboard(lacking, EPOCH, updates)
    if done:
        logger.info("all %d updates are made: nothing is left to train", most)
        sys.exit(0)


def logged(folder: Path, update: int) -> set[str]:
    """The metrics of a subset that its event files have of this update, as far as TensorBoard reads them.

    A kill may have fallen between two of them.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if not any(folder.glob("*tfevents*")):
        return set()
    found = EventAccumulator(str(folder)).Reload()
    tags = found.Tags()["scalars"]
    return {tag for tag in tags if any(value.step == update for value in found.Scalars(tag))}


def _goes_on(cfg: Any) -> bool:
    """Whether the run continues its own last checkpoint, with all that is in it."""
    resets = (cfg.reset_optimizer, cfg.reset_lr_scheduler, cfg.reset_dataloader, cfg.reset_meters)
    if cfg.save_dir is None or cfg.restore_file != LAST or any(resets):
        return False
    return (Path(cfg.save_dir) / LAST).is_file()
