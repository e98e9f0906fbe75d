"""Checkpoints that lie in folders: those that come with the project, and any other."""

from __future__ import annotations

from pathlib import Path

from common.files import read_lines

from . import ROOT

SHIPPED = ROOT / "pretrained"
"""A folder for each checkpoint that comes with the project: weights, dict.txt, model card."""
WEIGHTS = ("model.safetensors", "model.pt")


def checkpoint_file(path: Path) -> Path:
    """The weights in a folder that holds some, else `path` itself."""
    return next((path / name for name in WEIGHTS if (path / name).is_file()), path)


def shipped_for(data: Path) -> Path | None:
    """The weights of this project that were trained with the dictionary of the binarized `data`."""
    dictionary = data / "input0" / "dict.txt"
    if not dictionary.is_file():
        return None
    wanted = _symbols(dictionary)
    for folder in sorted(path.parent for path in SHIPPED.glob("*/dict.txt")):
        weights = checkpoint_file(folder)
        if weights != folder and _symbols(folder / "dict.txt") == wanted:
            return weights
    return None


def _symbols(dictionary: Path) -> list[str]:
    return [line.rpartition(" ")[0] for line in read_lines(dictionary)]
