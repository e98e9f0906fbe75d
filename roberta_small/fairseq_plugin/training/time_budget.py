"""The learning-rate schedule `time_budget`: warm-up and decay over a given training time.

With a time budget the number of updates is not known in advance. The learning rate is a function of the
elapsed fraction of `--stop-time-hours`, as in Izsak, Berchansky & Levy 2021 (arXiv 2104.07705) and Geiping &
Goldstein 2022 (arXiv 2212.14034). Runs are not reproducible, because the number of updates per hour varies.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.optim.fairseq_optimizer import FairseqOptimizer
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.training.distributed import broadcast


@dataclass
class TimeBudgetConfig(FairseqDataclass):
    """Flags of the schedule."""

    warmup_share: float = field(
        default=0.06, metadata={"help": "fraction of the time in which the learning rate rises to --lr"}
    )
    stop_time_hours: float = II("optimization.stop_time_hours")
    lr: list[float] = II("optimization.lr")


@register_lr_scheduler("time_budget", dataclass=TimeBudgetConfig)
class TimeBudget(FairseqLRScheduler):
    """Linear warm-up to `--lr`, then linear decay to 0 at the end of `--stop-time-hours`.

    Raises `UserError` without `--stop-time-hours`, and for a warm-up fraction that is not in [0, 1).
    """

    def __init__(self, cfg: TimeBudgetConfig, optimizer: FairseqOptimizer) -> None:
        super().__init__(cfg, optimizer)
        if cfg.stop_time_hours <= 0:
            raise UserError("--lr-scheduler time_budget needs --stop-time-hours, for example 1.5")
        if not 0 <= cfg.warmup_share < 1:
            raise UserError(f"--warmup-share {cfg.warmup_share}: must be at least 0 and below 1")
        self._earlier = 0.0
        self._start = time.monotonic()
        self.step_update(0)

    @property
    def seconds(self) -> float:
        """Training time in seconds, including the time before interruptions."""
        return self._earlier + time.monotonic() - self._start

    def factor(self, fraction: float) -> float:
        """The learning rate as a multiple of `--lr`, after a fraction of the time."""
        warm_up = self.cfg.warmup_share
        return fraction / warm_up if fraction < warm_up else max(0.0, 1 - fraction) / (1 - warm_up)

    def step_update(self, num_updates: int) -> float:
        """Set the learning rate of the next update, by the clock of the first worker."""
        fraction = broadcast(self.seconds) / (3600 * self.cfg.stop_time_hours)
        self.optimizer.set_lr(self.cfg.lr[0] * self.factor(fraction))
        return self.optimizer.get_lr()

    def state_dict(self) -> dict[str, Any]:
        """The state of the schedule with the time used so far."""
        return {**super().state_dict(), "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the time used before the checkpoint."""
        super().load_state_dict(state_dict)
        self._earlier, self._start = float(state_dict["seconds"]), time.monotonic()
