from pathlib import Path

import numpy as np
import pytest
from fairseq.data.indexed_dataset import MMapIndexedDataset

from roberta_small.common.errors import UserError
from roberta_small.preprocess.indexed import distribute
from roberta_small.preprocess.readers.lines import Block
from roberta_small.preprocess.tokenization.encoder import Encoded
from tests.support.binarized_files import running_text, write, write_dictionary

EOS = 2


def blocks(path, documents, lines_per_block):
    """Documents, lists of lines of ids, as the encoder gives them: a blank line after each, cut anywhere."""
    lines = [line for document in documents for line in [*document, []]]
    for start in range(0, len(lines), lines_per_block):
        part = [[*line, EOS] for line in lines[start : start + lines_per_block]]
        ids = np.array([token for line in part for token in line], np.int32)
        yield Encoded(Block(path, start + 1, b"", 0), ids, np.array([len(line) for line in part], np.int64))


def documents(count, seed=1):
    generator = np.random.default_rng(seed)

    def line():
        return generator.integers(4, 30, generator.integers(1, 6)).tolist()

    return [[line() for _ in range(generator.integers(1, 4))] for _ in range(count)]


def read(prefix):
    """The documents of a split."""
    found, lines = [], []
    dataset = MMapIndexedDataset(str(prefix))
    for index in range(len(dataset)):
        *line, end = dataset[index].tolist()
        assert end == EOS
        if line:
            lines.append(line)
        else:
            found.append(lines)
            lines = []
    return found


@pytest.mark.parametrize("lines_per_block", [1, 3, 1000])
@pytest.mark.parametrize("valid_every", [None, 5])
def test_each_document_is_whole_in_one_place_in_turn(tmp_path, lines_per_block, valid_every):
    given = documents(43)
    encoded = blocks("text", given, lines_per_block)
    written = distribute(encoded, tmp_path, 30, source="text", valid_every=valid_every, shards=4)

    held_out = given[4::5] if valid_every else []
    kept = [document for i, document in enumerate(given, start=1) if not valid_every or i % valid_every]
    for number in range(4):
        place = f"shard{number}"
        assert read(tmp_path / place / "train") == kept[(number - 1) % 4 :: 4]
        assert written["train", place].sentences == sum(len(d) + 1 for d in kept[(number - 1) % 4 :: 4])
    if valid_every:
        assert read(tmp_path / "shard0/valid") == held_out
    assert len(list(tmp_path.rglob("*.bin"))) == 4 + bool(valid_every)


def test_more_shards_than_a_byte_counts(tmp_path):
    given = documents(700)
    distribute(blocks("text", given, 900), tmp_path, 30, source="text", valid_every=350, shards=300)
    kept = given[:349] + given[350:699]
    assert [read(tmp_path / f"shard{number}/train") for number in (1, 257, 299)] == [
        kept[number - 1 :: 300] for number in (1, 257, 299)
    ]
    assert read(tmp_path / "shard0/valid") == [given[349], given[699]]


def test_without_shards_it_is_the_folder_itself(tmp_path):
    given = documents(9)
    assert list(distribute(blocks("text", given, 2), tmp_path, 30, source="text")) == [("train", ".")]
    assert read(tmp_path / "train") == given


def test_files_part_documents(tmp_path):
    """Without a blank line at the end of the first file, its last document ends there nonetheless."""
    one, two = (
        Encoded(Block(path, 1, b"", 0), np.array([first, EOS], np.int32), np.array([2], np.int64))
        for path, first in (("a", 7), ("b", 8))
    )
    written = distribute([one, two], tmp_path, 30, source="a", shards=2)
    assert [writer.tokens for writer in written.values()] == [2, 2]


@pytest.mark.parametrize(
    ("flags", "said"), [({"valid_every": 7}, "7.*--valid "), ({"shards": 7}, "--shards 7")]
)
def test_too_few_documents(tmp_path, flags, said):
    with pytest.raises(UserError, match=rf"^text: .*\b6\b.*{said}"):
        distribute(blocks("text", documents(6), 4), Path(tmp_path), 30, source="text", **flags)


def test_a_validation_set_of_its_own_is_in_the_first_shard(workdir, model, lines):
    write_dictionary(model)
    write(Path("text"), [word for line in lines[:8] for word in (line, "")])
    write(Path("held-out"), lines[8:12])
    running_text(model, "bin", ["text"], ["held-out"], shards=2)
    assert len(MMapIndexedDataset("bin/shard0/valid")) == 4
    assert not Path("bin/shard1/valid.bin").exists()
