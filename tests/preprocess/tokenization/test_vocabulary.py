import lzma
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import sentencepiece

from roberta_small.common.errors import UserError
from roberta_small.preprocess.tokenization.encoder import load_model, parse_model
from roberta_small.preprocess.tokenization.vocabulary import build_vocabulary, sample, train_model

REPOSITORY = Path(__file__).parents[3]
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


def test_same_model_each_time(text):
    first, second = (train_model([str(text / "all.txt")], 57) for _ in range(2))
    assert first == second
    assert len(sentencepiece.SentencePieceProcessor(model_proto=first)) == 57 + 3


def test_sample_is_fair_and_the_same_each_time():
    lines = [str(i) for i in range(2000)]
    sampled = sample(iter(lines), 500)
    assert sampled == sample(iter(lines), 500)
    assert len(set(sampled)) == 500
    # Of each quarter 125 +- 9.7 are expected; 5 standard deviations are allowed.
    quarters = Counter(int(line) // 500 for line in sampled)
    assert all(abs(quarters[i] - 125) < 49 for i in range(4))
    assert sample(iter(lines), 5000) == lines


def test_a_new_model_has_the_apostrophes_of_the_option(text):
    with open(text / "all.txt", "a", encoding="utf-8") as stream:
        stream.write("j’ai\n" * 9)
    models = [
        train_model([str(text / "all.txt")], 50, normalize_apostrophes=normalize)
        for normalize in (False, True)
    ]
    known = [sentencepiece.SentencePieceProcessor(model_proto=model).piece_to_id("’") > 0 for model in models]
    assert known == [True, False]


def test_interrupt_ends_it_at_once(tmp_path):
    """A text that never ends, so that only the signal can end the training."""
    os.mkfifo(tmp_path / "endless")
    # Where a shell starts the tests in the background, children inherit an ignored SIGINT.
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    script += "from roberta_small.common.errors import report_errors; "
    script += "from roberta_small.preprocess.tokenization.vocabulary import train_model; "
    script += f"raise SystemExit(report_errors(train_model)([{str(tmp_path / 'endless')!r}], 100))"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as process:
        with open(tmp_path / "endless", "w") as endless:  # opens once the trainer reads
            endless.write("un livre\n")
            endless.flush()
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=20)
        assert (process.returncode, error) == (130, "interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["endless"]


def test_killed_trainer_is_named(text, monkeypatch):
    monkeypatch.setattr("roberta_small.preprocess.tokenization.vocabulary._train", _die)
    with pytest.raises(Exception, match="was killed"):
        train_model([str(text / "all.txt")], 57)


def _die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_words_of_uniform_text_are_tokens(tmp_path):
    """A unigram model of this text has 37 tokens, hardly more than its characters."""
    nouns, adjectives = (
        ["livre", "roman", "film", "recueil", "essai"],
        ["mauvais", "superbe", "long", "triste", "lent", "vif"],
    )
    choice = random.Random(1).choice
    path = tmp_path / "text"
    path.write_text(
        "".join(f"un {choice(nouns)} {choice(adjectives)}\n" for _ in range(500)), encoding="utf-8"
    )
    model = parse_model(train_model([str(path)], 500, at_most=True), "model")
    assert {f"▁{word}" for word in (*nouns, *adjectives)} <= {model.id_to_piece(i) for i in range(len(model))}
    assert len(model) < 500
