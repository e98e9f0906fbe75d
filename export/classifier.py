"""Load a classifier to export: from a fairseq run or checkpoint, or from a from_pretrained folder."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from fairseq.data import Dictionary
from transformers import PreTrainedModel

from roberta_small.common.data_folder import read_report
from roberta_small.common.errors import UserError
from roberta_small.eval.graph import Metadata
from roberta_small.eval.loading.checkpoint import Checkpoint, head_weight, read_checkpoint
from roberta_small.eval.loading.inputs import Examples, read_split
from roberta_small.eval.loading.runs import RunCheckpoint, find_run
from roberta_small.eval.loading.training_files import (
    DataFolder,
    OptionalPath,
    find_data_folder,
    find_dictionary,
    find_tokenizer,
    read_class_names,
)
from roberta_small.eval.texts import InputFormat
from roberta_small.export.transformers.folder import class_names, is_classifier, load_folder, read_carried
from roberta_small.export.transformers.origin import MASK
from roberta_small.export.transformers.roberta import PAD, configured_ids, converted, read_source, special_ids
from roberta_small.fairseq_plugin.tasks.sentence_classification import load_dictionary

ATTENTION = "eager"
"""Attention implementation that consists of plain matrix products, for ONNX."""


@dataclass(frozen=True)
class Classifier:
    """A Transformers model with what is needed to evaluate it."""

    model: PreTrainedModel
    """In evaluation mode, with eager attention."""
    classes: list[str]
    checkpoint: Checkpoint
    """Settings of fairseq's task, which determine the input format."""
    run: RunCheckpoint | None
    """None for a from_pretrained folder."""
    data: DataFolder | None
    """The training data; None if it is not recorded."""

    @property
    def longest(self) -> int:
        """Maximum input length in tokens."""
        return self.model.config.max_position_embeddings - (PAD + 1)

    def metadata(self) -> Metadata:
        """What text needs; raises `UserError` with the reason where it cannot be stored in a graph."""
        if self.run is None or self.data is None:
            raise UserError(f"{self.checkpoint.path}: a folder of Transformers, not a run")
        tokenizer = find_tokenizer(self.run, self.data)
        _, dictionary = find_dictionary(self.run, self.checkpoint, self.data)
        if tokenizer.model is None:
            raise UserError(f"{tokenizer.transformers}: a Transformers tokenizer, not a SentencePiece model")
        return Metadata(
            self.classes,
            InputFormat.from_checkpoint(self.checkpoint),
            self.data.pairs,
            self.data.normalize_apostrophes,
            tokenizer.model.read_bytes(),
            dictionary.read_text(encoding="utf-8"),
        )

    def examples(self, data: OptionalPath, split: str) -> Examples | None:
        """A split of `data`, by default of the training data; None if these are not available.

        Raises `UserError` if the data are malformed or were binarized with another dictionary.
        """
        if data is not None and not Path(data).is_dir():
            raise UserError(f"{data}: no such folder; pass a data folder with --data")
        folder = self.data if data is None else DataFolder(Path(data), read_report(Path(data)))
        if folder is None or not folder.dictionary.is_file():
            if data is not None:
                raise UserError(f"{folder.dictionary}: no such file; pass a data folder with --data")
            return None
        return read_split(self.checkpoint, self._dictionary(folder), self.classes, folder.path, split)

    def _dictionary(self, folder: DataFolder) -> Dictionary:
        if self.run is not None:
            return find_dictionary(self.run, self.checkpoint, folder)[0]
        path = self.checkpoint.path / "dict.txt"
        if not path.is_file():
            raise UserError(f"{path}: no such file; --data requires this dictionary of the model")
        own = load_dictionary(path)
        found = load_dictionary(folder.dictionary)
        if own.symbols != found.symbols:
            raise UserError(
                f"{folder.dictionary}: not the dictionary of {self.checkpoint.path}; write the "
                f"data folder again with --dict {self.checkpoint.path / 'dict.txt'}"
            )
        found.add_symbol(MASK)
        return found


def find_classifier(path: str | os.PathLike[str]) -> Classifier:
    """Load the classifier of a run folder, a checkpoint or a from_pretrained folder.

    Raises `UserError` for any other path, and for a masked language model.
    """
    if (Path(path) / "config.json").is_file():
        return _of_folder(Path(path))
    run = find_run(path)
    checkpoint = read_checkpoint(run.checkpoint)
    data = find_data_folder(run, checkpoint)
    classes = read_class_names(checkpoint, data)
    special = special_ids(checkpoint.task_config())
    model = converted(read_source(run.checkpoint), classes, special)
    model.set_attn_implementation(ATTENTION)
    return Classifier(model, classes, checkpoint, run, data)


def _of_folder(folder: Path) -> Classifier:
    model = load_folder(folder, attention=ATTENTION)
    if not is_classifier(model):
        raise UserError(f"{folder}: a masked language model, not a classifier; fine-tune it first")
    carried = read_carried(folder)
    init, separator = configured_ids(model.config)
    head = carried.head or "sentence_classification_head"
    settings = {
        "_name": "sentence_classification",
        "classification_head_name": head,
        "init_token": init,
        "separator_token": separator,
        "max_positions": model.config.max_position_embeddings - (PAD + 1),
        "shorten_method": carried.task.get("shorten_method", "truncate"),
        "keep_eos": carried.task.get("keep_eos", True),
        "seed": 1,
    }
    classes = class_names(model)
    checkpoint = Checkpoint(
        path=folder,
        arguments=argparse.Namespace(),
        settings=settings,
        weights={head_weight(head): model.classifier.out_proj.weight},
        dictionary_sha256=None,
        class_names=classes,
    )
    return Classifier(model, classes, checkpoint, run=None, data=None)
