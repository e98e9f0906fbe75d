"""Text in tokens (`--tokenizer words`), against SentencePiece's ids and fairseq-preprocess."""

from pathlib import Path

import sentencepiece
from fairseq import options
from fairseq_cli import preprocess as stock

from roberta_small.preprocess.__main__ import main

SPLITS = ("train", "valid")


def write(path, lines):
    Path(path).write_bytes("".join(f"{line}\n" for line in lines).encode())


def content(folder):
    names = [f"{split}.{end}" for split in SPLITS for end in ("bin", "idx")]
    return {name: (Path(folder) / name).read_bytes() for name in names}


def test_tokens_give_what_their_text_and_stock_fairseq_give(workdir, model, lines):
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    write("dict.txt", [f"{processor.id_to_piece(i)} 1" for i in range(3, len(processor)) if i % 9])
    for split, rows in zip(SPLITS, ([*lines[:60], "漢字 un"], lines[60:80]), strict=True):
        write(f"{split}.input0", rows)
        write(f"{split}.spm", [" ".join(processor.encode(row, out_type=str)) for row in rows])
        write(f"{split}.label", ["0" if i % 2 else "1" for i in range(len(rows))])
    for kind, tokenizer in (("input0", model), ("spm", "words")):
        words = [f"train.{kind}", "--valid", f"valid.{kind}", "--test", "none", "--dict", "dict.txt"]
        assert main(["prepare", *words, "--tokenizer", tokenizer, "--out", f"from-{kind}"]) == 0
    assert content("from-spm/input0") == content("from-input0/input0")
    assert content("from-spm/label") == content("from-input0/label")
    words = ["--only-source", "--trainpref", "train.spm", "--validpref", "valid.spm", "--srcdict", "dict.txt"]
    stock.main(options.get_preprocessing_parser().parse_args([*words, "--destdir", "stock"]))
    assert content("from-spm/input0") == content("stock")
