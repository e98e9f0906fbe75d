import numpy as np
import pytest
import torch
from fairseq.data.indexed_dataset import best_fitting_int_dtype, make_builder

from preprocess.indexed import IndexedWriter, id_dtype


@pytest.mark.parametrize("vocabulary_size", [8, 65_499, 65_500, 250_002])
def test_same_bytes_as_fairseq_writes(tmp_path, vocabulary_size):
    generator = np.random.default_rng(1)
    sentences = [generator.integers(0, vocabulary_size, size) for size in (3, 1, 0, 700)]
    builder = make_builder(str(tmp_path / "stock.bin"), "mmap", vocabulary_size)
    for sentence in sentences:
        builder.add_item(torch.from_numpy(sentence))
    builder.finalize(str(tmp_path / "stock.idx"))

    with IndexedWriter(tmp_path / "ours", vocabulary_size) as writer:
        for part in (sentences[:2], sentences[2:]):
            writer.add(np.concatenate(part), np.array([len(sentence) for sentence in part]))
    for kind in ("bin", "idx"):
        assert (tmp_path / f"ours.{kind}").read_bytes() == (tmp_path / f"stock.{kind}").read_bytes()
    assert (writer.sentences, writer.tokens) == (4, 704)
    assert id_dtype(vocabulary_size) == best_fitting_int_dtype(vocabulary_size)


def test_error_leaves_no_index(tmp_path):
    with pytest.raises(ValueError, match="broken"), IndexedWriter(tmp_path / "ours", 8):
        raise ValueError("broken")
    assert not (tmp_path / "ours.idx").exists()
