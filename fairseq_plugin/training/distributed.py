"""One training on several processes (data parallelism), on a CPU as on GPUs.

    fairseq-train DATA --cpu --distributed-world-size 2 ...
    torchrun --nproc-per-node 2 -m fairseq_cli.train DATA --cpu ...

Each process, a worker, computes the gradients of its own batches, and all make the same update from their
sum. fairseq deals batches out in turn, so that N workers make the updates of one process with N times its
`--update-freq`, in sums of another order. Which pieces `masked_lm` hides depends on the seed, the epoch and
the block alone (fairseq/data/mask_tokens_dataset.py), not on who reads it; only dropout differs.

fairseq has all this for GPUs, where it starts a process for each. Here a CPU has it too, and on both

- `legacy_ddp` adds the gradients up. torch's own module does not see that the loss of `masked_lm.py`, no call
  of the model, needs gradients exchanged, and refuses the head that a loss leaves out;
- a head that is left out stays as it is (`without_unused`);
- the last update of an epoch counts every sentence (`without_fillers`);
- workers draw other random numbers for dropout than each other (`seed_apart`);
- a failure is said once, by the worker that failed, and ends all (`worker`, `start`).
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import LegacyDistributedDataParallel as Reducer
from fairseq.distributed import utils
from fairseq.trainer import Trainer
from torch.multiprocessing import ProcessExitedException

from common.errors import UserError, message_of

LAUNCHED = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
"""What torchrun tells each process that it starts."""
PATIENCE_SECONDS = 3
"""In which whoever started the workers ends the others, when one has failed."""
STRIDE = 0x9E3779B1
"""Between the seeds of two workers: more than there are updates, in the 32 bits that torch takes on a CPU."""

Main = Callable[..., None]
T = TypeVar("T")


def active() -> bool:
    """Whether this process is one of several, which exchange gradients."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def of_first(value: T) -> T:
    """The first worker's value; for what is measured, and would differ between workers. All have to ask."""
    if not active():
        return value
    values = [value]
    torch.distributed.broadcast_object_list(values)
    return values[0]


def starting_workers(original: Callable[..., None]) -> Callable[..., None]:
    """`distributed.utils.call_main`, where `fairseq-train` begins, on several processes of a CPU too."""

    @functools.wraps(original)
    def call(cfg: FairseqConfig, main: Main, **kwargs: Any) -> None:
        call_main(original, cfg, main, **kwargs)

    return call


def call_main(single: Callable[..., None], cfg: FairseqConfig, main: Main, **kwargs: Any) -> None:
    """Run `main(cfg, **kwargs)`, a command of fairseq, in each worker; a single one by fairseq's `single`."""
    launched = all(name in os.environ for name in LAUNCHED)
    settings = cfg.distributed_training
    count = int(os.environ["WORLD_SIZE"]) if launched else settings.distributed_world_size
    if count == 1 or cfg.common.tpu or settings.pipeline_model_parallel:
        single(cfg, main, **kwargs)
        return
    settle(cfg)
    if launched:
        settings.distributed_init_method = "env://"
        settings.distributed_world_size = count
        settings.distributed_rank = int(os.environ["RANK"])
        settings.device_id = int(os.environ.get("LOCAL_RANK", 0))
        settings.distributed_no_spawn = True
    elif not on_cpu(cfg):
        find_gpus(settings)
    if settings.distributed_no_spawn:
        worker(settings.device_id, main, cfg, kwargs)
    else:
        start(cfg, main, kwargs)


def settle(cfg: FairseqConfig) -> None:
    """Set what the workers need, whatever fairseq's defaults are."""
    if on_cpu(cfg):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # else fairseq has each worker greet a GPU
        cfg.distributed_training.distributed_backend = "gloo"
    if cfg.distributed_training.ddp_backend in ("c10d", "pytorch_ddp"):
        cfg.distributed_training.ddp_backend = "legacy_ddp"
    # Else the first worker sends what it has read as a pickle, which the others refuse (checkpoints.py).
    cfg.checkpoint.load_checkpoint_on_all_dp_ranks = True


def on_cpu(cfg: FairseqConfig) -> bool:
    """Whether the training keeps off GPUs."""
    return cfg.common.cpu or not torch.cuda.is_available()


def find_gpus(settings: Any) -> None:
    """Let fairseq settle how the workers of GPUs meet: on this machine, or under Slurm."""
    try:
        utils.infer_init_method(settings)
    except AssertionError as error:
        raise UserError(f"--distributed-world-size: {error}; or train on the CPU with --cpu") from None


def start(cfg: FairseqConfig, main: Main, kwargs: dict[str, Any]) -> None:
    """Start the workers of this machine and wait for them.

    Raises `UserError` for a worker that was killed, and `SystemExit` where one has failed and said so.
    """
    settings = cfg.distributed_training
    count = settings.distributed_world_size
    kwargs = {**kwargs, "start_rank": settings.distributed_rank}
    settings.distributed_rank = None  # that is, start_rank and the number of the process
    # It warns of each worker that it ends beside the failed one, after that one has said why.
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        if on_cpu(cfg):
            # The cores are shared out, unless the user has said otherwise.
            os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // count)))
            settings.distributed_init_method = f"file://{folder}/workers"  # not a port, which may be taken
        else:
            count = min(count, torch.cuda.device_count())
        try:
            torch.multiprocessing.spawn(worker, args=(main, cfg, kwargs), nprocs=count)
        except ProcessExitedException as error:
            if error.signal_name is None:
                sys.exit(error.exit_code)
            raise UserError(
                f"worker {error.error_index} of {count} was ended by {error.signal_name}, and the others "
                "with it; the same command goes on from the last checkpoint"
            ) from None


def worker(index: int, main: Main, cfg: FairseqConfig, kwargs: dict[str, Any]) -> None:
    """One of the processes, the `index`-th of its machine; exits with 1 where it fails.

    Where a worker fails, the others fail too: with the same user's mistake, or because they wait for it. The
    first one to fail says why. An error that no user can mend may be a consequence of another's sudden end,
    which only the parent knows about, and is held back until that has had its time.
    """
    try:
        utils.distributed_main(index, main, cfg, kwargs)
        torch.distributed.destroy_process_group()
    except Exception as error:
        line = message_of(error)
        if line is None:
            time.sleep(PATIENCE_SECONDS)
        if first_to_fail():
            print(line or traceback.format_exc(), file=sys.stderr, flush=True)
        else:
            time.sleep(PATIENCE_SECONDS)  # to leave before the first has spoken would end it
        sys.exit(1)


def first_to_fail() -> bool:
    """Whether no other worker has asked before."""
    try:
        return torch.distributed.distributed_c10d._get_default_store().add("failed", 1) == 1
    except (ValueError, RuntimeError):  # they have not met yet, or the worker that kept the count is gone
        return True


def without_fillers(train_step: Callable[..., Any]) -> Callable[..., Any]:
    """`Trainer.train_step` that leaves out the empty batches beside real ones.

    Where an epoch has no batch left for a worker, fairseq gives it an empty one. One at the end of
    a group (`--update-freq`) makes fairseq count none of the group's sentences, though it trains on them.
    """

    @functools.wraps(train_step)
    def step(trainer: Trainer, samples: list[Any], *args: Any, **kwargs: Any) -> Any:
        real = [sample for sample in samples if sample]
        return train_step(trainer, real or samples[:1], *args, **kwargs)

    return step


def without_unused(all_reduce_grads: Callable[[Reducer], None]) -> Callable[[Reducer], None]:
    """`all_reduce_grads` that leaves parameters without a gradient where no worker has one.

    fairseq makes it zero: to an optimizer a gradient like others, which lets weights decay.
    """

    @functools.wraps(all_reduce_grads)
    def reduce(model: Reducer) -> None:
        unused = [parameter for parameter in model.parameters() if parameter.grad is None]
        all_reduce_grads(model)
        for parameter in unused:
            if parameter.grad is not None and not parameter.grad.any():
                parameter.grad = None

    return reduce


def seed_apart(set_seed: Callable[[Trainer], None]) -> Callable[[Trainer], None]:
    """`Trainer._set_seed` that gives each worker a seed of its own; the first has that of a single process.

    fairseq gives all the same: dropout then hides the same places of all workers' batches.
    """

    @functools.wraps(set_seed)
    def set_own_seed(trainer: Trainer) -> None:
        set_seed(trainer)
        if trainer.data_parallel_rank > 0:
            torch.manual_seed(torch.initial_seed() + STRIDE * trainer.data_parallel_rank)

    return set_own_seed
