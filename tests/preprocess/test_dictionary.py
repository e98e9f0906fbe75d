import random

import pytest
from fairseq.data import Dictionary as Stock

from roberta_small.common.errors import UserError
from roberta_small.preprocess import dictionary


def test_loads_as_fairseq_does(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("▁un 5\na b 3\né 2 \n▁un 9 #fairseq:overwrite\n\u0301 0\n", encoding="utf-8")
    ours, stock = dictionary.load(str(path)), Stock.load(str(path))
    assert (ours.symbols, ours.counts, ours.index) == (stock.symbols, stock.count, stock.indices)
    stock.save(str(tmp_path / "stock.txt"))
    written = (tmp_path / "stock.txt").read_text(encoding="utf-8")
    # Stock drops the mark of a repeated symbol, so that it cannot load the file that it wrote.
    assert ours.text() == written.replace("▁un 9\n", "▁un 9 #fairseq:overwrite\n")
    assert ours.text() == path.read_text(encoding="utf-8").replace(" \n", "\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1\nb\n", "line 2: "),
        ("a 1\n\nb 1\n", "line 2: "),
        ("a x\n", "line 1: "),
        ("a 1\na 2\n", "line 2: .*'a'"),
        ("<s> 1\n", "line 1: .*'<s>'"),
        ("", r"dict\.txt: "),
    ],
)
def test_malformed_file_names_the_line(tmp_path, content, message):
    path = tmp_path / "dict.txt"
    path.write_text(content)
    with pytest.raises(UserError, match=message) as error:
        dictionary.load(str(path))
    assert str(path) in str(error.value)


def test_the_mask_is_added_once_at_the_end():
    words = dictionary.parse(["un 2", "deux 1"], "dict.txt")
    masked = words.with_mask()
    assert (masked.symbols[-1], masked.index["<mask>"], len(words)) == ("<mask>", 6, 6)
    assert masked.with_mask() is masked


@pytest.mark.parametrize("kinds", [1, 2, 4, 5, 12])
def test_built_as_fairseq_builds(kinds):
    """Ties in the counts, names out of order, one of them like fairseq's padding."""
    generator = random.Random(kinds)
    names = ["négatif", "positif", "madeupword0001", *(f"Z{i}" for i in range(20)), "a"]
    labels = generator.choices(generator.sample(names, kinds), k=40)
    stock = Stock()
    for label in sorted(labels):
        stock.add_symbol(label)
    stock.finalize(padding_factor=8)
    ours = dictionary.build(labels)
    assert (ours.symbols, ours.counts[4:], ours.index) == (stock.symbols, stock.count[4:], stock.indices)
