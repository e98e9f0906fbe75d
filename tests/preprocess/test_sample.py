import hashlib
import re
from collections import Counter

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from roberta_small.common.errors import UserError
from roberta_small.preprocess import sample
from roberta_small.preprocess.sample import Noun, Writer

SPLITS = ("train", "valid", "test")
# Changes with every change of a word or a frame; the same on every machine and Python version.
SAMPLE_SHA256 = "50e12aa495e82aa9349bfaa6b1d6e6bfd78314ac29ad70cf1bf43bc82ef5379b"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    destdir = tmp_path_factory.mktemp("sample") / "new" / "sample"
    assert sample.main(["--out", str(destdir)]) == 0
    return destdir


@pytest.fixture(scope="module")
def reviews(folder):
    """All labelled reviews: a list of texts and one of labels."""
    texts, labels = [], []
    for split in SPLITS:
        texts += (folder / f"{split}.input0").read_text(encoding="utf-8").splitlines()
        labels += map(int, (folder / f"{split}.label").read_text().split())
    return texts, labels


@pytest.fixture(scope="module")
def corpus(folder):
    return (folder / "corpus.train.txt").read_text(encoding="utf-8")


def test_same_bytes_everywhere(folder):
    """The digests of all files; so no review comes twice, either."""
    assert hashlib.sha256((folder / "sample.json").read_bytes()).hexdigest() == SAMPLE_SHA256


def test_a_smaller_sample_is_the_beginning_of_a_larger_one(folder, tmp_path):
    sample.write_sample(tmp_path / "small", reviews=40, paragraphs=100)
    small, large = ((root / "train.input0").read_text().splitlines() for root in (tmp_path / "small", folder))
    assert small == large[:40]


def test_word_counts_help_but_do_not_suffice(reviews):
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(C=10)).fit(*reviews)
    # Within one seed the cards make train and test depend on each other; another seed is free of it.
    writer = Writer("another")
    labels = [number % 2 for number in range(1000)]
    accuracy = model.score([writer.review(label) for label in labels], labels)
    assert 0.65 < accuracy < 0.9


def test_no_word_gives_the_label_away(reviews):
    by_label = [Counter(), Counter()]
    for text, label in zip(*reviews, strict=True):
        by_label[label].update(set(re.findall(r"\w+", text.lower())))
    for word in by_label[0] | by_label[1]:
        counts = [counter[word] for counter in by_label]
        assert sum(counts) < 10 or max(counts) / sum(counts) <= 0.85, (word, counts)


def test_french_is_well_formed(reviews, corpus):
    text = "\n".join(reviews[0]) + "\n" + corpus
    assert not re.search(r"[{}|/+]|  | [.,]|\.\.", text)
    assert not re.search(r"(?i)\b(?:de|je|ne|que|le|la) [aeiouéèêàâîôûœ]", text)
    assert not re.search(r"(?i)\b(?:de|à) les?\b", text)
    for line in text.splitlines():
        assert not line or (line[0].isupper() or line[0] == "«")
        assert not line or line.endswith(".")
    aspects = {noun.slots()["the"]: noun for noun in map(Noun.parse, sample.language()["aspects"])}
    found = re.findall(r"((?:[Ll]es? |[Ll]a |[Ll]')\w+) (est|sont) ", text)
    plurals = [(aspects[one.lower()].plural, verb) for one, verb in found if one.lower() in aspects]
    assert set(plurals) == {(True, "sont"), (False, "est")}


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "mine").write_text("x")
    assert sample.main(["--out", str(tmp_path)]) == 1
    assert f"{tmp_path}: " in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_too_small(tmp_path):
    with pytest.raises(UserError, match="at least"):
        sample.write_sample(tmp_path / "x", reviews=2)
