"""Checkpoints that lie in folders: the one that comes with the project, and any other."""

from __future__ import annotations

from pathlib import Path

from common.files import read_lines

from . import ROOT

SHIPPED = ROOT / "pretrained" / "roberta_small_fr"
"""Comes with the project: weights, dict.txt, model card. What lies beside it was made here, and counts only
where it is named."""
WEIGHTS = ("model.safetensors", "model.pt")


def checkpoint_file(path: Path) -> Path:
    """The weights in a folder that holds some, else `path` itself."""
    return next((path / name for name in WEIGHTS if (path / name).is_file()), path)


def shipped_for(data: Path) -> Path | None:
    """The weights of this project, where they were trained with the dictionary of the binarized `data`."""
    dictionary = data / "input0" / "dict.txt"
    weights = checkpoint_file(SHIPPED)
    if weights == SHIPPED or not dictionary.is_file():
        return None
    return weights if _symbols(SHIPPED / "dict.txt") == _symbols(dictionary) else None


def _symbols(dictionary: Path) -> list[str]:
    return [line.rpartition(" ")[0] for line in read_lines(dictionary)]
