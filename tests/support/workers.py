"""What the workers of a distributed test run: several trainings, or a failure."""

import os
import signal
import time

import torch
from fairseq.data.iterators import GroupedIterator
from fairseq.logging import metrics
from fairseq_cli import train

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.training.distributed import broadcast
from tests.support.training import build_trainer


def train_and_validate(arguments, updates):
    """Loss (bits) and counts of each of the first updates and on valid, and the weights after them."""
    task, trainer = build_trainer(arguments)
    log, epoch = [], 1
    trainer.begin_epoch(1)
    while len(log) < updates:
        batches = trainer.get_train_iterator(epoch=epoch, load_dataset=epoch == 1).next_epoch_itr()
        for samples in GroupedIterator(batches, trainer.cfg.optimization.update_freq[0]):
            with metrics.aggregate(new_root=True) as meters:
                trainer.train_step(samples)
            log.append(summary(meters))
        epoch += 1
    random = torch.rand(4)
    task.load_dataset("valid")
    with metrics.aggregate(new_root=True) as meters:
        for sample in trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False):
            trainer.valid_step(sample)
    weights = {name: weight.clone() for name, weight in trainer.get_model().state_dict().items()}
    return {"log": log, "valid": summary(meters), "weights": weights, "random": random}


def summary(meters):
    """The loss and, as counts, sentences, tokens and the cells of the confusion matrix."""
    counts = meters["_confusion"].sum.tolist() if "_confusion" in meters else []
    cells = {f"cell {i}": n for i, n in enumerate(counts)}
    numbers = {"loss": meters["loss"].avg, "sentences": meters["bsz"].sum, "tokens": meters["wpb"].sum}
    return {name: float(number) for name, number in (numbers | cells).items()}


def train_all(cfg, trainings, folder):
    """Run the trainings, name -> (arguments, updates), save FOLDER/rank<i>.pt, then train `cfg`."""
    results = {name: train_and_validate(*training) for name, training in trainings.items()}
    rank = torch.distributed.get_rank()
    torch.save({**results, "broadcast": broadcast(f"rank {rank}")}, folder / f"rank{rank}.pt")
    train.main(cfg)


def fail(cfg, how):
    """The second worker fails while the first waits for it."""
    if torch.distributed.get_rank() == 0:
        torch.distributed.all_reduce(torch.zeros(1))
        time.sleep(60)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise {"user error": UserError("the disk is full"), "bug": RuntimeError("a bug")}[how]
