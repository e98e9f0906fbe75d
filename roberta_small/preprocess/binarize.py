"""Text and labels -> the binary data that `fairseq-train` reads, byte for byte as stock tools write it.

Text goes from SentencePiece ids to fairseq ids through a table; no tokenized text is written in between.

Labels are in `label/`:

    single_label_classification   dict.txt, SPLIT.bin, SPLIT.idx: the id of the class and </s>
    multi_label_classification    the same files: the ids of the classes, if there are any, and </s>
    regression                    SPLIT.label: one number a line, as fairseq's --regression-target reads it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roberta_small.common.data_folder import Report, shard_name
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write
from roberta_small.common.label_kinds import KIND, KINDS, SCALING, SINGLE_LABEL, LabelKind, Scaling
from roberta_small.preprocess import dictionary as fairseq_dictionary
from roberta_small.preprocess.dictionary import EOS
from roberta_small.preprocess.indexed import distribute, open_writer
from roberta_small.preprocess.label_cells import label_lines
from roberta_small.preprocess.labels import check_line_counts, class_counts, class_names, classes_in
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
    labels = {split.name: label_lines(split.label, kind) for split in splits if split.label is not None}
    files = {split.name: split.label for split in splits if split.label is not None}
    recorded = _write_labels(labels, files, folder / "label", kind) if files else {"labels": None}
    counts: dict[str, Any] = {}
    size = len(encoder.dictionary)
    for split in splits:
        for name, paths in split.texts.items():
            blocks = map_text(encoder, paths, workers=workers, progress=f"binarize {split.name}")
            if split.name == "train" and name == ".":
                written = distribute(
                    blocks, folder, size, source=paths[0], valid_every=valid_every, shards=shards
                )
            else:
                place = name if name != "." or shards == 1 else shard_name(0)  # where fairseq looks for it
                with open_writer(folder / place / split.name, size) as writer:
                    for encoded in blocks:
                        writer.add(encoded.ids, encoded.sizes)
                written = {(split.name, place): writer}
            examples = len(labels[split.name]) if split.name in labels else None
            for (part, place), writer in written.items():
                check_line_counts(paths[0], writer.sentences, split.label, examples)
                counts.setdefault(part, {})[place] = {
                    "sentences": writer.sentences,
                    "tokens": writer.tokens,
                    "unknown": writer.unknown,
                    "unknown_rate": round(writer.unknown / writer.tokens, 6),
                }
    for place in counts["train"]:
        atomic_write(folder / place / "dict.txt", encoder.dictionary.text())
    return counts, recorded


def _write_labels(
    labels: Mapping[str, list[str]], files: Mapping[str, str], folder: Path, kind: LabelKind
) -> dict[str, Any]:
    """Write the lines of all splits, the training set first; returns what a report records about them."""
    train = next(iter(labels))
    if not labels[train]:
        raise UserError(f"{files[train]}: empty; write one label per line of text")
    if not kind.has_classes:
        folder.mkdir(parents=True, exist_ok=True)
        for split, lines in labels.items():
            atomic_write(folder / f"{split}.label", "".join(f"{line}\n" for line in lines))
        scaling = Scaling.of([float(line) for line in labels[train]])
        return {"labels": [], KIND: kind.name, SCALING: scaling.record()}
    classes = fairseq_dictionary.build(class_counts(labels[train], kind))
    for split, lines in labels.items():
        ids, sizes = [], []
        for number, line in enumerate(lines, start=1):
            row = classes_in(line, kind)
            for label in row:
                if label not in classes.index:
                    raise UserError(
                        f"{files[split]}, line {number}: label '{label}' does not occur in {files[train]}, "
                        f"which has: {', '.join(class_names(classes))}"
                    )
            ids += [*sorted(classes.index[label] for label in row), EOS]
            sizes.append(len(row) + 1)
        with open_writer(folder / split, len(classes)) as writer:
            writer.add(np.array(ids, dtype=np.int32), np.array(sizes, dtype=np.int64))
    atomic_write(folder / "dict.txt", classes.text())
    return {"labels": class_names(classes)} | ({} if kind.exclusive else {KIND: kind.name})
