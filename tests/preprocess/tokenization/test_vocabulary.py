import lzma
import re
from collections import Counter

import pytest
import sentencepiece

from roberta_small.preprocess.__main__ import main

ODD = {"<s>", "</s>", "<unk>", "<pad>", "<mask>", "\u0085", "\u2028"}


@pytest.fixture
def text(tmp_path, lines):
    """The same text twice: plain, and as two files of which one is compressed."""
    (tmp_path / "all.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("\n".join(lines[:100]), encoding="utf-8")
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress("\n".join(lines[100:]).encode()))
    return tmp_path


def vocabulary(model, texts, size, output, *arguments):
    command = ["vocabulary", "--sentencepiece-model", model, "--size", size, "--out", output]
    return main([str(word) for word in [*command, "--text", *texts, *arguments]])


def read_dictionary(path):
    pairs = [line.rsplit(" ", 1) for line in path.read_text(encoding="utf-8").splitlines()]
    return {token: int(count) for token, count in pairs}


@pytest.mark.parametrize("fixture", ["model", "identity_model"])
def test_most_frequent_pieces_in_model_order(text, lines, request, fixture):
    model = request.getfixturevalue(fixture)
    assert vocabulary(model, [text / "a.txt", text / "b.txt.xz"], 30, text / "dict.txt") == 0

    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    counts = Counter(token for line in lines for token in processor.encode(line, out_type=str))
    tokens = [token for i in range(len(processor)) if (token := processor.id_to_piece(i)) not in ODD]
    chosen = sorted(tokens, key=lambda token: (-counts[token], tokens.index(token)))[:25]
    expected = {token: counts[token] for token in tokens if token in chosen}
    assert list(read_dictionary(text / "dict.txt").items()) == list(expected.items())


def test_pieces_that_do_not_occur_fill_up(text, model):
    (text / "short.txt").write_text("le livre\n")
    assert vocabulary(model, [text / "short.txt"], 30, text / "dict.txt") == 0
    counts = read_dictionary(text / "dict.txt")
    assert len(counts) == 25
    assert 0 < sum(count > 0 for count in counts.values()) < 25


def test_apostrophes(text, model):
    (text / "curly.txt").write_text("j’ai lu c’est j'ai\n", encoding="utf-8")
    vocabulary(model, [text / "curly.txt"], 62, text / "plain.txt")
    vocabulary(model, [text / "curly.txt"], 62, text / "normal.txt", "--normalize-apostrophes")
    plain, normal = read_dictionary(text / "plain.txt"), read_dictionary(text / "normal.txt")
    assert sum(plain[token] for token in plain if "'" in token) == 1
    assert sum(normal[token] for token in normal if "'" in token) == 3


def test_trained_model_is_used(text):
    assert vocabulary(text / "own.model", [text / "all.txt"], 62, text / "dict.txt", "--train") == 0
    processor = sentencepiece.SentencePieceProcessor(model_file=str(text / "own.model"))
    tokens = [processor.id_to_piece(i) for i in range(len(processor))]
    assert list(read_dictionary(text / "dict.txt")) == tokens[3:]
    assert len(tokens[3:]) == 62 - 5


def test_existing_files_are_kept_unless_told(text, model, capsys):
    (text / "dict.txt").write_text("mine 1\n")
    (text / "own.model").write_text("mine")
    assert vocabulary(model, [text / "all.txt"], 30, text / "dict.txt") == 1
    assert vocabulary(text / "own.model", [text / "all.txt"], 62, text / "new.txt", "--train") == 1
    assert (text / "dict.txt").read_text() == "mine 1\n"
    assert (text / "own.model").read_text() == "mine"
    assert re.search(r"own\.model: .*--overwrite", capsys.readouterr().err)
    assert vocabulary(model, [text / "all.txt"], 30, text / "dict.txt", "--overwrite") == 0


@pytest.mark.parametrize(
    ("size", "name", "arguments", "message"),
    [
        (500, "all.txt", [], "--size 500: "),
        (5, "all.txt", [], "--size 5: "),
        (30, "absent.txt", [], r"absent\.txt: "),
        (30, "empty.txt", [], r"empty\.txt: "),
        (30, "latin.txt", [], r"latin\.txt, line 2: .*\b2\b.*UTF-8"),
        (5, "all.txt", ["--train"], "--size 5: "),
        (30, "absent.txt", ["--train"], r"absent\.txt: "),
        (30, "latin.txt", ["--train"], r"latin\.txt, line 2: .*\b2\b.*UTF-8"),
        (5000, "all.txt", ["--train"], "4,995"),
    ],
)
def test_fault_is_a_clear_error_and_leaves_nothing(text, model, capsys, size, name, arguments, message):
    (text / "empty.txt").touch()
    (text / "latin.txt").write_bytes(b"le\nd\xe9j\xe0\n")
    model = text / "new.model" if arguments else model
    before = sorted(text.iterdir())
    assert vocabulary(model, [text / name], size, text / "dict.txt", *arguments) == 1
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1
    assert sorted(text.iterdir()) == before
