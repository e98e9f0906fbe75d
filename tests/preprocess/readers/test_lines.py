import gzip
import lzma
import os

import pytest

from roberta_small.common.errors import UserError
from roberta_small.preprocess.readers.lines import disk_bytes, normalize, read_blocks, read_text_lines

LINES = ["un\r", "", "deux\u2028trois\u0085", "", "quatre" * 50]
COMPRESS = {".txt": bytes, ".xz": lzma.compress, ".gz": gzip.compress}


@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 20])
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("suffix", COMPRESS)
def test_lines_survive_blocks_and_compression(tmp_path, monkeypatch, block_bytes, end, suffix):
    monkeypatch.setattr("roberta_small.preprocess.readers.lines.BLOCK_BYTES", block_bytes)
    path = str(tmp_path / f"text{suffix}")
    (tmp_path / f"text{suffix}").write_bytes(COMPRESS[suffix](("\n".join(LINES) + end).encode()))
    assert list(read_text_lines(path)) == LINES
    blocks = list(read_blocks(path))
    assert sum(block.file_bytes for block in blocks) == disk_bytes([path])
    assert all(block.lines()[0] == LINES[block.first_line - 1] for block in blocks)


def test_lines_of_a_pipe():
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as stream:
        stream.write(b"un\ndeux\n")
    assert list(read_text_lines(f"/dev/fd/{reading}")) == ["un", "deux"]
    os.close(reading)


def test_bad_byte_is_placed_in_a_later_block(tmp_path, monkeypatch):
    monkeypatch.setattr("roberta_small.preprocess.readers.lines.BLOCK_BYTES", 4)
    path = tmp_path / "text"
    path.write_bytes("é\n".encode() * 9 + b"ab\xe9\n")
    with pytest.raises(UserError, match=r"text, line 10: byte 3 is not UTF-8"):
        list(read_text_lines(str(path)))


def test_normalize_changes_apostrophes_alone():
    assert normalize("l’un lʼautre l'œuvre « ‘déjà’ » …") == "l'un l'autre l'œuvre « ‘déjà' » …"
