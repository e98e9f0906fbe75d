"""Sentence pairs that are too long, in training, prediction and export."""

import numpy as np
import pytest
import torch
from fairseq.data import ListDataset
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from roberta_small.eval.texts import InputFormat
from roberta_small.export.transformers import tokenization_pieces
from roberta_small.fairseq_plugin.tasks.datasets import ShortenedPairsDataset
from roberta_small.preprocess.tokenization.encoder import kept_lengths

BOS, EOS, WORD = 0, 2, 5


@pytest.fixture(scope="module")
def tokenizer():
    """A fast tokenizer of one word, with the special tokens of RoBERTa."""
    found = Tokenizer(models.WordLevel({"<s>": BOS, "</s>": EOS, "a": WORD}, unk_token="a"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    found.post_processor = processors.RobertaProcessing(("</s>", EOS), ("<s>", BOS))
    return found


@given(st.integers(0, 40), st.integers(0, 40), st.integers(4, 30))
def test_the_rule_is_that_of_the_library_tokenizers(tokenizer, first, second, longest):
    tokenizer.enable_truncation(longest, strategy="longest_first")
    wanted = tokenizer.encode("a " * first, "a " * second).ids
    kept = kept_lengths(first, second, longest - 4)
    assert [BOS, *[WORD] * kept[0], EOS, EOS, *[WORD] * kept[1], EOS] == wanted
    assert tokenization_pieces.kept_lengths(first, second, longest - 4) == kept


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 30), st.booleans(), st.booleans())
def test_training_and_prediction_have_the_same_ids(first, second, longest, init, separator):
    texts = [np.array([*range(10, 10 + size), EOS]) for size in (first, second)]
    starts = [[BOS] if init else [], [EOS] if separator else []]
    datasets = [
        ListDataset([torch.tensor([*start, *text.tolist()])], np.array([len(start) + len(text)]))
        for start, text in zip(starts, texts, strict=True)
    ]
    trained = ShortenedPairsDataset(*datasets, (len(starts[0]), len(starts[1])), longest)
    special = BOS if init else None, EOS if separator else None
    how = InputFormat(*special, longest, shorten=True, keep_eos=False)
    assert trained[0].tolist() == how.assemble(texts, "text 1").tolist()
    assert trained.sizes.tolist() == [len(trained[0])] == [trained.num_tokens(0)] == [trained.size(0)]
    if longest >= 8 and first and second:
        assert {10} <= set(trained[0].tolist())
        assert trained[0].tolist().count(EOS) == 2 + separator
