"""`convert`: a fairseq checkpoint as a from_pretrained folder, proved before it appears."""

from __future__ import annotations

import json
import os
from pathlib import Path

from common.errors import UserError
from common.files import atomic_folder, atomic_write, sha256
from eval.loading.training_files import OptionalPath

from .card import card
from .config import converted
from .folder import load_folder, write_carried
from .origin import find_origin
from .proof import Proof, prove
from .tokenizer import write_tokenizer

PROOF = "proof.json"
"""What was compared, and the SHA-256 of what it was compared with."""


def convert(
    source: str | os.PathLike[str],
    output: Path,
    *,
    data: OptionalPath = None,
    dictionary: OptionalPath = None,
    sentencepiece_model: OptionalPath = None,
    normalize_apostrophes: bool = False,
) -> Proof:
    """Write the folder `output` of the run or checkpoint `source`; the other files as for `find_origin`.

    Raises `UserError` where `output` exists, for what `find_origin` and `read_source` refuse, and where ids
    or logits differ; then nothing is written.
    """
    check_absent(output)
    origin = find_origin(
        source,
        data=data,
        dictionary=dictionary,
        sentencepiece_model=sentencepiece_model,
        normalize_apostrophes=normalize_apostrophes,
    )
    with atomic_folder(output) as folder:
        model = converted(origin.source, origin.classes)
        model.save_pretrained(folder)
        write_tokenizer(folder, origin.sentencepiece_model, origin.dictionary, origin.text_format)
        write_carried(folder, origin)
        proof = prove(origin, folder, load_folder(folder))
        parameters = sum(weight.numel() for weight in model.parameters())
        files = {
            "checkpoint": origin.run.checkpoint,
            "dictionary": origin.dictionary,
            "sentencepiece_model": origin.sentencepiece_model,
        }
        digests = {name: sha256(path) for name, path in files.items()}
        proved = {"sha256": digests, **proof.as_json()}
        atomic_write(folder / PROOF, json.dumps(proved, indent=2) + "\n")
        atomic_write(folder / "README.md", card(origin, proof, parameters, output.name))
    return proof


def check_absent(output: Path) -> None:
    """Raise `UserError` where something stands under the name already; an empty folder may."""
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise UserError(f"{output}: exists; choose another name, or move it away")
