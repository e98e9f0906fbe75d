"""Train, compare and trust small RoBERTa sentence classifiers in fairseq.

Importing this package imports none of the packages below it.

    from roberta_small import TextClassifier

    classifier = TextClassifier(seeds=(1, 2, 3)).fit(texts, labels)
    classifier.predict(["Un livre captivant."])
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roberta_small.estimator import TextClassifier, TextRegressor, tables, train

__all__ = ["TextClassifier", "TextRegressor", "tables", "train"]

# Libraries that would report their use: onnxruntime writes a device id to the home directory when it is
# imported, and huggingface_hub adds the versions of packages to its requests.
for _name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(_name, "1")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module("roberta_small.estimator"), name)


def __dir__() -> list[str]:
    return __all__
