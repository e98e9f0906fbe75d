"""Files of labelled text in the working directory, and data folders prepared from them."""

import csv
import functools
import json
import tempfile
from pathlib import Path

import sentencepiece

from roberta_small.preprocess.__main__ import main
from tests.support import tiny_tokenizers


@functools.cache
def tokenizer():
    """A SentencePiece model; a new one for each data folder would take a second."""
    prefix = Path(tempfile.mkdtemp()) / "tiny"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(tiny_tokenizers.lines()),
        model_prefix=str(prefix),
        vocab_size=40,
        minloglevel=2,
    )
    return f"{prefix}.model"


def texts(count=60, seed=2):
    return [f"{line} {i}" for i, line in enumerate(tiny_tokenizers.lines(count, seed))]


def write_csv(path, rows, header=("text", "label")):
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
    return str(path)


def write_json_lines(path, rows):
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def prepare(*words, expect=0):
    """`prepare` to the folder `data`, without --tokenizer with that of these tests."""
    own = [] if "--tokenizer" in words else ["--tokenizer", tokenizer()]
    assert main(["prepare", *map(str, words), *own, "--out", "data"]) == expect


def lines(name):
    """The lines of a file in `data/text`."""
    return Path("data/text", name).read_bytes().decode().removesuffix("\n").split("\n")


def examples(split):
    return list(zip(lines(f"{split}.input0"), lines(f"{split}.label"), strict=True))


def content(name):
    """A JSON file of the data folder."""
    return json.loads(Path("data", name).read_text(encoding="utf-8"))
