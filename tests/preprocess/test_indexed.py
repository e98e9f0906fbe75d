import numpy as np
import pytest
import torch
from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype, make_builder

from roberta_small.common import files
from roberta_small.common.errors import UserError
from roberta_small.preprocess import indexed
from roberta_small.preprocess.indexed import id_dtype, open_writer


@pytest.mark.parametrize("vocabulary_size", [8, 65_499, 65_500, 250_002])
def test_same_bytes_as_fairseq_writes(tmp_path, vocabulary_size):
    generator = np.random.default_rng(1)
    sentences = [generator.integers(0, vocabulary_size, size) for size in (3, 1, 0, 700)]
    builder = make_builder(str(tmp_path / "stock.bin"), "mmap", vocabulary_size)
    for sentence in sentences:
        builder.add_item(torch.from_numpy(sentence))
    builder.finalize(str(tmp_path / "stock.idx"))

    with open_writer(tmp_path / "ours", vocabulary_size) as writer:
        for part in (sentences[:2], sentences[2:]):
            writer.add(np.concatenate(part), np.array([len(sentence) for sentence in part]))
    for kind in ("bin", "idx"):
        assert (tmp_path / f"ours.{kind}").read_bytes() == (tmp_path / f"stock.{kind}").read_bytes()
    assert (writer.sentences, writer.tokens) == (4, 704)
    assert id_dtype(vocabulary_size) == best_fitting_int_dtype(vocabulary_size)


def test_offsets_of_more_sentences_than_are_worked_out_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(indexed, "PART", 3)
    rows = [np.arange(length) % 8 for length in (2, 1, 5, 3, 4, 1, 7)]
    with open_writer(tmp_path / "ours", 8) as writer:
        for row in rows:
            writer.add(row, np.array([len(row)]))
    dataset = MMapIndexedDataset(str(tmp_path / "ours"))
    assert [dataset[i].tolist() for i in range(len(dataset))] == [row.tolist() for row in rows]


def test_error_leaves_nothing(tmp_path):
    def fail_half_way():
        with open_writer(tmp_path / "ours", 8) as writer:
            writer.add(np.arange(4), np.array([4]))
            raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        fail_half_way()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def no_room(monkeypatch):
    """Call it to put the files whose name begins so on a device without room, the kernel's own /dev/full."""

    def limit(start):
        def opened(path, mode, **how):
            on_full = path.name.startswith(start)
            return open("/dev/full", "r+b") if on_full else open(path, mode, **how)

        monkeypatch.setattr(files, "open", opened, raising=False)

    return limit


@pytest.mark.parametrize("kind", ["bin", "idx"])
@pytest.mark.parametrize("tokens", [4, 10**6], ids=["at the end", "on the way"])
def test_full_disk_is_named_and_no_part_is_left(tmp_path, no_room, kind, tokens):
    no_room(f".ours.{kind}.")
    with pytest.raises(UserError) as caught, open_writer(tmp_path / "ours", 8) as writer:
        writer.add(np.zeros(tokens, int), np.ones(tokens, int))
    assert str(caught.value).startswith(f"{tmp_path / 'ours'}.{kind}: cannot be written (No space left")
    assert list(tmp_path.iterdir()) == []


def test_of_two_open_files_the_full_one_is_named(tmp_path, no_room):
    no_room(".train.bin.")
    writers = open_writer(tmp_path / "train", 8), open_writer(tmp_path / "valid", 8)
    with pytest.raises(UserError, match=r"train\.bin: cannot be written"), writers[0] as train, writers[1]:
        train.add(np.zeros(10**6, int), np.ones(10**6, int))
    assert list(tmp_path.iterdir()) == []
