"""`SentenceClassifier`: class probabilities for text.

Shapes: N examples, K classes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import fairseq_plugin  # noqa: F401  registers models and tasks
from common.errors import UserError
from common.predictions import Prediction, from_probabilities
from preprocess.readers.lines import Block
from preprocess.tokenizer import Encoded, TextEncoder

from .loading.checkpoint import read_checkpoint
from .loading.inputs import Ids, InputFormat, check_texts, text_notes
from .loading.network import MAX_TOKENS, Network, probabilities
from .loading.precision import DEFAULT, Precision, choose_precision
from .loading.runs import RunCheckpoint, find_run
from .loading.training_files import (
    DataFolder,
    OptionalPath,
    find_data_folder,
    find_dictionary,
    find_encoder,
    read_class_names,
)

Text = str | Sequence[str]
"""A sentence, or a pair of sentences."""


@dataclass(frozen=True)
class EncodedTexts:
    """N texts as input of the network."""

    rows: list[Ids]
    """The token ids of each text, as in training."""
    notes: list[str]
    """What is suspicious about each text (`text_notes`), or ""."""
    lengths: list[int]
    """Tokens of each text before truncation, special symbols included."""


@dataclass(frozen=True)
class Classified:
    """The results for N texts."""

    probabilities: NDArray[np.float64]
    """(N, K)."""
    encoded: EncodedTexts
    std: NDArray[np.float64] | None = None
    """(N,) standard deviation of the predicted class's probability over the members of an ensemble."""
    members: NDArray[np.float64] | None = None
    """(M, N, K) probabilities of the M members of an ensemble."""


class SentenceClassifier:
    """A classifier: network, dictionary, SentencePiece model and class names.

    Attributes:
        classes: names of the classes, in the order of the probabilities.
        pairs: whether an example is two sentences.
        network: computes logits from token ids.
        encoder: tokenizer and dictionary; computes token ids from text.
        input_format: how token ids become the input of the network.
        precision: of the matrix products, and why it was chosen.
        run: the checkpoint and its run; None if it was not made by `from_run`.
        data: the data folder of training; None if it was not made by `from_run`.
    """

    def __init__(
        self,
        network: Network,
        encoder: TextEncoder,
        input_format: InputFormat,
        classes: list[str],
        *,
        pairs: bool,
        precision: Precision = DEFAULT,
        run: RunCheckpoint | None = None,
        data: DataFolder | None = None,
    ) -> None:
        self.network = network
        self.encoder = encoder
        self.input_format = input_format
        self.classes = classes
        self.pairs = pairs
        self.precision = precision
        self.run = run
        self.data = data

    @classmethod
    def from_run(
        cls,
        path: str | os.PathLike[str] | RunCheckpoint,
        *,
        data: OptionalPath = None,
        dictionary: OptionalPath = None,
        sentencepiece_model: OptionalPath = None,
        device: str = "auto",
        precision: str | None = None,
        max_tokens: int = MAX_TOKENS,
    ) -> SentenceClassifier:
        """The classifier of a run folder (its best checkpoint) or of a checkpoint file.

        `data` (the binarized folder), `dictionary` (dict.txt) and `sentencepiece_model` default to those
        recorded by the run; `precision` None means as in training, or fp32 if that is not recorded
        (`choose_precision`); `max_tokens` is the size of a batch including padding. Raises `UserError` for a
        file that is missing or does not belong to the checkpoint.
        """
        run = path if isinstance(path, RunCheckpoint) else find_run(path)
        checkpoint = read_checkpoint(run.checkpoint)
        chosen = choose_precision(precision, run, checkpoint.precision)
        folder = find_data_folder(run, checkpoint, data)
        symbols, dictionary_path = find_dictionary(run, checkpoint, folder, dictionary)
        return cls(
            Network(checkpoint, symbols, device=device, precision=chosen.value, max_tokens=max_tokens),
            find_encoder(run, folder, dictionary_path, sentencepiece_model),
            InputFormat.from_checkpoint(checkpoint),
            read_class_names(checkpoint, folder),
            pairs=folder.pairs,
            precision=chosen,
            run=run,
            data=folder,
        )

    def predict(self, texts: Iterable[Text], *, progress: str | None = None) -> list[Prediction]:
        """One prediction per text, in the order given; `index` counts from 0 and `true_class` is None.

        An empty text is read as `<s> </s>`. Raises `TypeError` for one string instead of several texts.
        """
        return list(from_probabilities(self.classes, self.probabilities(texts, progress=progress)))

    def probabilities(self, texts: Iterable[Text], *, progress: str | None = None) -> NDArray[np.float64]:
        """The probabilities (N, K), columns in the order of `classes`; errors as for `predict`."""
        return self.classify(texts, progress=progress).probabilities

    def classify(
        self, texts: Iterable[Text], *, first: int = 1, where: str = "text", progress: str | None = None
    ) -> Classified:
        """Probabilities, token ids and notes of each text; errors as for `encode`."""
        encoded = self.encode_with_notes(texts, first=first, where=where)
        return Classified(probabilities(self.network.logits(encoded.rows, progress=progress)), encoded)

    def encode(self, texts: Iterable[Text], *, first: int = 1, where: str = "text") -> list[Ids]:
        """The token ids of each text, int64, as in training.

        A line break within a text is read as a space. Error messages name a text by `where` and its number,
        counted from `first`. Raises `UserError` for a text that is no string (for pairs: two strings), not
        Unicode or too long, and `TypeError` for one string instead of several texts.
        """
        return self.encode_with_notes(texts, first=first, where=where).rows

    def encode_with_notes(
        self, texts: Iterable[Text], *, first: int = 1, where: str = "text"
    ) -> EncodedTexts:
        """The token ids of each text and what is suspicious about it; errors as for `encode`."""
        check_texts(texts)
        texts = list(texts)
        if not texts:
            return EncodedTexts([], [], [])
        encoded = [self._encode_column(column, first, where) for column in self._columns(texts, first, where)]
        columns = [np.split(one.ids.astype(np.int64), np.cumsum(one.sizes)[:-1]) for one in encoded]
        examples = list(zip(*columns, strict=True))
        rows = [
            self.input_format.assemble(parts, f"{where} {number}")
            for number, parts in enumerate(examples, start=first)
        ]
        lengths = [self.input_format.length(parts) for parts in examples]
        return EncodedTexts(rows, text_notes(encoded, self.encoder.dictionary), lengths)

    def _columns(self, texts: list[Text], first: int, where: str) -> list[list[str]]:
        """The texts in one list; for pairs, the first and the second sentences in two."""
        for number, text in enumerate(texts, start=first):
            if self.pairs and (isinstance(text, str) or not isinstance(text, Sequence) or len(text) != 2):
                raise UserError(
                    f"{where} {number}: the checkpoint classifies sentence pairs; "
                    "pass two sentences, separated by a tab"
                )
            for sentence in text if self.pairs else [text]:
                if not isinstance(sentence, str):
                    raise UserError(f"{where} {number}: {type(sentence).__name__} instead of a string")
        return [list(column) for column in zip(*texts, strict=True)] if self.pairs else [texts]

    def _encode_column(self, lines: list[str], first: int, where: str) -> Encoded:
        content = bytearray()
        for number, line in enumerate(lines, start=first):
            try:
                # The newline after the last text keeps it if it is empty.
                content += line.replace("\n", " ").encode() + b"\n"
            except UnicodeEncodeError as error:
                raise UserError(
                    f"{where} {number}: invalid Unicode (lone surrogate: {error.reason}); correct the text"
                ) from None
        return self.encoder(Block(where, 1, bytes(content), len(content)))
