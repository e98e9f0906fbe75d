import re

import pytest

from common.errors import UserError
from experiments.methods.tfidf.model import file_names, read_folder


def test_lines_and_classes_as_the_label_dictionary_has_them(texts):
    splits = read_folder(texts)
    for name, split in splits.items():
        assert split.texts == (texts / f"{name}.input0").read_text().splitlines()
        assert split.labels == (texts / f"{name}.label").read_text().split()
    assert splits.classes == ["good", *sorted(set(splits.train.labels) - {"good"})]


@pytest.mark.parametrize("name", file_names())
def test_a_missing_file_is_named(texts, name):
    (texts / name).unlink()
    with pytest.raises(UserError, match=f"{re.escape(str(texts))}: .*{re.escape(name)}; "):
        read_folder(texts)


def append(path, line):
    path.write_text(path.read_text(encoding="utf-8") + line, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("test.label", "good\n", "lines but"),
        ("valid.input0", "un livre\n", "lines but"),
        ("train.label", "\n", "no label"),
    ],
)
def test_lines_that_do_not_match_are_refused(texts, name, line, said):
    append(texts / name, line)
    with pytest.raises(UserError, match=said) as caught:
        read_folder(texts)
    assert str(texts / name) in str(caught.value)


@pytest.mark.parametrize("name", ["valid", "test"])
def test_a_class_that_train_lacks_is_named_with_its_line(texts, name):
    number = len((texts / f"{name}.label").read_text().split()) + 1
    append(texts / f"{name}.label", "strange\n")
    append(texts / f"{name}.input0", "un livre\n")
    with pytest.raises(UserError, match=rf"{name}\.label, line {number}: class 'strange'.*which has: good"):
        read_folder(texts)


def test_one_class_pairs_and_no_folder(texts):
    with pytest.raises(UserError, match="no such folder"):
        read_folder(texts / "none")
    (texts / "train.input1").write_text("second\n")
    with pytest.raises(UserError, match="sentence pairs"):
        read_folder(texts)
    (texts / "train.input1").unlink()
    labels = texts / "train.label"
    labels.write_text("good\n" * len(labels.read_text().split()))
    with pytest.raises(UserError, match="every label is good"):
        read_folder(texts)


def test_bytes_that_are_not_utf8_are_named_with_their_line(texts):
    (texts / "test.input0").write_bytes(b"un\ncaf\xe9\n")
    with pytest.raises(UserError, match=r"test\.input0, line 2"):
        read_folder(texts)
