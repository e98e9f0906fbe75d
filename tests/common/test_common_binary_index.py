import pytest
from data_folders import write_split

from common.binary_index import HEADER_BYTES, Header, is_index, read_header


@pytest.fixture
def index(tmp_path):
    """Of three sentences, by fairseq's own writer."""
    write_split(tmp_path, "train", [[4, 5], [6], [7, 8, 9]])
    return tmp_path / "train.idx"


def test_header_of_fairseqs_own_file(index):
    header = read_header(index)
    assert header == Header(code=8, sentences=3)
    assert header.pack() == index.read_bytes()[:HEADER_BYTES]
    assert is_index(index)


@pytest.mark.parametrize("spoil", [lambda b: b[:10], lambda b: b"X" + b[1:], lambda b: b""])
def test_no_header(index, spoil):
    index.write_bytes(spoil(index.read_bytes()))
    assert read_header(index) is None
    assert not is_index(index)


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b[:-8] + bytes(8)])
def test_wrong_body(index, spoil):
    index.write_bytes(spoil(index.read_bytes()))
    assert not is_index(index)
