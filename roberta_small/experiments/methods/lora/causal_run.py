"""A run of `lora-causal` in its own process: loading, training, perplexity, generation, merging.

A pair becomes one text, in the format of the published reports, followed by the end-of-text token, so that
generation learns where to stop: `<human>: QUESTION  \\n <assistant>: ANSWER`. Models are loaded without
executing code. QLoRA (Dettmers et al. 2023, arXiv 2305.14314) stores the frozen base in 4 bits (nf4, with
double quantization), computes in bf16 and requires bitsandbytes. On a CPU it saves memory but is slower, so
it is used there only on request.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from huggingface_hub import snapshot_download
from peft import TaskType, prepare_model_for_kbit_training
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
from roberta_small.common.files import atomic_folder, atomic_write, read_json
from roberta_small.common.run import TENSORBOARD
from roberta_small.eval.network import find_device
from roberta_small.experiments.methods.lora import adapters
from roberta_small.experiments.methods.lora import settings as lora
from roberta_small.experiments.methods.lora.settings import ADAPTER, MERGED, RESULTS, Hyperparameters
from roberta_small.experiments.methods.transformers.trainer import (
    RunLog,
    log_to_standard_output,
    on_one_device,
    peak_memory_bytes,
)

ACCUMULATION, WARMUP, HELD_OUT = 4, 0.05, 0.1
"""Batches of an update, fraction of the updates with warm-up, fraction of the questions held out."""
SAMPLING = {"do_sample": True, "temperature": 0.7, "top_p": 0.7, "top_k": 0}
IGNORED = -100
"""Label of tokens without a loss, as in Transformers."""
SAFE_FILES = ["*.json", "*.safetensors", "*.model", "*.txt"]
"""Files that are downloaded from the hub: no pickles, no code."""
Item = dict[str, list[int]]
"""`input_ids` and `labels` of a pair."""


@report_errors
def main(words: list[str] | None = None) -> None:
    """Train one run and write its adapter, results.json and event files."""
    parser = argparse.ArgumentParser(prog="causal_run", description=__doc__, allow_abbrev=False)
    parser.add_argument("data", type=Path)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--save-dir", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--cpu", action="store_true")
    lora.add_hyperparameters(parser)
    args = parser.parse_args(words)
    log_to_standard_output()
    own = Hyperparameters.of(args)
    (args.save_dir / RESULTS).unlink(missing_ok=True)
    for name in (ADAPTER, MERGED):
        shutil.rmtree(args.save_dir / name, ignore_errors=True)
    base = Base.open(args.base, "cpu" if args.cpu else "cuda", own.precision)
    results = train(base, own, args.seed, read_pairs(args.data), args.save_dir)
    atomic_write(args.save_dir / RESULTS, json.dumps(results, indent=2) + "\n")


class Pair(NamedTuple):
    """A question and its answer."""

    question: str
    answer: str


def read_pairs(path: Path) -> list[Pair]:
    """All pairs of a JSON file, in order; raises `UserError` naming file and entry for a malformed one."""
    content = read_json(path, "correct the file")
    entries = content.get("questions") if isinstance(content, dict) else content
    if not isinstance(entries, list) or not entries:
        raise UserError(
            f'{path}: contains no pairs; write {{"questions": [{{"question": "…", "answer": "…"}}, …]}}'
        )
    pairs = []
    for number, entry in enumerate(entries, start=1):
        for key in Pair._fields:
            value = entry.get(key) if isinstance(entry, dict) else None
            if not isinstance(value, str) or not value.strip():
                raise UserError(
                    f"{path}, entry {number}: '{key}' is missing, empty or not a string; correct or remove "
                    "the entry"
                )
        pairs.append(Pair(entry["question"].strip(), entry["answer"].strip()))
    return pairs


def split(pairs: Sequence[Pair], seed: int) -> tuple[list[Pair], list[Pair]]:
    """Training and held-out pairs, by question; raises `UserError` if there is only one question."""
    questions = sorted({pair.question.casefold() for pair in pairs})
    if len(questions) < 2:
        raise UserError("one question: one must remain for training, and one is held out; use more pairs")
    random.Random(seed).shuffle(questions)
    held_out = set(questions[: max(1, round(len(questions) * HELD_OUT))])
    train = [pair for pair in pairs if pair.question.casefold() not in held_out]
    return train, [pair for pair in pairs if pair.question.casefold() in held_out]


def prompt(question: str) -> str:
    """The text from which the model generates the answer to a question."""
    return f"<human>: {question}  \n <assistant>:"


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


def find_folder(model: str) -> Path:
    """The folder `model`, or a download from the hub; raises `UserError` for none or no safetensors."""
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
        raise UserError(
            f"{folder}: no weights in safetensors (pytorch_model.bin can execute code); pass a folder with "
            "model.safetensors as --model"
        )
    return folder


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model; raises `UserError` if it is missing or has no end-of-text token."""
    with _readable(folder, "the tokenizer cannot be loaded"):
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, padding_side="right")
    if tokenizer.eos_token_id is None:
        raise UserError(f"{folder}: the tokenizer has no end-of-text token, so answers cannot be terminated")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


@contextmanager
def _readable(folder: Path, problem: str) -> Iterator[None]:
    """Safetensors and Transformers raise many types for corrupt files and unknown architectures."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"{folder}: {problem} ({reason})") from None


def check(folder: Path, own: Hyperparameters, pairs: Sequence[Pair]) -> None:
    """Raise `UserError` for what would stop a run: tokenizer, length of the pairs, target modules."""
    encode_pairs(pairs, load_tokenizer(folder), max_length=own.max_length, answer_only=False)
    with _readable(folder, "not a causal language model"), torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder, local_files_only=True))
    adapters.check_targets(model, own)


@dataclass(frozen=True)
class Base:
    """A base model: where it is, and how it is loaded."""

    folder: Path
    device: torch.device
    bits: int
    """Of the weights: 4 (nf4), 16 (bf16) or 32."""
    tokenizer: PreTrainedTokenizerBase

    @classmethod
    def open(cls, folder: Path, device: str, precision: str) -> Base:
        """`precision` auto is fp32 on a CPU; on a GPU 4 bits with bitsandbytes, else bf16 if it supports it.

        `device` is one of `DEVICES`. Raises `UserError` as `load_tokenizer`.
        """
        found = find_device(device)
        if precision == "auto" and found.type == "cuda":
            bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
            precision = "4bit" if importlib.util.find_spec("bitsandbytes") else "bf16" if bf16 else "fp32"
        return cls(folder, found, {"4bit": 4, "bf16": 16}.get(precision, 32), load_tokenizer(folder))

    def load(self) -> PreTrainedModel:
        """The model in evaluation mode on the device; raises `UserError` if it cannot be loaded."""
        disable_progress_bar()  # of the reading of the file, which takes a second
        options: dict[str, Any] = {"dtype": torch.bfloat16 if self.bits == 16 else torch.float32}
        if self.bits == 4:
            quantized = BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=torch.bfloat16,
            )
            options = {"quantization_config": quantized, "device_map": {"": self.device}}
        with _readable(self.folder, "not a causal language model"):
            model = AutoModelForCausalLM.from_pretrained(
                self.folder, local_files_only=True, use_safetensors=True, **options
            )
        if self.bits != 4:
            module: nn.Module = model  # the decorator of Transformers around `to` has no usable type
            module.to(self.device)
        return model.eval()


def train(base: Base, own: Hyperparameters, seed: int, pairs: Sequence[Pair], run: Path) -> dict[str, Any]:
    """Train, write adapter/ and tensorboard/ below `run`, and return the content of results.json.

    Warm-up, cosine decay and AdamW (paged 8-bit for a 4-bit base on a GPU); losses are logged in bits a
    token.
    """
    train_pairs, valid_pairs = split(pairs, seed)
    set_seed(seed)
    items = encode_pairs(train_pairs, base.tokenizer, max_length=own.max_length, answer_only=own.answer_only)
    # Without the questions, so that runs with and without --answer-only can be compared.
    valid_items = encode_pairs(valid_pairs, base.tokenizer, max_length=own.max_length, answer_only=True)
    loaded = base.load()
    if base.bits == 4:
        loaded = prepare_model_for_kbit_training(loaded)
    model = adapters.add_adapters(loaded, own, TaskType.CAUSAL_LM)
    parameters, log = adapters.count(model), RunLog(run / TENSORBOARD)

    def perplexity(step: int) -> float:
        bits = bits_per_token(model, valid_items)
        log.write("valid", {"loss": bits, "ppl": 2**bits}, step=step, epoch=1)
        return 2**bits

    arguments = TrainingArguments(
        output_dir="unused",  # nothing is saved
        max_steps=own.steps,
        per_device_train_batch_size=own.batch_size,
        gradient_accumulation_steps=ACCUMULATION,
        learning_rate=own.lr,
        lr_scheduler_type="cosine",
        warmup_steps=math.ceil(WARMUP * own.steps),
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
    before = perplexity(0)  # that of the base, because B is initialized to zero
    model.config.use_cache = False
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=cast("torch.utils.data.Dataset", items),
        data_collator=DataCollatorForSeq2Seq(base.tokenizer),
        callbacks=[_LossLog(log)],
    )
    trainer.remove_callback(PrinterCallback)
    loss = trainer.train().training_loss
    model.config.use_cache = True
    log.write("train", {"loss": loss / math.log(2)}, step=own.steps, epoch=1, done=1.0)
    after = perplexity(own.steps)
    log.close()
    peak = peak_memory_bytes(base.device)  # before the check, which loads the base a second time
    adapters.save(model, run / ADAPTER)
    ids, reloaded = valid_items[0]["input_ids"], adapters.reload(base.load(), run / ADAPTER)
    what = f"{run / ADAPTER} reloaded"
    difference = adapters.largest_difference(logits(model, ids), logits(reloaded, ids), what, bits=base.bits)
    return {
        **parameters,
        "base_bits": base.bits,
        "precision": "fp32" if base.bits == 32 else "bf16",
        "train_pairs": len(train_pairs),
        "valid_pairs": len(valid_pairs),
        "perplexity": {"before": before, "after": after},
        "reloaded_difference": difference,
        "peak_memory_bytes": peak,
    }


@dataclass
class _LossLog(TrainerCallback):
    """Logs the training loss of each update in bits per token."""

    log: RunLog

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if "loss" in kwargs["logs"]:
            bits, done = kwargs["logs"]["loss"] / math.log(2), state.global_step / state.max_steps
            self.log.write("train_inner", {"loss": bits}, step=state.global_step, epoch=1, done=done)


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
def logits(model: nn.Module, ids: Sequence[int]) -> torch.Tensor:
    """The logits (1, L, V) of a text."""
    return model.eval()(input_ids=torch.tensor([ids], device=next(model.parameters()).device)).logits


def answer(
    base: Base, run: Path, questions: Sequence[str], new_tokens: int, seed: int
) -> list[dict[str, str]]:
    """Each `question` with its sampled answers `before`, of the base, and `after`, of a run's adapter."""
    model, tokenizer = adapters.reload(base.load(), run / ADAPTER), base.tokenizer
    # Delegates to `GenerationMixin.generate`, which its class does not declare.
    generate = cast("Callable[..., torch.Tensor]", model.generate)
    rows = []
    for number, question in enumerate(questions):
        row = {"question": question}
        inputs = tokenizer(prompt(question.strip()), add_special_tokens=False, return_tensors="pt")
        for when, adapted in (("before", model.disable_adapter()), ("after", nullcontext())):
            with adapted, torch.inference_mode(), torch.random.fork_rng():
                torch.manual_seed(seed + number)
                found_1L = generate(
                    input_ids=inputs["input_ids"].to(base.device),
                    attention_mask=torch.ones_like(inputs["input_ids"]).to(base.device),
                    max_new_tokens=new_tokens,
                    pad_token_id=tokenizer.pad_token_id,
                    eos_token_id=tokenizer.eos_token_id,
                    **SAMPLING,
                )
            new_L = found_1L[0, inputs["input_ids"].shape[1] :]
            row[when] = str(tokenizer.decode(new_L, skip_special_tokens=True)).strip()
        rows.append(row)
    return rows


def merge(base: Base, run: Path) -> float:
    """Write merged/, a model folder without adapters, from a run's adapter and the base in full precision.

    Returns the largest difference of a logit between the reloaded folder and base with adapter.
    """
    full = replace(base, bits=32)
    ids = base.tokenizer("<human>: ?", add_special_tokens=False)["input_ids"]
    model = adapters.reload(full.load(), run / ADAPTER)
    wanted_1LV = logits(model, ids)
    with atomic_folder(run / MERGED) as folder:
        model.merge_and_unload().save_pretrained(folder)
        base.tokenizer.save_pretrained(folder)
        found_1LV = logits(replace(full, folder=folder).load(), ids)
        return adapters.largest_difference(wanted_1LV, found_1LV, str(run / MERGED))


if __name__ == "__main__":
    sys.exit(main())
