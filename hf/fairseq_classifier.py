"""A fine-tuned classifier of Transformers as `checkpoint_best.pt`, so that `eval` reads every arm's runs."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import RobertaForSequenceClassification

from common.files import atomic_open
from fairseq_plugin.task import SentenceClassificationTask

from .recipe import Recipe
from .weights import to_fairseq

LM_HEAD = "encoder.lm_head."


def write_checkpoint(
    path: Path, model: RobertaForSequenceClassification, recipe: Recipe, task: SentenceClassificationTask
) -> None:
    """Write the weights as fairseq does after training with the recipe; without optimizer's state.

    fairseq's classifier has a language-model head too, which is not used: it is random here.
    """
    head = task.cfg.classification_head_name
    with torch.random.fork_rng(devices=[]):
        ours = task.build_model(recipe.cfg.model)
    weights = to_fairseq(
        {name: tensor.float().cpu() for name, tensor in model.state_dict().items()}, head=head
    )
    lacking, unexpected = ours.load_state_dict(weights, strict=False)
    wrong = [*unexpected, *(name for name in lacking if not name.startswith(LM_HEAD))]
    if wrong:
        raise RuntimeError(f"{path}: fairseq's classifier and Transformers' differ in {', '.join(wrong)}")
    state = {
        "args": None,
        "cfg": recipe.cfg,
        "model": ours.state_dict(),
        "optimizer_history": [],
        "extra_state": task.get_checkpoint_dict(),
    }
    with atomic_open(path, "wb") as stream:
        torch.save(state, stream)
