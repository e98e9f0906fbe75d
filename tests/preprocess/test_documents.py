"""Running text: documents held out, and distributed over shards."""

from pathlib import Path

from fairseq.data.indexed_dataset import MMapIndexedDataset

from tests.support.binarized_files import assert_same_files, running_text, write, write_dictionary


def test_every_third_document_is_held_out(workdir, model, lines, monkeypatch):
    monkeypatch.setattr("roberta_small.preprocess.readers.lines.BLOCK_BYTES", 64)
    write_dictionary(model)
    documents = [lines[i : i + 1 + i % 3] for i in range(0, 70, 5)]
    text = [line for document in documents for line in [*document, ""]]
    write(Path("text"), ["", *text[:20]])
    write(Path("more"), text[20:])
    held_out = [line for document in documents[2::3] for line in [*document, ""]]
    kept = ["", *(line for i, document in enumerate(documents) if i % 3 != 2 for line in [*document, ""])]
    write(Path("kept"), kept)
    write(Path("held-out"), held_out)
    running_text(model, "bin", ["text", "more"], valid_every=3)
    running_text(model, "expected", ["kept"], ["held-out"])
    assert_same_files("bin", "expected")
    assert len(MMapIndexedDataset("bin/valid")) == len(held_out)


def test_shards_are_data_folders_of_their_own(workdir, model, lines):
    write_dictionary(model)
    documents = [[*lines[i : i + 2], ""] for i in range(0, 60, 2)]
    write(Path("text"), [line for document in documents for line in document])
    report = running_text(model, "bin", ["text"], shards=3, valid_every=10)
    assert sorted(path.name for path in Path("bin").iterdir()) == [
        "preprocess.json",
        "shard0",
        "shard1",
        "shard2",
    ]
    running_text(model, "whole", ["text"])
    found = [MMapIndexedDataset(f"bin/shard{number}/train") for number in range(3)]
    found.append(MMapIndexedDataset("bin/shard0/valid"))
    tokens = [row.tolist() for dataset in found for row in (dataset[i] for i in range(len(dataset)))]
    whole = MMapIndexedDataset("whole/train")
    assert sorted(tokens) == sorted(whole[i].tolist() for i in range(len(whole)))
    for number in range(3):
        assert Path(f"bin/shard{number}/dict.txt").read_bytes() == Path("whole/dict.txt").read_bytes()
    assert report["splits"]["train"].keys() == {"shard0", "shard1", "shard2"}
    assert report["splits"]["valid"].keys() == {"shard0"}


def test_a_validation_set_of_its_own_is_in_the_first_shard(workdir, model, lines):
    write_dictionary(model)
    write(Path("text"), [word for line in lines[:8] for word in (line, "")])
    write(Path("held-out"), lines[8:12])
    running_text(model, "bin", ["text"], ["held-out"], shards=2)
    assert len(MMapIndexedDataset("bin/shard0/valid")) == 4
    assert not Path("bin/shard1/valid.bin").exists()
