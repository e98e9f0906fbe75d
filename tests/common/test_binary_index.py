"""Headers and validation of index files, against a file written by fairseq."""

import pytest

from roberta_small.common.binary_index import HEADER_BYTES, Header, is_index, read_header
from tests.support.data_folders import write_split


@pytest.fixture
def index(tmp_path):
    """The index of three sentences, written by fairseq."""
    write_split(tmp_path, "train", [[4, 5], [6], [7, 8, 9]])
    return tmp_path / "train.idx"


def test_header_equals_that_of_fairseq(index):
    header = read_header(index)
    assert header == Header(code=8, sentences=3)
    assert header.pack() == index.read_bytes()[:HEADER_BYTES]
    assert is_index(index)


@pytest.mark.parametrize("corrupt", [lambda b: b[:10], lambda b: b"X" + b[1:], lambda b: b""])
def test_index_without_valid_header(index, corrupt):
    index.write_bytes(corrupt(index.read_bytes()))
    assert read_header(index) is None
    assert not is_index(index)


@pytest.mark.parametrize("corrupt", [lambda b: b[:-1], lambda b: b[:-8] + bytes(8)])
def test_index_with_corrupt_body(index, corrupt):
    index.write_bytes(corrupt(index.read_bytes()))
    assert not is_index(index)
