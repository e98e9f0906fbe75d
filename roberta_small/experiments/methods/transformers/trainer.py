"""The Transformers Trainer for a sentence classifier, with this project's recipe, metrics and run folder.

Differences from the stock Trainer, so that runs are comparable with fairseq: weight decay applies to every
parameter (the Trainer excludes biases and layer norms), the learning rate follows `--total-num-update`,
class weights and label smoothing are those of the criterion, and every subset is validated. The first subset
selects the best checkpoint, the later one on a tie, and ends training after `--patience` validations without
a better score. It also chooses the thresholds of multi-label data.

B sentences in a batch, N in a split, L tokens, K classes.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig
from peft import PeftModel
from torch import Tensor, nn
from torch.utils.data import Subset
from torch.utils.tensorboard import SummaryWriter
from transformers import (
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    get_linear_schedule_with_warmup,
)
from transformers.trainer_callback import PrinterCallback, TrainerState
from transformers.utils.logging import disable_progress_bar

from roberta_small.common import class_weights, predictions
from roberta_small.common.label_kinds import Labels, Targets, chosen_thresholds
from roberta_small.common.metrics import measure_statistics
from roberta_small.common.run import TENSORBOARD, write_thresholds
from roberta_small.eval.origin import DataFolder
from roberta_small.experiments.methods.transformers import CHECKPOINTS
from roberta_small.experiments.progress import LOG_FORMAT, LOG_TIME
from roberta_small.fairseq_plugin.models.packed import in_second
from roberta_small.fairseq_plugin.tasks.datasets import load_numbers
from roberta_small.fairseq_plugin.tasks.objectives import OBJECTIVES, training_loss
from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask
from roberta_small.fairseq_plugin.training.optimizer import parse_betas
from roberta_small.preprocess.dictionary import EOS, PAD

logger = logging.getLogger(__name__)
INTERVAL = 25
"""Updates between two log records of the training loss."""
SCORE = "validation_score"
"""Key of the selecting metric in the Trainer's log history, which its checkpoints contain."""
Item = dict[str, Tensor]


def training_arguments(
    cfg: DictConfig, folder: Path, *, sentences: int, seed: int, bf16: bool, cpu: bool
) -> TrainingArguments:
    """The recipe as `TrainingArguments`, for a training set of `sentences`; checkpoints go to `folder`."""
    sizes, limits, betas = cfg.dataset, cfg.optimization, parse_betas(cfg.optimizer.adam_betas)
    by_epochs = limits.max_epoch * math.ceil(math.ceil(sentences / sizes.batch_size) / limits.update_freq[0])
    valid = sizes.batch_size_valid or sizes.batch_size
    if sizes.max_tokens_valid:  # so that the longest sentences still fit
        valid = min(valid, max(1, sizes.max_tokens_valid // cfg.task.max_positions))
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=sizes.batch_size,
        per_device_eval_batch_size=valid,
        gradient_accumulation_steps=limits.update_freq[0],
        max_steps=min(limit for limit in (by_epochs, limits.max_update) if limit),
        learning_rate=limits.lr[0],
        optim="adamw_torch_fused",
        adam_beta1=betas[0],
        adam_beta2=betas[1],
        adam_epsilon=cfg.optimizer.adam_eps,
        weight_decay=cfg.optimizer.weight_decay,
        max_grad_norm=limits.clip_norm,
        bf16=bf16,
        use_cpu=cpu,
        seed=seed,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        logging_strategy="no",
        logging_nan_inf_filter=False,  # which waits for a GPU in each update, and concerns logs only
        disable_tqdm=True,
        report_to=[],
        label_names=["labels"],
        remove_unused_columns=False,
    )
    on_one_device(arguments)
    return arguments


def on_one_device(arguments: TrainingArguments) -> None:
    """Use at most one GPU: the Trainer would multiply the batch size by the number of visible GPUs."""
    arguments._n_gpu = min(1, arguments.n_gpu)


class ClassifierTrainer(Trainer):
    """Trains, validates on every subset after each epoch, and stores the best model with its predictions."""

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        cfg: DictConfig,
        task: SentenceClassificationTask,
        run: Path,
        save_best: Callable[[PreTrainedModel | PeftModel], None],
        *,
        seed: int,
        bf16: bool,
        cpu: bool,
    ) -> None:
        """Reads the data of the task. `save_best` stores the best model in the folder `run`."""
        train = read_sentences(task, "train")
        self.cfg, self.labels = cfg, task.labels
        self.run_folder, self.save_best = run, save_best
        self.subsets = {name: read_sentences(task, name) for name in cfg.dataset.valid_subset.split(",")}
        self.texts = DataFolder.given(cfg.task.data)
        self.metric: str = cfg.checkpoint.best_checkpoint_metric
        self.maximize: bool = cfg.checkpoint.maximize_best_checkpoint_metric
        self.log_of_run = RunLog(run / TENSORBOARD)
        self.interval, self.whole_epoch = Counts(self.labels), Counts(self.labels)
        arguments = training_arguments(
            cfg, run / CHECKPOINTS, sentences=len(train), seed=seed, bf16=bf16, cpu=cpu
        )
        weights = class_weights.resolve(cfg.criterion.class_weights, Path(cfg.task.data), task.class_names)
        self._weights_K = None
        if weights:
            self._weights_K = torch.tensor(
                list(weights.values()), dtype=torch.float32, device=arguments.device
            )
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=train,
            eval_dataset=next(iter(self.subsets.values())),
            data_collator=functools.partial(pad_batch, token_types=cfg.model.token_types),
            compute_loss_func=self._training_loss,  # without one, the Trainer would scale the loss
        )
        self.remove_callback(PrinterCallback)
        self.add_callback(_Progress(self))

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """All parameters, as in fairseq's Adam."""
        return [name for name, _ in model.named_parameters()]

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Linear warm-up and decay: fairseq's `polynomial_decay` of power 1."""
        if self.lr_scheduler is None:
            schedule = self.cfg.lr_scheduler
            self.lr_scheduler = get_linear_schedule_with_warmup(
                optimizer or self.optimizer, schedule.warmup_updates, int(schedule.total_num_update)
            )
        return self.lr_scheduler

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor | Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The part of a batch in the loss of its update; also counts training batches."""
        labels, smoothing = inputs["labels"], self.cfg.criterion.label_smoothing
        # The mean that the model computes itself, where it is the loss: others differ in the last bit.
        plain = self._weights_K is None and not smoothing and self.args.gradient_accumulation_steps == 1
        outputs = model(**{name: value for name, value in inputs.items() if plain or name != "labels"})
        total, size = self._training_loss(outputs.logits, labels)
        if model.training:
            for counts in (self.interval, self.whole_epoch):
                counts.add(outputs.logits, labels, inputs["attention_mask"].sum(), (total.detach(), size))
        mean = total / (size if num_items_in_batch is None else num_items_in_batch)
        loss = outputs.loss if plain else mean
        return (loss, outputs) if return_outputs else loss

    def _training_loss(self, logits_BK: Tensor, labels: Tensor) -> tuple[Tensor, float | Tensor]:
        """As `objectives.Loss`; the second number may be a tensor, so that a GPU does not wait for it."""
        if not self.labels.kind.exclusive:
            return OBJECTIVES[self.labels.kind.name].loss(logits_BK, labels)
        smoothing = self.cfg.criterion.label_smoothing
        return training_loss(logits_BK, labels, self._weights_K, smoothing, size=1.0)[0], self._size(labels)

    def _size(self, labels_N: Tensor) -> float | Tensor:
        """What a sum of training losses is divided by."""
        return len(labels_N) if self._weights_K is None else self._weights_K[labels_N].sum()

    def _get_num_items_in_batch(self, batch_samples: list[Item], device: torch.device) -> Any:
        """What the loss of an update is divided by."""
        if not batch_samples:
            return None
        size = self._size(torch.cat([batch["labels"] for batch in batch_samples]).to(device))
        return size if isinstance(size, Tensor) else torch.full((), size, device=device)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Validate on every subset, log the metrics, and store the model if it is the best so far."""
        step, epoch = self.state.global_step, max(1, round(self.state.epoch or 0))
        logits = {name: self.logits(subset) for name, subset in self.subsets.items()}
        metrics = {name: self.measure(name, logits_NK) for name, logits_NK in logits.items()}
        first = next(iter(self.subsets))
        now, best = metrics[first][self.metric], self.state.best_metric
        if best is None or (now >= best if self.maximize else now <= best):
            self.state.best_metric = best = now
            assert isinstance(self.model, PreTrainedModel | PeftModel)
            self.save_best(self.model)
            outputs = {name: self.labels.outputs(logits_NK) for name, logits_NK in logits.items()}
            thresholds = chosen_thresholds(self.labels, self.subsets[first].targets, outputs[first])
            labels = self.labels.with_thresholds(thresholds)
            if thresholds:
                write_thresholds(self.run_folder, thresholds)
            for name, outputs_NK in outputs.items():
                rows = predictions.from_outputs(labels, outputs_NK, self.subsets[name].targets)
                path = self.run_folder / predictions.file_name(name)
                predictions.write(path, rows, self.texts.keys(name))
        self.state.log_history.append({SCORE: now, "step": step})
        if self.has_stopped(self.state):
            logger.info("early stop: no better score in %d validations", self.cfg.checkpoint.patience)
            self.control.should_training_stop = True
        for name, values in metrics.items():
            extra = {f"best_{self.metric}": best} if name == first else {}
            self.log_of_run.write(name, values | extra, step=step, epoch=epoch)
        return {f"eval_{name}_{tag}": x for name, values in metrics.items() for tag, x in values.items()}

    def has_stopped(self, state: TrainerState) -> bool:
        """Whether a run stops early in this state, which may be that of a checkpoint."""
        values = [entry[SCORE] for entry in state.log_history if SCORE in entry]
        return 0 < self.cfg.checkpoint.patience <= since_best(values, maximize=self.maximize)

    def logits(self, sentences: Sentences) -> NDArray[np.float32]:
        """Logits (N, K) of a split, in the order of its files."""
        # Longest sentence first: batches in this order contain little padding.
        order_N = np.argsort([-len(row) for row in sentences.rows], kind="stable")
        logits_NK = np.empty((len(sentences), self.labels.size), dtype=np.float32)
        logits_NK[order_N] = self.predict(Subset(sentences, order_N.tolist())).predictions
        return logits_NK

    def measure(self, subset: str, logits_NK: NDArray[np.float32]) -> dict[str, float]:
        """Metrics of a subset from its logits (N, K)."""
        counts = Counts(self.labels)
        counts.add(torch.from_numpy(logits_NK), self.subsets[subset].labels)
        return counts.metrics()


def since_best(scores: Sequence[float], *, maximize: bool) -> int:
    """Number of validations since the last one that was better than all before it, as fairseq counts them."""
    best = (max if maximize else min)(scores, default=None)
    return 0 if best is None else len(scores) - 1 - list(scores).index(best)


@dataclass(eq=False)
class _Progress(TrainerCallback):
    """Logs training loss, learning rate and speed; skips the validations between the intervals."""

    trainer: ClassifierTrainer
    since: float = field(default_factory=time.monotonic)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % INTERVAL:
            return
        trainer, now = self.trainer, time.monotonic()
        assert trainer.lr_scheduler is not None  # created before the first update
        values = {
            "loss": trainer.interval.loss,
            "lr": float(trainer.lr_scheduler.get_last_lr()[0]),
            "wps": int(trainer.interval.tokens) / (now - self.since),
        }
        done = state.epoch or 0.0
        trainer.log_of_run.write(
            "train_inner", values, step=state.global_step, epoch=int(np.ceil(done)), done=done
        )
        trainer.interval, self.since = Counts(trainer.labels), now

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer = self.trainer
        epoch = max(1, round(state.epoch or 0))
        trainer.log_of_run.write(
            "train", trainer.whole_epoch.metrics(), step=state.global_step, epoch=epoch, done=float(epoch)
        )
        trainer.whole_epoch = Counts(trainer.labels)
        if epoch % trainer.cfg.dataset.validate_interval and state.global_step < state.max_steps:
            control.should_evaluate = control.should_save = False

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        epoch = max(1, round(state.epoch or 0))
        logger.info("Saved checkpoint %s (epoch %d @ %d updates)", args.output_dir, epoch, state.global_step)


def log_to_standard_output() -> None:
    """Log in the format of fairseq-train; the launcher redirects standard output to train.log."""
    logging.basicConfig(format=LOG_FORMAT, datefmt=LOG_TIME, level=logging.INFO, force=True)
    disable_progress_bar()  # bars of saving and loading would fill the log file


class RunLog:
    """Writes metrics to TensorBoard files and to the log; call `close` at the end."""

    def __init__(self, tensorboard: Path) -> None:
        self._folder = tensorboard
        self._writers: dict[str, SummaryWriter] = {}

    def write(
        self, subset: str, values: dict[str, float], *, step: int, epoch: int, done: float = 0.0
    ) -> None:
        """Write one record; `done` is the number of finished epochs, with the fraction of the current one."""
        if subset not in self._writers:
            self._writers[subset] = SummaryWriter(self._folder / subset)
        for tag, value in values.items():
            self._writers[subset].add_scalar(tag, value, step)
        self._writers[subset].flush()
        # As in fairseq, the names of all values but the inner training records start with their subset.
        training = subset.startswith("train")
        prefix = "" if subset == "train_inner" else f"{subset}_"
        named = {f"{prefix}{tag}": f"{value:.6g}" for tag, value in (values | {"num_updates": step}).items()}
        record = {"epoch": epoch} | ({"update": f"{done:.3f}"} if training else {}) | named
        logging.getLogger(subset).info("%s", json.dumps(record))

    def close(self) -> None:
        """Flush all files."""
        for writer in self._writers.values():
            writer.close()


@dataclass
class Counts:
    """Running sums of loss, statistics of the metrics and tokens over batches."""

    labels: Labels
    tokens: Tensor | int = 0
    """Number of tokens without padding."""
    _loss: Tensor | float = 0.0
    _size: Tensor | float = 0.0
    _sums: Tensor | int = 0

    @torch.no_grad()
    def add(
        self,
        logits_BK: Tensor,
        labels: Tensor,
        tokens: Tensor | int = 0,
        loss: tuple[Tensor, float | Tensor] | None = None,
    ) -> None:
        """Add a batch; `labels` as in `objectives`, `loss` is its training loss (default: the plain loss)."""
        objective = OBJECTIVES[self.labels.kind.name]
        total, size = loss or objective.loss(logits_BK, labels)
        self._loss = self._loss + total
        self._sums = self._sums + objective.sums(logits_BK, labels, self.labels)
        self._size = self._size + size
        self.tokens = self.tokens + tokens

    @property
    def loss(self) -> float:
        """Mean loss in bits, as fairseq logs it."""
        return float(self._loss) / (float(self._size) or 1) / math.log(2)

    def metrics(self) -> dict[str, float]:
        """`loss` and every registered metric of the sums, unrounded."""
        kind, sums = self.labels.kind.name, self._sums
        statistics = OBJECTIVES[kind].statistics(sums.cpu() if isinstance(sums, Tensor) else None)
        return {"loss": self.loss} | measure_statistics(kind, statistics)


@dataclass(frozen=True)
class Sentences(torch.utils.data.Dataset):
    """One split in the order of its files; an item has `input_ids`, int64 (L,), and `labels`."""

    rows: list[Tensor]
    """Token ids of each sentence, int64 (L,): with `<s>`, truncated as in fairseq."""
    labels: Tensor
    """As in `objectives`: int64 (N,), float32 (N, K), or float32 (N,) and standardized."""
    targets: Targets
    """The same as in `common.label_kinds`, numbers in their unit."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Item:
        return {"input_ids": self.rows[index], "labels": self.labels[index]}


def read_sentences(task: SentenceClassificationTask, split: str) -> Sentences:
    """Read a split as fairseq's task does in training; raises `UserError` for missing or malformed data."""
    dataset = task.load_dataset(split)
    items = [dataset[i] for i in range(len(dataset))]
    rows, kind = [item["net_input.src_tokens"] for item in items], task.labels.kind
    if kind.exclusive:
        labels_N = np.array([int(item["target"]) for item in items], dtype=np.int64)
        return Sentences(rows, torch.from_numpy(labels_N), labels_N)
    labels = torch.stack([item["target"] for item in items])
    targets = labels.numpy() > 0.5 if kind.has_classes else load_numbers(task.cfg.data, split)
    return Sentences(rows, labels, targets)


def pad_batch(items: Sequence[Item], token_types: bool = False) -> Item:
    """Items padded on the right to the longest sentence of the batch.

    They have `input_ids`, `attention_mask` and, if the second text of a pair has a token type of its own,
    `token_type_ids`, int64 (B, L), and `labels`.
    """
    rows = [item["input_ids"] for item in items]
    ids_BL = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    labels = torch.stack([item["labels"] for item in items])
    found = {"input_ids": ids_BL, "attention_mask": (ids_BL != PAD).long(), "labels": labels}
    return found | ({"token_type_ids": in_second(ids_BL, EOS).long()} if token_types else {})


def peak_memory_bytes(device: torch.device) -> int:
    """Peak memory of this process so far in bytes: allocated on a GPU, or resident on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
