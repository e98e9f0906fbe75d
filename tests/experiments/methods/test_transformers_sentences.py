"""sentences.py and counts.py against stock fairseq, scikit-learn and torch."""

import math

import numpy as np
import pytest
import torch
from data_folders import write_data
from fairseq import tasks
from fairseq.data.data_utils import collate_tokens
from method_runs import words
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from training import INPUT, SIZES, STEPS, STOCK, configuration

from experiments.methods.transformers.recipe import parse
from experiments.methods.transformers.trainer import Counts, Pad, read_sentences


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"), longest=60)


@pytest.mark.parametrize("split", ["train", "test"])
def test_ids_and_labels_are_those_of_stock_fairseq(data, split):
    task = tasks.setup_task(
        configuration([data, *STOCK, "--no-shuffle", *INPUT, *STEPS, *SIZES, "--optimizer", "adam"]).task
    )
    task.load_dataset(split)
    theirs = task.dataset(split)
    ours = read_sentences(parse(str(data), words()).task(), split)
    assert len(ours) == len(theirs)
    for i in range(len(ours)):
        assert ours[i]["input_ids"].tolist() == theirs[i]["net_input.src_tokens"].tolist()
        assert int(ours[i]["labels"]) == int(theirs[i]["target"])
    longest = max(len(row) for row in ours.rows)
    assert longest == 32
    assert all(row[0] == 0 for row in ours.rows)
    assert any(row[-1] != 2 for row in ours.rows), "none was cut"


def test_batches_are_padded_as_fairseq_pads(data):
    sentences = read_sentences(parse(str(data), words()).task(), "valid")
    batch = Pad(1)([sentences[i] for i in range(8)])
    wanted_BL = collate_tokens(sentences.rows[:8], pad_idx=1)
    assert torch.equal(batch["input_ids"], wanted_BL)
    assert torch.equal(batch["attention_mask"], wanted_BL.ne(1).long())
    assert batch["labels"].tolist() == sentences.gold[:8].tolist()


def test_by_length_is_a_permutation_from_long_to_short(data):
    sentences = read_sentences(parse(str(data), words()).task(), "test")
    order = sentences.by_length()
    lengths = [len(sentences.rows[i]) for i in order]
    assert sorted(order) == list(range(len(sentences)))
    assert lengths == sorted(lengths, reverse=True)


def test_counts_over_batches_equal_scikit_learn_on_all():
    generator = torch.Generator().manual_seed(0)
    logits_NK = torch.randn(50, 3, generator=generator)
    gold_N = torch.randint(3, (50,), generator=generator)
    counts = Counts(3)
    for start in range(0, 50, 8):
        counts.add(logits_NK[start : start + 8], gold_N[start : start + 8], tokens=5)
    predicted_N = logits_NK.argmax(dim=-1)
    found = counts.metrics()
    assert found["accuracy"] == pytest.approx(100 * accuracy_score(gold_N, predicted_N))
    assert found["macro_f1"] == pytest.approx(f1_score(gold_N, predicted_N, average="macro"))
    assert found["mcc"] == pytest.approx(matthews_corrcoef(gold_N, predicted_N))
    wanted = float(torch.nn.functional.cross_entropy(logits_NK, gold_N)) / math.log(2)
    assert found["loss"] == pytest.approx(wanted, rel=1e-6)
    assert (counts.sentences, counts.tokens) == (50, 35)
    counts.clear()
    assert (counts.sentences, counts.tokens, counts.loss) == (0, 0, 0)
    assert np.isfinite(list(counts.metrics().values())).all()
