"""A causal language model: loading without executing code, perplexity, generation.

QLoRA (Dettmers et al. 2023, arXiv 2305.14314): the frozen base is stored in 4 bits (nf4, with double
quantization) and computes in bf16. It requires bitsandbytes. On a CPU it saves memory but is slower, so it is
used there only on request.

B texts, L tokens, V vocabulary entries.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from peft import PeftModel
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from roberta_small.common.errors import UserError
from roberta_small.experiments.methods.lora.causal.data import IGNORED, PadPairs, PairDataset, prompt

NEW_TOKENS, TEMPERATURE, TOP_P = 200, 0.7, 0.7
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
# Files that are downloaded from the hub: no pickles, no code.
SAFE_FILES = ("*.json", "*.safetensors", "*.model", "*.txt")


@dataclass(frozen=True)
class Loading:
    """Precision of the base model: `bits` is 4 (nf4), 16 (bf16) or 32; `why` is the reason."""

    bits: int
    why: str

    def __str__(self) -> str:
        return f"base in {'4 bits (nf4)' if self.bits == 4 else f'{self.bits} bits'}: {self.why}"


def choose_loading(device: torch.device, precision: str) -> Loading:
    """The requested precision; `auto` is 4 bits with bitsandbytes and a GPU, otherwise fp32.

    Raises `UserError` if 4 bits are requested and bitsandbytes is not installed.
    """
    installed = importlib.util.find_spec("bitsandbytes") is not None
    if precision == "4bit":
        if not installed:
            raise UserError("--precision 4bit: bitsandbytes is not installed; pip install bitsandbytes")
        return Loading(4, "as requested")
    if precision == "fp32":
        return Loading(32, "as requested")
    if precision == "bf16":
        return Loading(16, "as requested")
    if device.type != "cuda":
        return Loading(32, "4 bits need a GPU")
    if not installed:
        return Loading(32, "4 bits need bitsandbytes, which is not installed")
    return Loading(4, "bitsandbytes and a GPU are available")


def find_folder(model: str) -> Path:
    """The folder `model`, or a download of the model of that name from the Hugging Face hub.

    Raises `UserError` if there is neither, or no weights in safetensors (pickles can execute code).
    """
    folder = Path(model)
    if not folder.is_dir():
        folder = _download(model)
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: no config.json, so not a model folder; correct --model")
    if not any(folder.glob("*.safetensors")):
        pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        found = f"only {', '.join(pickles)}, which can execute code" if pickles else "no weights"
        raise UserError(f"{folder}: {found}; pass a folder with model.safetensors as --model")
    return folder


def _download(model: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, allow_patterns=list(SAFE_FILES)))
    except HFValidationError:
        why = "no such folder"
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        why = f"no such folder, and the download from the hub failed ({type(error).__name__})"
    raise UserError(
        f"--model {model}: {why}; get BLOOM-560m with: python -m preprocess download bloom --out bloom"
    )


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model; raises `UserError` if it is missing or has no end-of-text token."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: the tokenizer cannot be loaded ({_first_line(error)})") from None
    if tokenizer.eos_token_id is None:
        raise UserError(f"{folder}: the tokenizer has no end-of-text token, so answers cannot be terminated")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(folder: Path, loading: Loading, device: torch.device) -> PreTrainedModel:
    """The model in evaluation mode on the device; raises `UserError` if it cannot be loaded."""
    options = {"local_files_only": True, "use_safetensors": True}
    try:
        if loading.bits == 4:
            return AutoModelForCausalLM.from_pretrained(
                folder, quantization_config=_four_bits(), device_map={"": device}, **options
            ).eval()
        dtype = torch.bfloat16 if loading.bits == 16 else torch.float32
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **options)
        module: nn.Module = model  # the decorator of Transformers around `to` has no usable type
        module.to(device)
        return model.eval()
    except Exception as error:
        # safetensors and Transformers raise many types for corrupt files and unknown architectures.
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise UserError(f"{folder}: not a causal language model ({_first_line(error)})") from None


def _four_bits() -> object:
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@torch.inference_mode()
def bits_per_token(model: nn.Module, pairs: PairDataset, pad: int, batch_size: int = 8) -> float:
    """Mean cross-entropy in bits of the tokens whose label is not `IGNORED`: log2 of the perplexity."""
    device = next(model.parameters()).device
    nats, tokens = 0.0, 0
    model.eval()
    for batch in DataLoader(pairs, batch_size=batch_size, collate_fn=PadPairs(pad)):
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        logits_BLV = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        # A token is predicted from the previous ones, so the first has no prediction.
        target_BL = batch["labels"][:, 1:]
        loss = nn.functional.cross_entropy(
            logits_BLV[:, :-1].float().flatten(0, 1),
            target_BL.flatten(),
            ignore_index=IGNORED,
            reduction="sum",
        )
        nats += float(loss)
        tokens += int((target_BL != IGNORED).sum())
    return nats / max(tokens, 1) / math.log(2)


@torch.inference_mode()
def generate(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[str],
    *,
    seed: int,
    new_tokens: int = NEW_TOKENS,
    title: str = "",
) -> list[str]:
    """An answer to each question, sampled (temperature 0.7, top-p 0.7) with a seed for each question."""
    model.eval()
    # Models inherit or delegate to `GenerationMixin.generate`, which neither of their classes declares.
    generate_ids = cast("Callable[..., torch.Tensor]", model.generate)
    device = next(model.parameters()).device
    answers = []
    for number, question in enumerate(tqdm(questions, desc=title, leave=False, disable=None)):
        ids = torch.tensor(
            [tokenizer(prompt(question), add_special_tokens=False)["input_ids"]], device=device
        )
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
        answer = tokenizer.decode(generated[0, ids.shape[1] :], skip_special_tokens=True)
        answers.append(str(answer).strip())
    return answers
