"""The Transformers Trainer for a sentence classifier, with this project's recipe, metrics and run folder.

Differences from the stock Trainer, so that runs are comparable with fairseq: weight decay applies to every
parameter (the Trainer excludes biases and layer norms), the learning rate follows `--total-num-update`,
class weights and label smoothing are those of the criterion, and every subset is validated. The first subset
selects the best checkpoint, the later one on a tie, and ends training after `--patience` validations without
a better score. It also chooses the thresholds of multi-label data.

B sentences in a batch, N in a split, L tokens, K classes.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
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
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import PrinterCallback, TrainerState
from transformers.utils.logging import disable_progress_bar

from roberta_small.common import predictions
from roberta_small.common.label_kinds import Labels, Targets, chosen_thresholds
from roberta_small.common.metrics import measure_statistics
from roberta_small.common.run import write_thresholds
from roberta_small.experiments.methods.transformers.recipe import Hyperparameters
from roberta_small.experiments.methods.transformers.run_folder import on_one_device
from roberta_small.experiments.progress import LOG_FORMAT, LOG_TIME
from roberta_small.fairseq_plugin.models.token_types import in_second
from roberta_small.fairseq_plugin.tasks.datasets import load_numbers
from roberta_small.fairseq_plugin.tasks.objectives import OBJECTIVES, training_loss
from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask
from roberta_small.preprocess.dictionary import EOS

logger = logging.getLogger(__name__)
SCORE = "validation_score"
"""Key of the selecting metric in the Trainer's log history, which its checkpoints contain."""
SumOfLosses = tuple[Tensor, float | Tensor]
"""As `objectives.Loss`; the second number may be a tensor, so that a GPU does not wait for it."""
SaveBest = Callable[[PreTrainedModel | PeftModel], None]


def training_arguments(
    recipe: Hyperparameters, folder: Path, *, sentences: int, seed: int, bf16: bool, cpu: bool
) -> TrainingArguments:
    """The recipe as `TrainingArguments`, for a training set of `sentences`; checkpoints go to `folder`."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=recipe.batch_size,
        per_device_eval_batch_size=recipe.valid_batch_size,
        gradient_accumulation_steps=recipe.accumulation,
        max_steps=recipe.updates(sentences),
        learning_rate=recipe.lr,
        optim="adamw_torch_fused",
        adam_beta1=recipe.betas[0],
        adam_beta2=recipe.betas[1],
        adam_epsilon=recipe.eps,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.clip_norm,
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


class ClassifierTrainer(Trainer):
    """Trains, validates on every subset after each epoch, and stores the best model with its predictions."""

    def __init__(
        self,
        model: nn.Module,
        recipe: Hyperparameters,
        arguments: TrainingArguments,
        *,
        train: Sentences,
        valid: dict[str, Sentences],
        labels: Labels,
        collate: Pad,
        run: Path,
        log: RunLog,
        save_best: SaveBest,
        weights: Sequence[float] | None = None,
    ) -> None:
        """`valid`: the validation subsets; the first selects the best model, which `save_best` stores.

        `labels` is what the logits mean, `weights` are those of the classes in the training loss.
        """
        self.recipe = recipe
        self.labels = labels
        self.subsets = valid
        self.run_folder, self.log_of_run, self.save_best = run, log, save_best
        self.interval, self.whole_epoch = Counts(labels), Counts(labels)
        self._weights_K = None
        if weights is not None:
            self._weights_K = torch.tensor(weights, dtype=torch.float32, device=arguments.device)
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=train,
            eval_dataset=next(iter(valid.values())),
            data_collator=collate,
            compute_loss_func=None if self._plain_loss else self._mean_loss,
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
            self.lr_scheduler = get_linear_schedule_with_warmup(
                optimizer or self.optimizer, self.recipe.warmup_updates, self.recipe.total_num_update
            )
        return self.lr_scheduler

    @property
    def _plain_loss(self) -> bool:
        """Whether the training loss is the mean of that of the kind of labels, which the model computes."""
        if self.recipe.accumulation > 1:
            return False  # the model's means would be summed
        return self._weights_K is None and not self.recipe.label_smoothing

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor | Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """As in `Trainer`; also adds training batches to the counts."""
        # A copy: `Trainer` removes the labels if it does not use the model's own loss.
        loss, outputs = super().compute_loss(
            model, dict(inputs), return_outputs=True, num_items_in_batch=num_items_in_batch
        )
        if model.training:
            total, size = self._training_loss(outputs.logits, inputs["labels"])
            for counts in (self.interval, self.whole_epoch):
                counts.add(
                    outputs.logits, inputs["labels"], inputs["attention_mask"].sum(), (total.detach(), size)
                )
        return (loss, outputs) if return_outputs else loss

    def _training_loss(self, logits_BK: Tensor, labels: Tensor) -> SumOfLosses:
        if not self.labels.kind.exclusive:
            return OBJECTIVES[self.labels.kind.name].loss(logits_BK, labels)
        total, _ = training_loss(logits_BK, labels, self._weights_K, self.recipe.label_smoothing, size=1.0)
        return total, self._size(labels)

    def _size(self, labels_N: Tensor) -> float | Tensor:
        """What a sum of training losses is divided by."""
        return len(labels_N) if self._weights_K is None else self._weights_K[labels_N].sum()

    def _mean_loss(self, outputs: Any, labels_B: Tensor, num_items_in_batch: Tensor | None = None) -> Tensor:
        """The part of a batch in the training loss of its update."""
        total, size = self._training_loss(outputs.logits, labels_B)
        return total / (size if num_items_in_batch is None else num_items_in_batch)

    def _get_num_items_in_batch(self, batch_samples: list[Item], device: torch.device) -> Any:
        """What the loss of an update is divided by."""
        if self._plain_loss:
            return super()._get_num_items_in_batch(batch_samples, device)
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
        now, best = metrics[first][self.recipe.metric], self.state.best_metric
        if best is None or (now >= best if self.recipe.maximize else now <= best):
            self.state.best_metric = best = now
            assert isinstance(self.model, PreTrainedModel | PeftModel)
            self.save_best(self.model)
            self._write_predictions(logits)
        self.state.log_history.append({SCORE: now, "step": step})
        if self._has_stopped(self.state):
            logger.info("early stop: no better score in %d validations", self.recipe.patience)
            self.control.should_training_stop = True
        for name, values in metrics.items():
            extra = {f"best_{self.recipe.metric}": best} if name == first else {}
            self.log_of_run.write(name, values | extra, step=step, epoch=epoch)
        return {f"eval_{name}_{tag}": x for name, values in metrics.items() for tag, x in values.items()}

    def stopped_early(self, checkpoint: Path) -> bool:
        """Whether the run that wrote this checkpoint of the Trainer had stopped early."""
        return self._has_stopped(TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME)))

    def _has_stopped(self, state: TrainerState) -> bool:
        values = [entry[SCORE] for entry in state.log_history if SCORE in entry]
        return 0 < self.recipe.patience <= since_best(values, maximize=self.recipe.maximize)

    def logits(self, sentences: Sentences) -> NDArray[np.float32]:
        """Logits (N, K) of a split, in the order of its files."""
        order_N = sentences.by_length()
        logits_NK = np.empty((len(sentences), self.labels.size), dtype=np.float32)
        logits_NK[order_N] = self.predict(Subset(sentences, order_N.tolist())).predictions
        return logits_NK

    def measure(self, subset: str, logits_NK: NDArray[np.float32]) -> dict[str, float]:
        """Metrics of a subset from its logits (N, K)."""
        counts = Counts(self.labels)
        counts.add(torch.from_numpy(logits_NK), self.subsets[subset].labels)
        return counts.metrics()

    def _write_predictions(self, logits: dict[str, NDArray[np.float32]]) -> None:
        """The predictions of all subsets, and the thresholds, from the logits (N, K) of each subset."""
        outputs = {name: self.labels.outputs(logits_NK) for name, logits_NK in logits.items()}
        first = next(iter(outputs))
        thresholds = chosen_thresholds(self.labels, self.subsets[first].targets, outputs[first])
        labels = self.labels.with_thresholds(thresholds)
        if thresholds:
            write_thresholds(self.run_folder, thresholds)
        for name, outputs_NK in outputs.items():
            predictions.write(
                self.run_folder / predictions.file_name(name),
                predictions.from_outputs(labels, outputs_NK, self.subsets[name].targets),
            )


def since_best(scores: Sequence[float], *, maximize: bool) -> int:
    """Number of validations since the last one that was better than all before it, as fairseq counts them."""
    best, since = None, 0
    for score in scores:
        better = best is None or (score > best if maximize else score < best)
        best, since = (score, 0) if better else (best, since + 1)
    return since


class _Progress(TrainerCallback):
    """Logs training loss, learning rate and speed; skips the validations between the intervals."""

    def __init__(self, trainer: ClassifierTrainer) -> None:
        self._trainer = trainer
        self._since = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % INTERVAL:
            return
        trainer, now = self._trainer, time.monotonic()
        assert trainer.lr_scheduler is not None  # created before the first update
        values = {
            "loss": trainer.interval.loss,
            "lr": float(trainer.lr_scheduler.get_last_lr()[0]),
            "wps": trainer.interval.tokens / (now - self._since),
        }
        done = state.epoch or 0.0
        trainer.log_of_run.write(
            "train_inner", values, step=state.global_step, epoch=int(np.ceil(done)), done=done
        )
        trainer.interval.clear()
        self._since = now

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer = self._trainer
        epoch = max(1, round(state.epoch or 0))
        trainer.log_of_run.write(
            "train", trainer.whole_epoch.metrics(), step=state.global_step, epoch=epoch, done=float(epoch)
        )
        trainer.whole_epoch.clear()
        if epoch % trainer.recipe.validate_interval and state.global_step < state.max_steps:
            control.should_evaluate = control.should_save = False

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        epoch = max(1, round(state.epoch or 0))
        logger.info("Saved checkpoint %s (epoch %d @ %d updates)", args.output_dir, epoch, state.global_step)


INTERVAL = 25
"""Updates between two log records of the training loss."""


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


class Counts:
    """Running sums of loss, statistics of the metrics and tokens over batches."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._objective = OBJECTIVES[labels.kind.name]
        self.clear()

    def clear(self) -> None:
        """Set all sums to zero."""
        self._loss: Tensor | float = 0.0
        self._sums: Tensor | int = 0
        self._tokens: Tensor | int = 0
        self._size: Tensor | float = 0.0

    @torch.no_grad()
    def add(
        self,
        logits_BK: Tensor,
        labels: Tensor,
        tokens: Tensor | int = 0,
        loss: SumOfLosses | None = None,
    ) -> None:
        """Add a batch; `labels` as in `objectives`, `loss` is its training loss (default: the plain loss)."""
        total, size = loss or self._objective.loss(logits_BK, labels)
        self._loss = self._loss + total
        self._sums = self._sums + self._objective.sums(logits_BK, labels, self._labels)
        self._size = self._size + size
        self._tokens = self._tokens + tokens

    @property
    def tokens(self) -> int:
        """Number of tokens without padding."""
        return int(self._tokens)

    @property
    def loss(self) -> float:
        """Mean loss in bits, as fairseq logs it."""
        return float(self._loss) / (float(self._size) or 1) / math.log(2)

    def metrics(self) -> dict[str, float]:
        """`loss` and every registered metric of the sums, unrounded."""
        sums = self._sums.cpu() if isinstance(self._sums, Tensor) else None
        return {"loss": self.loss} | measure_statistics(
            self._labels.kind.name, self._objective.statistics(sums)
        )


Item = dict[str, Tensor]


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

    def by_length(self) -> NDArray[np.int64]:
        """(N,) indices, longest sentence first: batches in this order contain little padding."""
        return np.argsort([-len(row) for row in self.rows], kind="stable")


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


@dataclass(frozen=True)
class Pad:
    """Collator that pads on the right to the longest sentence of the batch."""

    pad: int
    token_types: bool = False
    """Whether the second text of a pair has a token type of its own."""

    def __call__(self, items: Sequence[Item]) -> Item:
        """`input_ids`, `attention_mask` and perhaps `token_type_ids`, int64 (B, L), and `labels`."""
        rows = [item["input_ids"] for item in items]
        ids_BL = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad)
        labels = torch.stack([item["labels"] for item in items])
        found = {"input_ids": ids_BL, "attention_mask": (ids_BL != self.pad).long(), "labels": labels}
        return found | ({"token_type_ids": in_second(ids_BL, EOS).long()} if self.token_types else {})
