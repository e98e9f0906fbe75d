"""LoRA adapters (Hu et al. 2021, arXiv 2106.09685) with peft: add, count, save, reload, merge.

A linear layer of the base with weight W (out, in) is frozen and gets a trained update of rank r,
W + alpha / r * B A, with B (out, r) initialized to zero and A (r, in) at random: r (in + out) parameters.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_folder
from roberta_small.experiments.methods.lora.settings import ADAPTER, BASE, LoraSettings

logger = logging.getLogger(__name__)
TOLERANCE = {32: 1e-4, 16: 5e-2, 4: 5e-2}
"""Bits of the weights -> largest difference relative to the largest logit that rounding explains."""
WEIGHTS = "adapter_model.safetensors"


def add_adapters(
    base: PreTrainedModel, settings: LoraSettings, task: TaskType, modules_to_save: Sequence[str] = ()
) -> PeftModel:
    """Freeze `base` and add adapters; the `modules_to_save` (the head) are trained and saved in full."""
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]  # fractions are valid, but declared as int
        lora_dropout=settings.dropout,
        target_modules=list(settings.target_modules),
        bias="none",
        task_type=task,
        modules_to_save=list(modules_to_save) or None,
    )
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # peft uses deprecated names
        return get_peft_model(base, config)


def check_targets(base: nn.Module, settings: LoraSettings, without: Sequence[str] = ()) -> None:
    """Raise `UserError` if a target module is no linear layer of `base` outside the modules `without`."""
    names = [name.split(".") for name, module in base.named_modules() if isinstance(module, nn.Linear)]
    # peft itself finds nothing wrong with an unknown name beside a known one.
    known = sorted({parts[-1] for parts in names if not set(parts) & {*without, "lm_head"}})
    if wrong := [name for name in settings.target_modules if name not in known]:
        raise UserError(
            f"--target-modules {' '.join(wrong)}: {type(base).__name__} has no such linear layer; "
            f"choose from {', '.join(known)}"
        )


def count(model: nn.Module) -> dict[str, int]:
    """The numbers of parameters under their keys in a manifest; those that share memory count once.

    A 4-bit matrix counts its unpacked values, and the original of a module that peft copied does not count.
    """
    trainable = total = 0
    for name, parameter in model.named_parameters():
        if ".original_module." in name:
            continue
        size = parameter.numel()
        if type(parameter).__name__ == "Params4bit":
            size = 2 * size * parameter.element_size()
        total += size
        trainable += size * parameter.requires_grad
    logger.info(f"{trainable:,} of {total:,} parameters are trained ({100 * trainable / total:.4g} %)")
    return {"trainable_parameters": trainable, "parameters": total}


def save(model: PreTrainedModel | PeftModel, folder: Path) -> None:
    """Write a model's from_pretrained folder, or only the adapter of a `PeftModel`; complete or absent."""
    with atomic_folder(folder) as new:
        # The vocabulary never changes here, and the default "auto" would look up the base on the hub.
        options: dict[str, Any] = {"save_embedding_layers": False} if isinstance(model, PeftModel) else {}
        model.save_pretrained(str(new), **options)
        (new / "README.md").unlink(missing_ok=True)  # an empty template of peft


def reload(base: PreTrainedModel, folder: Path) -> PeftModel:
    """Load a saved adapter onto a fresh base, in evaluation mode; raises `UserError` if it is missing."""
    if not (folder / WEIGHTS).is_file():
        raise UserError(f"{folder}: no {WEIGHTS} in it; train the adapter first")
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # peft uses deprecated names
        return PeftModel.from_pretrained(base, folder).eval()


def merged_classifier(run: Path) -> PreTrainedModel:
    """The model of a run of the method lora with the updates added to its weights, in evaluation mode."""
    return adapted_classifier(run).merge_and_unload().eval()


def adapted_classifier(run: Path) -> PeftModel:
    """Base and adapter of a run, not merged; raises `UserError` if either is missing."""
    base = run / BASE
    if not any(base.glob("*.safetensors")):
        raise UserError(f"{base}: no model.safetensors in it; delete the run's folder and train it again")
    model = AutoModelForSequenceClassification.from_pretrained(
        base, local_files_only=True, use_safetensors=True
    )
    return reload(model, run / ADAPTER)


def largest_difference(trained: Tensor, found: Tensor, what: str, *, bits: int = 32) -> float:
    """Largest absolute difference between the logits of the trained model and those of `what`.

    Raises `RuntimeError` if it exceeds `TOLERANCE[bits]`, relative to the largest logit.
    """
    difference = float((trained.float() - found.float()).abs().max())
    if not difference <= TOLERANCE[bits] * max(1.0, float(trained.float().abs().max())):
        raise RuntimeError(f"{what}: logits differ by {difference:.3g} from those of the trained model")
    return difference
