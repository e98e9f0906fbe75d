"""`--mask-whole-words` with SentencePiece vocabularies."""

import shlex

import pytest
from fairseq import tasks

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.tasks import language_modeling
from tests.support.data_folders import write_dictionary, write_split
from tests.support.training import STEPS, configuration

WORDS, REST = 12, 8
TOKENS = [f"▁word{i}" for i in range(WORDS)] + [f"rest{i}" for i in range(REST)]
FIRST, CONTINUED = 4, 4 + WORDS
"""Ids of the first token that begins a word, and of the first that does not."""
MASKED_LM = shlex.split("--task masked_lm --criterion fast_masked_lm --arch roberta_small --optimizer adam")
BLOCKS = shlex.split("--tokens-per-sample 32 --sample-break-mode none --mask-prob 0.4")


def text(folder, tokens):
    """Running text in which every other word has three tokens, the others one."""
    for split, count in (("train", 40), ("valid", 5)):
        rows = [
            [FIRST + i % WORDS, CONTINUED + i % REST, CONTINUED + (i + 3) % REST, FIRST + (i + 1) % WORDS]
            for i in range(count)
        ]
        write_split(folder, split, rows)
    write_dictionary(folder / "dict.txt", tokens)
    return folder


def task_of(folder, *flags):
    return tasks.setup_task(configuration([folder, *MASKED_LM, *BLOCKS, *STEPS, *flags]).task)


def pairs_within_words(task):
    """For each token that continues a word: whether it is masked, and whether the token before it is."""
    task.load_dataset("train")
    dataset = task.dataset("train")
    for row in range(len(dataset)):
        sample = dataset.collater([dataset[row]])
        tokens_L, target_L = sample["net_input"]["src_tokens"][0], sample["target"][0]
        masked_L = target_L != task.source_dictionary.pad()
        original_L = target_L.where(masked_L, tokens_L)
        continues_L = (original_L >= CONTINUED) & (original_L < CONTINUED + REST)
        for at in continues_L.nonzero().flatten().tolist():
            yield bool(masked_L[at]), bool(masked_L[at - 1])


def test_all_tokens_of_a_word_are_masked_or_none_only_with_the_flag(tmp_path):
    folder = text(tmp_path, TOKENS)
    assert set(pairs_within_words(task_of(folder, "--mask-whole-words"))) == {(True, True), (False, False)}
    assert {(True, False), (False, True)} < set(pairs_within_words(task_of(folder)))


def test_special_symbols_and_padding_entries_are_separate_words(tmp_path):
    dictionary = task_of(text(tmp_path, [*TOKENS, "madeupword0000"])).source_dictionary
    starts = language_modeling.marking_word_starts(None, None, dictionary).tolist()
    assert starts == [1] * 4 + [1] * WORDS + [0] * REST + [1, 1]


def test_a_dictionary_without_word_starts_is_an_error(tmp_path):
    task = task_of(text(tmp_path, [f"token{i}" for i in range(WORDS + REST)]), "--mask-whole-words")
    with pytest.raises(UserError, match=r"--mask-whole-words: .*▁"):
        task.load_dataset("train")


def test_tasks_that_derive_from_masked_lm_can_assign_args(tmp_path):
    task = task_of(text(tmp_path, TOKENS))
    assert task.args == task.cfg
    task.args = "assigned"
    assert task.args == "assigned"
