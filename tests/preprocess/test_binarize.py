"""Binary data, against SentencePiece and fairseq-preprocess."""

import gzip
import lzma
import re
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from fairseq import options
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq_cli import preprocess as stock

from roberta_small.common.errors import UserError
from roberta_small.preprocess.__main__ import main
from roberta_small.preprocess.tokenization.encoder import load_model
from tests.support.binarized_files import assert_same_files, labelled, running_text, write, write_dictionary

ODD_LINES = [
    "un  livre   très long",
    "un\tlivre\u00a0long\u3000court",
    "fin\u2028de ligne\u0085ici \u0085 \u2028",
    "\u0085",
    "",
    "   ",
    "emoji 😀😀 Ω≈ç 漢字",
    "espace finale \r",
    "l’auteur de l'ʼhistoire",
    "<s> </s> <unk> <pad> <mask> madeupword0000",
    "zéro\u200blargeur \ufeff \x1c \x0b\x0c",
    "nul \x00 ici",
    "long " * 3000,
    "déjà de\u0301ja\u0300 ﬁn ½",
]


def write_split(name, lines, labels):
    write(Path(f"{name}.input0"), lines)
    write(Path(f"{name}.label"), labels)


def run_stock(*arguments):
    stock.main(options.get_preprocessing_parser().parse_args(["--only-source", *arguments]))


def write_tokens(model, text, tokens):
    """The text of tokens that stock tools put between SentencePiece and fairseq."""
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    lines = Path(text).read_bytes().decode().removesuffix("\n").split("\n")
    write(Path(tokens), [" ".join(processor.encode(line, out_type=str)) for line in lines])


@pytest.fixture(params=["model", "identity_model"])
def any_model(request):
    return request.getfixturevalue(request.param)


def test_identical_to_sentencepiece_and_fairseq_preprocess(workdir, any_model, lines):
    write_dictionary(any_model, extra=["😀😀", "Ω"])
    text = lines[:50] + ODD_LINES + lines[50:90]
    write_split("train", text, (["négatif", "positif", "neutre", "négatif"] * len(text))[: len(text)])
    write_split("valid", ODD_LINES, ["positif"] * len(ODD_LINES))
    labelled(any_model, "bin", "train", "valid", workers=2)
    for split in ("train", "valid"):
        write_tokens(any_model, f"{split}.input0", f"{split}.tokens")
    prefixes = ["--trainpref", "train.tokens", "--validpref", "valid.tokens"]
    run_stock(*prefixes, "--srcdict", "dict.txt", "--destdir", "stock")
    run_stock("--trainpref", "train.label", "--validpref", "valid.label", "--destdir", "stock-label")
    assert_same_files("bin/input0", "stock")
    assert_same_files("bin/label", "stock-label")


def test_blocks_do_not_show(workdir, model, lines, monkeypatch):
    """Text read in many small blocks by three threads, against fairseq-preprocess on the whole."""
    monkeypatch.setattr("roberta_small.preprocess.readers.lines.BLOCK_BYTES", 100)
    write_dictionary(model)
    write(Path("text"), lines + ODD_LINES)
    running_text(model, "bin", ["text"], workers=3)
    write_tokens(model, "text", "tokens")
    run_stock("--trainpref", "tokens", "--srcdict", "dict.txt", "--destdir", "stock")
    assert_same_files("bin", "stock", splits=["train"])


def test_compressed_files_are_joined_in_order(workdir, model, lines):
    write_dictionary(model)
    Path("a.xz").write_bytes(lzma.compress("\n".join(lines[:30]).encode()))
    Path("b.gz").write_bytes(gzip.compress(("\n".join(lines[30:50]) + "\n").encode()))
    write(Path("all.txt"), lines[:50])
    running_text(model, "bin", ["a.xz", "b.gz"], ["all.txt"])
    assert Path("bin/train.bin").read_bytes() == Path("bin/valid.bin").read_bytes()
    assert Path("bin/train.idx").read_bytes() == Path("bin/valid.idx").read_bytes()


def test_sentence_pairs(workdir, model, lines):
    write_dictionary(model)
    write_split("train", lines[:10], ["0", "1"] * 5)
    write(Path("train.second"), lines[10:20])
    labelled(model, "bin", "train", inputs=("input0", "second"))
    for name, text in (("input0", "train.input0"), ("input1", "train.second")):
        write_tokens(model, text, "tokens")
        run_stock("--trainpref", "tokens", "--srcdict", "dict.txt", "--destdir", f"stock-{name}")
        assert_same_files(f"bin/{name}", f"stock-{name}", splits=["train"])


def test_apostrophes_are_left_alone_unless_requested(workdir, model):
    write_dictionary(model, left_out=1000)
    write(Path("curly"), ["c’est j’ai"])
    write(Path("straight"), ["c'est j'ai"])
    for folder, same in (("bin", False), ("again", True)):
        running_text(model, folder, ["curly"], ["straight"], apostrophes=same)
        found = (Path(folder, f"{split}.bin").read_bytes() for split in ("train", "valid"))
        assert (next(found) == next(found)) == same


def test_report_counts_and_names(workdir, model, lines):
    write_dictionary(model)
    write_split("train", lines[:6], ["b", "a", "b", "c", "a", "b"])
    report = labelled(model, "bin", "train")
    data = MMapIndexedDataset("bin/input0/train")
    tokens = np.concatenate([data[i].numpy() for i in range(len(data))])
    unknown = int((tokens == 3).sum())
    assert report["splits"]["train"]["input0"] == {
        "sentences": 6,
        "tokens": len(tokens),
        "unknown": unknown,
        "unknown_rate": round(unknown / len(tokens), 6),
    }
    assert 0 < unknown < len(tokens)
    assert report["labels"] == ["b", "a", "c"]


FAULTS = {
    "missing text": (lambda: Path("train.input0").unlink(), r"train\.input0"),
    "missing label": (lambda: Path("valid.label").unlink(), r"valid\.label"),
    "missing dictionary": (lambda: Path("dict.txt").unlink(), r"dict\.txt"),
    "empty text": (lambda: write(Path("train.input0"), []), r"train\.input0: "),
    "empty label": (lambda: write_split("train", [], []), r"train\.label: "),
    "label count": (
        lambda: write(Path("train.label"), ["0", "1", "0"]), r"train\.input0 .*\b4\b.*train\.label .*\b3\b",
    ),
    "unknown label": (
        lambda: write(Path("valid.label"), ["0", "2"]), r"valid\.label, line 2: .*'2'.*train\.label.* 0, 1",
    ),
    "wrong dictionary": (
        lambda: write(Path("dict.txt"), [f"word{i} 1" for i in range(30)]), r"dict\.txt: .*\b0\b.*\b30\b",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_a_clear_error_and_leaves_nothing(workdir, model, lines, fault):
    spoil, message = FAULTS[fault]
    write_dictionary(model)
    write_split("train", lines[:4], ["0", "1", "0", "1"])
    write_split("valid", lines[4:6], ["0", "1"])
    spoil()
    before = sorted(path.name for path in workdir.iterdir())
    with pytest.raises((UserError, FileNotFoundError)) as error:
        labelled(model, "bin", "train", "valid")
    assert re.search(message, str(error.value))
    assert sorted(path.name for path in workdir.iterdir()) == before


@pytest.mark.parametrize("content", [b"", b"un livre\n", bytes(range(256)), None])
def test_not_a_sentencepiece_model(tmp_path, model, content):
    if content is None:  # a token that is not UTF-8: SentencePiece loads the model, and fails at the token
        content = Path(model).read_bytes().replace("▁".encode(), b"\xe2\xd6\x81", 1)
    (tmp_path / "wrong.model").write_bytes(content)
    with pytest.raises(UserError, match=r"wrong\.model: "):
        load_model(str(tmp_path / "wrong.model"))


def test_tokenized_text_gives_what_its_text_and_stock_fairseq_give(workdir, model, lines):
    """`--tokenizer words`."""
    write_dictionary(model, left_out=9)
    for split, rows in (("train", [*lines[:60], "漢字 un"]), ("valid", lines[60:80])):
        write_split(split, rows, ["0" if i % 2 else "1" for i in range(len(rows))])
        write_tokens(model, f"{split}.input0", f"{split}.spm")
    for kind, tokenizer in (("input0", model), ("spm", "words")):
        words = [f"train.{kind}", "--valid", f"valid.{kind}", "--test", "none", "--dict", "dict.txt"]
        assert main(["prepare", *words, "--tokenizer", tokenizer, "--out", f"from-{kind}"]) == 0
    words = ["--trainpref", "train.spm", "--validpref", "valid.spm", "--srcdict", "dict.txt"]
    run_stock(*words, "--destdir", "stock")
    for split in ("train", "valid"):
        for name in (f"{split}.bin", f"{split}.idx"):
            found = Path("from-spm/input0", name).read_bytes()
            assert found == Path("from-input0/input0", name).read_bytes() == Path("stock", name).read_bytes()
