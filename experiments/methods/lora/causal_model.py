"""A causal language model with LoRA adapters: loading, training, perplexity, generation, merging.

A pair becomes one text, in the format of the published reports, followed by the end-of-text token, so that
generation learns where to stop: `<human>: QUESTION  \\n <assistant>: ANSWER`. Models are loaded without
executing code. QLoRA (Dettmers et al. 2023, arXiv 2305.14314) stores the frozen base in 4 bits (nf4, with
double quantization), computes in bf16 and requires bitsandbytes. On a CPU it saves memory but is slower, so
it is used there only on request.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub import snapshot_download
from peft import PeftModel, TaskType, prepare_model_for_kbit_training
from torch import nn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm
from transformers import (
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

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_folder
from roberta_small.common.run import TENSORBOARD
from roberta_small.experiments.methods.lora import adapters
from roberta_small.experiments.methods.lora.adapters import ADAPTER
from roberta_small.experiments.methods.lora.causal import CausalSettings, Pair
from roberta_small.experiments.methods.transformers.run_folder import (
    on_one_device,
    peak_memory_bytes,
    write_scalars,
)

logger = logging.getLogger(__name__)
IGNORED = -100
"""Label of tokens without a loss, as in Transformers."""
TEMPERATURE, TOP_P = 0.7, 0.7
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
SAFE_FILES = ["*.json", "*.safetensors", "*.model", "*.txt"]
"""Files that are downloaded from the hub: no pickles, no code."""
Item = dict[str, list[int]]
"""`input_ids` and `labels` of a pair."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Base model, data and settings of a run."""

    base: Path
    bits: int
    """Of the weights of the base: 4 (nf4), 16 (bf16) or 32."""
    device: torch.device
    settings: CausalSettings
    seed: int
    train: list[Pair]
    valid: list[Pair]
    questions: list[str]
    """Questions to answer before and after training."""
    new_tokens: int


def train(task: Task, run: Path) -> dict[str, Any]:
    """Train, write adapter/ and tensorboard/ below `run`, and return the content of results.json.

    Raises `UserError` if a target module does not exist or a question is too long.
    """
    set_seed(task.seed)
    tokenizer = load_tokenizer(task.base)
    encode = functools.partial(encode_pairs, tokenizer=tokenizer, max_length=task.settings.max_length)
    train_items = encode(task.train, answer_only=task.settings.answer_only)
    # Without the questions, so that runs with and without --answer-only can be compared.
    valid_items = encode(task.valid, answer_only=True)
    base = load_model(task.base, task.bits, task.device)
    if task.bits == 4:
        base = prepare_model_for_kbit_training(base)
    model = adapters.add_adapters(base, task.settings.lora, TaskType.CAUSAL_LM)
    parameters = adapters.count(model)
    logger.info("%s", parameters)

    def measure(step: int) -> tuple[float, list[str]]:
        bits = bits_per_token(model, valid_items)
        logger.info("step %d: perplexity of the held-out answers %.4g", step, 2**bits)
        write_scalars(run, "valid", {"loss": bits, "ppl": 2**bits}, step)
        return 2**bits, generate(model, tokenizer, task, title=f"step {step}")

    # B is initialized to zero, so the model with untrained adapters equals the base.
    before, old = measure(0)
    fit(model, tokenizer, train_items, task, run)
    after, new = measure(task.settings.steps)
    peak = peak_memory_bytes(task.device)  # before the check, which loads the base a second time
    adapters.save(model, run / ADAPTER)
    reloaded = adapters.reload(load_model(task.base, task.bits, task.device), run / ADAPTER)
    return {
        "trainable_parameters": parameters.trainable,
        "parameters": parameters.total,
        "base_bits": task.bits,
        "train_pairs": len(task.train),
        "valid_pairs": len(task.valid),
        "perplexity": {"before": before, "after": after},
        "answers": _answers(task, old, new),
        "reloaded_difference": _difference(
            model.eval(), reloaded, valid_items[0]["input_ids"], f"{run / ADAPTER} reloaded", bits=task.bits
        ),
        "peak_memory_bytes": peak,
    }


def answer(task: Task, run: Path) -> list[dict[str, str]]:
    """The answers of the base and of the stored adapter of a finished run, without training."""
    tokenizer = load_tokenizer(task.base)
    model = load_model(task.base, task.bits, task.device)
    before = generate(model, tokenizer, task)
    return _answers(task, before, generate(adapters.reload(model, run / ADAPTER), tokenizer, task))


def merge(task: Task, run: Path, target: Path) -> float:
    """Write `target`, a model folder without adapters, from adapter/ and the base in full precision.

    Returns the largest difference of a logit between the reloaded folder and base with adapter.
    """
    tokenizer = load_tokenizer(task.base)

    def adapted() -> PeftModel:
        return adapters.reload(load_model(task.base, 32, task.device), run / ADAPTER)

    with atomic_folder(target) as folder:
        adapters.merge(adapted()).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        ids = tokenizer("<human>: ?", add_special_tokens=False)["input_ids"]
        return _difference(adapted(), load_model(folder, 32, task.device), ids, str(target))


def fit(
    model: PeftModel, tokenizer: PreTrainedTokenizerBase, items: list[Item], task: Task, run: Path
) -> None:
    """Train with linear warm-up, cosine decay and AdamW (paged, in 8 bits, for a 4-bit base on a GPU)."""
    settings = task.settings
    arguments = TrainingArguments(
        output_dir=str(run / "trainer"),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulation,
        learning_rate=settings.lr,
        lr_scheduler_type="cosine",
        warmup_steps=math.ceil(settings.warmup_share * settings.steps),
        optim="paged_adamw_8bit" if task.bits == 4 and task.device.type == "cuda" else "adamw_torch",
        bf16=task.bits != 32,
        use_cpu=task.device.type == "cpu",
        seed=task.seed,
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        report_to=[],
        remove_unused_columns=False,
    )
    on_one_device(arguments)
    model.config.use_cache = False
    with SummaryWriter(run / TENSORBOARD / "train_inner") as writer:
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=cast("torch.utils.data.Dataset", items),
            data_collator=DataCollatorForSeq2Seq(tokenizer),
            callbacks=[_LossLog(writer)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    model.config.use_cache = True


class _LossLog(TrainerCallback):
    """Logs the training loss in bits per token, and shows a progress bar."""

    def __init__(self, writer: SummaryWriter) -> None:
        self._writer = writer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._bar = tqdm(total=state.max_steps, desc="updates", leave=False, disable=None)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if "loss" in kwargs["logs"]:
            bits = kwargs["logs"]["loss"] / math.log(2)
            self._writer.add_scalar("loss", bits, state.global_step)
            self._bar.set_postfix_str(f"loss {bits:.3f}")
            self._bar.update()
            logger.info("update %d: loss %.4f bits", state.global_step, bits)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._bar.close()


def prompt(question: str) -> str:
    """The text from which the model generates the answer to a question."""
    return f"<human>: {question.strip()}  \n <assistant>:"


def encode_pairs(
    pairs: Sequence[Pair], *, tokenizer: PreTrainedTokenizerBase, max_length: int, answer_only: bool
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
    model: PreTrainedModel | PeftModel, tokenizer: PreTrainedTokenizerBase, task: Task, title: str = ""
) -> list[str]:
    """An answer to each question, sampled (temperature 0.7, top-p 0.7) with a seed for each question."""
    model.eval()
    # Models inherit or delegate to `GenerationMixin.generate`, which neither of their classes declares.
    generate_ids = cast("Callable[..., torch.Tensor]", model.generate)
    device = next(model.parameters()).device
    answers = []
    for number, question in enumerate(tqdm(task.questions, desc=title, leave=False, disable=None)):
        ids = torch.tensor([tokenizer(prompt(question), add_special_tokens=False).input_ids], device=device)
        with torch.random.fork_rng():
            torch.manual_seed(task.seed + number)
            generated = generate_ids(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=task.new_tokens,
                do_sample=True,
                temperature=TEMPERATURE,
                top_p=TOP_P,
                top_k=0,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
            )
        answers.append(str(tokenizer.decode(generated[0, ids.shape[1] :], skip_special_tokens=True)).strip())
    return answers


def _answers(task: Task, before: list[str], after: list[str]) -> list[dict[str, str]]:
    rows = zip(task.questions, before, after, strict=True)
    return [{"question": question, "before": old, "after": new} for question, old, new in rows]


def _difference(one: Any, other: Any, ids: Sequence[int], what: str, *, bits: int = 32) -> float:
    def logits(model: Any) -> torch.Tensor:
        return model(input_ids=torch.tensor([ids], device=next(model.parameters()).device)).logits

    return adapters.largest_difference(logits, one, other, what, bits=bits)


def choose_bits(device: torch.device, precision: str) -> tuple[int, str]:
    """Bits of the weights for a --precision, and the reason; raises `UserError` without bitsandbytes."""
    installed = importlib.util.find_spec("bitsandbytes") is not None
    if precision == "4bit" and not installed:
        raise UserError("--precision 4bit: bitsandbytes is not installed; pip install bitsandbytes")
    if precision != "auto":
        return {"4bit": 4, "bf16": 16, "fp32": 32}[precision], "as requested"
    if device.type != "cuda":
        return 32, "4 bits need a GPU"
    if not installed:
        return 32, "4 bits need bitsandbytes, which is not installed"
    return 4, "bitsandbytes and a GPU are available"


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
