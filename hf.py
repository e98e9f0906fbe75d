"""Deprecated: `python -m hf convert|export|finetune|lora` are now commands of `export` and `experiments`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from common.cli import deprecation
from common.errors import UsageError, report_errors

USAGE = "usage: python -m hf convert|export|finetune|lora ... (deprecated, see python -m export --help)\n"
COMMANDS = {
    ("convert",): ("export", "transformers"),
    ("export",): ("export", "onnx"),
    ("finetune",): ("experiments", "train", "--method", "transformers"),
    ("lora", "classify"): ("experiments", "train", "--method", "lora"),
    ("lora", "causal"): ("experiments", "lora-causal"),
    ("lora", "sample"): ("experiments", "lora-sample"),
    ("lora", "table"): ("experiments", "lora-table"),
}
"""Words of the old command -> package and words of the new one."""


def translate(words: Sequence[str]) -> tuple[str, list[str], str]:
    """Package, words and name of the new command; raises `UsageError` if the old one is unknown."""
    if words[:1] == ["convert"] and "--to-fairseq" in words:
        rest = [word for word in words[1:] if word != "--to-fairseq"]
        return "export", ["fairseq", *rest], "python -m export fairseq"
    for old, (package, *new) in COMMANDS.items():
        if tuple(words[: len(old)]) == old:
            return package, [*new, *words[len(old) :]], f"python -m {package} {' '.join(new)}"
    raise UsageError(f"python -m hf {' '.join(words[:2])}: no such command", usage=USAGE)


@report_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Print the new command as deprecation message and run it; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] in (["--help"], ["-h"]):
        print(USAGE, end="")
        return 0
    package, words, name = translate(words)
    deprecation(f"python -m hf is deprecated, use {name}")
    if package == "export":
        from export.__main__ import main as run
    else:
        from experiments.__main__ import main as run
    return run(words)


if __name__ == "__main__":
    sys.exit(main())
