"""Text and labels -> the binary data that `fairseq-train` reads, byte for byte as stock tools write it.

Text goes from SentencePiece ids to fairseq ids through a table; no tokenized text is written in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_small.common.data_folder import Report, shard_name
from roberta_small.common.files import atomic_write
from roberta_small.common.label_kinds import KINDS, SINGLE_LABEL, LabelKind
from roberta_small.preprocess.indexed import IndexedWriter, distribute
from roberta_small.preprocess.label_files import write_labels
from roberta_small.preprocess.labels import check_line_counts
from roberta_small.preprocess.tokenization.encoder import TextEncoder, map_text


@dataclass(frozen=True)
class Split:
    """The files of one split (train, valid or test)."""

    name: str
    texts: dict[str, list[str]]
    """Folder inside BIN ("input0", "input1", or "." for running text) -> text files, read in order."""
    label: str | None


def write_data(
    folder: Path,
    splits: list[Split],
    encoder: TextEncoder,
    *,
    valid_every: int | None = None,
    shards: int = 1,
    workers: int = 1,
    kind: LabelKind = KINDS[SINGLE_LABEL],
) -> tuple[dict[str, Any], Report]:
    """Write binary data and dictionaries into `folder`.

    Returns sentences and tokens by split and place, and what a report records about the labels: under
    `labels` the class names in id order (None without labels), for other kinds than one class per text also
    `label_kind`, and for regression `label_scaling`. Raises `UserError` for malformed text and labels.
    """
    files = {split.name: split.label for split in splits if split.label is not None}
    found, label_counts = write_labels(files, folder / "label", kind) if files else ({"labels": None}, {})
    counts: dict[str, Any] = {}
    for split in splits:
        for name, paths in split.texts.items():
            written = _write_text(encoder, paths, folder, split, name, workers, valid_every, shards)
            for (part, place), writer in written.items():
                check_line_counts(paths[0], writer.sentences, split.label, label_counts.get(split.name))
                counts.setdefault(part, {})[place] = _counts(writer)
    for place in counts["train"]:
        atomic_write(folder / place / "dict.txt", encoder.dictionary.text())
    return counts, found


def _write_text(
    encoder: TextEncoder,
    paths: list[str],
    folder: Path,
    split: Split,
    name: str,
    workers: int,
    valid_every: int | None,
    shards: int,
) -> dict[tuple[str, str], IndexedWriter]:
    """Encode the files of one text of a split; the writers by split and place inside `folder`."""
    size = len(encoder.dictionary)
    blocks = map_text(encoder, paths, workers=workers, progress=f"binarize {split.name}")
    if split.name == "train" and name == ".":
        return distribute(blocks, folder, size, source=paths[0], valid_every=valid_every, shards=shards)
    place = name if name != "." or shards == 1 else shard_name(0)  # where fairseq looks for it
    with IndexedWriter(folder / place / split.name, size) as writer:
        for encoded in blocks:
            writer.add(encoded.ids, encoded.sizes)
    return {(split.name, place): writer}


def _counts(writer: IndexedWriter) -> dict[str, Any]:
    return {
        "sentences": writer.sentences,
        "tokens": writer.tokens,
        "unknown": writer.unknown,
        "unknown_rate": round(writer.unknown / writer.tokens, 6),
    }
