"""`GraphModel`: a classifier in one ONNX file, opened without torch and fairseq.

`roberta-small export onnx` stores what text needs in the metadata of the graph (`Metadata`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from roberta_small.common.hardware import CPU
from roberta_small.common.label_kinds import Labels
from roberta_small.common.optional import needed_by
from roberta_small.eval.base import Model
from roberta_small.eval.texts import Compute, Ids, InputFormat, logits_of
from roberta_small.preprocess import dictionary as fairseq_dictionary
from roberta_small.preprocess.dictionary import PAD
from roberta_small.preprocess.tokenization.encoder import Encoder, parse_model
from roberta_small.preprocess.tokenization.transformers_encoder import TransformersEncoder

if TYPE_CHECKING:
    from roberta_small.eval.network import Checkpoint

INPUTS = ("input_ids", "attention_mask")
"""Inputs of the graph, int64 (B, L)."""
OUTPUT = "logits"
"""Its output, fp32 (B, K)."""
AGAIN = "write it with roberta-small export onnx"


@dataclass(frozen=True)
class Metadata:
    """What a graph contains besides the network."""

    labels: Labels
    """What the logits mean."""
    format: InputFormat
    pairs: bool
    normalize_apostrophes: bool
    sentencepiece: bytes = b""
    """The SentencePiece model; empty with a Transformers tokenizer."""
    dictionary: str = ""
    """The content of its dict.txt."""
    tokenizer: bytes = b""
    """The files of the Transformers tokenizer (`TransformersEncoder.packed`)."""
    checkpoint: str = ""
    """SHA-256 of the checkpoint; empty in files of earlier versions."""
    columns: dict[str, Any] = field(default_factory=dict)
    """Those of the training (`Model.columns`)."""

    def to_text(self) -> dict[str, str]:
        """The metadata of an ONNX graph, whose values are text."""
        fields: dict[str, Any] = {"format": asdict(self.format), "pairs": self.pairs}
        fields |= {"normalize_apostrophes": self.normalize_apostrophes, "columns": self.columns}
        return {
            "labels": json.dumps(self.labels.record()),
            "text": json.dumps(fields),
            "sentencepiece": base64.b64encode(self.sentencepiece).decode("ascii"),
            "dictionary": self.dictionary,
            "tokenizer": base64.b64encode(self.tokenizer).decode("ascii"),
            "checkpoint": self.checkpoint,
        }

    @classmethod
    def from_text(cls, found: dict[str, str], path: Path) -> Metadata:
        """The metadata of the graph in `path`; raises `UserError` if it is not one of this project."""
        if not {"classes", "text", "sentencepiece", "dictionary"} <= found.keys():
            raise UserError(
                f"{path}: no tokenizer in this file; {AGAIN} from a run whose data have a tokenizer"
            )
        try:
            fields = json.loads(found["text"])
            labels = (
                Labels.from_record(json.loads(found["labels"]), path)
                if "labels" in found
                else Labels.single(json.loads(found["classes"]))
            )
            return cls(
                labels,
                InputFormat(**fields["format"]),
                fields["pairs"],
                fields["normalize_apostrophes"],
                base64.b64decode(found["sentencepiece"], validate=True),
                found["dictionary"],
                base64.b64decode(found.get("tokenizer", ""), validate=True),
                columns=fields.get("columns", {}),
                checkpoint=found.get("checkpoint", ""),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: malformed metadata ({error}); {AGAIN} again") from None


@dataclass(frozen=True)
class GraphModel(Model):
    """A classifier in an ONNX file, with its tokenizer and class names; it runs on the CPU."""

    def load(self) -> object:
        """Load the graph; `UserError` unless `export onnx` wrote it, and for an option without effect."""
        path = self.run.checkpoint
        if wrong := [*self.given.unused(), *(["--precision"] if self.given.precision else [])]:
            raise UserError(
                f"{wrong[0]}: not with an ONNX file, which has its own tokenizer and precision and runs on "
                f"the CPU; use the folder of the run instead of {path}"
            )
        if not path.is_file():
            raise UserError(f"{path}: no such file")
        (output,) = [one for one in self.session.get_outputs() if one.name == OUTPUT] or [None]
        if output is None or output.shape[-1] != self.labels.size:
            raise UserError(f"{path}: no output '{OUTPUT}' of {self.labels.size} classes; {AGAIN} again")
        return self.session

    @cached_property
    def session(self) -> Any:
        """The session of ONNX Runtime; raises `UserError` if the file cannot be loaded."""
        path = self.run.checkpoint
        with needed_by(f"{path}"):
            import onnxruntime
        try:
            return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has no common class of errors that is public
            reason = str(error).splitlines()[0]
            raise UserError(f"{path}: not an ONNX graph that can be loaded ({reason}); {AGAIN}") from None

    @cached_property
    def metadata(self) -> Metadata:
        """What the file contains besides the network."""
        return Metadata.from_text(self.session.get_modelmeta().custom_metadata_map, self.run.checkpoint)

    @cached_property
    def origin(self) -> str:
        """SHA-256 of the checkpoint that was exported, or of the file if that is not recorded."""
        return self.metadata.checkpoint or sha256(self.run.checkpoint)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """There is none."""
        raise UserError(f"{self.run.checkpoint}: an ONNX file, not a checkpoint; use the folder of the run")

    precision = None
    """That of the graph."""

    @cached_property
    def labels(self) -> Labels:
        """What the logits mean."""
        return self.metadata.labels

    @property
    def pairs(self) -> bool:
        """Whether an example is two sentences."""
        return self.metadata.pairs

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the texts in the file of the training; empty if unknown."""
        return self.metadata.columns

    @cached_property
    def encoder(self) -> Encoder | TransformersEncoder:
        """Tokenizer and dictionary."""
        metadata, path = self.metadata, str(self.run.checkpoint)
        if metadata.tokenizer:
            how = {"normalize_apostrophes": metadata.normalize_apostrophes}
            return TransformersEncoder.unpacked(metadata.tokenizer, path, **how)
        return Encoder(
            parse_model(metadata.sentencepiece, path),
            fairseq_dictionary.parse(metadata.dictionary.removesuffix("\n").split("\n"), path),
            normalize_apostrophes=metadata.normalize_apostrophes,
        )

    @cached_property
    def input_format(self) -> InputFormat:
        """How training makes an input from ids."""
        return self.metadata.format

    @property
    def network(self) -> GraphModel:
        """The graph itself."""
        return self

    def logits(self, rows: Sequence[Ids], *, progress: str | None = None) -> NDArray[np.float32]:
        """The logits (N, K) of rows of ids, in their order; `progress` is the title of a progress bar."""
        compute, max_tokens = computation(self.session), self.given.max_tokens or CPU.prediction_tokens
        return logits_of(rows, compute, self.labels.size, max_tokens=max_tokens, progress=progress)


def computation(session: Any) -> Compute:
    """The function of a graph that is open in ONNX Runtime."""

    def compute(ids_BL: NDArray[np.int64]) -> NDArray[np.float32]:
        feed = dict(zip(INPUTS, (ids_BL, (ids_BL != PAD).astype(np.int64)), strict=True))
        return session.run([OUTPUT], feed)[0]

    return compute
