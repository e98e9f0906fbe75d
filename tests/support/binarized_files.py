"""Text, dictionaries and binarized files of the tests of `preprocess binarize`."""

from pathlib import Path

import sentencepiece

from roberta_small.preprocess.__main__ import main


def write(path, lines, end="\n"):
    path.write_bytes("".join(f"{line}{end}" for line in lines).encode())


def write_dictionary(model, path="dict.txt", extra=(), left_out=3):
    """The model's tokens but each third, so that some are outside the dictionary, and `extra` symbols."""
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    tokens = [processor.id_to_piece(i) for i in range(3, len(processor)) if i % left_out]
    write(Path(path), [f"{token} 1" for token in [*tokens, *extra] if token.split() == [token]])


def assert_same_files(ours, stocks, splits=("train", "valid")):
    for name in ["dict.txt"] + [f"{split}.{kind}" for split in splits for kind in ("bin", "idx")]:
        assert (Path(ours) / name).read_bytes() == (Path(stocks) / name).read_bytes(), name


def binarize(model, *arguments):
    return main(
        ["binarize", "--sentencepiece-model", model, "--srcdict", "dict.txt", "--destdir", "bin", *arguments]
    )
