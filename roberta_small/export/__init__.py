"""Write a trained model in another format: Transformers, fairseq, ONNX or fp16 safetensors.

In Python:

    from roberta_small.export.transformers.to_transformers import convert  # run -> from_pretrained folder
    from roberta_small.export.transformers.to_fairseq import convert_back  # such a folder -> checkpoint
    from roberta_small.export.transformers.networks import converted  # checkpoint in memory -> model
    from roberta_small.export.transformers.folder import write_tokenizer  # SentencePiece -> tokenizer files

Only these modules import Transformers, so that `--help` is fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from roberta_small.common.errors import UserError

PACKAGES = (
    *("transformers", "tokenizers", "safetensors", "accelerate", "huggingface_hub"),
    *("peft", "onnx", "onnxscript", "onnxruntime"),
)
"""Packages of the extra `hf`."""


@contextmanager
def missing_package_is_reported() -> Iterator[None]:
    """Raise `UserError` naming the extra if one of its packages is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in PACKAGES:
            raise
        raise UserError(
            f"{name} is not installed; this command needs the extra hf: make install, "
            "or pip install --editable '.[hf]' --constraint constraints.txt"
        ) from None
