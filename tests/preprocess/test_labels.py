"""Label files."""

import pytest

from roberta_small.common.errors import UserError
from roberta_small.preprocess.labels import read_labels


def test_the_words_of_a_line_are_one_label(tmp_path):
    (tmp_path / "a.label").write_text("négatif\n très  positif \n", encoding="utf-8")
    assert list(read_labels(str(tmp_path / "a.label"))) == ["négatif", "très positif"]


@pytest.mark.parametrize("line", ["", " ", "<pad>", "madeupword0000", "a #fairseq:overwrite"])
def test_other_lines_are_refused(tmp_path, line):
    (tmp_path / "a.label").write_text(f"1\n{line}\n")
    with pytest.raises(UserError, match=r"a\.label, line 2"):
        list(read_labels(str(tmp_path / "a.label")))
