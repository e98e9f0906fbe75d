"""Train, compare and trust small RoBERTa sentence classifiers in fairseq.

Importing this package imports none of the packages below it.

    from roberta_small import TextClassifier

    classifier = TextClassifier(seeds=(1, 2, 3)).fit(texts, labels)
    classifier.predict(["Un livre captivant."])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roberta_small.estimator import TextClassifier, TextRegressor, tables, train

__all__ = ["TextClassifier", "TextRegressor", "tables", "train"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module("roberta_small.estimator"), name)


def __dir__() -> list[str]:
    return __all__
