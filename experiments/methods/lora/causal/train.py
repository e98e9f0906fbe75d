"""Train LoRA adapters of a causal language model on questions and answers, and evaluate them.

Perplexity and answers of the base → training → perplexity and answers → adapters saved, reloaded, checked.
"""

from __future__ import annotations

import json
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, TaskType
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_callback import PrinterCallback

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_folder, atomic_write
from roberta_small.common.run import TENSORBOARD
from roberta_small.experiments.methods.lora import adapters
from roberta_small.experiments.methods.lora.adapters import ADAPTER
from roberta_small.experiments.methods.lora.causal.data import PadPairs, Pair, PairDataset
from roberta_small.experiments.methods.lora.causal.model import (
    Loading,
    bits_per_token,
    generate,
    load_model,
    load_tokenizer,
)
from roberta_small.experiments.methods.lora.settings import LoraSettings
from roberta_small.experiments.methods.transformers.run_folder import (
    on_one_device,
    peak_memory_bytes,
    write_scalars,
)

logger = logging.getLogger(__name__)
MERGED, RESULTS = "merged", "results.json"


@dataclass(frozen=True, kw_only=True)
class CausalSettings:
    """Settings that, with data and base, determine a run."""

    lora: LoraSettings
    seed: int
    steps: int
    batch_size: int
    accumulation: int
    lr: float
    warmup_share: float
    max_length: int
    valid_share: float
    answer_only: bool
    precision: str

    def words(self) -> list[str]:
        """The settings as flags, for a manifest."""
        return [
            *self.lora.words(),
            *("--steps", str(self.steps)),
            *("--batch-size", str(self.batch_size)),
            *("--accumulation", str(self.accumulation)),
            *("--lr", f"{self.lr:g}"),
            *("--warmup-share", f"{self.warmup_share:g}"),
            *("--max-length", str(self.max_length)),
            *("--valid-share", f"{self.valid_share:g}"),
            *(["--answer-only"] if self.answer_only else []),
            *("--precision", self.precision),
        ]


@dataclass(frozen=True)
class Task:
    """Base model and data of a run."""

    base: Path
    loading: Loading
    device: torch.device
    train: list[Pair]
    valid: list[Pair]
    questions: list[str]
    """Questions to answer before and after training."""
    new_tokens: int


def train(task: Task, settings: CausalSettings, run: Path) -> dict[str, Any]:
    """Train, write adapter/, results.json and tensorboard/ below `run`, and return the results.

    Raises `UserError` if a target module does not exist or a question is too long.
    """
    set_seed(settings.seed)
    tokenizer = load_tokenizer(task.base)
    train_pairs = PairDataset(task.train, tokenizer, settings.max_length, answer_only=settings.answer_only)
    # Without the questions, so that runs with and without --answer-only can be compared.
    valid_pairs = PairDataset(task.valid, tokenizer, settings.max_length, answer_only=True)
    base = load_model(task.base, task.loading, task.device)
    if task.loading.bits == 4:
        from peft import prepare_model_for_kbit_training

        base = prepare_model_for_kbit_training(base)
    model = adapters.add_adapters(base, settings.lora, TaskType.CAUSAL_LM)
    parameters = adapters.count(model)
    logger.info("%s", parameters)

    # B is initialized to zero, so the model with untrained adapters equals the base.
    before = _measure(model, tokenizer, valid_pairs, task, settings, step=0, run=run)
    _fit(model, tokenizer, train_pairs, task, settings, run)
    after = _measure(model, tokenizer, valid_pairs, task, settings, step=settings.steps, run=run)

    peak = peak_memory_bytes(task.device)  # before the check, which loads the base a second time
    adapters.save(model, run / ADAPTER)
    results = {
        "trainable_parameters": parameters.trainable,
        "parameters": parameters.total,
        "base_bits": task.loading.bits,
        "train_pairs": len(task.train),
        "valid_pairs": len(task.valid),
        "perplexity": {"before": before.perplexity, "after": after.perplexity},
        "answers": [
            {"question": question, "before": old, "after": new}
            for question, old, new in zip(task.questions, before.answers, after.answers, strict=True)
        ],
        "reloaded_difference": _check_reloaded(model, task, run, valid_pairs[0]),
        "peak_memory_bytes": peak,
    }
    atomic_write(run / RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    return results


def answer(task: Task, settings: CausalSettings, run: Path) -> dict[str, Any]:
    """Generate answers with the base and with the stored adapter of a finished run, without training.

    Replaces `answers` in results.json and returns the results.
    """
    results = json.loads((run / RESULTS).read_text(encoding="utf-8"))
    tokenizer = load_tokenizer(task.base)
    model = load_model(task.base, task.loading, task.device)

    def ask(model: PreTrainedModel | PeftModel) -> list[str]:
        return generate(model, tokenizer, task.questions, seed=settings.seed, new_tokens=task.new_tokens)

    before = ask(model)
    after = ask(adapters.reload(model, run / ADAPTER))
    results["answers"] = [
        {"question": question, "before": old, "after": new}
        for question, old, new in zip(task.questions, before, after, strict=True)
    ]
    atomic_write(run / RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    return results


@dataclass(frozen=True)
class Measured:
    """Perplexity of the held-out answers, and generated answers to the questions."""

    perplexity: float
    answers: list[str]


def _measure(
    model: PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: PairDataset,
    task: Task,
    settings: CausalSettings,
    *,
    step: int,
    run: Path,
) -> Measured:
    bits = bits_per_token(model, pairs, tokenizer.pad_token_id)
    perplexity = 2**bits
    logger.info("step %d: perplexity of the held-out answers %.4g", step, perplexity)
    write_scalars(run, "valid", {"loss": bits, "ppl": perplexity}, step)
    answers = generate(
        model, tokenizer, task.questions, seed=settings.seed, new_tokens=task.new_tokens, title=f"step {step}"
    )
    return Measured(perplexity, answers)


def _fit(
    model: PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: PairDataset,
    task: Task,
    settings: CausalSettings,
    run: Path,
) -> None:
    """Train with linear warm-up, cosine decay and AdamW (paged, in 8 bits, for a 4-bit base on a GPU)."""
    paged = task.loading.bits == 4 and task.device.type == "cuda"
    arguments = TrainingArguments(
        output_dir=str(run / "trainer"),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulation,
        learning_rate=settings.lr,
        lr_scheduler_type="cosine",
        warmup_steps=math.ceil(settings.warmup_share * settings.steps),
        optim="paged_adamw_8bit" if paged else "adamw_torch",
        bf16=task.loading.bits != 32,
        use_cpu=task.device.type == "cpu",
        seed=settings.seed,
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        report_to=[],
        remove_unused_columns=False,
    )
    on_one_device(arguments)
    model.config.use_cache = False
    try:
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=pairs,
            data_collator=PadPairs(tokenizer.pad_token_id),
            callbacks=[_LossLog(run, settings.steps)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    finally:
        model.config.use_cache = True


class _LossLog(TrainerCallback):
    """Writes the training loss in bits per token to tensorboard/train_inner, and shows a progress bar."""

    def __init__(self, run: Path, steps: int) -> None:
        self._writer = SummaryWriter(run / TENSORBOARD / "train_inner")
        self._bar = tqdm(total=steps, desc="updates", leave=False, disable=None)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        logs: dict[str, float] = kwargs["logs"]
        if "loss" in logs:
            bits = logs["loss"] / math.log(2)
            self._writer.add_scalar("loss", bits, state.global_step)
            self._bar.set_postfix_str(f"loss {bits:.3f}")
            self._bar.update()
            logger.info("update %d: loss %.4f bits", state.global_step, bits)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        self._writer.close()
        self._bar.close()


def _check_reloaded(model: PeftModel, task: Task, run: Path, example: dict[str, torch.Tensor]) -> float:
    """Largest difference of a logit after reloading the adapter onto a fresh base; must be rounding."""
    again = adapters.reload(load_model(task.base, task.loading, task.device), run / ADAPTER)
    return _difference(model.eval(), again, example, f"{run / ADAPTER} reloaded", bits=task.loading.bits)


def merge(base: Path, run: Path, device: torch.device) -> float:
    """Write merged/, a model folder without adapters, from adapter/ and the base in full precision.

    Returns the largest difference of a logit between the reloaded folder and base with adapter. Raises
    `UserError` if the folder exists.
    """
    target = run / MERGED
    if target.exists():
        raise UserError(f"{target}: exists; delete it to merge again")
    full = Loading(32, "for merging")
    tokenizer = load_tokenizer(base)
    with atomic_folder(target) as folder:
        adapters.merge(adapters.reload(load_model(base, full, device), run / ADAPTER)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        merged = load_model(folder, full, device)
        adapted = adapters.reload(load_model(base, full, device), run / ADAPTER)
        example = {"input_ids": torch.tensor(tokenizer("<human>: ?", add_special_tokens=False)["input_ids"])}
        return _difference(adapted, merged, example, str(target))


def _difference(
    one: Any, other: Any, example: dict[str, torch.Tensor], what: str, *, bits: int = 32
) -> float:
    def logits(model: Any) -> torch.Tensor:
        return model(input_ids=example["input_ids"][None].to(next(model.parameters()).device)).logits

    return adapters.largest_difference(logits, one, other, what, bits=bits)
