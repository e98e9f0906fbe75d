"""The task `sentence_classification` against stock `sentence_prediction`, and its checks of the data."""

from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq import tasks

from roberta_small.common.errors import UserError
from tests.support.data_folders import EOS, FIRST_PIECE, write_data, write_dictionary, write_split
from tests.support.training import INPUT, OURS, SIZES, SLOW, STEPS, STOCK, configuration


def task_of(arguments):
    return tasks.setup_task(configuration(arguments).task)


def ours(data, *flags):
    return task_of([data, *OURS, *INPUT, *STEPS, *SIZES, *SLOW, *flags])


def stock(data, *flags):
    return task_of([data, *STOCK, *INPUT, *STEPS, *SIZES, "--optimizer", "adam", *flags])


def items(task, split="train"):
    dataset = task.load_dataset(split)
    order = dataset.ordered_indices()
    batch = dataset.collater([dataset[i] for i in order])
    return order, batch


@pytest.mark.parametrize(
    ("pairs", "flags"),
    [
        (False, ["--no-shuffle"]),
        (False, ["--max-positions", "8"]),
        (False, ["--seed", "7", "--max-positions", "8", "--shorten-method", "random_crop"]),
        (False, ["--max-positions", "64", "--shorten-method", "none"]),
        (True, []),
        (True, ["--max-positions", "8", "--shorten-method", "random_crop"]),
        (True, ["--max-positions", "64", "--shorten-method", "none"]),
    ],
    ids=str,
)
def test_batches_equal_stock(tmp_path, flags, pairs):
    data = write_data(tmp_path, pairs=pairs)
    if pairs and "--shorten-method" not in flags:  # stock fairseq cuts the end of a pair: test_pairs.py
        flags = [*flags, "--max-positions", "512"]
    (our_order, a), (their_order, b) = items(ours(data, *flags)), items(stock(data, *flags))
    assert np.array_equal(our_order, their_order)
    for key in ("src_tokens", "src_lengths"):
        assert torch.equal(a["net_input"][key], b["net_input"][key])
    for key in ("target", "ntokens", "nsentences"):
        assert np.array_equal(a[key], b[key])


def test_other_splits_are_sorted_by_length(data):
    order, batch = items(ours(data), "valid")
    lengths = batch["net_input"]["src_lengths"]
    assert sorted(order) == list(range(len(lengths)))
    assert torch.equal(lengths, lengths.sort().values)
    assert len(lengths.unique()) > 1
    unsorted, _ = items(ours(data, "--no-shuffle"), "valid")
    assert np.array_equal(unsorted, np.arange(len(lengths)))
    named, _ = items(ours(data, "--train-subset", "valid"), "valid")
    assert np.array_equal(named, items(stock(data), "valid")[0])


def test_soft_labels_are_those_of_the_sentences(tmp_path):
    data = write_data(tmp_path)
    p_NK = np.random.default_rng(1).dirichlet([1, 1], 48).astype(np.float32)
    np.save(data / "label/train.soft.npy", p_NK)
    order, batch = items(ours(data))
    assert not np.array_equal(order, np.arange(48))
    assert torch.equal(batch["soft_target"], torch.from_numpy(p_NK)[batch["id"]])
    assert "soft_target" not in items(ours(data), "valid")[1]
    wider = items(ours(data, "--num-classes", "3"))[1]["soft_target"]
    assert torch.equal(wider, torch.nn.functional.pad(batch["soft_target"], (0, 1)))


@pytest.mark.parametrize(
    ("flags", "fact"),
    [
        *((f"--separator-token {token}", "not an id of the dictionary") for token in (-5, 100000)),
        *((f"--init-token {token}", "not an id of the dictionary") for token in (-5, 100000)),
        *((f"--word-dropout {fraction}", "") for fraction in ("-0.1", "1.0", "nan")),
        ("--num-classes 1", r"label/dict\.txt .*\b2\b.* 0, 1"),
    ],
)
def test_invalid_flags_are_an_error(data, flags, fact):
    flag, value = flags.split()
    with pytest.raises(UserError, match=f"{flag} .*{value}.*{fact}"):
        ours(data, flag, value)


def test_keep_eos_restores_eos_after_truncation(data):
    (_, truncated), (_, restored) = (
        items(ours(data, "--max-positions", "8", *flags)) for flags in ([], ["--keep-eos"])
    )
    before, after = truncated["net_input"]["src_tokens"], restored["net_input"]["src_tokens"]
    last = truncated["net_input"]["src_lengths"] - 1
    rows = torch.arange(len(before))
    assert (before[rows, last] != EOS).any()
    assert (after[rows, last] == EOS).all()
    before[rows, last] = after[rows, last] = EOS
    assert torch.equal(before, after)


def test_keep_eos_ends_truncated_sentences_in_the_separator(data):
    """CamemBERT's `</s>` is 6; without a separator it is that of the dictionary."""
    for separator, wanted in ((["--separator-token", "6"], 6), ([], EOS)):
        words = [data, *OURS, "--init-token", "0", "--shorten-method", "truncate", *STEPS, *SIZES, *SLOW]
        task = task_of([*words, "--keep-eos", "--max-positions", "8", *separator])
        dataset = task.load_dataset("train")
        rows = [dataset[i]["net_input.src_tokens"] for i in range(len(dataset))]
        assert {int(row[-1]) for row in rows if len(row) == 8} <= {wanted, EOS}
        assert wanted in {int(row[-1]) for row in rows}


def sentences_of(task, split, batch_size):
    dataset = task.load_dataset(split)
    iterator = task.get_batch_iterator(dataset, max_sentences=batch_size, required_batch_size_multiple=8)
    return sorted(int(i) for batch in iterator.next_epoch_itr() for i in batch["id"])


@pytest.mark.parametrize("pairs", [False, True], ids=["sentence", "pair"])
def test_word_dropout_masks_other_tokens_in_each_epoch_and_only_in_training(tmp_path, pairs):
    data = write_data(tmp_path, pairs=pairs)
    plain, task = ours(data), ours(data, "--word-dropout", "0.3")
    mask = task.source_dictionary.index("<mask>")
    dataset = task.load_dataset("train")
    exact = items(plain)[1]["net_input"]
    epochs = []
    for epoch in (1, 1, 2):
        dataset.set_epoch(epoch)
        found = dataset.collater([dataset[i] for i in dataset.ordered_indices()])["net_input"]
        masked = found["src_tokens"].eq(mask)
        assert torch.equal(torch.where(masked, exact["src_tokens"], found["src_tokens"]), exact["src_tokens"])
        assert not masked[:, 0].any()  # <s>
        fraction = masked.sum() / found["src_lengths"].sum()
        assert fraction.item() == pytest.approx(0.3, abs=0.05)
        epochs.append(masked)
    assert torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[0], epochs[2])
    assert torch.equal(*(items(one, "valid")[1]["net_input"]["src_tokens"] for one in (plain, task)))


@pytest.mark.parametrize("batch_size", [4, 8, 12, 32])
def test_no_sentence_is_dropped(tmp_path, batch_size):
    data = write_data(tmp_path, sizes={"test": 45})
    assert sentences_of(ours(data), "test", batch_size) == list(range(45))
    # Stock drops the last batch if its size is not a multiple of 8.
    assert len(sentences_of(stock(data), "test", batch_size)) < 45


def test_classes_come_from_the_label_dictionary(tmp_path):
    data = write_data(tmp_path, classes=("négatif", "neutre", "positif"), sizes={"train": 9})
    task = ours(data)
    assert task.class_names == ["négatif", "neutre", "positif"]
    assert task.cfg.num_classes == 3
    model = task.build_model(configuration([data, *OURS, *INPUT, *STEPS, *SIZES, *SLOW]).model)
    assert model.classification_heads["sentence_classification_head"].out_proj.out_features == 3
    assert sorted(items(task)[1]["target"].view(-1).tolist()) == [0] * 3 + [1] * 3 + [2] * 3


def test_padding_entries_of_the_label_dictionary_are_not_classes(tmp_path):
    data = write_data(tmp_path)
    write_dictionary(data / "label" / "dict.txt", ["0", "1", "madeupword0000", "madeupword0001"])
    assert ours(data).cfg.num_classes == 2


def offset_of_the_first(content):
    """The offset of the second sentence becomes that of the first; the sizes stay valid."""
    second = 26 + 48 * 4 + 8
    return content[:second] + bytes(8) + content[second + 8 :]


@pytest.mark.parametrize(
    ("name", "change", "facts"),
    [
        ("input0/train.bin", None, r"train\.bin: no such file; .*valid"),
        ("input0/train.bin", lambda content: content[:-3], r"train\.bin: \d+ bytes.*train\.idx"),
        ("input0/train.bin", lambda content: b"", r"train\.bin: "),
        ("input0/train.idx", lambda content: b"", r"train\.idx: "),
        ("input0/train.idx", lambda content: content[:4], r"train\.idx: "),
        ("input0/train.idx", lambda content: content[:18], r"train\.idx: "),
        ("input0/train.idx", offset_of_the_first, r"train\.idx: "),
        ("input0/dict.txt", lambda content: b"\xe9t\xe9 1\n", r"input0/dict\.txt: "),
        ("input0/dict.txt", lambda content: b"a b c\n", r"input0/dict\.txt: "),
        (
            "input0/dict.txt",
            lambda content: b"a 1\nb 1\nc 1\n",
            r"bin, sentence \d+: .*input0/dict\.txt has 8 ",
        ),
        ("label/dict.txt", None, r"label/dict\.txt: no such file"),
    ],
)
def test_invalid_files_are_an_error(tmp_path, name, change, facts):
    path = write_data(tmp_path) / name
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError, match=facts):
        ours(tmp_path).load_dataset("train")


LABEL = [FIRST_PIECE]


@pytest.mark.parametrize(
    ("labels", "facts"),
    [
        ([LABEL] * 47, r"48 in input0 but 47 in label"),
        ([*[LABEL] * 20, LABEL * 2, *[LABEL] * 27], r"label/train\.bin, sentence 21: 2 labels"),
        ([*[LABEL] * 30, [3], *[LABEL] * 17], r"label/train\.bin, sentence 31: .*label/dict\.txt.* 0, 1"),
    ],
)
def test_invalid_labels_are_an_error(tmp_path, labels, facts):
    write_split(write_data(tmp_path) / "label", "train", labels)
    with pytest.raises(UserError, match=facts):
        ours(tmp_path).load_dataset("train")


def test_sentences_that_are_longer_than_the_model_are_an_error(data):
    with pytest.raises(UserError, match=r"sentence \d+: \d+ tokens, .*--max-positions 8"):
        ours(data, "--max-positions", "8", "--shorten-method", "none").load_dataset("train")


def test_pairs_of_different_counts_are_an_error(tmp_path):
    data = write_data(tmp_path, pairs=True)
    write_split(data / "input1", "train", [[5]] * 3)
    with pytest.raises(UserError, match=r"\b48\b.*input0.*\b3\b.*input1"):
        ours(data).load_dataset("train")


def test_resuming_on_other_data_is_an_error(tmp_path):
    first = ours(write_data(tmp_path / "a"))
    state = first.get_checkpoint_dict()["SentenceClassificationTask"]
    first.set_checkpoint_dict(state)
    with pytest.raises(UserError, match=r"/b: .*labels .*--save-dir"):
        ours(write_data(tmp_path / "b", classes=("bad", "good"))).set_checkpoint_dict(state)
    other = write_data(tmp_path / "c")
    write_dictionary(Path(other) / "input0" / "dict.txt", [f"other{i}" for i in range(40)])
    with pytest.raises(UserError, match=r"/c: .*dictionary .*--save-dir"):
        ours(other).set_checkpoint_dict(state)
