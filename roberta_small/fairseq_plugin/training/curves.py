"""Complete curves for resumed runs.

At the end of an epoch, fairseq writes the checkpoint before it logs the training metrics, and a resumed run
does not restore the sums since the last logged line. Without the replacements of this module,

- a run killed between checkpoint and logging would lack a point of `train`;
- a resumed run would have other next points of `train_inner`;
- a run killed after its last update, in the middle of an epoch, would train one more update when resumed;
- a resumed run would count the validations for `--patience` from zero, and train on after an early stop.

Here a checkpoint also contains the training metrics of its epoch, what `--precision auto` resolved to, and
the count for `--patience`. A resumed run logs these metrics, restores the sums of `train_inner` and the
count, passes the last validation loss to the schedule, keeps the precision, and exits if all updates are done
or the run has stopped early.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from numbers import Number
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.logging.progress_bar import TensorboardProgressBarWrapper
from fairseq.trainer import Trainer

from roberta_small.common.run import LAST_CHECKPOINT
from roberta_small.fairseq_plugin.checkpoints.initialization import last_checkpoint
from roberta_small.fairseq_plugin.training import precision

logger = logging.getLogger(__name__)
METRICS_KEY, PRECISION_KEY, STOPPING_KEY = "train_metrics", "precision", "early_stopping"
EPOCH, INTERVAL = "train", "train_inner"
TRAIN_MODULES = ("__main__", "fairseq_cli.train")
"""Where `fairseq_cli/train.py` may be loaded: under the first name by `python -m fairseq_cli.train`."""
TIMING_METRICS = {"wps", "ups", "tflops", "wall", "train_wall", "gb_free"}
"""Metrics that differ each time they are measured."""


def saving_metrics(
    save: Callable[..., Any], trainer: Trainer, filename: str, extra_state: dict[str, Any]
) -> Any:
    """Replace `Trainer.save_checkpoint`: also save what `resume` restores, for complete curves."""
    ours = {METRICS_KEY: epoch_metrics(), PRECISION_KEY: precision.resolved(), STOPPING_KEY: early_stopping()}
    return save(trainer, filename, extra_state | ours)


def restoring_metrics(load: Callable[..., Any], cfg: Any, trainer: Trainer, **kwargs: Any) -> Any:
    """Replace `checkpoint_utils.load_checkpoint`: a resumed run restores what `saving_metrics` saved."""
    resuming = resumes(cfg, getattr(trainer, "checkpoint_suffix", ""))
    extra_state, epoch_itr = load(cfg, trainer, **kwargs)
    if resuming and extra_state is not None:
        resume(trainer, extra_state)
    return extra_state, epoch_itr


def resumes(cfg: Any, suffix: str = "") -> bool:
    """Whether the run continues from its own last checkpoint, including optimizer, schedule and data state.

    `cfg` is fairseq's `CheckpointConfig`, `suffix` is `Trainer.checkpoint_suffix`.
    """
    resets = (cfg.reset_optimizer, cfg.reset_lr_scheduler, cfg.reset_dataloader, cfg.reset_meters)
    starts_anew = cfg.restore_file != LAST_CHECKPOINT or any(resets)
    return not starts_anew and last_checkpoint(cfg, suffix) is not None


def epoch_metrics() -> dict[str, Any]:
    """The training metrics of the epoch so far, as fairseq logs them, without `TIMING_METRICS`."""
    if metrics.get_meters(EPOCH) is None:
        return {}
    values = metrics.get_smoothed_values(EPOCH).items()
    return {
        name: value.item() if torch.is_tensor(value) else value
        for name, value in values
        if name not in TIMING_METRICS
        and (isinstance(value, Number) or (torch.is_tensor(value) and value.numel() == 1))
    }


def early_stopping() -> dict[str, float]:
    """What fairseq counts for --patience: `best` and `num_runs`, the validations since; empty before any.

    fairseq keeps both as attributes of its function `should_stop_early`.
    """
    for function in _stopping_functions():
        if hasattr(function, "best"):
            return {"best": float(function.best), "num_runs": vars(function)["num_runs"]}
    return {}


def _stopping_functions() -> list[Callable[..., bool]]:
    modules = [sys.modules[name] for name in TRAIN_MODULES if name in sys.modules]
    return [module.should_stop_early for module in modules if hasattr(module, "should_stop_early")]


def resume(trainer: Trainer, extra_state: dict[str, Any]) -> None:
    """Restore what `saving_metrics` saved; raises `SystemExit` if no update is left."""
    precision.restore(extra_state.get(PRECISION_KEY, {}))
    updates, max_update = trainer.get_num_updates(), trainer.cfg.optimization.max_update
    stopping, patience = extra_state.get(STOPPING_KEY, {}), trainer.cfg.checkpoint.patience
    for function in _stopping_functions():
        vars(function).update(stopping)
    stopped = 0 < patience <= stopping.get("num_runs", 0)
    done = stopped or 0 < max_update <= updates
    iterator = extra_state["train_iterator"]
    epoch_ended = iterator["iterations_in_epoch"] == 0
    if epoch_ended and extra_state.get("val_loss") is not None:
        trainer.lr_step(iterator["epoch"] - 1, extra_state["val_loss"])  # fairseq does this after saving
    if epoch_ended and INTERVAL in extra_state.get("metrics", {}):
        metrics.load_state_dict({INTERVAL: extra_state["metrics"][INTERVAL]})
    folder = trainer.cfg.common.tensorboard_logdir
    is_master = distributed_utils.is_master(trainer.cfg.distributed_training)
    saved = extra_state.get(METRICS_KEY, {})
    if folder and saved and (epoch_ended or done) and is_master:
        # What was logged before the run ended is logged a second time, with the same value. Of two values at
        # one step, `analysis` takes the later.
        TensorboardProgressBarWrapper(None, folder)._log_to_tensorboard(saved, EPOCH, updates)
    if done:
        reason = (
            f"stopped early (--patience {patience})" if stopped else f"all {max_update} updates are finished"
        )
        logger.info("%s; nothing to train", reason)
        sys.exit(0)
