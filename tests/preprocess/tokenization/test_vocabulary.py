import lzma
from collections import Counter

import pytest
import sentencepiece

from roberta_small.common.errors import UserError
from roberta_small.preprocess.tokenization.encoder import load_model
from roberta_small.preprocess.tokenization.vocabulary import build_vocabulary, train_model

ODD = {"<s>", "</s>", "<unk>", "<pad>", "<mask>", "\u0085", "\u2028"}


@pytest.fixture
def text(tmp_path, lines):
    """The same text twice: plain, and as two files of which one is compressed."""
    (tmp_path / "all.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("\n".join(lines[:100]), encoding="utf-8")
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress("\n".join(lines[100:]).encode()))
    return tmp_path


def vocabulary(model, texts, size, output, **options):
    words = build_vocabulary(load_model(str(model)), [str(path) for path in texts], size, **options)
    output.write_text(words.text(), encoding="utf-8")


def read_dictionary(path):
    pairs = [line.rsplit(" ", 1) for line in path.read_text(encoding="utf-8").splitlines()]
    return {token: int(count) for token, count in pairs}


@pytest.mark.parametrize("fixture", ["model", "identity_model"])
def test_most_frequent_pieces_in_model_order(text, lines, request, fixture):
    model = request.getfixturevalue(fixture)
    vocabulary(model, [text / "a.txt", text / "b.txt.xz"], 30, text / "dict.txt")

    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    counts = Counter(token for line in lines for token in processor.encode(line, out_type=str))
    tokens = [token for i in range(len(processor)) if (token := processor.id_to_piece(i)) not in ODD]
    chosen = sorted(tokens, key=lambda token: (-counts[token], tokens.index(token)))[:25]
    expected = {token: counts[token] for token in tokens if token in chosen}
    assert list(read_dictionary(text / "dict.txt").items()) == list(expected.items())


def test_pieces_that_do_not_occur_fill_up(text, model):
    (text / "short.txt").write_text("le livre\n")
    vocabulary(model, [text / "short.txt"], 30, text / "dict.txt")
    counts = read_dictionary(text / "dict.txt")
    assert len(counts) == 25
    assert 0 < sum(count > 0 for count in counts.values()) < 25


def test_apostrophes(text, model):
    (text / "curly.txt").write_text("j’ai lu c’est j'ai\n", encoding="utf-8")
    vocabulary(model, [text / "curly.txt"], 62, text / "plain.txt")
    vocabulary(model, [text / "curly.txt"], 62, text / "normal.txt", normalize_apostrophes=True)
    plain, normal = read_dictionary(text / "plain.txt"), read_dictionary(text / "normal.txt")
    assert sum(plain[token] for token in plain if "'" in token) == 1
    assert sum(normal[token] for token in normal if "'" in token) == 3


@pytest.mark.parametrize(
    ("size", "name", "message"),
    [
        (500, "all.txt", "--vocabulary-size 500: "),
        (5, "all.txt", "--vocabulary-size 5: "),
        (30, "empty.txt", r"empty\.txt: "),
        (30, "latin.txt", r"latin\.txt, line 2: .*\b2\b.*UTF-8"),
    ],
)
def test_fault_is_a_clear_error(text, model, size, name, message):
    (text / "empty.txt").touch()
    (text / "latin.txt").write_bytes(b"le\nd\xe9j\xe0\n")
    with pytest.raises(UserError, match=message):
        vocabulary(model, [text / name], size, text / "dict.txt")


def test_too_many_tokens_for_a_new_model(text):
    with pytest.raises(UserError, match=r"4,995.*--vocabulary-size"):
        train_model([str(text / "all.txt")], 4995)
