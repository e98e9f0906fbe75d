"""The weights in the package, `roberta_small_fr`, and the tokenizer of their dictionary."""

from __future__ import annotations

from roberta_small.common.files import PACKAGE

NAME = "roberta_small_fr"
"""What `--pretrained` and `TextClassifier(pretrained=...)` accept instead of a path."""
SHIPPED = PACKAGE / "pretrained" / NAME
"""Weights, dict.txt, model card. The SentencePiece model is XLM-R's, downloaded when it is needed."""
