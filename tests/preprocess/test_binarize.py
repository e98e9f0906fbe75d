import contextlib
import gzip
import json
import lzma
import re
import resource
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from fairseq import options
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq_cli import preprocess as stock

from tests.support.binarized_files import assert_same_files, binarize, write, write_dictionary

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

    assert binarize(any_model, "--trainpref", "train", "--validpref", "valid", "--workers", "2") == 0

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
    assert binarize(model, "--only-source", "--trainpref", "text", "--workers", "3") == 0
    write_tokens(model, "text", "tokens")
    run_stock("--trainpref", "tokens", "--srcdict", "dict.txt", "--destdir", "stock")
    assert_same_files("bin", "stock", splits=["train"])


def test_compressed_files_are_joined_in_order(workdir, model, lines):
    write_dictionary(model)
    Path("a.xz").write_bytes(lzma.compress("\n".join(lines[:30]).encode()))
    Path("b.gz").write_bytes(gzip.compress(("\n".join(lines[30:50]) + "\n").encode()))
    write(Path("all.txt"), lines[:50])
    binarize(model, "--only-source", "--trainpref", "a.xz", "b.gz", "--validpref", "all.txt")
    assert Path("bin/train.bin").read_bytes() == Path("bin/valid.bin").read_bytes()
    assert Path("bin/train.idx").read_bytes() == Path("bin/valid.idx").read_bytes()


def test_sentence_pairs(workdir, model, lines):
    write_dictionary(model)
    write_split("train", lines[:10], ["0", "1"] * 5)
    write(Path("train.second"), lines[10:20])
    binarize(model, "--trainpref", "train", "--inputs", "input0", "second")
    for name, text in (("input0", "train.input0"), ("input1", "train.second")):
        write_tokens(model, text, "tokens")
        run_stock("--trainpref", "tokens", "--srcdict", "dict.txt", "--destdir", f"stock-{name}")
        assert_same_files(f"bin/{name}", f"stock-{name}", splits=["train"])


def test_apostrophes_are_left_alone_unless_asked(workdir, model):
    write_dictionary(model, left_out=1000)
    write(Path("curly"), ["c’est j’ai"])
    write(Path("straight"), ["c'est j'ai"])
    binarize(model, "--only-source", "--trainpref", "curly", "--validpref", "straight")
    assert Path("bin/train.bin").read_bytes() != Path("bin/valid.bin").read_bytes()
    binarize(
        model,
        "--only-source",
        "--trainpref",
        "curly",
        "--validpref",
        "straight",
        "--normalize-apostrophes",
        "--overwrite",
    )
    assert Path("bin/train.bin").read_bytes() == Path("bin/valid.bin").read_bytes()


def test_report_counts_and_names(workdir, model, lines):
    write_dictionary(model)
    write_split("train", lines[:6], ["b", "a", "b", "c", "a", "b"])
    binarize(model, "--trainpref", "train")
    report = json.loads(Path("bin/preprocess.json").read_text())
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
    assert str(workdir) not in json.dumps({**report, "options": None, "sha256": None})


def test_same_request_is_left_alone_and_another_refused(workdir, model, lines, capsys):
    write_dictionary(model)
    write(Path("text"), lines[:5])
    arguments = ["--only-source", "--trainpref", "text"]
    binarize(model, *arguments)
    before = Path("bin/train.bin").stat()
    assert binarize(model, *arguments) == 0
    assert Path("bin/train.bin").stat() == before

    write(Path("text"), lines[:6])
    assert binarize(model, *arguments) == 1
    assert re.search(r"\bbin: .*--overwrite", capsys.readouterr().err)
    assert Path("bin/train.bin").stat() == before
    assert binarize(model, *arguments, "--overwrite") == 0
    assert len(MMapIndexedDataset("bin/train")) == 6


def test_damaged_result_is_not_taken_for_finished(workdir, model, lines):
    write_dictionary(model)
    write(Path("text"), lines[:5])
    binarize(model, "--only-source", "--trainpref", "text")
    whole = Path("bin/train.bin").read_bytes()
    Path("bin/train.bin").write_bytes(whole[:-2])
    assert binarize(model, "--only-source", "--trainpref", "text") == 1
    assert binarize(model, "--only-source", "--trainpref", "text", "--overwrite") == 0
    assert Path("bin/train.bin").read_bytes() == whole


def test_foreign_folder_is_never_replaced(workdir, model, lines, capsys):
    write_dictionary(model)
    write(Path("text"), lines[:5])
    Path("bin").mkdir()
    Path("bin/thesis.tex").touch()
    assert binarize(model, "--only-source", "--trainpref", "text", "--overwrite") == 1
    assert re.search(r": .*preprocess\.json.*--out", capsys.readouterr().err)
    assert Path("bin/thesis.tex").exists()


def truncate_xz(model):
    Path("train.xz").write_bytes(lzma.compress(b"un livre\n" * 1000)[:-20])


def rename_dictionary(model):
    write(Path("dict.txt"), [f"word{i} 1" for i in range(30)])


LABELLED = ("--trainpref", "train", "--validpref", "valid")
FAULTS = {
    "missing text": (lambda m: Path("train.input0").unlink(), LABELLED, "train.input0: No such file"),
    "missing label": (lambda m: Path("valid.label").unlink(), LABELLED, "valid.label: No such file"),
    "missing dictionary": (lambda m: Path("dict.txt").unlink(), LABELLED, r"dict\.txt: "),
    "empty text": (lambda m: write(Path("train.input0"), []), LABELLED, r"train\.input0: "),
    "empty label": (lambda m: write_split("train", [], []), LABELLED, r"train\.label: "),
    "not UTF-8": (
        lambda m: Path("valid.input0").write_bytes(b"un\nlivre\nd\xe9j\xe0\nvu\n"),
        LABELLED,
        r"valid\.input0, line 3: .*\b2\b.*UTF-8",
    ),
    "label count": (
        lambda m: write(Path("train.label"), ["0", "1", "0"]),
        LABELLED,
        r"train\.input0 .*\b4\b.*train\.label .*\b3\b",
    ),
    "unknown label": (
        lambda m: write(Path("valid.label"), ["0", "2"]),
        LABELLED,
        r"valid\.label, line 2: .*'2'.*train\.label.* 0, 1",
    ),
    "no label": (
        lambda m: write(Path("train.label"), ["0", "", "1", "1"]),
        LABELLED,
        r"train\.label, line 2: ",
    ),
    "reserved label": (lambda m: write(Path("train.label"), ["<s>"] * 4), LABELLED, "train.*label.*<s>"),
    "wrong dictionary": (rename_dictionary, LABELLED, r"dict\.txt: .*\b0\b.*\b30\b"),
    "no dictionary": (
        lambda m: write(Path("dict.txt"), ["a 1", "b"]),
        LABELLED,
        r"dict\.txt, line 2: ",
    ),
    "repeated symbol": (
        lambda m: write(Path("dict.txt"), ["a 1", "a 2"]),
        LABELLED,
        r"dict\.txt, line 2: .*'a'",
    ),
    "empty dictionary": (lambda m: write(Path("dict.txt"), []), LABELLED, r"dict\.txt: "),
    "truncated xz": (
        truncate_xz,
        ("--only-source", "--trainpref", "train.xz"),
        "train.xz: ",
    ),
    "not xz": (
        lambda m: Path("train.xz").write_text("un livre\n"),
        ("--only-source", "--trainpref", "train.xz"),
        "train.xz: ",
    ),
    "not gz": (
        lambda m: Path("train.gz").write_text("un livre\n"),
        ("--only-source", "--trainpref", "train.gz"),
        "train.gz: ",
    ),
    "not bz2": (
        lambda m: Path("train.bz2").write_text("un livre\n"),
        ("--only-source", "--trainpref", "train.bz2"),
        "train.bz2: ",
    ),
    "few documents": (
        lambda m: None,
        ("--only-source", "--trainpref", "train.input0", "--valid-every", "9"),
        r"train\.input0: .*\b1\b.*--valid-every 9",
    ),
    "no pre-training": (
        lambda m: None,
        (*LABELLED, "--valid-every", "9"),
        r"--valid-every 9: .*--only-source",
    ),
    "two prefixes": (lambda m: None, ("--trainpref", "train", "valid"), r"--trainpref: .*--only-source"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_a_clear_error_and_leaves_nothing(workdir, model, lines, capsys, fault):
    spoil, arguments, message = FAULTS[fault]
    write_dictionary(model)
    write_split("train", lines[:4], ["0", "1", "0", "1"])
    write_split("valid", lines[4:6], ["0", "1"])
    spoil(model)
    before = sorted(path.name for path in workdir.iterdir())
    assert binarize(model, *arguments) == 1
    output = capsys.readouterr().err.strip().split("\r")[-1].splitlines()
    assert re.search(message, output[-1])
    assert output[-1].startswith("error: ")
    assert sorted(path.name for path in workdir.iterdir()) == before


@pytest.mark.parametrize("content", [b"", b"un livre\n", bytes(range(256))])
def test_not_a_sentencepiece_model(workdir, model, lines, capsys, content):
    write_dictionary(model)
    write(Path("text"), lines[:5])
    Path("wrong.model").write_bytes(content)
    assert binarize("wrong.model", "--only-source", "--trainpref", "text") == 1
    assert "wrong.model: " in capsys.readouterr().err


def test_a_piece_that_is_not_utf8_is_a_clear_error(workdir, model, lines, capsys):
    """SentencePiece loads such a model and fails when it is asked for the token."""
    write_dictionary(model)
    write(Path("text"), lines[:5])
    content = Path(model).read_bytes()
    at = content.index("▁".encode()) + 1
    Path("odd.model").write_bytes(content[:at] + b"\xd6" + content[at + 1 :])
    assert binarize("odd.model", "--only-source", "--trainpref", "text") == 1
    assert "odd.model: " in capsys.readouterr().err


@contextlib.contextmanager
def small_disk():
    """No file can grow beyond 2 kB, by the kernel's own limit; pytest's own output neither."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room_is_a_clear_error_and_leaves_nothing(workdir, model, lines, capsys):
    write_dictionary(model)
    write(Path("text"), lines)
    with small_disk():
        assert binarize(model, "--only-source", "--trainpref", "text") == 1
    output = capsys.readouterr().err.strip().split("\r")[-1].splitlines()
    # Which file is full first depends on the size of Python's buffers.
    assert re.match(r"error: bin/train\.(bin|idx): cannot be written \(File too large\)", output[-1])
    assert sorted(path.name for path in workdir.iterdir()) == ["dict.txt", "text"]


def test_interrupt_leaves_nothing(workdir, model, lines, monkeypatch):
    write_dictionary(model)
    write(Path("text"), lines)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("roberta_small.preprocess.indexed.IndexedWriter.add", interrupted)
    assert binarize(model, "--only-source", "--trainpref", "text") == 130
    assert sorted(path.name for path in workdir.iterdir()) == ["dict.txt", "text"]


def test_a_second_text_is_noticed(workdir, model, lines, capsys):
    write_dictionary(model)
    for name in ("train", "valid"):
        write_split(name, lines[:4], ["0", "1", "0", "1"])
    write(Path("train.input1"), lines[4:8])
    assert binarize(model, "--trainpref", "train", "--validpref", "valid") == 1
    error = capsys.readouterr().err
    assert "train.input1" in error
    assert "valid.input1" in error
    write(Path("valid.input1"), lines[4:8])
    assert binarize(model, "--trainpref", "train", "--validpref", "valid") == 0
    assert Path("bin/input1/valid.bin").is_file()
