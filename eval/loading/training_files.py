"""The files that a checkpoint was trained with: data folder, dictionary, SentencePiece model, class names.

By default, the data folder is the one recorded in the run's manifest, and the tokenizer the one recorded in
that folder's `preprocess.json`. Where there are none, dictionary and tokenizer are looked for beside the
checkpoint, where `python -m export fairseq` writes them. Files given instead must have the recorded
checksums. Neither torch nor fairseq is imported before a dictionary is read.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_small.common.data_folder import REPORT, dictionary_digest, read_report
from roberta_small.common.errors import UserError
from roberta_small.common.files import ROOT, sha256
from roberta_small.eval.loading.runs import RunCheckpoint
from roberta_small.preprocess import dictionary as fairseq_dictionary
from roberta_small.preprocess.tokenizer import Encoder, TextEncoder, load_in_advance
from roberta_small.preprocess.tokenizer_choice import FOLDER as TOKENIZER
from roberta_small.preprocess.tokenizer_choice import TRANSFORMERS, Located, TransformersEncoder, beside

if TYPE_CHECKING:
    from fairseq.data import Dictionary

    from roberta_small.eval.loading.checkpoint import Checkpoint

logger = logging.getLogger(__name__)
DICTIONARY = "input0/dict.txt"
BESIDE = "dict.txt"
"""The dictionary beside a checkpoint."""

OptionalPath = str | os.PathLike[str] | None
"""A path given by the user, or None for the recorded one."""


@dataclass(frozen=True)
class DataFolder:
    """A binarized data folder, which may no longer exist."""

    path: Path
    report: dict[str, Any] = field(default_factory=dict)
    """Content of `preprocess.json`; empty for data of fairseq-preprocess."""

    @property
    def exists(self) -> bool:
        """Whether the folder exists."""
        return self.path.is_dir()

    @property
    def dictionary(self) -> Path:
        """The dictionary of the text."""
        return self.path / DICTIONARY

    @property
    def pairs(self) -> bool:
        """Whether an example is two sentences."""
        return (self.path / "input1").is_dir()

    @property
    def normalize_apostrophes(self) -> bool:
        """Whether typographic apostrophes were replaced."""
        return bool(self.option("normalize_apostrophes"))

    def with_apostrophes(self, checkpoint: Path, normalize_apostrophes: bool) -> DataFolder:
        """The same folder with the user's choice; logs a warning if neither it nor the report decides.

        Raises `UserError` if the option contradicts the report.
        """
        known = self.option("normalize_apostrophes")
        if known is False and normalize_apostrophes:
            raise UserError(
                f"--normalize-apostrophes: the data were written without apostrophe normalization "
                f"({self.path / REPORT}); omit the option"
            )
        if known is None and not normalize_apostrophes:
            logger.warning(
                "%s: no %s records whether apostrophes were normalized, so they are kept; to change this, "
                "add --normalize-apostrophes or pass the data with --data",
                checkpoint,
                REPORT,
            )
        option = {"normalize_apostrophes": bool(known) or normalize_apostrophes}
        return replace(self, report=self.report | {"options": self.report.get("options", {}) | option})

    def option(self, name: str) -> Any:
        """An option of `preprocess binarize`; None if unknown."""
        return self.report.get("options", {}).get(name)

    def digest(self, path: str) -> str | None:
        """The recorded SHA-256 of an input file of `preprocess binarize`."""
        return self.report.get("sha256", {}).get(path)


def find_data_folder(
    run: RunCheckpoint, checkpoint: Checkpoint | None, given: OptionalPath = None
) -> DataFolder:
    """The folder given by the user, else the one in the manifest, else the one in the checkpoint."""
    if given is not None:
        given = Path(given)
        if not given.is_dir():
            raise UserError(f"{given}: no such folder; pass the data folder of the run with --data")
        return DataFolder(given, read_report(given))
    recorded = (run.manifest or {}).get("data", {}).get("path")
    recorded = recorded or (checkpoint.settings.get("data") if checkpoint else None)
    path = resolve_recorded(recorded or ".")
    return DataFolder(path, read_report(path) if path.is_dir() else {})


def resolve_recorded(recorded: str) -> Path:
    """A recorded path, relative to the working directory, or to the clone if it exists only there."""
    path = Path(recorded)
    return path if path.exists() or not (ROOT / path).exists() else ROOT / path


def find_dictionary(
    run: RunCheckpoint, checkpoint: Checkpoint, data: DataFolder, given: OptionalPath = None
) -> tuple[Dictionary, Path]:
    """The dictionary of the text, including `<mask>`, and its file.

    It is the given one, else that of the data, else the one beside the checkpoint. Raises `UserError` if it
    is not the dictionary of training.
    """
    from roberta_small.fairseq_plugin.tasks.sentence_classification import load_dictionary

    path = Path(given or data.dictionary)
    if given is None and not path.is_file() and (run.folder / BESIDE).is_file():
        path = run.folder / BESIDE
    if not path.is_file():
        raise UserError(f"{path}: no such file; pass the dictionary of {checkpoint.path} with --dict")
    dictionary = load_dictionary(path)
    dictionary.add_symbol("<mask>")
    recorded = (run.manifest or {}).get("data", {}).get("sha256", {}).get(DICTIONARY)
    if checkpoint.dictionary_sha256 is not None:
        same = dictionary_digest(dictionary.symbols) == checkpoint.dictionary_sha256
    else:
        rows = len(checkpoint.weights["encoder.sentence_encoder.embed_tokens.weight"])
        same = rows == len(dictionary) and (recorded is None or recorded == sha256(path))
    if not same:
        raise UserError(f"{path}: not the dictionary of {checkpoint.path}; pass that one with --dict")
    return dictionary, path


def find_encoder(
    run: RunCheckpoint, data: DataFolder, dictionary: Path, sentencepiece_model: OptionalPath = None
) -> TextEncoder:
    """The encoder that the data were binarized with (see `find_tokenizer`).

    Raises `UserError` as `find_tokenizer`, and where the tokenizer cannot be loaded or does not fit the
    dictionary.
    """
    return load_encoder(find_tokenizer(run, data, sentencepiece_model), data, dictionary)


def load_tokenizer_in_advance(
    run: RunCheckpoint, data: OptionalPath = None, sentencepiece_model: OptionalPath = None
) -> None:
    """Start loading the SentencePiece model of a later `find_encoder`, while torch and fairseq are imported.

    Without effect where only the checkpoint names the data; errors are left to `find_encoder`.
    """
    with contextlib.suppress(UserError, OSError):
        model = find_tokenizer(run, find_data_folder(run, None, data), sentencepiece_model).model
        if model is not None:
            load_in_advance(str(model))


def find_tokenizer(run: RunCheckpoint, data: DataFolder, sentencepiece_model: OptionalPath = None) -> Located:
    """The given SentencePiece model, else the tokenizer of the data, else the one beside the checkpoint.

    Raises `UserError` as `find_sentencepiece_model`.
    """
    if sentencepiece_model is None:
        if data.report.get("tokenizer", {}).get("kind") == TRANSFORMERS:
            return Located(transformers=str(data.path / TOKENIZER))
        if data.option("sentencepiece_model") is None and (found := beside(run.folder)) is not None:
            return found
    return Located(model=find_sentencepiece_model(data, sentencepiece_model))


def load_encoder(tokenizer: Located, data: DataFolder, dictionary: Path) -> TextEncoder:
    """The encoder of a tokenizer; raises `UserError` if its ids are not those of the dictionary."""
    how = {"normalize_apostrophes": data.normalize_apostrophes}
    if tokenizer.model is not None:
        return Encoder.from_files(str(tokenizer.model), str(dictionary), **how)
    encoder = TransformersEncoder(tokenizer.transformers, **how)
    if encoder.dictionary.symbols != fairseq_dictionary.load(str(dictionary)).symbols:
        raise UserError(
            f"{dictionary}: not the vocabulary of the tokenizer {tokenizer.transformers}; pass the data of "
            "the run with --data, or the tokenizer's own dictionary with --dict"
        )
    return encoder


def find_sentencepiece_model(data: DataFolder, given: OptionalPath = None) -> Path:
    """The SentencePiece model; raises `UserError` if it is not the one of the data."""
    recorded = data.option("sentencepiece_model")
    if given is None and recorded is None:
        raise UserError(
            f"{data.path / REPORT}: no SentencePiece model is recorded; pass --sentencepiece-model"
        )
    beside = data.path / (recorded or "")  # in a folder of `preprocess dataset`
    path = Path(given or (beside if recorded and beside.is_file() else resolve_recorded(recorded)))
    if not path.is_file():
        raise UserError(f"{path}: no such SentencePiece model; pass --sentencepiece-model")
    digest = (data.digest(recorded) or data.report.get("files", {}).get(recorded)) if recorded else None
    if digest is not None and digest != sha256(path):
        raise UserError(
            f"{path}: not the SentencePiece model of {data.path} (SHA-256 {digest[:12]}...); "
            "pass that one with --sentencepiece-model"
        )
    return path


def read_class_names(checkpoint: Checkpoint, data: DataFolder) -> list[str]:
    """A name for each logit: from the checkpoint, else from the data folder."""
    names = checkpoint.class_names
    if names is None:
        from roberta_small.fairseq_plugin.tasks.sentence_classification import class_names, load_dictionary

        path = data.path / "label" / "dict.txt"
        if not path.is_file():
            raise UserError(f"{checkpoint.path}: records no class names; pass the training data with --data")
        names = class_names(load_dictionary(path))
    if len(names) > checkpoint.classes:
        raise UserError(
            f"{data.path}: {len(names)} classes, but {checkpoint.path} has {checkpoint.classes}; "
            "pass the training data with --data"
        )
    # --num-classes may exceed the number of labels.
    return [*names, *(f"unnamed{i}" for i in range(len(names), checkpoint.classes))]
