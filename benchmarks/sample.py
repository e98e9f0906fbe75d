"""The generated sample as the benchmarks need it: text, vocabulary and both binarized folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from roberta_small.common.errors import UserError
from roberta_small.common.files import ROOT

COPIES = 8
"""Copies of the sample's 3 MB for `binarize`, so that start-up time does not dominate."""
VOCABULARY = "1300"


def make(folder: Path) -> dict[str, Path]:
    """Write the sample below `folder`; returns the paths by the name of their field in `Settings`."""
    text = folder / "text"
    model, dictionary = folder / "sample.model", folder / "dict.txt"
    tokens = ["--sentencepiece-model", str(model), "--dict", str(dictionary)]
    splits = [word for split in ("train", "valid", "test") for word in (f"--{split}pref", str(text / split))]
    corpus = ["--trainpref", str(text / "corpus.train.txt"), "--validpref", str(text / "corpus.valid.txt")]
    _preprocess("sample", "--out", str(text))
    _preprocess(
        "vocabulary", "--train", "--size", VOCABULARY, "--text", str(text / "corpus.train.txt"),
        "--sentencepiece-model", str(model), "--out", str(dictionary),
    )  # fmt: skip
    _preprocess("binarize", *tokens, *splits, "--out", str(folder / "reviews"))
    _preprocess("binarize", *tokens, "--only-source", *corpus, "--out", str(folder / "corpus"))
    copies = folder / "sample.txt"
    copies.write_bytes((text / "corpus.train.txt").read_bytes() * COPIES)
    return {
        "data": folder / "reviews",
        "corpus": folder / "corpus",
        "text": copies,
        "sentencepiece_model": model,
        "srcdict": dictionary,
    }


def _preprocess(*arguments: str) -> None:
    # In a separate process, to keep the memory of this one small.
    command = [sys.executable, "-m", "roberta_small.preprocess", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise UserError(f"preprocess {arguments[0]}: {done.stderr.strip().splitlines()[-1]}")
