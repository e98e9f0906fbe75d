"""Text larger than memory: shards, and the start of a pre-training on them."""

from __future__ import annotations

import json
import math
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scale.memory import Watched, watch
from roberta_small.common.data_folder import shards_of

UPDATES = 20
VALID_EVERY = 5000
"""Documents per gigabyte: the size of the validation set is about the same for every size of text."""
BEGIN = re.compile(r"^(\S+ \S+) \| INFO \| fairseq_cli\.train \| Start iterating over samples", re.MULTILINE)


def measure(
    gigabytes: float, text: Path, model: Path, srcdict: Path, shard_gigabytes: float, folder: Path
) -> dict[str, Any]:
    """Write `gigabytes` of text, binarize and train some updates; returns seconds and bytes of each."""
    corpus, data = folder / "corpus.txt", folder / "data"
    grow(text, corpus, int(gigabytes * 1e9))
    shards = math.ceil(gigabytes / shard_gigabytes)
    binarized = watch(
        [
            sys.executable, "-m", "roberta_small.preprocess", "binarize", "--only-source",
            "--trainpref", str(corpus),
            "--sentencepiece-model", str(model), "--srcdict", str(srcdict), "--shards", str(shards),
            "--valid-every", str(2 + int(VALID_EVERY * gigabytes)), "--destdir", str(data),
        ],
        folder / "binarize.log",
    )  # fmt: skip
    text_bytes = corpus.stat().st_size
    corpus.unlink()
    counts = json.loads((data / "preprocess.json").read_text(encoding="utf-8"))["splits"]["train"]
    trained, started = start_of_training(data, folder)
    return {
        "text_bytes": text_bytes,
        "tokens": sum(part["tokens"] for part in counts.values()),
        "lines": sum(part["sentences"] for part in counts.values()),
        "shards": len(shards_of(data)),
        "binary_bytes": sum(path.stat().st_size for path in data.rglob("*.*") if path.is_file()),
        "binarize_seconds": binarized.seconds,
        "binarize_peak_bytes": binarized.peak_bytes,
        "start_seconds": started,
        "training_peak_bytes": trained.peak_bytes,
    }


def start_of_training(data: Path, folder: Path) -> tuple[Watched, float]:
    """A short pre-training, and the seconds from the command to its first batch."""
    out = folder / "run"
    began = datetime.now()
    trained = watch(
        [
            sys.executable, "-m", "roberta_small.experiments", "pretrain",
            "--data", str(data), "--out", str(out),
            "--device", "cpu", "--", "--max-update", str(UPDATES), "--total-num-update", str(UPDATES),
            "--warmup-updates", "1", "--save-interval-updates", "0",
        ],
        folder / "pretrain.log",
    )  # fmt: skip
    log = (out / "train.log").read_text(encoding="utf-8")
    first_batch = datetime.fromisoformat(BEGIN.search(log)[1])
    return trained, (first_batch - began).total_seconds()


def grow(text: Path, target: Path, size: int) -> None:
    """Write the documents of `text` repeatedly, each time in another order, until the file has `size` bytes
    and ends with a complete document."""
    documents = [document + b"\n\n" for document in text.read_bytes().split(b"\n\n") if document.strip()]
    lengths_D = np.array([len(document) for document in documents])
    random, written = np.random.default_rng(1), 0
    with target.open("wb") as stream:
        while written < size:
            order_D = random.permutation(len(documents))
            wanted = 1 + np.searchsorted(np.cumsum(lengths_D[order_D]), size - written)
            written += stream.write(b"".join(documents[number] for number in order_D[:wanted]))
