"""The files that belong to a checkpoint: dictionary, SentencePiece model, class names.

A run's manifest names its data folder, and the folder's `preprocess.json` the SentencePiece model. The
user may name others; each must be what the checkpoint was trained with, where a digest is recorded.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary

from common.data_folder import REPORT, dictionary_digest, read_report
from common.errors import UserError
from common.files import sha256
from fairseq_plugin.tasks.sentence_classification import class_names, load_dictionary

from .checkpoint import Checkpoint
from .runs import Run

logger = logging.getLogger(__name__)
DICTIONARY = "input0/dict.txt"
CLONE = Path(__file__).resolve().parents[1]

Place = str | os.PathLike[str] | None
"""A path that the user gives; None: what the run recorded."""


@dataclass(frozen=True)
class DataFolder:
    """A binarized folder as far as prediction needs it; it may be gone, then `exists` is False."""

    path: Path
    report: dict[str, Any] = field(default_factory=dict)
    """`preprocess.json`, or empty: fairseq-preprocess writes none."""

    @property
    def exists(self) -> bool:
        """Whether there is such a folder."""
        return self.path.is_dir()

    @property
    def dictionary(self) -> Path:
        """Of the text."""
        return self.path / DICTIONARY

    @property
    def pairs(self) -> bool:
        """Whether an example is two sentences."""
        return (self.path / "input1").is_dir()

    @property
    def normalize_apostrophes(self) -> bool:
        """As the text was read."""
        return bool(self.option("normalize_apostrophes"))

    def told(self, checkpoint: Path, normalize_apostrophes: bool) -> DataFolder:
        """The same with what the user says of apostrophes; where nobody says it, that is logged.

        Raises `UserError` where the report says otherwise.
        """
        known = self.option("normalize_apostrophes")
        if known is False and normalize_apostrophes:
            raise UserError(
                f"--normalize-apostrophes: {self.path / REPORT} says that the text was read as it stands; "
                "leave the flag out"
            )
        if known is None and not normalize_apostrophes:
            logger.warning(
                "%s: no %s says how its text was read; apostrophes are taken as they stand (else add "
                "--normalize-apostrophes, or name the data by --data)",
                checkpoint,
                REPORT,
            )
        told = {"normalize_apostrophes": bool(known) or normalize_apostrophes}
        return replace(self, report=self.report | {"options": self.report.get("options", {}) | told})

    def option(self, name: str) -> Any:
        """An option of `preprocess binarize`, None where it is not known."""
        return self.report.get("options", {}).get(name)

    def digest(self, path: str) -> str | None:
        """The recorded SHA-256 of a file that was read."""
        return self.report.get("sha256", {}).get(path)


def data_folder(run: Run, checkpoint: Checkpoint | None, given: Place = None) -> DataFolder:
    """The folder that the user, the manifest or the checkpoint names."""
    if given is not None:
        given = Path(given)
        if not given.is_dir():
            raise UserError(f"{given}: no such folder; --data is the binarized data of the run")
        return DataFolder(given, read_report(given))
    recorded = (run.manifest or {}).get("data", {}).get("path")
    recorded = recorded or (checkpoint.settings.get("data") if checkpoint else None)
    path = resolve(recorded or ".")
    return DataFolder(path, read_report(path) if path.is_dir() else {})


def resolve(recorded: str) -> Path:
    """A recorded path as it stands, or seen from the clone, in whose folder the commands are typed."""
    path = Path(recorded)
    return path if path.exists() or not (CLONE / path).exists() else CLONE / path


def dictionary_of(
    run: Run, checkpoint: Checkpoint, data: DataFolder, given: Place = None
) -> tuple[Dictionary, Path]:
    """The dictionary of the text, `<mask>` included, and its file; refused unless it is the checkpoint's."""
    path = Path(given or data.dictionary)
    if not path.is_file():
        raise UserError(
            f"{path}: no such file; name with --dict the one that {checkpoint.path} was trained with"
        )
    dictionary = load_dictionary(path)
    dictionary.add_symbol("<mask>")
    symbols = dictionary_digest(dictionary.symbols)
    recorded = (run.manifest or {}).get("data", {}).get("sha256", {}).get(DICTIONARY)
    if checkpoint.dictionary_sha256 is not None:
        same = symbols == checkpoint.dictionary_sha256
    else:
        rows = len(checkpoint.weights["encoder.sentence_encoder.embed_tokens.weight"])
        same = rows == len(dictionary) and (recorded is None or recorded == sha256(path))
    if not same:
        raise UserError(
            f"{path}: not the dictionary that {checkpoint.path} was trained with; name that one with --dict"
        )
    return dictionary, path


def sentencepiece_model_of(data: DataFolder, given: Place = None) -> Path:
    """The SentencePiece model; refused where it is not the one that the data were made with."""
    recorded = data.option("sentencepiece_model")
    if given is None and recorded is None:
        raise UserError(
            f"{data.path / REPORT}: does not name a SentencePiece model; name it with --sentencepiece-model"
        )
    path = Path(given or resolve(recorded))
    if not path.is_file():
        raise UserError(f"{path}: no such SentencePiece model; name it with --sentencepiece-model")
    digest = data.digest(recorded) if recorded else None
    if digest is not None and digest != sha256(path):
        raise UserError(
            f"{path}: not the SentencePiece model that {data.path} was made with (SHA-256 {digest[:12]}...); "
            "name that one with --sentencepiece-model"
        )
    return path


def class_names_of(checkpoint: Checkpoint, data: DataFolder) -> list[str]:
    """A name for each logit: as the checkpoint remembers them, else as the data folder has them."""
    names = checkpoint.class_names
    if names is None:
        path = data.path / "label" / "dict.txt"
        if not path.is_file():
            raise UserError(
                f"{checkpoint.path}: does not name its classes; give the data it was trained on with --data"
            )
        names = class_names(load_dictionary(path))
    if len(names) > checkpoint.classes:
        raise UserError(
            f"{data.path}: {len(names)} classes, but {checkpoint.path} has {checkpoint.classes}; "
            "give the data it was trained on with --data"
        )
    # --num-classes may have asked for more logits than there are labels.
    return [*names, *(f"unnamed{i}" for i in range(len(names), checkpoint.classes))]
