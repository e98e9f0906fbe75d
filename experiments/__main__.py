"""`python -m sweep train|pretrain`, which train.sh and pretrain.sh call."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError, one_line_errors

from .launchers.slurm.task import train_task
from .methods.fairseq import TRAINER
from .pretrain import pretrain
from .settings import pretrain_settings, train_settings
from .train import train


@one_line_errors
def main(argv: Sequence[str] | None = None, trainer: Sequence[str] = TRAINER) -> int:
    """Run a command line; `trainer` replaces fairseq-train in tests."""
    command, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if command == "train":
        return train(train_settings(rest, os.environ), trainer)
    if command == "pretrain":
        return pretrain(pretrain_settings(rest, os.environ), trainer)
    if command == "task" and len(rest) == 1:  # a task of a job array: SLURM starts it
        return train_task(Path(rest[0]), os.environ)
    raise UserError("use ./train.sh or ./pretrain.sh (python -m sweep train|pretrain)")


if __name__ == "__main__":
    sys.exit(main())
