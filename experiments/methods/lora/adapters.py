"""LoRA adapters (Hu et al. 2021, arXiv 2106.09685) with peft: put on, counted, saved, merged, reloaded.

A linear map W (out, in) of the base stays as it is and gets a trained addition of rank r,
W + alpha / r * B A, with B (out, r) zero at first and A (r, in) random: r (in + out) parameters.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from torch import Tensor, nn
from transformers import PreTrainedModel, RobertaForSequenceClassification

from common.errors import UserError

TOLERANCE = {32: 1e-4, 16: 5e-2, 4: 5e-2}
"""Bits of the weights -> largest difference, relative to the largest logit, that counts as rounding."""
WEIGHTS = "adapter_model.safetensors"
BASE, ADAPTER = "base", "adapter"
"""Folders of a run: what it started from, what was trained."""


@dataclass(frozen=True)
class LoraSettings:
    """The flags of LoRA, as `LoraConfig` has them (no bias is trained)."""

    rank: int
    alpha: float
    dropout: float
    target_modules: tuple[str, ...]

    def words(self) -> list[str]:
        """The settings as flags, for a manifest."""
        return [
            *("--rank", str(self.rank)),
            *("--alpha", f"{self.alpha:g}"),
            *("--dropout", f"{self.dropout:g}"),
            *("--target-modules", *self.target_modules),
        ]


@dataclass(frozen=True)
class Parameters:
    """How many there are, and how many of them are trained."""

    trainable: int
    total: int

    def __str__(self) -> str:
        share = 100 * self.trainable / self.total
        return f"{self.trainable:,} of {self.total:,} parameters are trained ({share:.4g} %)"


def add_adapters(
    base: PreTrainedModel, settings: LoraSettings, task: TaskType, modules_to_save: Sequence[str] = ()
) -> PeftModel:
    """Freeze `base` and put adapters on it; `modules_to_save` (the head) are trained and saved as they are.

    Raises `UserError` as `check_targets` does.
    """
    check_targets(base, settings, modules_to_save)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.target_modules),
        bias="none",
        task_type=task,
        modules_to_save=list(modules_to_save) or None,
    )
    with _without_future_warnings():
        return get_peft_model(base, config)


def check_targets(base: nn.Module, settings: LoraSettings, without: Sequence[str] = ()) -> None:
    """Raise `UserError` naming the linear maps there are where a target is none of them."""
    known = linear_names(base, without)
    if wrong := [name for name in settings.target_modules if name not in known]:
        raise UserError(
            f"--target-modules {' '.join(wrong)}: {type(base).__name__} has no such linear map; "
            f"there are {', '.join(known)}"
        )


def linear_names(model: nn.Module, without: Sequence[str] = ()) -> list[str]:
    """Last names of the linear maps, which LoRA can be put on; not those below modules in `without`."""
    names = [
        name.split(".")
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) or type(module).__name__.startswith("Linear")
    ]
    return sorted({parts[-1] for parts in names if not set(parts) & {*without, "lm_head"}})


def count(model: nn.Module) -> Parameters:
    """Numbers of parameters, those that share their memory counted once.

    A matrix packed into 4 bits counts as many as it stands for. The head that a trained one replaces does
    not count.
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
    return Parameters(trainable, total)


def save(model: PeftModel, folder: Path) -> None:
    """`adapter_config.json` and `adapter_model.safetensors`: what was trained and nothing else."""
    # False: the vocabulary is never changed here, and "auto" looks the base up in the network.
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # an empty form


def reload(base: PreTrainedModel, folder: Path) -> PeftModel:
    """The saved adapter on a fresh base, for inference; raises `UserError` where it is missing."""
    if not (folder / WEIGHTS).is_file():
        raise UserError(f"{folder}: no {WEIGHTS} in it; train the adapter first")
    with _without_future_warnings():
        return PeftModel.from_pretrained(base, folder).eval()


def merge(model: PeftModel) -> PreTrainedModel:
    """The base with the additions added to its weights: an ordinary model without adapters."""
    return model.merge_and_unload()


def merged_classifier(run: Path) -> RobertaForSequenceClassification:
    """The model of a run of `lora classify`: its adapter on its base, merged, in evaluation mode."""
    return merge(adapted_classifier(run)).eval()


def adapted_classifier(run: Path) -> PeftModel:
    """The same with the adapter beside the base's weights; raises `UserError` where base or adapter lacks."""
    base = run / BASE
    if not any(base.glob("*.safetensors")):
        raise UserError(f"{base}: no model.safetensors in it; delete the run's folder and train it again")
    model = RobertaForSequenceClassification.from_pretrained(
        base, local_files_only=True, use_safetensors=True
    )
    return reload(model, run / ADAPTER)


@torch.inference_mode()
def largest_difference(
    answer: Callable[[nn.Module], Tensor], first: nn.Module, second: nn.Module, what: str, *, bits: int = 32
) -> float:
    """Largest absolute difference of the logits that `answer` gets from the two models.

    Raises `RuntimeError` where it is more than `TOLERANCE`: then `what` would not give
    the answers that were measured, which is a defect of ours.
    """
    one, other = answer(first).float(), answer(second).float()
    difference = float((one - other).abs().max())
    if not difference <= TOLERANCE[bits] * max(1.0, float(one.abs().max())):
        raise RuntimeError(f"{what}: logits differ by {difference:.3g} from those of the trained model")
    return difference


def _without_future_warnings() -> warnings.catch_warnings:
    """peft asks Transformers by old names."""
    return warnings.catch_warnings(action="ignore", category=FutureWarning)
