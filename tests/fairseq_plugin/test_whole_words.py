"""Whole words are masked by fairseq's task, with the pieces that SentencePiece marks."""

import shlex

import pytest
from data_folders import write_dictionary, write_split
from fairseq import tasks
from training import STEPS, configuration

from common.errors import UserError
from fairseq_plugin.tasks import language_modeling

WORDS, REST = 12, 8
PIECES = [f"▁word{i}" for i in range(WORDS)] + [f"rest{i}" for i in range(REST)]
FIRST, CONTINUED = 4, 4 + WORDS
"""Ids of the first piece that begins a word, and of the first that does not."""
MASKED_LM = shlex.split("--task masked_lm --criterion fast_masked_lm --arch roberta_small --optimizer adam")
BLOCKS = shlex.split("--tokens-per-sample 32 --sample-break-mode none --mask-prob 0.4")


def text(folder, pieces):
    """Words of three pieces each, and some of one."""
    for split, count in (("train", 40), ("valid", 5)):
        rows = [
            [FIRST + i % WORDS, CONTINUED + i % REST, CONTINUED + (i + 3) % REST, FIRST + (i + 1) % WORDS]
            for i in range(count)
        ]
        write_split(folder, split, rows)
    write_dictionary(folder / "dict.txt", pieces)
    return folder


def task_of(folder, *flags):
    return tasks.setup_task(configuration([folder, *MASKED_LM, *BLOCKS, *STEPS, *flags]).task)


def pairs_within_words(task):
    """For each piece that goes on with a word, whether it is hidden and whether the piece before it is."""
    task.load_dataset("train")
    dataset = task.dataset("train")
    for row in range(len(dataset)):
        sample = dataset.collater([dataset[row]])
        tokens_L, target_L = sample["net_input"]["src_tokens"][0], sample["target"][0]
        hidden_L = target_L != task.source_dictionary.pad()
        original_L = target_L.where(hidden_L, tokens_L)
        goes_on_L = (original_L >= CONTINUED) & (original_L < CONTINUED + REST)
        for at in goes_on_L.nonzero().flatten().tolist():
            yield bool(hidden_L[at]), bool(hidden_L[at - 1])


def test_all_pieces_of_a_word_are_hidden_or_none(tmp_path):
    pairs = set(pairs_within_words(task_of(text(tmp_path, PIECES), "--mask-whole-words")))
    assert pairs == {(True, True), (False, False)}


def test_without_the_flag_words_are_split(tmp_path):
    pairs = set(pairs_within_words(task_of(text(tmp_path, PIECES))))
    assert {(True, False), (False, True)} < pairs


def test_specials_and_fillers_are_words_of_their_own(tmp_path):
    dictionary = task_of(text(tmp_path, [*PIECES, "madeupword0000"])).source_dictionary
    beginnings = language_modeling.word_beginnings(None, dictionary).tolist()
    assert beginnings == [1] * 4 + [1] * WORDS + [0] * REST + [1, 1]


def test_pieces_without_word_beginnings_are_refused(tmp_path):
    task = task_of(text(tmp_path, [f"piece{i}" for i in range(WORDS + REST)]), "--mask-whole-words")
    with pytest.raises(UserError, match="--mask-whole-words: no piece of the dictionary begins with ▁"):
        task.load_dataset("train")
