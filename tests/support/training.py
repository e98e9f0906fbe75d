"""Run fairseq-train in this process or in its own, on tiny models."""

import argparse
import shlex
import subprocess
from collections import OrderedDict
from pathlib import Path

from fairseq import checkpoint_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.logging.meters import AverageMeter, TimeMeter
from fairseq.trainer import Trainer
from fairseq.utils import set_torch_seed

import roberta_small.fairseq_plugin  # noqa: F401  registers task, criterion, model and optimizer
from tests.support import preloaded

ROOT = Path(__file__).parents[2]
SIZES = shlex.split(
    "--encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2"
)
INPUT = shlex.split("--init-token 0 --separator-token 2 --max-positions 32 --shorten-method truncate")
STEPS = shlex.split(
    "--batch-size 8 --lr 1e-3 --lr-scheduler polynomial_decay --total-num-update 60 --warmup-updates 3 "
    "--adam-betas '(0.9, 0.98)' --adam-eps 1e-8 --weight-decay 0.01 --cpu --seed 1 --num-workers 0 "
    "--no-progress-bar"
)
OURS = shlex.split("--task sentence_classification --criterion sentence_classification --arch roberta_small")
STOCK = shlex.split(
    "--task sentence_prediction --criterion sentence_prediction --arch roberta --num-classes 2"
)
LM = shlex.split(
    "--task masked_lm --criterion fast_masked_lm --arch roberta_small --tokens-per-sample 16 "
    "--max-positions 16 --sample-break-mode none --no-epoch-checkpoints"
)
FAST = shlex.split("--optimizer fused_adam --encoder packed --precision fp32")
SLOW = shlex.split("--optimizer adam --encoder padded --precision fp32")
CLASSIFIER = [*OURS, *INPUT, *STEPS, *SIZES, *FAST]
"""The flags of a tiny classifier."""


def configuration(arguments):
    """The configuration of fairseq-train."""
    parser = options.get_training_parser()
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [str(a) for a in arguments]))


def build_trainer(arguments):
    """Task, model and criterion from the command line of fairseq-train."""
    metrics.reset()
    cfg = configuration(arguments)
    set_torch_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    return task, trainer


def started(arguments):
    """The trainer with its initial checkpoint loaded, as by fairseq-train."""
    _, trainer = build_trainer(arguments)
    checkpoint_utils.load_checkpoint(trainer.cfg.checkpoint, trainer)
    return trainer


def losses_of(trainer, updates):
    """Unrounded loss of each of the first updates (bits)."""
    losses, epoch = [], 1
    trainer.begin_epoch(1)
    while True:
        iterator = trainer.get_train_iterator(epoch=epoch, load_dataset=epoch == 1)
        for sample in iterator.next_epoch_itr(shuffle=True):
            with metrics.aggregate(new_root=True) as meters:
                trainer.train_step([sample])
            losses.append(float(meters["loss"].avg))
            if len(losses) == updates:
                return losses
        epoch += 1


def losses_and_accuracy(arguments, updates):
    """The losses of the first updates, then the accuracy on valid (percent)."""
    task, trainer = build_trainer(arguments)
    losses = losses_of(trainer, updates)
    task.load_dataset("valid")
    with metrics.aggregate(new_root=True) as meters:
        for sample in trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False):
            trainer.valid_step(sample)
    # Stock averages (and shows a rounded) accuracy; ours is derived from counts.
    accuracy = getattr(meters["accuracy"], "avg", None)
    return losses, float(meters.get_smoothed_value("accuracy") if accuracy is None else accuracy)


def save(trainer, path):
    """A checkpoint before the first or after any update, as fairseq's command line writes it."""
    iterator = trainer.get_train_iterator(epoch=1, load_dataset=True)
    iterator.next_epoch_itr()
    trainer.consolidate_optimizer()
    extra = {"train_iterator": iterator.state_dict()}
    if hasattr(trainer.task, "get_checkpoint_dict"):
        extra |= trainer.task.get_checkpoint_dict()
    trainer.save_checkpoint(str(path), extra)


def make_old(state):
    """Change a checkpoint to what fairseq 0.9 wrote: `args`, and names of the published roberta.base."""
    arguments = argparse.Namespace(**{**vars(state["cfg"]["model"]), "arch": "roberta_base"})
    for name in ("_name", "layer_norm_eps", "encoder_kind", "precision", "pooling", "family", "token_types"):
        vars(arguments).pop(name, None)
    weights = OrderedDict()
    for key, weight in state["model"].items():
        if not key.startswith("classification"):
            key = key.replace("encoder.", "decoder.", 1)
            key = key.replace(".layernorm_embedding.", ".emb_layer_norm.", 1)
        weights[key] = weight
    meters = OrderedDict(train_loss=AverageMeter(), wps=TimeMeter())
    state |= {"args": arguments, "cfg": None, "model": weights, "extra_state": {"train_meters": meters}}


def fairseq_train(*arguments, cwd=ROOT):
    """`fairseq-train --user-dir fairseq_plugin …` in a process of its own."""
    return fairseq_command("train", *arguments, cwd=cwd)


def fairseq_command(name, *arguments, cwd=ROOT, interpreter=None, env=None):
    """A command of fairseq with the plugin in a process of its own; by default a fork (`preloaded`)."""
    words = ["-m", f"fairseq_cli.{name}", *arguments, "--user-dir", ROOT / "fairseq_plugin"]
    command = [interpreter or preloaded.python(), *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
