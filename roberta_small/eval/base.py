"""`Model`: a trained model with everything that belongs to it; `eval.model` opens one.

By default, the data folder is the one recorded in the run's manifest or in the checkpoint, and the tokenizer
the one recorded in that folder's `preprocess.json`. Where there are none, dictionary and tokenizer are looked
for beside the checkpoint, where `roberta-small export fairseq` writes them. Files given instead must have the
recorded checksums.

Neither torch nor fairseq is imported before a checkpoint is read.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.data_folder import INPUTS, REPORT, dictionary_digest, read_report
from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from roberta_small.common.label_kinds import Labels
from roberta_small.common.run import read_thresholds
from roberta_small.eval.origin import DICTIONARY, DataFolder, OptionalPath, RunCheckpoint, resolve_recorded
from roberta_small.eval.precision import BF16, FP32, ON_CPU, RECORDED, Precision, choose_precision
from roberta_small.eval.texts import Examples, Ids, InputFormat, TextInput
from roberta_small.preprocess import dictionary as fairseq_dictionary
from roberta_small.preprocess.dictionary import BOS, EOS, MASK
from roberta_small.preprocess.options import NO_TEST
from roberta_small.preprocess.tokenization.choice import FOLDER, TRANSFORMERS, Located, beside
from roberta_small.preprocess.tokenization.encoder import Encoder, load_in_advance
from roberta_small.preprocess.tokenization.transformers_encoder import TransformersEncoder

if TYPE_CHECKING:
    from roberta_small.eval.network import Checkpoint

logger = logging.getLogger(__name__)
BESIDE = "dict.txt"
"""The dictionary beside a checkpoint, and in a folder of running text."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the user gives in place of what the run records: the options of `open_model`."""

    data: OptionalPath = None
    """Binarized folder of the training data; None for the recorded one, as for the next two."""
    dictionary: OptionalPath = None
    """dict.txt of the training."""
    sentencepiece_model: OptionalPath = None
    """Tokenizer of the training."""
    normalize_apostrophes: bool | None = None
    """Whether to replace typographic apostrophes if the data do not record it; False also logs a warning."""
    device: str = "auto"
    """Of the network: auto, cpu or cuda."""
    precision: str | None = None
    """Of the matrix products: fp32, bf16 or int8; None or auto for that of training."""
    max_tokens: int | None = None
    """Size of a batch of a classifier, including padding; None for that of the device (`common.hardware`)."""

    def unused(self) -> list[str]:
        """The options given that have no effect on a model with its own text and without a GPU."""
        values = {
            "--data": self.data,
            "--dict": self.dictionary,
            "--sentencepiece-model": self.sentencepiece_model,
            "--normalize-apostrophes": self.normalize_apostrophes,
            "--device cuda": self.device == "cuda",
        }
        return [option for option, value in values.items() if value]


class Logits(Protocol):
    """The network of a classifier."""

    def logits(self, rows: list[Ids], *, progress: str | None = None) -> NDArray[np.floating]:
        """The logits (N, K) of rows of ids, in their order; `progress` is the title of a progress bar."""
        ...


@dataclass(frozen=True)
class Model:
    """A trained classifier or language model and what belongs to it: those of a checkpoint of fairseq.

    Attributes are computed when they are first used. They raise `UserError` where a file is missing or does
    not belong to the checkpoint, and where a model of this kind does not have them: the classes of a language
    model, the checkpoint of an ONNX file.
    """

    run: RunCheckpoint
    """The file of the model, and its run."""
    given: Given = Given()

    @cached_property
    def origin(self) -> str:
        """SHA-256 of the checkpoint; that of an ONNX file is recorded in it."""
        return sha256(self.run.checkpoint)

    def load(self) -> object:
        """Read the file of the model and return its content, which is kept; errors as for `open_model`."""
        return self.precision  # which the checkpoint may record

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The content of the checkpoint: weights, and the configuration of model and task."""
        from roberta_small.eval.network import read_checkpoint

        return read_checkpoint(self.run.checkpoint)

    @cached_property
    def precision(self) -> Precision | None:
        """The precision of the network; None for an ONNX file, whose precision is fixed.

        bf16 that a GPU trained in is fp32 on a CPU, where bf16 can be a hundred times as slow.
        """
        chosen = choose_precision(self.given.precision, self.run, self.checkpoint.precision)
        hardware = (self.run.manifest or {}).get("hardware") or {}
        if hardware.get("gpu") and chosen == Precision(BF16, RECORDED):
            from roberta_small.eval.network import find_device

            return chosen if find_device(self.given.device).type == "cuda" else Precision(FP32, ON_CPU)
        return chosen

    @cached_property
    def data(self) -> DataFolder:
        """The data folder of training, with the examples; it may no longer exist."""
        if self.given.data is not None:
            return DataFolder.given(self.given.data)
        return DataFolder.recorded(
            self.run.data.get("path") or self.checkpoint.settings.get("data"), self.run
        )

    @cached_property
    def kept(self) -> DataFolder | None:
        """RUN/inputs/, what the run folder keeps of its data, if it does."""
        path = self.run.folder / INPUTS
        return DataFolder(path, read_report(path)) if path.is_dir() else None

    @property
    def inputs(self) -> DataFolder:
        """What text needs: dictionaries, tokenizer and options; from RUN/inputs/ unless data are given."""
        return self.kept if self.kept is not None and self.given.data is None else self.data

    @cached_property
    def labels(self) -> Labels:
        """What the logits mean: kind of labels, classes or scaling, and the thresholds of the run."""
        kind = self.checkpoint.kind
        if not kind.has_classes:
            self.checkpoint.check_classifier()
            return Labels(kind, scaling=self.checkpoint.scaling)
        labels = Labels(kind, tuple(read_class_names(self.checkpoint, self.inputs)))
        return labels if kind.exclusive else labels.with_thresholds(read_thresholds(self.run.folder))

    @property
    def classes(self) -> list[str]:
        """A name for each logit, from the checkpoint, else from the data folder; empty for regression."""
        return list(self.labels.classes)

    @property
    def pairs(self) -> bool:
        """Whether an example is two sentences."""
        return self.checkpoint.is_classifier and self.inputs.pairs

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of texts in the file of the training: `text`, `more_text`, `pair`; empty if unknown."""
        recorded = (self.run.manifest or {}).get("columns", {})
        return {role: recorded[role] for role in ("text", "more_text", "pair") if role in recorded}

    @cached_property
    def dictionary(self) -> Path:
        """The file of the dictionary of the text."""
        return self.find_dictionary(self.inputs)

    @cached_property
    def tokenizer(self) -> Located:
        """The SentencePiece model or the Transformers tokenizer."""
        return find_tokenizer(self.run, self.inputs, self.given.sentencepiece_model)

    @cached_property
    def normalize_apostrophes(self) -> bool:
        """Whether typographic apostrophes are replaced; raises `UserError` if option and data differ.

        What the run keeps comes before what other data record, because the model has learned it.
        """
        requested, near = self.given.normalize_apostrophes, beside(self.run.folder)
        options = [True if near is not None and near.normalize_apostrophes else None]
        options += [data.option("normalize_apostrophes") for data in (self.kept, self.inputs) if data]
        known = next((option for option in options if option is not None), None)
        if known is False and requested:
            raise UserError(
                f"--normalize-apostrophes: the data were written without apostrophe normalization "
                f"({self.inputs.path / REPORT}); omit the option"
            )
        unsure = known is None and (requested is False or self.given.sentencepiece_model is not None)
        if unsure and not requested and self.tokenizer.model is not None:
            logger.warning(
                "%s: no %s records whether apostrophes were normalized, so they are kept; to change this, "
                "%spass the data with --data",
                self.run.checkpoint,
                REPORT,
                "" if requested is None else "add --normalize-apostrophes or ",
            )
        return bool(known or requested)

    @cached_property
    def encoder(self) -> Encoder | TransformersEncoder:
        """Tokenizer and dictionary; raises `UserError` if they do not fit each other."""
        how = {"normalize_apostrophes": self.normalize_apostrophes}
        path, tokenizer = self.dictionary, self.tokenizer
        if tokenizer.model is not None:
            return Encoder.from_files(str(tokenizer.model), str(path), **how)
        encoder = tokenizer.transformers_encoder(**how)
        words = fairseq_dictionary.load(str(path))
        if encoder.dictionary.symbols not in (words.symbols, words.with_mask().symbols):
            raise UserError(
                f"{path}: not the vocabulary of the tokenizer {encoder.name}; pass the data of "
                "the run with --data, or the tokenizer's own dictionary with --dict"
            )
        return encoder

    @cached_property
    def input_format(self) -> InputFormat:
        """How training makes an input from ids; `<s> text </s>` for a language model."""
        if self.checkpoint.is_classifier:
            return InputFormat.from_config(self.checkpoint.task_config())
        encoder, arguments = self.encoder, self.checkpoint.arguments
        init: int = BOS
        separator: int | None = EOS
        if isinstance(encoder, TransformersEncoder):
            init = encoder.init_token
            separator = encoder.separator_token if encoder.separates_pairs else None
        longest = vars(arguments).get("max_positions") or vars(arguments).get("tokens_per_sample", 512)
        return InputFormat(init, separator, longest, shorten=True, keep_eos=True)

    @cached_property
    def text_input(self) -> TextInput:
        """From texts to rows of token ids."""
        return TextInput(self.encoder, self.input_format, self.pairs)

    @cached_property
    def network(self) -> Logits:
        """The network of a classifier on its device."""
        from roberta_small.eval.network import Network

        precision = FP32 if self.precision is None else self.precision.value
        return Network(
            self.checkpoint, device=self.given.device, precision=precision, max_tokens=self.given.max_tokens
        )

    def examples(self, split: str, data: OptionalPath = None) -> Examples:
        """The examples of a split of `data`, by default the training data; `UserError` if they do not fit."""
        from roberta_small.eval.network import read_split, text_dictionary

        folder = self.data if data is None else DataFolder.given(data)
        folder.require_examples(self.run.name)
        if split == "test" and folder.option("test") == NO_TEST:
            raise UserError(
                f"{folder.path}: prepared without a test set (--test {NO_TEST}); use --split valid, or pass "
                "other data with --data"
            )
        classes: list[str] = []
        if self.checkpoint.kind.has_classes:
            classes = read_class_names(self.checkpoint, self.inputs if self.inputs.exists else folder)
        dictionary = text_dictionary(self.find_dictionary(folder))
        return read_split(self.checkpoint, dictionary, classes, folder.path, split)

    def digests(self) -> dict[str, str]:
        """SHA-256 of checkpoint, dictionary and SentencePiece model."""
        files = {"checkpoint": self.run.checkpoint, "dictionary": self.dictionary}
        if self.tokenizer.model is not None:
            files["sentencepiece_model"] = self.tokenizer.model
        return {name: sha256(path) for name, path in files.items()}

    def find_dictionary(self, data: DataFolder) -> Path:
        """The given dictionary, that of `data` or the one beside the run; it must be that of training."""
        checkpoint = self.checkpoint
        places = [data.dictionary, self.run.folder / BESIDE]
        if not checkpoint.is_classifier:  # running text has no input0/
            places = [self.run.folder / BESIDE, data.path / BESIDE, data.dictionary]
        if self.given.dictionary is not None:
            places = [Path(self.given.dictionary)]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise UserError(
                f"{places[0]}: no such file; pass the dictionary of {checkpoint.path} with --dict"
            )
        symbols = fairseq_dictionary.load(str(path)).with_mask().symbols
        if checkpoint.dictionary_sha256 is not None:
            same = dictionary_digest(symbols) == checkpoint.dictionary_sha256
        else:
            # A left-to-right model has no <mask>.
            recorded = self.run.data.get("sha256", {}).get(DICTIONARY if checkpoint.is_classifier else BESIDE)
            same = checkpoint.vocabulary == len(symbols) - checkpoint.is_causal
            same = same and recorded in (None, sha256(path))
        if not same:
            raise UserError(
                f"{path}: {len(symbols):,} entries with {MASK}, not the dictionary of {checkpoint.path}; "
                "pass that one with --dict, or data that were written with it"
            )
        return path

    def load_tokenizer_in_advance(self) -> None:
        """Start loading the SentencePiece model of a later `encoder`, while torch and fairseq are imported.

        Without effect where only the checkpoint names the data; errors are left to `encoder`.
        """
        with contextlib.suppress(UserError, OSError):
            known = self.given.data or self.run.data.get("path") or self.kept
            if known and self.tokenizer.model is not None:
                load_in_advance(str(self.tokenizer.model))


def find_tokenizer(run: RunCheckpoint, data: DataFolder, given: OptionalPath = None) -> Located:
    """The given SentencePiece model, else the tokenizer of the data, else the one beside the run."""
    recorded = data.option("sentencepiece_model")
    if given is None:
        if data.report.get("tokenizer", {}).get("kind") == TRANSFORMERS:
            return Located(transformers=str(data.path / FOLDER))
        if recorded is None and (found := beside(run.folder)) is not None:
            return found
        if recorded is None:
            raise UserError(
                f"{data.path / REPORT}: no SentencePiece model is recorded; pass --sentencepiece-model"
            )
        inside = data.path / recorded  # in a folder of `roberta-small prepare`
        path = inside if inside.is_file() else resolve_recorded(recorded)
    else:
        path = Path(given)
    if not path.is_file():
        raise UserError(f"{path}: no such SentencePiece model; pass --sentencepiece-model")
    digest = None if recorded is None else data.digest(recorded)
    if digest is not None and digest != sha256(path):
        raise UserError(
            f"{path}: not the SentencePiece model of {data.path} (SHA-256 {digest[:12]}...); "
            "pass that one with --sentencepiece-model"
        )
    return Located(model=path)


def read_class_names(checkpoint: Checkpoint, data: DataFolder) -> list[str]:
    """A name for each logit: from the checkpoint, else from the data folder."""
    count, names = checkpoint.classes, checkpoint.class_names
    if names is None:
        from roberta_small.fairseq_plugin.tasks.sentence_classification import class_names, load_dictionary

        path = data.path / "label" / "dict.txt"
        if not path.is_file():
            raise UserError(f"{checkpoint.path}: records no class names; pass the training data with --data")
        names = class_names(load_dictionary(path))
    if len(names) > count:
        raise UserError(
            f"{data.path}: {len(names)} classes, but {checkpoint.path} has {count}; "
            "pass the training data with --data"
        )
    # --num-classes may exceed the number of labels.
    return [*names, *(f"unnamed{i}" for i in range(len(names), count))]
