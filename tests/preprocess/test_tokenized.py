"""Text in tokens, against SentencePiece's ids and fairseq-preprocess."""

from pathlib import Path

import sentencepiece
from fairseq import options
from fairseq_cli import preprocess as stock

from roberta_small.preprocess.__main__ import main

SPLITS = ("train", "valid")


def write(path, lines):
    Path(path).write_bytes("".join(f"{line}\n" for line in lines).encode())


def make(model, lines):
    """Plain text, the same in tokens, labels, and a dictionary that lacks some tokens."""
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    write("dict.txt", [f"{processor.id_to_piece(i)} 1" for i in range(3, len(processor)) if i % 9])
    for split, rows in zip(SPLITS, ([*lines[:60], "", "漢字 un"], lines[60:80]), strict=True):
        write(f"{split}.input0", rows)
        write(f"{split}.spm", [" ".join(processor.encode(row, out_type=str)) for row in rows])
        write(f"{split}.label", ["0" if i % 2 else "1" for i in range(len(rows))])


def binarize(*arguments):
    return main(["binarize", "--dict", "dict.txt", *arguments])


def content(folder):
    names = ["dict.txt", *(f"{split}.{end}" for split in SPLITS for end in ("bin", "idx"))]
    return {name: (Path(folder) / name).read_bytes() for name in names}


def test_pieces_give_what_their_text_and_stock_fairseq_give(tmp_path, monkeypatch, model, lines):
    monkeypatch.chdir(tmp_path)
    make(model, lines)
    prefixes = ["--trainpref", "train", "--validpref", "valid"]
    assert binarize("--sentencepiece-model", model, *prefixes, "--destdir", "text") == 0
    assert binarize("--tokenized", *prefixes, "--inputs", "spm", "--destdir", "tokens") == 0
    assert content("tokens/input0") == content("text/input0")
    assert content("tokens/label") == content("text/label")
    words = ["--only-source", "--trainpref", "train.spm", "--validpref", "valid.spm", "--srcdict", "dict.txt"]
    stock.main(options.get_preprocessing_parser().parse_args([*words, "--destdir", "stock"]))
    assert content("tokens/input0") == content("stock")


def test_running_text(tmp_path, monkeypatch, model, lines):
    monkeypatch.chdir(tmp_path)
    make(model, lines)
    files = ["--only-source", "--trainpref", "train.spm", "--validpref", "valid.spm"]
    assert binarize("--tokenized", *files, "--destdir", "bin") == 0
    assert binarize("--tokenized", "--trainpref", "train", "--validpref", "valid", "--inputs", "spm",
                    "--destdir", "labelled") == 0  # fmt: skip
    assert content("bin") == content("labelled/input0")


def test_plain_text_is_not_taken_for_pieces(tmp_path, monkeypatch, model, lines, capsys):
    monkeypatch.chdir(tmp_path)
    make(model, lines)
    assert binarize("--tokenized", "--only-source", "--trainpref", "train.input0", "--destdir", "bin") == 1
    error = capsys.readouterr().err.strip().split("\r")[-1]
    assert "train.input0, from line 1: " in error
    assert "--sentencepiece-model" in error
    assert not Path("bin").exists()
