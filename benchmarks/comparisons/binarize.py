"""Conversion of raw text to fairseq's binary data: `preprocess binarize` compared with the stock tools.

stock   a loop over the lines with SentencePiece's Python package, which writes the text of the tokens,
        then `fairseq-preprocess --only-source --workers N`
ours    `python -m preprocess binarize --only-source --workers N`

The results are compared byte by byte after each round.
"""

from __future__ import annotations

import filecmp
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks.measure import Contender, compare, python
from benchmarks.settings import Settings
from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256

STOCK_LOOP = """
import sys, sentencepiece
model, text, tokens = sys.argv[1:]
processor = sentencepiece.SentencePieceProcessor(model_file=model)
with open(text, encoding="utf-8", newline="\\n") as source, open(tokens, "w", encoding="utf-8") as target:
    for line in source:
        print(" ".join(processor.encode(line.rstrip("\\n"), out_type=str)), file=target)
"""
FILES = ("dict.txt", "train.bin", "train.idx")


def run(settings: Settings) -> dict[str, Any]:
    """Wall seconds of the processes; raises `UserError` if their files differ."""
    folder = settings.scratch / "binarize"
    folder.mkdir(parents=True, exist_ok=True)
    size = os.path.getsize(settings.text)
    result = compare(
        "binarize",
        f"Text to binary data, {size / 1e6:.1f} MB, {settings.workers} workers",
        contenders(settings, folder),
        settings,
        after_round=lambda: check_identical(folder),
        text={"name": settings.text.name, "bytes": size, "sha256": sha256(settings.text)},
        workers=settings.workers,
        about="the files are the same, byte for byte",
    )
    for row in result["contenders"]:
        if "median" in row:
            row["bytes_per_second"] = size / row["median"]
    return result


def contenders(settings: Settings, folder: Path) -> list[Contender]:
    """Both stock steps as one, and our command."""
    tokens, workers = str(folder / "tokens"), str(settings.workers)
    model, text = str(settings.sentencepiece_model), str(settings.text)
    loop = [sys.executable, "-c", STOCK_LOOP, model, text, tokens]
    stock = python(
        "fairseq_cli.preprocess", "--only-source", "--srcdict", settings.srcdict, "--trainpref", tokens,
        "--destdir", folder / "stock", "--workers", workers,
    )  # fmt: skip
    ours = python(
        "preprocess", "binarize", "--only-source", "--srcdict", settings.srcdict, "--trainpref", text,
        "--sentencepiece-model", model, "--destdir", folder / "ours", "--workers", workers,
    )  # fmt: skip
    both = f"{shlex.join(loop)} && {shlex.join(stock)}"
    return [
        Contender("SentencePiece loop, fairseq-preprocess", ("sh", "-c", both), quick=True),
        Contender("ours", ours, ours=True, quick=True),
    ]


def check_identical(folder: Path) -> None:
    """Compare what both wrote in this round, then remove it."""
    if (folder / "stock").is_dir() and (folder / "ours").is_dir():
        _, differing, missing = filecmp.cmpfiles(folder / "stock", folder / "ours", FILES, shallow=False)
        if differing or missing:
            raise UserError(f"{folder}: not the same as stock: {', '.join(differing + missing)}")
    for name in ("stock", "ours"):
        shutil.rmtree(folder / name, ignore_errors=True)
