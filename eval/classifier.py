"""`SentenceClassifier`: class probabilities for text.

Shapes: N examples, K classes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

import fairseq_plugin  # noqa: F401  registers models and tasks
from common.errors import UserError
from common.predictions import Prediction
from preprocess.readers.lines import Block
from preprocess.tokenizer import TextEncoder

from .loading.checkpoint import read_checkpoint
from .loading.inputs import Ids, InputFormat
from .loading.network import MAX_TOKENS, Network, probabilities
from .loading.runs import find_run
from .loading.training_files import (
    OptionalPath,
    find_data_folder,
    find_dictionary,
    find_encoder,
    read_class_names,
)

Text = str | Sequence[str]
"""A sentence, or a pair of sentences."""


class SentenceClassifier:
    """A classifier: network, dictionary, SentencePiece model and class names.

    Attributes:
        classes: names of the classes, in the order of the probabilities.
        pairs: whether an example is two sentences.
        network: computes logits from token ids.
        encoder: tokenizer and dictionary; computes token ids from text.
        input_format: how token ids become the input of the network.
    """

    def __init__(
        self,
        network: Network,
        encoder: TextEncoder,
        input_format: InputFormat,
        classes: list[str],
        *,
        pairs: bool,
    ) -> None:
        self.network = network
        self.encoder = encoder
        self.input_format = input_format
        self.classes = classes
        self.pairs = pairs

    @classmethod
    def from_run(
        cls,
        path: str | os.PathLike[str],
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
        recorded by the run; `precision` None means as in training; `max_tokens` is the size of a batch
        including padding. Raises `UserError` for a file that is missing or does not belong to the checkpoint.
        """
        run = find_run(path)
        checkpoint = read_checkpoint(run.checkpoint)
        folder = find_data_folder(run, checkpoint, data)
        symbols, dictionary_path = find_dictionary(run, checkpoint, folder, dictionary)
        return cls(
            Network(checkpoint, symbols, device=device, precision=precision, max_tokens=max_tokens),
            find_encoder(run, folder, dictionary_path, sentencepiece_model),
            InputFormat.from_checkpoint(checkpoint),
            read_class_names(checkpoint, folder),
            pairs=folder.pairs,
        )

    def predict(self, texts: Iterable[Text], *, progress: str | None = None) -> list[Prediction]:
        """One prediction per text, in the order given; `index` counts from 0 and `true_class` is None.

        An empty text is read as `<s> </s>`.
        """
        p_NK = self.probabilities(texts, progress=progress)
        return [
            Prediction(index, None, dict(zip(self.classes, row_K.tolist(), strict=True)))
            for index, row_K in enumerate(p_NK)
        ]

    def probabilities(self, texts: Iterable[Text], *, progress: str | None = None) -> NDArray[np.float64]:
        """The probabilities (N, K), columns in the order of `classes`."""
        return probabilities(self.network.logits(self.encode(texts), progress=progress))

    def encode(self, texts: Iterable[Text], *, first: int = 1, where: str = "text") -> list[Ids]:
        """The token ids of each text, int64, as in training.

        A line break within a text is read as a space. Error messages name a text by `where` and its number,
        counted from `first`.
        """
        texts = list(texts)
        if not texts:
            return []
        columns = [self._encode_column(column) for column in self._columns(texts, first, where)]
        return [
            self.input_format.assemble(parts, f"{where} {number}")
            for number, parts in enumerate(zip(*columns, strict=True), start=first)
        ]

    def _columns(self, texts: list[Text], first: int, where: str) -> list[list[str]]:
        """The texts in one list; for pairs, the first and the second sentences in two."""
        if not self.pairs:
            for number, text in enumerate(texts, start=first):
                if not isinstance(text, str):
                    raise UserError(f"{where} {number}: {type(text).__name__} instead of a string")
            return [texts]
        for number, text in enumerate(texts, start=first):
            if isinstance(text, str) or len(text) != 2:
                raise UserError(
                    f"{where} {number}: the checkpoint classifies sentence pairs; "
                    "give two sentences, separated by a tab"
                )
        return [[pair[0] for pair in texts], [pair[1] for pair in texts]]

    def _encode_column(self, lines: list[str]) -> list[Ids]:
        try:
            content = "\n".join(line.replace("\n", " ") for line in lines).encode()
        except UnicodeEncodeError as error:
            raise UserError(f"not Unicode: a lone surrogate ({error.reason}); correct the text") from None
        # The final newline keeps an empty last text.
        encoded = self.encoder(Block("text", 1, content + b"\n", len(content)))
        return np.split(encoded.ids.astype(np.int64), np.cumsum(encoded.sizes)[:-1])
