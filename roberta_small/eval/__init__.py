"""Use trained models: predict, evaluate, generate text.

In Python:

    from roberta_small.eval import SentenceClassifier

    classifier = SentenceClassifier.from_run("runs/fairseq/pretrained/seed1")
    classifier.predict(["Un livre captivant."])      # a list of common.predictions.Prediction

`open_model` gives the model itself: network, dictionary, tokenizer, class names, settings and origin.

Names are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import roberta_small.common.startup  # noqa: F401  first

if TYPE_CHECKING:
    from roberta_small.eval.base import Model
    from roberta_small.eval.classifier import Ensemble, SentenceClassifier
    from roberta_small.eval.model import open_model

MODULES = {
    "Ensemble": ".classifier",
    "Model": ".base",
    "SentenceClassifier": ".classifier",
    "open_model": ".model",
}
__all__ = ["Ensemble", "Model", "SentenceClassifier", "open_model"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(MODULES[name], __name__), name)


def __dir__() -> list[str]:
    return __all__
