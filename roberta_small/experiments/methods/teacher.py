"""The teacher of a distillation reads the text once; its vectors are kept for all passes of the student.

FOLDER has the vectors in shards, fp16, and teacher.json with their SHA-256, written last:

    train-00000.f16, train-00000.sizes.npy, valid-00000.f16, ..., teacher.json

Shards that are complete are not computed again after an interruption. If the tokens of the student's
dictionary are tokens of the teacher, every token has a vector: the last hidden state of the teacher for it.
Otherwise each text is decoded and read with the teacher's tokenizer, and has one vector, the mean.

L tokens of a text, D width of the teacher, V entries of the student's dictionary.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset
from fairseq.utils import set_torch_seed
from numpy.typing import NDArray
from omegaconf import OmegaConf
from tqdm import tqdm

from roberta_small.common.data_folder import shards_of
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_open, atomic_write, read_object, sha256
from roberta_small.common.hardware import sizes_of
from roberta_small.common.tables import duration
from roberta_small.eval.model import open_model
from roberta_small.eval.network import Checkpoint, build_encoder, find_device
from roberta_small.eval.precision import AUTO
from roberta_small.eval.texts import TextInput, batches, pad
from roberta_small.experiments.plan import newest_intact
from roberta_small.experiments.recipe.fairseq_flags import configuration
from roberta_small.experiments.sweep import Sweep, Training
from roberta_small.fairseq_plugin.checkpoints.initialization import require_fit
from roberta_small.fairseq_plugin.checkpoints.loading import bare_state, load_checkpoint
from roberta_small.fairseq_plugin.tasks.distillation import (
    RECORD,
    TEXTS,
    TOKENS,
    DistillationTask,
    check_text_weight,
)
from roberta_small.fairseq_plugin.training.precision import resolve
from roberta_small.preprocess import dictionary as fairseq_dictionary
from roberta_small.preprocess.dictionary import BOS, EOS, PAD, SPECIALS, UNK, WORD_START

SHARD_TOKENS = 1 << 18
"""Tokens of a shard, of which each may have a vector: 200 MB for 384 dimensions."""
PENDING = "pending.json"
"""The record of the shards that are complete, until all are."""
VERSION = 2
"""Of the vectors; to be raised when the same text gives others."""
SHARED = 0.95
"""Fraction of the student's tokens that must be tokens of the teacher, to have a vector for every token."""


def prepare(sweep: Sweep, training: Training, vectors: str, student: str) -> None:
    """Write the teacher's vectors and the first student into the folder of a run, unless they are there."""
    settings, folder = sweep.settings, training.run.folder
    start, data = training.run.checkpoint, shards_of(sweep.data)
    logging.getLogger("roberta_small").setLevel(logging.WARNING)
    words = [os.pathsep.join(map(str, data)), *training.flags, "--seed", str(settings.seed)]
    cfg = configuration(words, "fairseq-train")
    identity = {
        "teacher": training.identity["teacher"]["sha256"],
        "data": training.identity["data"]["sha256"],
        "tokens_per_sample": cfg.task.tokens_per_sample,
        "version": VERSION,
    }
    task, device = DistillationTask.setup_task(cfg.task), find_device(settings.device)
    record = read_record(folder / vectors, identity)
    # A student of an earlier start may have been made with other flags, or by another teacher.
    begins = newest_intact(folder) is None
    complete = "width" in record  # which is written with the last vectors
    if complete and (start is not None or not begins):
        return
    check_text_weight(getattr(cfg.criterion, "text_weight", 0.0))
    # Errors of the student come before the teacher reads for hours.
    set_torch_seed(settings.seed)
    model = task.build_model(cfg.model)
    if begins and start is not None:
        require_fit("--start", start, load_checkpoint(start, optimizer=False), model, task)
    precision = record.get("precision") or resolve(getattr(cfg.model, "precision", AUTO), device)
    path = Path(training.identity["teacher"]["path"])
    teacher = open_teacher(path, data[0] / "dict.txt", device, precision)
    if not complete:
        unit = "text" if teacher.ids is None else "token"
        print(
            f"the teacher reads the text once, resumable: a vector for every {unit}, {precision}", flush=True
        )
        splits = ["train", *training.recipe.valid_subsets]
        write_vectors(teacher, task, folder / vectors, splits, record)
    if begins and start is None:
        initial_student(teacher, model, cfg, folder / student, settings.seed)
    if device.type == "cuda":  # the student is trained by another process
        del teacher
        torch.cuda.empty_cache()


@dataclass(eq=False)
class Teacher:
    """A teacher, and how it reads the student's tokens."""

    checkpoint: Checkpoint
    encoder: Any
    """In evaluation mode on its device."""
    device: torch.device
    precision: str
    """Of its matrix products."""
    symbols: list[str]
    """Of the student."""
    ids: NDArray[np.int64] | None = None
    """(V,) the teacher's id of each token of the student; None if it reads decoded text."""
    text: TextInput | None = None
    """The teacher's tokenizer, if it reads decoded text."""
    warned: bool = False
    """That texts are too long."""

    def read(self, rows: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        """Rows of the student's ids -> rows of the teacher's; unknown tokens of decoded text are left out."""
        if self.ids is not None:
            return [self.ids[row] for row in rows]
        assert self.text is not None
        tokens = [[self.symbols[i] for i in row.tolist() if i >= len(SPECIALS)] for row in rows]
        found = self.text.encode(["".join(row).replace(WORD_START, " ").strip() for row in tokens])
        cut = sum(length > len(row) for length, row in zip(found.lengths, found.rows, strict=True))
        if cut and not self.warned:
            self.warned = True
            tqdm.write(
                f"warning: {self.checkpoint.path}: reads {self.text.format.max_positions} tokens; {cut:,} of "
                f"{len(rows):,} texts have more, and are cut for the teacher but not for the student; use a "
                "smaller -- --tokens-per-sample",
                file=sys.stderr,
            )
        return found.rows

    @torch.inference_mode()
    def hidden(self, rows: list[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        """The last hidden states of each row of the teacher's ids, (L, D)."""
        ids_BL = torch.from_numpy(pad(rows, PAD)).to(self.device)
        features_BLD = self.encoder(ids_BL, features_only=True)[0].float().cpu().numpy()
        return [features_LD[: len(row)] for features_LD, row in zip(features_BLD, rows, strict=True)]


def open_teacher(path: Path, dictionary: Path, device: torch.device, precision: str) -> Teacher:
    """The teacher of a checkpoint or run for text in a dictionary.

    Raises `UserError` if the checkpoint cannot be read, or lacks the dictionary or tokenizer that it needs to
    read the text.
    """
    model = open_model(path)
    network = build_encoder(model.checkpoint, device, precision)
    layers = network.encoder.sentence_encoder
    symbols = fairseq_dictionary.load(str(dictionary)).with_mask().symbols
    teacher = Teacher(model.checkpoint, network, device, precision, symbols)
    try:
        theirs = fairseq_dictionary.load(str(model.dictionary)).with_mask().index
        # A left-to-right teacher has no <mask>, the last id.
        theirs = {name: i for name, i in theirs.items() if i < layers.embed_tokens.num_embeddings}
        known = [name in theirs for name in symbols[len(SPECIALS) :]]
        if sum(known) < SHARED * len(known):
            text_format = replace(model.input_format, shorten=True)
            teacher.text = TextInput(model.encoder, text_format, pairs=False)
    except UserError as error:
        reason = str(error).partition(";")[0]
        raise UserError(
            f"{path}: as a teacher, it needs its dictionary and tokenizer; put them beside it ({reason})"
        ) from None
    if teacher.text is None:
        teacher.ids = np.array([theirs.get(name, UNK) for name in symbols], dtype=np.int64)
        teacher.ids[: len(SPECIALS)] = np.arange(len(SPECIALS))
        # Without a tokenizer, the teacher is a checkpoint of fairseq; the ends of CamemBERT are others.
        with contextlib.suppress(UserError):
            row = TextInput(model.encoder, model.input_format, pairs=False).encode([""]).rows[0]
            teacher.ids[BOS], teacher.ids[EOS] = row[0], row[-1]
        # Every sentence of a text ends in </s>, after which a pair's second text would begin.
        if hasattr(layers, "embed_second"):
            del layers.embed_second
    elif not any(name.startswith(WORD_START) for name in symbols):
        raise UserError(
            f"{dictionary}: not subword tokens of SentencePiece, from which the text could be restored; "
            "prepare the text with a SentencePiece model"
        )
    return teacher


def read_record(folder: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """The record of a folder's vectors, as in teacher.json; without `shards` if there are none.

    `identity` is what the vectors depend on. Raises `UserError` for vectors of another teacher or text, and
    for a file that is missing or has changed.
    """
    path = next((folder / name for name in (RECORD, PENDING) if (folder / name).is_file()), None)
    if path is None:
        return {"identity": identity}
    record = read_object(path, "delete the folder, and the teacher reads the text again")
    if record.get("identity") != identity:
        raise UserError(
            f"{folder}: vectors of another teacher or other text; delete the folder, or choose another --out"
        )
    remedy = f"delete {folder}, and the teacher reads the text again"
    for shard in itertools.chain(*record["shards"].values()):
        for key, digest in (("file", "sha256"), ("sizes", "sizes_sha256")):
            file = folder / shard[key]
            if not file.is_file():
                raise UserError(f"{file}: no such file; {remedy}")
            if sha256(file) != shard[digest]:
                raise UserError(f"{file}: changed since the teacher wrote it, or corrupt; {remedy}")
    return record


def write_vectors(
    teacher: Teacher, task: DistillationTask, folder: Path, splits: list[str], record: dict[str, Any]
) -> None:
    """Write the vectors of the splits that a record of `read_record` lacks, and then teacher.json.

    Raises `UserError` for text that is longer than the teacher's positions.
    """
    texts = {name: task.texts(split, place) for split in splits for name, place in task.parts(split)}
    longest = max(int(found.sizes.max()) for found in texts.values())
    if teacher.ids is not None and longest > teacher.checkpoint.positions:
        raise UserError(
            f"{teacher.checkpoint.path}: {teacher.checkpoint.positions} positions, but texts have up to "
            f"{longest} tokens; use -- --tokens-per-sample {teacher.checkpoint.positions}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    vectors = TEXTS if teacher.ids is None else TOKENS
    record = {"shards": {}} | record | {"vectors": vectors, "precision": teacher.precision}
    total = sum(int(found.sizes.sum()) for found in texts.values())
    begun = done = sum(shard["tokens"] for shard in itertools.chain(*record["shards"].values()))
    before, started = record.get("seconds", 0.0), time.monotonic()
    with tqdm(total=total, initial=begun, unit="token", unit_scale=True, desc="teacher", disable=None) as bar:
        for name, found in texts.items():
            shards, ends = record["shards"].setdefault(name, []), np.cumsum(found.sizes)
            start = sum(shard["texts"] for shard in shards)
            while start < len(ends):
                read = 0 if start == 0 else ends[start - 1]
                stop = max(start + 1, int(np.searchsorted(ends, read + SHARD_TOKENS, side="right")))
                file = folder / f"{name}-{len(shards):05d}.f16"
                shards.append(_write_shard(teacher, found, range(start, stop), file, bar))
                start, done, elapsed = stop, done + shards[-1]["tokens"], time.monotonic() - started
                record["seconds"] = before + elapsed
                atomic_write(folder / PENDING, json.dumps(record) + "\n")
                if bar.disable:  # not a terminal
                    speed = (done - begun) / elapsed
                    print(
                        f"teacher: {done:,} of {total:,} tokens  {speed:,.0f} tokens/s  "
                        f"left {duration((total - done) / speed)}",
                        flush=True,
                    )
    record |= _moments(folder, record["shards"][next(iter(texts))])
    atomic_write(folder / RECORD, json.dumps(record, indent=1) + "\n")
    (folder / PENDING).unlink(missing_ok=True)


def _write_shard(
    teacher: Teacher, texts: FairseqDataset, part: range, file: Path, bar: tqdm
) -> dict[str, Any]:
    """Compute the vectors of some texts and write them; returns what teacher.json records of them."""
    rows = [texts[i].numpy() for i in part]
    theirs, vectors = teacher.read(rows), {}
    for batch in batches(np.array(list(map(len, theirs))), sizes_of(teacher.device.type).teacher_tokens):
        hidden = teacher.hidden([theirs[i] for i in batch])
        for index, hidden_LD in zip(batch.tolist(), hidden, strict=True):
            own = hidden_LD if teacher.text is None else hidden_LD.mean(0, keepdims=True)
            vectors[index] = own.astype(np.float16)
        bar.update(sum(len(rows[i]) for i in batch.tolist()))
    sizes, sizes_file = [len(vectors[index]) for index in range(len(rows))], file.with_suffix(".sizes.npy")
    with atomic_open(file, "wb") as stream:
        for index in range(len(rows)):
            stream.write(vectors[index].tobytes())
    with atomic_open(sizes_file, "wb") as stream:
        np.save(stream, np.array(sizes))
    return {
        "file": file.name,
        "sizes": sizes_file.name,
        "texts": len(rows),
        "tokens": sum(map(len, rows)),
        "vectors": sum(sizes),
        "sha256": sha256(file),
        "sizes_sha256": sha256(sizes_file),
    }


def _moments(folder: Path, shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The width, and mean and standard deviation of each dimension, to standardize vectors.

    Of the first `SHARD_TOKENS` vectors: one shard if each token has a vector, many if each text has one.
    """
    ends = itertools.accumulate(shard["vectors"] for shard in shards)
    first = [shard for shard, end in zip(shards, ends, strict=True) if end <= SHARD_TOKENS] or shards[:1]
    read = [np.fromfile(folder / shard["file"], np.float16).reshape(shard["vectors"], -1) for shard in first]
    vectors_ND = np.concatenate(read).astype(np.float32)
    std_D = np.maximum(vectors_ND.std(0), 1e-6)
    return {"width": vectors_ND.shape[1], "mean": vectors_ND.mean(0).tolist(), "std": std_D.tolist()}


def initial_student(teacher: Teacher, model: Any, cfg: Any, output: Path, seed: int) -> None:
    """Write a checkpoint of the student with the teacher's embeddings of the same tokens.

    They are rotated into the student's width by a random matrix with orthonormal rows, which keeps their
    lengths and angles; a narrower student gets a projection. All other weights are those of `model`.
    """
    table = model.encoder.sentence_encoder.embed_tokens
    if teacher.ids is not None:
        theirs_VD = teacher.encoder.encoder.sentence_encoder.embed_tokens.weight.detach().float().cpu()
        # A left-to-right student has no <mask>, the last id.
        rows_VD = theirs_VD[torch.from_numpy(teacher.ids[: table.num_embeddings])]
        generator = torch.Generator().manual_seed(seed)
        wide, narrow = max(table.embedding_dim, rows_VD.shape[1]), min(table.embedding_dim, rows_VD.shape[1])
        basis, _ = torch.linalg.qr(torch.randn(wide, narrow, generator=generator))
        rotation_DC = basis.T if table.embedding_dim >= rows_VD.shape[1] else basis
        rotated_VC = rows_VD @ rotation_DC
        scale = float(table.weight.detach().std() / rotated_VC.std())
        with torch.no_grad():
            table.weight.copy_(rotated_VC * scale)
            table.weight[table.padding_idx] = 0
    state = bare_state(model.state_dict(), OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))
    with atomic_open(output, "wb") as stream:
        torch.save(state, stream)
