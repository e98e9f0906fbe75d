"""The learning-rate schedule `time_budget`: it follows the clock, so that training ends where time does.

Who has an hour of a machine does not know how many updates that is. Here the learning rate rises and falls
with the share of `--stop-time-hours` that is used up, as in Izsak, Berchansky & Levy 2021 (arXiv 2104.07705)
and Geiping & Goldstein 2022 (arXiv 2212.14034). Interrupted runs go on with the time that they have used;
two runs are not alike to the bit, because no two hours are.
"""

import time
from dataclasses import dataclass, field
from typing import Any, List

from fairseq.dataclass import FairseqDataclass
from fairseq.optim.fairseq_optimizer import FairseqOptimizer
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from common.errors import UserError

from .distributed import of_first


@dataclass
class TimeBudgetConfig(FairseqDataclass):
    """Flags of the schedule."""

    warmup_share: float = field(
        default=0.06, metadata={"help": "share of the time in which the learning rate rises to --lr"}
    )
    stop_time_hours: float = II("optimization.stop_time_hours")
    lr: List[float] = II("optimization.lr")


@register_lr_scheduler("time_budget", dataclass=TimeBudgetConfig)
class TimeBudget(FairseqLRScheduler):
    """Linear up to `--lr`, then linear down to 0 at the end of `--stop-time-hours`."""

    def __init__(self, cfg: TimeBudgetConfig, optimizer: FairseqOptimizer) -> None:
        super().__init__(cfg, optimizer)
        if cfg.stop_time_hours <= 0:
            raise UserError("--lr-scheduler time_budget needs --stop-time-hours, for example 1.5")
        if not 0 <= cfg.warmup_share < 1:
            raise UserError(f"--warmup-share {cfg.warmup_share}: not a share from 0 to below 1")
        self._earlier = 0.0
        self._start = time.monotonic()
        self.step_update(0)

    @property
    def seconds(self) -> float:
        """Used up, those before interruptions included."""
        return self._earlier + time.monotonic() - self._start

    def factor(self, share: float) -> float:
        """Of the learning rate, after a share of the time."""
        warm_up = self.cfg.warmup_share
        return share / warm_up if share < warm_up else max(0.0, 1 - share) / (1 - warm_up)

    def step_update(self, num_updates: int) -> float:
        """Set the learning rate of the next update, by the clock of the first worker."""
        share = of_first(self.seconds) / (3600 * self.cfg.stop_time_hours)
        self.optimizer.set_lr(self.cfg.lr[0] * self.factor(share))
        return self.optimizer.get_lr()

    def state_dict(self) -> dict[str, Any]:
        """What an interrupted run has to remember."""
        return {**super().state_dict(), "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the time that is used up already."""
        super().load_state_dict(state_dict)
        self._earlier, self._start = float(state_dict["seconds"]), time.monotonic()
