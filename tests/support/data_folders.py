"""Binarized folders written with fairseq's own builder, independent of `preprocess`."""

import random
from pathlib import Path

import torch
from fairseq.data import Dictionary, indexed_dataset

PIECES = 40
EOS = 2
FIRST_PIECE = 4


def write_split(folder: Path, split: str, rows: list[list[int]]) -> None:
    """One `.bin`/`.idx` pair; each row gets its `</s>`."""
    folder.mkdir(parents=True, exist_ok=True)
    builder = indexed_dataset.make_builder(str(folder / f"{split}.bin"), impl="mmap", vocab_size=PIECES)
    for row in rows:
        builder.add_item(torch.tensor([*row, EOS]))
    builder.finalize(str(folder / f"{split}.idx"))


def write_dictionary(path: Path, words: list[str]) -> Dictionary:
    dictionary = Dictionary()
    for word in words:
        dictionary.add_symbol(word)
    path.parent.mkdir(parents=True, exist_ok=True)
    dictionary.save(str(path))
    return dictionary


def write_data(root: Path, *, sizes=None, classes=("0", "1"), pairs=False, longest=30, seed=0) -> Path:
    """A folder for sentence classification whose label is learnable: it decides the first piece."""
    rng = random.Random(seed)
    for split, size in (sizes or {"train": 48, "valid": 16, "test": 16}).items():
        labels = [i % len(classes) for i in range(size)]
        rng.shuffle(labels)

        def sentence(label):
            rest = [
                rng.randrange(FIRST_PIECE + 8, FIRST_PIECE + PIECES) for _ in range(rng.randrange(longest))
            ]
            return [FIRST_PIECE + label, *rest]

        write_split(root / "input0", split, [sentence(label) for label in labels])
        if pairs:
            write_split(root / "input1", split, [sentence(label) for label in labels])
        write_split(root / "label", split, [[FIRST_PIECE + label] for label in labels])
    for name in ("input0", "input1") if pairs else ("input0",):
        write_dictionary(root / name / "dict.txt", [f"piece{i}" for i in range(PIECES)])
    write_dictionary(root / "label" / "dict.txt", list(classes))
    return root


def write_shards(root: Path, sentences: list[int]) -> Path:
    """Running text in a shard for each number of sentences of 60 pieces; each shard has other ones."""
    for number, count in enumerate(sentences):
        folder = root / f"shard{number}"
        pieces = [(number * 17 + i * 7) % PIECES + FIRST_PIECE for i in range(60)]
        write_split(folder, "train", [pieces] * count)
        write_dictionary(folder / "dict.txt", [f"piece{i}" for i in range(PIECES)])
    write_split(root / "shard0", "valid", [pieces] * 2)
    return root
