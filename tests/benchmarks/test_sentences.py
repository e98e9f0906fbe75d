import shlex
from itertools import chain, pairwise

import numpy as np
import pytest
from data_folders import write_dictionary, write_split
from fairseq.data import data_utils
from training import INPUT, SIZES, STEPS, STOCK, build_trainer

from benchmarks.sentences import by_length, fairseq_batches, read_sentences, read_sizes
from benchmarks.timed.plain_causal import read_blocks


@pytest.fixture(scope="module")
def stock_batches(settings):
    """Token ids of each batch that stock fairseq trains on, for two epochs."""
    _, trainer = build_trainer([settings.data, *STOCK, *INPUT, *STEPS, "--optimizer", "adam"])
    batches = []
    for epoch in (1, 2):
        iterator = trainer.get_train_iterator(epoch=epoch, load_dataset=epoch == 1)
        for sample in iterator.next_epoch_itr(shuffle=True):
            batches.append([ids[ids != 1].tolist() for ids in sample["net_input"]["src_tokens"]])
    return batches


def test_batches_are_those_of_stock_fairseq(settings, stock_batches):
    sentences = read_sentences(settings.data / "input0" / "train", first=0, longest=32)
    batches = fairseq_batches(len(sentences), batch_size=8, seed=1, updates=len(stock_batches))
    assert [[sentences[index].tolist() for index in batch] for batch in batches] == stock_batches


@pytest.mark.parametrize(("lines", "batch_size"), [(70, 8), (70, 16), (44, 16)])
def test_blocks_are_those_of_fairseqs_language_modeling(tmp_path, lines, batch_size):
    rows = [[4 + (i * 7 + 3 * j) % 30 for j in range(3 + i % 6)] for i in range(lines)]
    for split in ("train", "valid"):
        write_split(tmp_path, split, rows)
    write_dictionary(tmp_path / "dict.txt", [f"piece{i}" for i in range(40)])
    words = shlex.split(
        "--task language_modeling --criterion fast_lm --arch causal_lm_small --precision fp32"
    )
    words += shlex.split("--tokens-per-sample 16 --max-positions 16 --optimizer adam")
    _, trainer = build_trainer([tmp_path, *words, *SIZES, *STEPS, "--batch-size", str(batch_size)])
    wanted = []
    for epoch in (1, 2):
        iterator = trainer.get_train_iterator(epoch=epoch, load_dataset=epoch == 1)
        for sample in iterator.next_epoch_itr(shuffle=True):
            pairs = zip(sample["net_input"]["src_tokens"], sample["target"], strict=True)
            wanted.append([[*ids[ids != 1].tolist(), gold[gold != 1][-1].item()] for ids, gold in pairs])
    blocks = read_blocks(tmp_path, 16)
    sizes = np.array([len(block) for block in blocks])
    assert len(set(sizes)) == 2  # the last one is shorter
    batches = fairseq_batches(len(blocks), batch_size=batch_size, seed=1, updates=len(wanted), sizes=sizes)
    assert [[blocks[index].tolist() for index in batch] for batch in batches] == wanted


def test_sizes_and_ids_are_those_of_fairseq(settings):
    prefix = settings.data / "input0" / "valid"
    dataset = data_utils.load_indexed_dataset(str(prefix))
    assert read_sizes(prefix).tolist() == dataset.sizes.tolist()
    expected = [[0, *row.tolist()][:9] for row in dataset]
    assert [ids.tolist() for ids in read_sentences(prefix, first=0, longest=9)] == expected


def test_grouping_keeps_the_sentences_and_brings_equals_together():
    sizes = np.random.default_rng(0).integers(1, 99, 24)
    batches = fairseq_batches(24, batch_size=4, seed=1, updates=6)
    grouped = by_length(batches, sizes, seed=3)
    assert sorted(chain(*grouped)) == sorted(chain(*batches))
    assert [len(batch) for batch in grouped] == [4] * 6
    ranges = sorted((sizes[batch].min(), sizes[batch].max()) for batch in map(list, grouped))
    assert all(high <= low for (_, high), (low, _) in pairwise(ranges))
    assert [sizes[batch[0]] for batch in grouped] != sorted(sizes[batch[0]] for batch in grouped)
