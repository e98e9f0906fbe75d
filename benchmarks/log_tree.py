"""A tree of TensorBoard logs of any size, as fairseq writes them, for `benchmarks.comparisons.logs`.

python -m benchmarks.log_tree --runs 200 FOLDER
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from roberta_small.analysis.read.tfrecord import crc32c, mask

INITS = ("pretrained", "random")
TRAIN_TAGS = (
    "loss", "nll_loss", "ppl", "accuracy", "wps", "ups", "wpb", "bsz", "lr", "gnorm", "clip",
    "train_wall", "wall",
)  # fmt: skip
VALID_TAGS = ("loss", "nll_loss", "ppl", "accuracy", "macro_f1", "mcc", "wps", "wpb", "bsz", "best_accuracy")
TAGS = {"train": TRAIN_TAGS, "train_inner": TRAIN_TAGS, "valid": VALID_TAGS, "test": VALID_TAGS}
STEPS = range(225, 225 * 41, 225)
SCALARS_PER_RUN = len(STEPS) * sum(map(len, TAGS.values()))
START = 1_700_000_000.0


def write_tree(root: Path, runs: int) -> list[Path]:
    """Write `runs` runs below `root`; returns their folders, `<root>/<init>/<seed>`."""
    folders = [root / INITS[number % 2] / str(1 + number // 2) for number in range(runs)]
    for number, folder in enumerate(folders):
        write_run(folder, number)
    return folders


def write_run(folder: Path, number: int, steps: range = STEPS) -> None:
    """The logs of one run, one folder per subset; `number` is the seed of the values."""
    random = np.random.default_rng(number)
    for subset, tags in TAGS.items():
        values_ST = random.uniform(0.0, 100.0, (len(steps), len(tags))).astype(np.float32)
        (folder / subset).mkdir(parents=True)
        path = folder / subset / "events.out.tfevents.1700000000.host.1.0"
        path.write_bytes(b"".join(map(_record, _events(tags, steps, values_ST))))


def _events(tags: tuple[str, ...], steps: range, values_ST: np.ndarray) -> Iterator[Event]:
    """One file: the version, then each tag at each step, tags together as fairseq logs them."""
    yield Event(wall_time=START, file_version="brain.Event:2")
    for number, (step, values_T) in enumerate(zip(steps, values_ST.tolist(), strict=True)):
        for tag, value in zip(tags, values_T, strict=True):
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            yield Event(wall_time=START + number + 0.123456, step=step, summary=summary)


def _record(event: Event) -> bytes:
    """The event in TFRecord's framing."""
    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    return length + _masked_crc(length) + data + _masked_crc(data)


def _masked_crc(data: bytes) -> bytes:
    return struct.pack("<I", mask(crc32c(data)))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.log_tree", description=__doc__.splitlines()[0]
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=200, help="default: %(default)s")
    options = parser.parse_args()
    write_tree(options.folder, options.runs)


if __name__ == "__main__":
    main()
