"""Use trained models: predict, evaluate, inspect errors, generate text.

Commands: `python -m eval --help`. In Python:

    from roberta_small.eval import SentenceClassifier

    classifier = SentenceClassifier.from_run("runs/fairseq/pretrained/seed1")
    classifier.predict(["Un livre captivant."])      # a list of common.predictions.Prediction

Names are imported on first use, so `--help` does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roberta_small.eval.classifier import SentenceClassifier
    from roberta_small.eval.ensemble import Ensemble
    from roberta_small.eval.graph import GraphClassifier

MODULES = {"Ensemble": ".ensemble", "GraphClassifier": ".graph", "SentenceClassifier": ".classifier"}
__all__ = ["Ensemble", "GraphClassifier", "SentenceClassifier"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(MODULES[name], __name__), name)


def __dir__() -> list[str]:
    return __all__
