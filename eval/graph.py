"""`GraphClassifier`: class probabilities for text from one ONNX file, without torch and fairseq.

`python -m export onnx` stores what text needs in the metadata of the graph (`Metadata`).
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.errors import UserError
from roberta_small.common.predictions import Prediction, from_probabilities
from roberta_small.eval.batches import MAX_TOKENS, logits_of, probabilities
from roberta_small.eval.texts import Classified, InputFormat, Text, TextInput
from roberta_small.preprocess import dictionary as fairseq_dictionary
from roberta_small.preprocess.dictionary import PAD
from roberta_small.preprocess.tokenizer import Encoder, parse_model

INPUTS = ("input_ids", "attention_mask")
"""Inputs of the graph, int64 (B, L)."""
OUTPUT = "logits"
"""Its output, fp32 (B, K)."""
AGAIN = "write it with python -m export onnx"


@dataclass(frozen=True)
class Metadata:
    """What a graph contains besides the network."""

    classes: list[str]
    """Their names, in the order of the logits."""
    format: InputFormat
    pairs: bool
    normalize_apostrophes: bool
    sentencepiece: bytes
    """The SentencePiece model."""
    dictionary: str
    """The content of dict.txt."""

    def to_text(self) -> dict[str, str]:
        """The metadata of an ONNX graph, whose values are text."""
        fields: dict[str, Any] = {"format": asdict(self.format), "pairs": self.pairs}
        fields["normalize_apostrophes"] = self.normalize_apostrophes
        return {
            "text": json.dumps(fields),
            "sentencepiece": base64.b64encode(self.sentencepiece).decode("ascii"),
            "dictionary": self.dictionary,
        }

    @classmethod
    def from_text(cls, found: dict[str, str], path: Path) -> Metadata:
        """The metadata of the graph in `path`; raises `UserError` if it is not one of this project."""
        if not {"classes", "text", "sentencepiece", "dictionary"} <= found.keys():
            raise UserError(
                f"{path}: no tokenizer in this file; {AGAIN} from a run whose data have a SentencePiece model"
            )
        try:
            fields = json.loads(found["text"])
            return cls(
                json.loads(found["classes"]),
                InputFormat(**fields["format"]),
                fields["pairs"],
                fields["normalize_apostrophes"],
                base64.b64decode(found["sentencepiece"], validate=True),
                found["dictionary"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: malformed metadata ({error}); {AGAIN} again") from None


class GraphClassifier:
    """A classifier in an ONNX file; it classifies like a `SentenceClassifier`, on the CPU.

    Attributes:
        classes: names of the classes, in the order of the probabilities.
        pairs: whether an example is two sentences.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_tokens: int = MAX_TOKENS) -> None:
        """Load the file; raises `UserError` if it is not a classifier that `python -m export onnx` wrote."""
        try:
            import onnxruntime
        except ImportError:
            raise UserError("ONNX files need onnxruntime; install it: pip install onnxruntime") from None
        path = Path(path)
        if not path.is_file():
            raise UserError(f"{path}: no such file")
        try:
            self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has no common class of errors that is public
            reason = str(error).splitlines()[0]
            raise UserError(f"{path}: not an ONNX graph that can be loaded ({reason}); {AGAIN}") from None
        self._path = path
        self._max_tokens = max_tokens
        self._metadata = Metadata.from_text(self._session.get_modelmeta().custom_metadata_map, path)
        self.classes = self._metadata.classes
        (output,) = [one for one in self._session.get_outputs() if one.name == OUTPUT] or [None]
        if output is None or output.shape[-1] != len(self.classes):
            raise UserError(f"{path}: no output '{OUTPUT}' of {len(self.classes)} classes; {AGAIN} again")
        self.pairs = self._metadata.pairs

    def predict(self, texts: Iterable[Text], *, progress: str | None = None) -> list[Prediction]:
        """One prediction per text, as `SentenceClassifier.predict`."""
        found = self.classify(texts, progress=progress).probabilities
        return list(from_probabilities(self.classes, found))

    def classify(
        self, texts: Iterable[Text], *, first: int = 1, where: str = "text", progress: str | None = None
    ) -> Classified:
        """Probabilities, token ids and notes of each text; errors as for `TextInput.encode`."""
        encoded = self._input.encode(texts, first=first, where=where)
        logits_NK = logits_of(
            encoded.rows, self._logits, len(self.classes), max_tokens=self._max_tokens, progress=progress
        )
        return Classified(probabilities(logits_NK), encoded)

    @cached_property
    def _input(self) -> TextInput:
        metadata, path = self._metadata, str(self._path)
        encoder = Encoder(
            parse_model(metadata.sentencepiece, path),
            fairseq_dictionary.parse(metadata.dictionary.removesuffix("\n").split("\n"), path),
            normalize_apostrophes=metadata.normalize_apostrophes,
        )
        return TextInput(encoder, metadata.format, metadata.pairs)

    def _logits(self, ids_BL: NDArray[np.int64]) -> NDArray[np.float32]:
        feed = dict(zip(INPUTS, (ids_BL, (ids_BL != PAD).astype(np.int64)), strict=True))
        return self._session.run([OUTPUT], feed)[0]
