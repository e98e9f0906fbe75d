"""The process of a run of the method frozen: reads the vectors of the texts, fits a head, and writes the run.

    python -m roberta_small.experiments.methods.frozen.fit DEVICE PRECISION CHECKPOINT RUN DATA [flags]

The flags are those of fairseq-train. Features are centred and divided by their mean length, so that one range
of C suits all encoders; both are then part of the weights of the head.

The vectors are in DATA/../vectors/KEY/, where KEY depends on weights, pooling and precision. Files are named
after the SHA-256 of their content and have the vectors of some texts, by a checksum of their tokens.

N texts, C width of the encoder, K classes, or 1 for regression.
"""

from __future__ import annotations

import roberta_small.fairseq_plugin  # noqa: F401  first: it imports fairseq in less time

# isort: split
import copy
import hashlib
import io
import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.utils import set_torch_seed
from numpy.typing import NDArray
from omegaconf import OmegaConf

from roberta_small.common.errors import UNWRITABLE, UserError, report_errors
from roberta_small.common.files import atomic_open, atomic_write, sha256
from roberta_small.common.hardware import sizes_of
from roberta_small.common.label_kinds import Labels, Targets
from roberta_small.common.run import BEST_CHECKPOINT, write_thresholds
from roberta_small.eval.network import find_device
from roberta_small.eval.origin import DataFolder
from roberta_small.eval.precision import AUTO, BF16, FP32, INT8
from roberta_small.eval.texts import Ids, batches, limit_kernels, pad
from roberta_small.experiments.methods import MODEL, linear
from roberta_small.experiments.methods.linear import Linear
from roberta_small.experiments.progress import LOG_FORMAT, LOG_TIME
from roberta_small.experiments.recipe.fairseq_flags import configuration
from roberta_small.fairseq_plugin.checkpoints.initialization import load_initial
from roberta_small.fairseq_plugin.checkpoints.loading import bare_state
from roberta_small.fairseq_plugin.models import int8
from roberta_small.fairseq_plugin.tasks.datasets import load_numbers
from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask
from roberta_small.fairseq_plugin.training.curves import PRECISION_KEY
from roberta_small.fairseq_plugin.training.precision import computing, resolve
from roberta_small.fairseq_plugin.training.threads import LoadFollower

VERSION = 1
"""Of the vectors; to be raised when the same tokens give others."""
BLOCK = 256
"""Texts of a file of vectors, after which an interruption loses nothing."""


@dataclass(frozen=True)
class Encoder:
    """A pretrained encoder, and the texts that it reads."""

    checkpoint: Path
    precision: str
    """fp32, bf16 or int8."""
    device: torch.device
    cfg: Any
    """fairseq's configuration of the run."""
    task: SentenceClassificationTask

    @classmethod
    def of(cls, device: str, precision: str, checkpoint: str, words: Sequence[str]) -> Encoder:
        """The encoder of a checkpoint for `words`, DATA [flags]; raises `UserError` if they do not fit."""
        cfg = configuration(words, "fairseq-train")
        cfg.task.no_shuffle = True
        found = find_device(device)
        precision = resolve(AUTO, found) if precision == AUTO else precision
        return cls(Path(checkpoint), precision, found, cfg, SentenceClassificationTask.setup_task(cfg.task))

    @property
    def splits(self) -> list[str]:
        """train, valid and, if there is one, test."""
        return ["train", *self.cfg.dataset.valid_subset.split(",")]

    @cached_property
    def model(self) -> Any:
        """The classifier in evaluation mode, with a new head."""
        limit_kernels()
        set_torch_seed(1)  # of weights that the checkpoint lacks, which the classifier does not use
        model = self.task.build_model(self.cfg.model)
        load_initial(model, self.task, self.checkpoint)
        model.args.precision = BF16 if self.precision == BF16 else FP32
        return model.to(self.device).eval()

    @cached_property
    def cache(self) -> Path:
        """The folder of the vectors, beside that of the data."""
        identity = [VERSION, sha256(self.checkpoint), self.cfg.model.pooling, self.precision]
        key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        return Path(self.cfg.task.data).parent / "vectors" / key[:16]

    def rows(self, split: str) -> list[Ids]:
        """The ids of each text, as the encoder reads them."""
        dataset = self._dataset(split)
        return [dataset[i]["net_input.src_tokens"].numpy() for i in range(len(dataset))]

    def targets(self, split: str) -> Targets:
        """The labels, as in `common.label_kinds`."""
        kind = self.task.labels.kind
        if not kind.has_classes:
            return load_numbers(self.cfg.task.data, split)
        dataset = self._dataset(split)
        found = np.array([dataset[i]["target"].numpy() for i in range(len(dataset))])
        return found.reshape(-1).astype(np.int64) if kind.exclusive else found > 0

    def _dataset(self, split: str) -> Any:
        return self.task.datasets.get(split) or self.task.load_dataset(split)

    def vectors(self) -> dict[str, NDArray[np.float32]]:
        """The vectors (N, C) of the texts of each split: kept ones, and those of texts that are read now."""
        rows = {split: self.rows(split) for split in self.splits}
        keys = {split: [hashlib.sha256(row.tobytes()).digest() for row in own] for split, own in rows.items()}
        known = self._kept()
        by_key = dict(zip(chain(*keys.values()), chain(*rows.values()), strict=True))
        missing = [key for key in by_key if key not in known]
        total, done, start = sum(len(by_key[key]) for key in missing), 0, time.monotonic()
        for first in range(0, len(missing), BLOCK):
            block = missing[first : first + BLOCK]
            new = dict(zip(block, self.read([by_key[key] for key in block]), strict=True))
            self._keep(new)
            known |= new
            done, seconds = done + sum(len(by_key[key]) for key in block), time.monotonic() - start
            # As fairseq-train logs its progress.
            record = {"epoch": 1, "update": done / total, "wps": done / seconds, "wall": seconds}
            logging.getLogger("train_inner").info(json.dumps(record))
        return {split: np.stack([known[key] for key in own]) for split, own in keys.items()}

    def read(self, rows: list[Ids]) -> NDArray[np.float32]:
        """The vectors (N, C) of some texts."""
        encoder, load, found_NC = self._network.encoder.sentence_encoder, self._load, None
        for batch in batches(np.array([*map(len, rows)]), sizes_of(self.device.type).prediction_tokens):
            if load is not None:
                load.update()
            tokens_BL = torch.from_numpy(pad([rows[i] for i in batch])).to(self.device)
            with torch.inference_mode(), computing(self._network, self.device):
                vectors_BC = encoder.pooled(tokens_BL, self.cfg.model.pooling).float().cpu().numpy()
            if found_NC is None:
                found_NC = np.empty((len(rows), vectors_BC.shape[1]), dtype=np.float32)
            found_NC[batch] = vectors_BC
        assert found_NC is not None
        return found_NC

    @cached_property
    def _load(self) -> LoadFollower | None:
        return LoadFollower() if self.device.type == "cpu" else None

    @cached_property
    def _network(self) -> Any:
        """The model that reads: with int8 a copy, because the run keeps the weights."""
        if self.precision != INT8:
            return self.model
        network = copy.deepcopy(self.model)
        int8.quantize(network.encoder.sentence_encoder)
        return network

    def _kept(self) -> dict[bytes, NDArray[np.float32]]:
        """The kept vectors by the checksum of their tokens; a file with another checksum is removed."""
        known: dict[bytes, NDArray[np.float32]] = {}
        for path in sorted(self.cache.glob("*.npz")):
            if sha256(path) != path.stem:
                print(f"{path}: does not have its checksum; its texts are read again", flush=True)
                path.unlink(missing_ok=True)
                continue
            with np.load(path, allow_pickle=False) as found:
                known |= zip((row.tobytes() for row in found["keys"]), found["vectors"], strict=True)
        return known

    def _keep(self, vectors: dict[bytes, NDArray[np.float32]]) -> None:
        """Write a file of vectors."""
        stream = io.BytesIO()
        keys = np.frombuffer(b"".join(vectors), dtype=np.uint8).reshape(len(vectors), -1)
        np.savez(stream, keys=keys, vectors=np.stack(list(vectors.values())))
        content = stream.getvalue()
        try:
            self.cache.mkdir(parents=True, exist_ok=True)
            atomic_write(self.cache / f"{hashlib.sha256(content).hexdigest()}.npz", content)
        except OSError as error:  # such as a folder of data that others share
            if error.errno not in UNWRITABLE:
                raise
            print(f"{self.cache}: cannot be written; the vectors are not kept", flush=True)


def require_examples(targets_N: Targets, labels: Labels, data: str) -> None:
    """Raise `UserError` for a class of a dictionary, as of fairseq-preprocess, without a training example."""
    if labels.kind.exclusive and len(missing := set(range(labels.size)) - set(targets_N.tolist())):
        raise UserError(
            f"{data}: no training example of the class '{labels.classes[min(missing)]}'; add some, or prepare"
            " the data without it"
        )


def fit(encoder: Encoder) -> tuple[Linear, dict[str, NDArray[np.float32]], dict[str, Targets]]:
    """The linear model of the vectors as they are, the vectors, and the targets of all splits."""
    targets = {split: encoder.targets(split) for split in encoder.splits}
    require_examples(targets["train"], encoder.task.labels, encoder.cfg.task.data)
    vectors = encoder.vectors()
    mean_C = vectors["train"].mean(axis=0, dtype=np.float64)
    length = float(np.sqrt(np.square(vectors["train"] - mean_C).sum(axis=1).mean())) or 1.0
    features = {split: (vectors_NC - mean_C) / length for split, vectors_NC in vectors.items()}
    found = linear.fit(features, targets, encoder.task.labels, linear.LOSS)
    return found.of_inputs(mean_C, length), vectors, targets


def write_run(folder: Path, encoder: Encoder) -> Linear:
    """Fit, and write event files, predictions and the checkpoint into a run folder."""
    fitted, vectors, targets = fit(encoder)
    labels, data = fitted.labels, DataFolder.given(encoder.cfg.task.data)
    for split, vectors_NC in vectors.items():
        outputs_NK = fitted.outputs(vectors_NC.astype(np.float64))
        linear.write_split(folder, split, labels, targets[split], outputs_NK, data.keys(split))
    atomic_write(folder / MODEL, json.dumps(fitted.record(), indent=2) + "\n")
    model, precision = encoder.model.cpu(), FP32 if encoder.precision == INT8 else encoder.precision
    weights_KC, bias_K = fitted.rows
    head = model.classification_heads[encoder.cfg.task.classification_head_name]
    with torch.no_grad():
        head.out_proj.weight.copy_(torch.from_numpy(weights_KC))
        head.out_proj.bias.copy_(torch.from_numpy(bias_K))
    cfg = OmegaConf.to_container(encoder.cfg, resolve=True, enum_to_str=True)
    extra = encoder.task.get_checkpoint_dict() | {PRECISION_KEY: {encoder.device.type: precision}}
    with atomic_open(folder / BEST_CHECKPOINT, "wb") as stream:
        torch.save(bare_state(dict(model.state_dict()), cfg, extra), stream)
    if labels.thresholds:
        write_thresholds(folder, dict(zip(labels.classes, labels.thresholds, strict=True)))
    return fitted


@report_errors
def main(words: Sequence[str] | None = None) -> None:
    """Fit and write one run."""
    device, precision, checkpoint, run, *others = sys.argv[1:] if words is None else words
    logging.basicConfig(format=LOG_FORMAT, datefmt=LOG_TIME, level=logging.INFO, stream=sys.stdout)
    write_run(Path(run), Encoder.of(device, precision, checkpoint, others)).print_scores()


if __name__ == "__main__":
    sys.exit(main())
