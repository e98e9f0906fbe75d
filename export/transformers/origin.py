"""A fairseq checkpoint with dictionary, tokenizer, class names and input format.

Files are those that the run recorded, unless the user passes others.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from roberta_small.common.errors import UserError
from roberta_small.eval.loading.checkpoint import Checkpoint, read_checkpoint
from roberta_small.eval.loading.runs import RunCheckpoint, find_run
from roberta_small.eval.loading.training_files import (
    DataFolder,
    OptionalPath,
    find_data_folder,
    find_dictionary,
    find_tokenizer,
    load_encoder,
    read_class_names,
)
from roberta_small.eval.texts import Ids, InputFormat
from roberta_small.export.transformers.roberta import BOS, EOS, Source, Special, read_source, special_ids
from roberta_small.fairseq_plugin.tasks.sentence_classification import load_dictionary
from roberta_small.preprocess.readers.lines import Block
from roberta_small.preprocess.tokenizer import TextEncoder
from roberta_small.preprocess.tokenizer_choice import Located, TransformersEncoder

MASK = "<mask>"
Text = str | tuple[str, str]
"""A sentence, or a pair of sentences."""


@dataclass(frozen=True)
class TextFormat:
    """How a tokenizer converts text to ids."""

    longest: int
    """Maximum number of tokens."""
    keep_eos: bool = False
    """Whether a truncated text ends in `</s>`."""
    normalize_apostrophes: bool = False
    plain_text: bool = True
    """Whether `<mask>`, `</s>` and so on in a text are ordinary text; False for a masked language model."""


@dataclass(frozen=True)
class Origin:
    """A checkpoint with the files that are needed to export it."""

    run: RunCheckpoint
    source: Source
    data: DataFolder
    """Its `exists` is False if the folder is no longer there."""
    dictionary: Path
    tokenizer: Located
    """A SentencePiece model, or the folder of a Transformers tokenizer."""
    checkpoint: Checkpoint | None
    """Settings of a classifier; None for a masked language model."""
    classes: list[str] | None
    """Class names in the order of the logits; None for a masked language model."""

    @property
    def input_format(self) -> InputFormat:
        """How training makes an input from ids; `<s> text </s>` for a masked language model."""
        if self.checkpoint is not None:
            return InputFormat.from_checkpoint(self.checkpoint)
        longest, (init, separator) = self.source.arguments.max_positions, self.special
        return InputFormat(init, separator, max_positions=longest, shorten=True, keep_eos=True)

    @property
    def sentencepiece_model(self) -> Path | None:
        """The SentencePiece model; None for a Transformers tokenizer."""
        return self.tokenizer.model

    @property
    def special(self) -> Special:
        """Ids of the tokens before and after a text."""
        if self.checkpoint is not None:
            return special_ids(self.checkpoint.task_config())
        return _own_special(self.encoder)

    @property
    def text_format(self) -> TextFormat:
        """The same format for the tokenizer."""
        return TextFormat(
            longest=self.input_format.max_positions,
            keep_eos=self.input_format.keep_eos,
            normalize_apostrophes=self.data.normalize_apostrophes,
            plain_text=self.checkpoint is not None,
        )

    @property
    def pairs(self) -> bool:
        """Whether an example is a pair of sentences."""
        return self.checkpoint is not None and self.data.pairs

    @cached_property
    def encoder(self) -> TextEncoder:
        """The encoder with which the data were binarized."""
        return load_encoder(self.tokenizer, self.data, self.dictionary)

    def encode(self, texts: Sequence[Text]) -> list[Ids]:
        """Input ids (L,) of each text, as in training."""
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
    """Find the files of a run folder (its best checkpoint) or of a checkpoint file.

    preprocess.json of the data records whether apostrophes were normalized. If there is no such file,
    `normalize_apostrophes` applies; if that is False too, a warning is logged.

    Raises `UserError` if a file is missing or does not belong to the checkpoint, for a classifier whose
    inputs are not `<s> sentence </s>` or `<s> sentence </s> </s> sentence </s>`, and for normalized
    apostrophes with a Transformers tokenizer, which cannot express them.
    """
    run = find_run(path)
    source = read_source(run.checkpoint)
    checkpoint = None if source.head is None else read_checkpoint(run.checkpoint)
    folder = find_data_folder(run, checkpoint, data)
    tokenizer = find_tokenizer(run, folder, sentencepiece_model)
    if tokenizer.model is not None or normalize_apostrophes:
        folder = folder.with_apostrophes(run.checkpoint, normalize_apostrophes)
    if tokenizer.model is None and folder.normalize_apostrophes:
        raise UserError(
            f"{run.checkpoint}: trained on text with normalized apostrophes, which a Transformers tokenizer "
            "cannot normalize; prepare the data without --normalize-apostrophes to export the model"
        )
    if checkpoint is None:
        found = _masked_lm_dictionary(source, folder, dictionary)
        return Origin(run, source, folder, found, tokenizer, checkpoint=None, classes=None)
    _, found = find_dictionary(run, checkpoint, folder, dictionary)
    classes = read_class_names(checkpoint, folder)
    origin = Origin(run, source, folder, found, tokenizer, checkpoint, classes)
    _check_special_tokens(origin)
    return origin


def _own_special(encoder: TextEncoder) -> Special:
    """Ids of `<s>` and `</s>` in the tokenizer."""
    if isinstance(encoder, TransformersEncoder):
        return encoder.init_token, encoder.separator_token
    return BOS, EOS


def _check_special_tokens(origin: Origin) -> None:
    config, path = origin.checkpoint.task_config(), origin.checkpoint.path
    init, separator = _own_special(origin.encoder)
    if config.init_token != init:
        raise UserError(
            f"{path}: trained with --init-token {config.init_token}; the tokenizer in Transformers starts "
            f"with <s>, so only checkpoints trained with --init-token {init} can be converted"
        )
    if origin.pairs and config.separator_token != separator:
        raise UserError(
            f"{path}: trained on pairs with --separator-token {config.separator_token}; the tokenizer in "
            f"Transformers separates them by </s>, so only --separator-token {separator} can be converted"
        )
    if config.keep_eos and config.separator_token not in (None, separator):
        raise UserError(
            f"{path}: trained with --keep-eos and --separator-token {config.separator_token}; the "
            f"tokenizer in Transformers ends texts with </s>, so only --separator-token {separator} can be "
            "converted"
        )


def _masked_lm_dictionary(source: Source, folder: DataFolder, given: OptionalPath) -> Path:
    """The given dictionary, or the one beside the checkpoint, or that of the data, if its size matches."""
    places = [source.path.parent / "dict.txt", folder.path / "dict.txt", folder.dictionary]
    places = [Path(given)] if given is not None else places
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise UserError(f"{places[0]}: no such file; pass the dictionary of the checkpoint with --dict")
    dictionary = load_dictionary(path)
    dictionary.add_symbol(MASK)
    if len(dictionary) != source.vocabulary:
        raise UserError(
            f"{path}: {len(dictionary):,} entries with <mask>, but {source.path} has {source.vocabulary:,}; "
            "pass the dictionary of the checkpoint with --dict"
        )
    return path
