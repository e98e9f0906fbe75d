"""`SentenceClassifier`: class probabilities for text.

Shapes: N examples, K classes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

import roberta_small.fairseq_plugin  # noqa: F401  registers models and tasks
from roberta_small.common.predictions import Prediction, from_probabilities
from roberta_small.eval.batches import MAX_TOKENS, probabilities
from roberta_small.eval.loading.checkpoint import read_checkpoint
from roberta_small.eval.loading.network import Network
from roberta_small.eval.loading.precision import DEFAULT, Precision, choose_precision
from roberta_small.eval.loading.runs import RunCheckpoint, find_run
from roberta_small.eval.loading.training_files import (
    DataFolder,
    OptionalPath,
    find_data_folder,
    find_dictionary,
    find_encoder,
    read_class_names,
)
from roberta_small.eval.texts import Classified, Ids, InputFormat, Text, TextInput
from roberta_small.preprocess.tokenizer import TextEncoder


class SentenceClassifier:
    """A classifier: network, dictionary, SentencePiece model and class names.

    Attributes:
        classes: names of the classes, in the order of the probabilities.
        network: computes logits from token ids.
        text_input: computes token ids from text.
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
        self.text_input = TextInput(encoder, input_format, pairs)
        self.classes = classes
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

    @property
    def encoder(self) -> TextEncoder:
        """Tokenizer and dictionary; computes token ids from text."""
        return self.text_input.encoder

    @property
    def input_format(self) -> InputFormat:
        """How token ids become the input of the network."""
        return self.text_input.format

    @property
    def pairs(self) -> bool:
        """Whether an example is two sentences."""
        return self.text_input.pairs

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
        encoded = self.text_input.encode(texts, first=first, where=where)
        return Classified(probabilities(self.network.logits(encoded.rows, progress=progress)), encoded)

    def encode(self, texts: Iterable[Text], *, first: int = 1, where: str = "text") -> list[Ids]:
        """The token ids of each text; errors as for `TextInput.encode`."""
        return self.text_input.encode(texts, first=first, where=where).rows
