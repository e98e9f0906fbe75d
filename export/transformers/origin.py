"""A checkpoint with all that belongs to it: dictionary, SentencePiece model, class names, how text becomes
rows.

Files are where the run recorded them unless the user names others.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from common.errors import UserError
from eval.loading.checkpoint import Checkpoint, read_checkpoint
from eval.loading.inputs import Ids, InputFormat
from eval.loading.runs import RunCheckpoint, find_run
from eval.loading.training_files import (
    DataFolder,
    OptionalPath,
    find_data_folder,
    find_dictionary,
    find_sentencepiece_model,
    read_class_names,
)
from fairseq_plugin.tasks.sentence_classification import load_dictionary
from preprocess.readers.lines import Block
from preprocess.tokenizer import Encoder

from .config import BOS, EOS
from .tokenizer import MASK, TextFormat
from .weights import Source, read_source

Text = str | tuple[str, str]
"""A sentence, or the two of a pair."""


@dataclass(frozen=True)
class Origin:
    """What a from_pretrained folder is made of."""

    run: RunCheckpoint
    source: Source
    data: DataFolder
    """May be gone, then `exists` is False."""
    dictionary: Path
    sentencepiece_model: Path
    checkpoint: Checkpoint | None
    """The classifier's settings; None for a masked language model."""
    classes: list[str] | None
    """In the order of the logits; None for a masked language model."""

    @property
    def input_format(self) -> InputFormat:
        """From the ids of a text to a row, as in training; a masked language model reads `<s> text </s>`."""
        if self.checkpoint is not None:
            return InputFormat.from_checkpoint(self.checkpoint)
        longest = self.source.arguments.max_positions
        return InputFormat(BOS, None, max_positions=longest, shorten=True, keep_eos=True)

    @property
    def text_format(self) -> TextFormat:
        """The same for the tokenizer."""
        return TextFormat(
            longest=self.input_format.max_positions,
            keep_eos=self.input_format.keep_eos,
            normalize_apostrophes=self.data.normalize_apostrophes,
            plain_text=self.checkpoint is not None,
        )

    @property
    def pairs(self) -> bool:
        """Whether an example is two sentences."""
        return self.checkpoint is not None and self.data.pairs

    @cached_property
    def encoder(self) -> Encoder:
        """Text to ids as the data were binarized."""
        return Encoder(
            str(self.sentencepiece_model),
            str(self.dictionary),
            normalize_apostrophes=self.data.normalize_apostrophes,
        )

    def encode(self, texts: Sequence[Text]) -> list[Ids]:
        """What the network reads of each text, (tokens,), as in training."""
        columns = list(zip(*texts, strict=True)) if self.pairs else [texts]
        parts = [self._encode_column([str(text) for text in column]) for column in columns]
        rows = enumerate(zip(*parts, strict=True), start=1)
        return [self.input_format.assemble(part, f"text {number}") for number, part in rows]

    def _encode_column(self, texts: list[str]) -> list[Ids]:
        content = "\n".join(text.replace("\n", " ") for text in texts).encode() + b"\n"
        encoded = self.encoder(Block("text", 1, content, len(content)))
        return np.split(encoded.ids.astype(np.int64), np.cumsum(encoded.sizes)[:-1])


def find_origin(
    path: str | os.PathLike[str],
    *,
    data: OptionalPath = None,
    dictionary: OptionalPath = None,
    sentencepiece_model: OptionalPath = None,
    normalize_apostrophes: bool = False,
) -> Origin:
    """The origin of a run folder (its best checkpoint) or of a checkpoint file.

    How text was read is what the data's report says; `normalize_apostrophes` says it where there is none, and
    where nobody says it, that is logged.

    Raises `UserError` for whatever is missing or does not belong to the checkpoint, and for a classifier
    whose rows are not `<s> sentence </s>` or `<s> sentence </s> </s> sentence </s>`.
    """
    run = find_run(path)
    source = read_source(run.checkpoint)
    if source.head is None:
        folder = find_data_folder(run, None, data).with_apostrophes(run.checkpoint, normalize_apostrophes)
        found = _masked_lm_dictionary(source, folder, dictionary)
        model = find_sentencepiece_model(folder, sentencepiece_model)
        return Origin(run, source, folder, found, model, checkpoint=None, classes=None)
    checkpoint = read_checkpoint(run.checkpoint)
    folder = find_data_folder(run, checkpoint, data).with_apostrophes(run.checkpoint, normalize_apostrophes)
    _check_rows(checkpoint, pairs=folder.pairs)
    _, found = find_dictionary(run, checkpoint, folder, dictionary)
    model = find_sentencepiece_model(folder, sentencepiece_model)
    return Origin(run, source, folder, found, model, checkpoint, read_class_names(checkpoint, folder))


def _check_rows(checkpoint: Checkpoint, *, pairs: bool) -> None:
    config = checkpoint.task_config()
    if config.init_token != BOS:
        raise UserError(
            f"{checkpoint.path}: trained with --init-token {config.init_token}; Transformers' RoBERTa begins "
            f"with <s>, so only checkpoints of --init-token {BOS} can be converted"
        )
    if pairs and config.separator_token != EOS:
        raise UserError(
            f"{checkpoint.path}: trained on pairs with --separator-token {config.separator_token}; "
            f"Transformers' RoBERTa has </s> between them, so only --separator-token {EOS} can be converted"
        )


def _masked_lm_dictionary(source: Source, folder: DataFolder, given: OptionalPath) -> Path:
    """The named one, else the one beside the checkpoint, else that of the data; refused if it does not
    fit."""
    places = [source.path.parent / "dict.txt", folder.path / "dict.txt", folder.dictionary]
    places = [Path(given)] if given is not None else places
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise UserError(f"{places[0]}: no such file; name the dictionary it was trained with by --dict")
    dictionary = load_dictionary(path)
    dictionary.add_symbol(MASK)
    if len(dictionary) != source.vocabulary:
        raise UserError(
            f"{path}: {len(dictionary):,} types with <mask>, but {source.path} has {source.vocabulary:,}; "
            "name the dictionary it was trained with by --dict"
        )
    return path
