"""Deprecated: `python -m hf convert|export|finetune|lora` are now commands of `export` and `experiments`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from common.cli import renamed
from common.errors import UsageError, report_errors

USAGE = "usage: python -m hf convert|export|finetune|lora ... (deprecated, see python -m export --help)\n"
COMMANDS = {
    ("convert",): "export transformers",
    ("export",): "export onnx",
    ("finetune",): "experiments train --method transformers",
    ("lora", "classify"): "experiments train --method lora",
    ("lora", "causal"): "experiments lora-causal",
    ("lora", "sample"): "experiments lora-sample",
    ("lora", "table"): "experiments lora-table",
}
"""Words of the old command -> package and command of the new one."""


def translate(words: Sequence[str]) -> tuple[str, list[str]]:
    """Package and command that replace the old one, and the other words.

    Raises `UsageError` if the old command is unknown.
    """
    if words[:1] == ["convert"] and "--to-fairseq" in words:
        return "export fairseq", [word for word in words[1:] if word != "--to-fairseq"]
    for old, new in COMMANDS.items():
        if tuple(words[: len(old)]) == old:
            return new, list(words[len(old) :])
    raise UsageError(f"python -m hf {' '.join(words[:2])}: no such command", usage=USAGE)


@report_errors
def main(arguments: Sequence[str] | None = None) -> int | None:
    """Print the new command as deprecation message and run it; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] in (["--help"], ["-h"]):
        print(USAGE, end="")
        return 0
    return renamed("hf", *translate(words))


if __name__ == "__main__":
    sys.exit(main())
