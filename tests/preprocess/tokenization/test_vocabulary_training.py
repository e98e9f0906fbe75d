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

from roberta_small.preprocess.tokenization.encoder import parse_model
from roberta_small.preprocess.tokenization.vocabulary import sample, train_model

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def text(tmp_path, lines):
    (tmp_path / "text").write_text("\n".join(lines) + "\nj’ai\n" * 9, encoding="utf-8")
    return str(tmp_path / "text")


def test_same_model_each_time(text):
    first, second = (train_model([text], 57) for _ in range(2))
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


def test_apostrophes(text):
    models = [train_model([text], 50, normalize_apostrophes=normalize) for normalize in (False, True)]
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
        train_model([text], 57)


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
