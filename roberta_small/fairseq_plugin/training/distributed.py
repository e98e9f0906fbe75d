"""Data-parallel training with several processes, on CPU and on GPUs.

    fairseq-train DATA --cpu --distributed-world-size 2 ...
    torchrun --nproc-per-node 2 -m fairseq_cli.train DATA --cpu ...

Each process (worker) computes the gradients of its own batches; all make the same update with their sum.
fairseq distributes the batches in turn, so N workers make the same updates as one process with N times the
`--update-freq`, up to the order of summation. The masks of `masked_lm` depend only on the seed, the epoch and
the block (fairseq/data/mask_tokens_dataset.py), not on the worker; only dropout differs.

fairseq supports this for GPUs and starts one process for each. This module adds the CPU. On both, it
uses `legacy_ddp` to sum gradients: torch's `DistributedDataParallel` does not exchange gradients for
`masked_lm_loss`, which is not the model's `forward`, and fails if the loss does not use a head.
"""

from __future__ import annotations

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

from roberta_small.common.errors import UserError, message_of
from roberta_small.common.hardware import usable_cores
from roberta_small.fairseq_plugin.training.threads import set_threads

LAUNCHED = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
"""Environment variables that torchrun sets for each process."""
GRACE_SECONDS = 3
"""Time for the parent process to terminate the other workers after one has failed."""
SEED_STRIDE = 0x9E3779B1
"""Difference of the seeds of two workers: larger than any number of updates, modulo 2^32 (torch on CPU)."""

Main = Callable[..., None]
T = TypeVar("T")


def active() -> bool:
    """Whether this process is one of several workers."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def broadcast(value: T) -> T:
    """The first worker's value, for measurements that differ between workers; all workers must call it."""
    if not active():
        return value
    values = [value]
    torch.distributed.broadcast_object_list(values)
    return values[0]


def starting_workers(single: Callable[..., None], cfg: FairseqConfig, main: Main, **kwargs: Any) -> None:
    """Replace `distributed.utils.call_main`: multi-process training on CPU, and one error for all workers.

    Runs `main(cfg, **kwargs)`, a command of fairseq, in each worker. A single process on a CPU gets its
    number of threads here (`set_threads`). Raises `UserError` if there are fewer GPUs than workers.
    """
    launched = all(name in os.environ for name in LAUNCHED)
    settings = cfg.distributed_training
    count = int(os.environ["WORLD_SIZE"]) if launched else settings.distributed_world_size
    if count == 1 or cfg.common.tpu or settings.pipeline_model_parallel:
        if on_cpu(cfg):
            set_threads()
        single(cfg, main, **kwargs)
        return
    # Defaults of fairseq that do not work for these workers.
    if on_cpu(cfg):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # otherwise fairseq initializes a GPU in each worker
        settings.distributed_backend = "gloo"
    if settings.ddp_backend in ("c10d", "pytorch_ddp"):
        settings.ddp_backend = "legacy_ddp"
    # Otherwise the first worker sends the checkpoint as a pickle, which safe loading refuses.
    cfg.checkpoint.load_checkpoint_on_all_dp_ranks = True
    if launched:
        settings.distributed_init_method = "env://"
        settings.distributed_world_size = count
        settings.distributed_rank = int(os.environ["RANK"])
        settings.device_id = int(os.environ.get("LOCAL_RANK", 0))
        settings.distributed_no_spawn = True
    elif not on_cpu(cfg):
        try:
            utils.infer_init_method(settings)  # how the workers connect, on this machine or under Slurm
        except AssertionError as error:
            raise UserError(f"--distributed-world-size: {error}; or train on the CPU with --cpu") from None
    if settings.distributed_no_spawn:
        worker(settings.device_id, main, cfg, kwargs)
    else:
        start(cfg, main, kwargs)


def on_cpu(cfg: FairseqConfig) -> bool:
    """Whether the training runs on the CPU."""
    return cfg.common.cpu or not torch.cuda.is_available()


def start(cfg: FairseqConfig, main: Main, kwargs: dict[str, Any]) -> None:
    """Start the workers of this machine and wait for them.

    Raises `UserError` if a worker was killed by a signal, and `SystemExit` if one failed and reported it.
    """
    settings = cfg.distributed_training
    count = settings.distributed_world_size
    kwargs = {**kwargs, "start_rank": settings.distributed_rank}
    settings.distributed_rank = None  # the worker computes it from start_rank and its index
    # After a failure torch would log a warning for each of the other workers that it terminates.
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        if on_cpu(cfg):
            # Divide the cores between the workers, unless the user has set the variable.
            os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // count)))
            settings.distributed_init_method = f"file://{folder}/workers"  # a port could be in use
        else:
            count = min(count, torch.cuda.device_count())
        try:
            torch.multiprocessing.spawn(worker, args=(main, cfg, kwargs), nprocs=count)
        except ProcessExitedException as error:
            if error.signal_name is None:
                sys.exit(error.exit_code)
            raise UserError(
                f"worker {error.error_index} of {count} was killed by {error.signal_name} and the others "
                "stopped; the same command resumes from the last checkpoint"
            ) from None


def worker(index: int, main: Main, cfg: FairseqConfig, kwargs: dict[str, Any]) -> None:
    """Run `main` as the `index`-th worker of this machine; exits with code 1 on failure.

    If a worker fails, the others fail too: with the same user error, or because they wait for it. Only the
    first one reports its error. An error that is not the user's may be the consequence of another worker that
    was killed, which only the parent process can report; the parent gets `GRACE_SECONDS` to do so.
    """
    try:
        utils.distributed_main(index, main, cfg, kwargs)
        torch.distributed.destroy_process_group()
    except Exception as error:
        message = message_of(error)
        if message is None:
            time.sleep(GRACE_SECONDS)
        try:
            first = torch.distributed.distributed_c10d._get_default_store().add("failed", 1) == 1
        except (ValueError, RuntimeError):  # the workers are not connected, or the store's worker has exited
            first = True
        if first:
            print(message or traceback.format_exc(), file=sys.stderr, flush=True)
        else:
            time.sleep(GRACE_SECONDS)  # exiting now would end the first worker before it has reported
        sys.exit(1)


def skipping_empty_batches(
    train_step: Callable[..., Any], trainer: Trainer, samples: list[Any], *args: Any, **kwargs: Any
) -> Any:
    """Replace `Trainer.train_step`: count the sentences of a worker's last batches.

    Empty batches are left out if there are others. If an epoch has no batch left for a worker, fairseq gives
    it an empty one. If that is the last of a group (`--update-freq`), fairseq counts none of the group's
    sentences, although it trains on them.
    """
    non_empty = [sample for sample in samples if sample]
    return train_step(trainer, non_empty or samples[:1], *args, **kwargs)


def keeping_missing_gradients(all_reduce_grads: Callable[[Reducer], None], model: Reducer) -> None:
    """Replace `all_reduce_grads`: the gradient of a parameter that no worker uses stays None.

    fairseq sets it to zero; an optimizer would then apply weight decay.
    """
    unused = [parameter for parameter in model.parameters() if parameter.grad is None]
    all_reduce_grads(model)
    for parameter in unused:
        if parameter.grad is not None and not parameter.grad.any():
            parameter.grad = None


def seeding_each_worker(set_seed: Callable[[Trainer], None], trainer: Trainer) -> None:
    """Replace `Trainer._set_seed`: different dropout masks for each worker.

    The first worker has the seed of a single process. In fairseq all have it. The generators are seeded
    directly. `torch.manual_seed` also notes the call stack for each kind of device that a machine can have,
    which takes a millisecond per update.
    """
    if trainer.device.type not in ("cpu", "cuda"):
        set_seed(trainer)
        return
    seed = trainer.cfg.common.seed + trainer.get_num_updates()  # as in fairseq
    seed += SEED_STRIDE * trainer.data_parallel_rank
    torch.default_generator.manual_seed(seed)
    if trainer.device.type == "cuda":
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)
