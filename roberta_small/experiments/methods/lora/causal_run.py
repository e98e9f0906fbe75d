"""A run of `lora-causal` in its own process: loading, training, perplexity, generation, merging.

A pair becomes one text, in the format of the published reports, followed by the end-of-text token, so that
generation learns where to stop: `<human>: QUESTION  \\n <assistant>: ANSWER`. Models are loaded without
executing code. QLoRA (Dettmers et al. 2023, arXiv 2305.14314) stores the frozen base in 4 bits (nf4, with
double quantization), computes in bf16 and requires bitsandbytes. On a CPU it saves memory but is slower, so
it is used there only on request.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import logging
import math
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub import snapshot_download
from peft import PeftModel, TaskType, prepare_model_for_kbit_training
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    DataCollatorForSeq2Seq,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_callback import PrinterCallback
from transformers.utils.logging import disable_progress_bar

from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import atomic_folder, atomic_write
from roberta_small.common.run import TENSORBOARD
from roberta_small.eval.network import find_device
from roberta_small.experiments.methods.lora import adapters
from roberta_small.experiments.methods.lora.causal import (
    ADAPTER,
    MERGED,
    RESULTS,
    Hyperparameters,
    Pair,
    add_hyperparameters,
    hyperparameters,
    read_pairs,
    split,
)
from roberta_small.experiments.methods.transformers.run_folder import (
    on_one_device,
    peak_memory_bytes,
)
from roberta_small.experiments.methods.transformers.trainer import RunLog, log_to_standard_output

logger = logging.getLogger(__name__)
IGNORED = -100
"""Label of tokens without a loss, as in Transformers."""
TEMPERATURE, TOP_P = 0.7, 0.7
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
SAFE_FILES = ["*.json", "*.safetensors", "*.model", "*.txt"]
"""Files that are downloaded from the hub: no pickles, no code."""
Item = dict[str, list[int]]
"""`input_ids` and `labels` of a pair."""


def build_parser() -> argparse.ArgumentParser:
    """The options of a run."""
    parser = argparse.ArgumentParser(prog="causal_run", description=__doc__, allow_abbrev=False)
    parser.add_argument("data", type=Path)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--save-dir", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--cpu", action="store_true")
    add_hyperparameters(parser)
    return parser


@report_errors
def main(words: list[str] | None = None) -> None:
    """Train one run and write its adapter, results.json and event files."""
    args = build_parser().parse_args(words)
    log_to_standard_output()
    run, own = args.save_dir, hyperparameters(args)
    (run / RESULTS).unlink(missing_ok=True)
    for name in (ADAPTER, MERGED):
        shutil.rmtree(run / name, ignore_errors=True)
    base = Base(args.base, "cpu" if args.cpu else "cuda", own.precision)
    train_pairs, valid_pairs = split(read_pairs(args.data), own.valid_share, args.seed)
    results = train(base, own, args.seed, train_pairs, valid_pairs, run)
    atomic_write(run / RESULTS, json.dumps(results, indent=2) + "\n")


@dataclass(frozen=True)
class Base:
    """A base model: where it is, and how it is loaded."""

    folder: Path
    device_name: str
    """One of `DEVICES`."""
    precision: str
    """A value of --precision."""

    @cached_property
    def device(self) -> torch.device:
        """The device of the weights."""
        return find_device(self.device_name)

    @property
    def bits(self) -> int:
        """Of the weights: 4 (nf4), 16 (bf16) or 32.

        auto is 32 on a CPU, and on a GPU 4 with bitsandbytes, or 16 if it supports bf16.
        """
        if self.precision != "auto":
            return {"4bit": 4, "bf16": 16, "fp32": 32}[self.precision]
        if self.device.type != "cuda":
            return 32
        if importlib.util.find_spec("bitsandbytes") is not None:
            return 4
        return 16 if torch.cuda.is_bf16_supported(including_emulation=False) else 32

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer; raises `UserError` as `load_tokenizer`."""
        return load_tokenizer(self.folder)

    def load(self, bits: int | None = None) -> PreTrainedModel:
        """The model in evaluation mode; raises `UserError` as `load_model`."""
        disable_progress_bar()  # of the reading of the file, which takes a second
        return load_model(self.folder, bits or self.bits, self.device)


def check(folder: Path, own: Hyperparameters, pairs: Sequence[Pair]) -> None:
    """Raise `UserError` for what would stop a run: tokenizer, length of the pairs, target modules."""
    encode_pairs(pairs, load_tokenizer(folder), max_length=own.max_length, answer_only=False)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder}: not a causal language model ({_first_line(error)})") from None
    adapters.check_targets(model, own.lora)


def train(
    base: Base, own: Hyperparameters, seed: int, train_pairs: list[Pair], valid_pairs: list[Pair], run: Path
) -> dict[str, Any]:
    """Train, write adapter/ and tensorboard/ below `run`, and return the content of results.json."""
    set_seed(seed)
    encode = functools.partial(encode_pairs, tokenizer=base.tokenizer, max_length=own.max_length)
    items = encode(train_pairs, answer_only=own.answer_only)
    # Without the questions, so that runs with and without --answer-only can be compared.
    valid_items = encode(valid_pairs, answer_only=True)
    loaded = base.load()
    if base.bits == 4:
        loaded = prepare_model_for_kbit_training(loaded)
    model = adapters.add_adapters(loaded, own.lora, TaskType.CAUSAL_LM)
    parameters = adapters.count(model)
    logger.info("%s", parameters)
    log = RunLog(run / TENSORBOARD)

    def measure(step: int) -> float:
        bits = bits_per_token(model, valid_items)
        log.write("valid", {"loss": bits, "ppl": 2**bits}, step=step, epoch=1)
        return 2**bits

    before = measure(0)  # B is initialized to zero, so the model with untrained adapters equals the base
    loss = fit(model, base, own, seed, items, log)
    log.write("train", {"loss": loss}, step=own.steps, epoch=1, done=1.0)
    after = measure(own.steps)
    log.close()
    peak = peak_memory_bytes(base.device)  # before the check, which loads the base a second time
    adapters.save(model, run / ADAPTER)
    difference = _difference(
        model.eval(),
        adapters.reload(base.load(), run / ADAPTER),
        valid_items[0]["input_ids"],
        f"{run / ADAPTER} reloaded",
        bits=base.bits,
    )
    return {
        "trainable_parameters": parameters.trainable,
        "parameters": parameters.total,
        "base_bits": base.bits,
        "precision": "fp32" if base.bits == 32 else "bf16",
        "train_pairs": len(train_pairs),
        "valid_pairs": len(valid_pairs),
        "perplexity": {"before": before, "after": after},
        "reloaded_difference": difference,
        "peak_memory_bytes": peak,
    }


def answer(
    base: Base, run: Path, questions: Sequence[str], new_tokens: int, seed: int
) -> list[dict[str, str]]:
    """Each `question` with its answers `before` and `after` training: of the base and of a run's adapter."""
    model = base.load()
    before = generate(model, base.tokenizer, questions, new_tokens, seed)
    after = generate(adapters.reload(model, run / ADAPTER), base.tokenizer, questions, new_tokens, seed)
    rows = zip(questions, before, after, strict=True)
    return [{"question": question, "before": old, "after": new} for question, old, new in rows]


def merge(base: Base, run: Path) -> float:
    """Write merged/, a model folder without adapters, from a run's adapter and the base in full precision.

    Returns the largest difference of a logit between the reloaded folder and base with adapter.
    """

    def adapted() -> PeftModel:
        return adapters.reload(base.load(bits=32), run / ADAPTER)

    with atomic_folder(run / MERGED) as folder:
        adapters.merge(adapted()).save_pretrained(folder)
        base.tokenizer.save_pretrained(folder)
        ids = base.tokenizer("<human>: ?", add_special_tokens=False)["input_ids"]
        return _difference(adapted(), load_model(folder, 32, base.device), ids, str(run / MERGED))


def fit(
    model: PeftModel, base: Base, own: Hyperparameters, seed: int, items: list[Item], log: RunLog
) -> float:
    """Train with linear warm-up, cosine decay and AdamW (paged, in 8 bits, for a 4-bit base on a GPU).

    Returns the mean loss of the updates in bits per token.
    """
    arguments = TrainingArguments(
        output_dir="unused",  # nothing is saved
        max_steps=own.steps,
        per_device_train_batch_size=own.batch_size,
        gradient_accumulation_steps=own.accumulation,
        learning_rate=own.lr,
        lr_scheduler_type="cosine",
        warmup_steps=math.ceil(own.warmup_share * own.steps),
        optim="paged_adamw_8bit" if base.bits == 4 and base.device.type == "cuda" else "adamw_torch",
        bf16=base.bits != 32,
        use_cpu=base.device.type == "cpu",
        seed=seed,
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        report_to=[],
        remove_unused_columns=False,
    )
    on_one_device(arguments)
    model.config.use_cache = False
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=cast("torch.utils.data.Dataset", items),
        data_collator=DataCollatorForSeq2Seq(base.tokenizer),
        callbacks=[_LossLog(log)],
    )
    trainer.remove_callback(PrinterCallback)
    result = trainer.train()
    model.config.use_cache = True
    return result.training_loss / math.log(2)


class _LossLog(TrainerCallback):
    """Logs the training loss of each update in bits per token."""

    def __init__(self, log: RunLog) -> None:
        self._log = log

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if "loss" in kwargs["logs"]:
            bits, done = kwargs["logs"]["loss"] / math.log(2), state.global_step / state.max_steps
            self._log.write("train_inner", {"loss": bits}, step=state.global_step, epoch=1, done=done)


def prompt(question: str) -> str:
    """The text from which the model generates the answer to a question."""
    return f"<human>: {question.strip()}  \n <assistant>:"


def encode_pairs(
    pairs: Sequence[Pair], tokenizer: PreTrainedTokenizerBase, *, max_length: int, answer_only: bool
) -> list[Item]:
    """Encode all pairs, truncated to `max_length` tokens; with `answer_only`, prompts have no loss.

    Raises `UserError` if a prompt alone has `max_length` tokens or more.
    """
    items = []
    for pair in pairs:
        # Encoded separately, so that no token spans prompt and answer.
        prompt_ids = tokenizer(prompt(pair.question), add_special_tokens=False)["input_ids"]
        answer_ids = tokenizer(f" {pair.answer}", add_special_tokens=False)["input_ids"]
        if len(prompt_ids) >= max_length:
            raise UserError(
                f"--max-length {max_length}: the question {pair.question[:40]!r}… has {len(prompt_ids)} "
                "tokens, which leaves none for the answer; shorten it or increase --max-length"
            )
        ids = [*prompt_ids, *answer_ids, tokenizer.eos_token_id]
        labels = [IGNORED] * len(prompt_ids) + ids[len(prompt_ids) :] if answer_only else ids
        items.append({"input_ids": ids[:max_length], "labels": labels[:max_length]})
    return items


@torch.inference_mode()
def bits_per_token(model: nn.Module, items: Sequence[Item]) -> float:
    """Mean cross-entropy in bits of the tokens whose label is not `IGNORED`: log2 of the perplexity."""
    model.eval()
    device = next(model.parameters()).device
    nats, tokens = 0.0, 0
    for item in items:
        ids_1L, labels_1L = (torch.tensor([item[key]], device=device) for key in ("input_ids", "labels"))
        # A token is predicted from the previous ones, so the first has no prediction.
        if predicted := int((labels_1L[:, 1:] != IGNORED).sum()):
            nats += predicted * float(model(input_ids=ids_1L, labels=labels_1L).loss)
            tokens += predicted
    return nats / max(tokens, 1) / math.log(2)


@torch.inference_mode()
def generate(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[str],
    new_tokens: int,
    seed: int,
) -> list[str]:
    """An answer to each question, sampled (temperature 0.7, top-p 0.7) with a seed for each question."""
    model.eval()
    # Models inherit or delegate to `GenerationMixin.generate`, which neither of their classes declares.
    generate_ids = cast("Callable[..., torch.Tensor]", model.generate)
    device = next(model.parameters()).device
    answers = []
    for number, question in enumerate(questions):
        ids = torch.tensor([tokenizer(prompt(question), add_special_tokens=False).input_ids], device=device)
        with torch.random.fork_rng():
            torch.manual_seed(seed + number)
            generated = generate_ids(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new_tokens,
                do_sample=True,
                temperature=TEMPERATURE,
                top_p=TOP_P,
                top_k=0,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
            )
        answers.append(str(tokenizer.decode(generated[0, ids.shape[1] :], skip_special_tokens=True)).strip())
    return answers


def _difference(one: Any, other: Any, ids: Sequence[int], what: str, *, bits: int = 32) -> float:
    def logits(model: Any) -> torch.Tensor:
        return model(input_ids=torch.tensor([ids], device=next(model.parameters()).device)).logits

    return adapters.largest_difference(logits, one, other, what, bits=bits)


def find_folder(model: str) -> Path:
    """The folder `model`, or a download of the model of that name from the Hugging Face hub.

    Raises `UserError` if there is neither, or no weights in safetensors (pickles can execute code).
    """
    try:
        folder = Path(model if Path(model).is_dir() else snapshot_download(model, allow_patterns=SAFE_FILES))
    except (OSError, ValueError) as error:  # no connection, no such model, or not a name
        raise UserError(
            f"--model {model}: no such folder, and no download from the hub ({type(error).__name__}); get "
            "BLOOM-560m with: roberta-small download bloom --out bloom"
        ) from None
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: no config.json, so not a model folder; correct --model")
    if not any(folder.glob("*.safetensors")):
        pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        found = f"only {', '.join(pickles)}, which can execute code" if pickles else "no weights"
        raise UserError(f"{folder}: {found}; pass a folder with model.safetensors as --model")
    return folder


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model; raises `UserError` if it is missing or has no end-of-text token."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, padding_side="right")
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: the tokenizer cannot be loaded ({_first_line(error)})") from None
    if tokenizer.eos_token_id is None:
        raise UserError(f"{folder}: the tokenizer has no end-of-text token, so answers cannot be terminated")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(folder: Path, bits: int, device: torch.device) -> PreTrainedModel:
    """The model in evaluation mode on the device; raises `UserError` if it cannot be loaded."""
    options: dict[str, Any] = {"dtype": torch.bfloat16 if bits == 16 else torch.float32}
    if bits == 4:
        quantized = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
        options = {"quantization_config": quantized, "device_map": {"": device}}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, **options
        )
        if bits != 4:
            module: nn.Module = model  # the decorator of Transformers around `to` has no usable type
            module.to(device)
        return model.eval()
    except Exception as error:
        # safetensors and Transformers raise many types for corrupt files and unknown architectures.
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise UserError(f"{folder}: not a causal language model ({_first_line(error)})") from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    sys.exit(main())
