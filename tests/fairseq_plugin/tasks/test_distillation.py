"""The criterion of distillation against its definition."""

from types import SimpleNamespace

import pytest
import torch

from roberta_small.fairseq_plugin.tasks.distillation import TEXTS, TOKENS, DistillationCriterion

PAD, EOS, WIDTH = 1, 2, 6
TOKENS_BL = torch.tensor([[0, 5, 6, EOS], [0, 7, PAD, PAD]])
LENGTHS = (4, 2)
READ = {"first": (0, 0), "last": (3, 1), "last-piece": (2, 1), "mean": (None, None)}


def criterion(of):
    record = {"mean": [0.5] * WIDTH, "std": [2.0] * WIDTH}
    task = SimpleNamespace(
        source_dictionary=SimpleNamespace(pad=lambda: PAD, eos=lambda: EOS),
        teacher=lambda: SimpleNamespace(of=of, record=record, width=WIDTH),
        width=WIDTH,
    )
    found = DistillationCriterion(task, 8.0)
    with torch.no_grad():
        found.projection.weight.copy_(torch.eye(WIDTH))
        found.projection.bias.zero_()
    return found


class Student:
    """A network with given hidden states."""

    def __init__(self, features_BLC, pooling):
        self.features_BLC, self.args = features_BLC, SimpleNamespace(pooling=pooling)

    def __call__(self, tokens_BL, features_only):
        return self.features_BLC, None


def losses_of(of, teacher, student_BLC, pooling):
    """The loss, and the errors of tokens and texts, per vector."""
    sample = {"net_input": {"src_tokens": TOKENS_BL}, "teacher": teacher, "ntokens": 6, "nsentences": 2}
    loss, size, log = criterion(of)(Student(student_BLC, pooling), sample)
    return float(loss) / size, float(log["token_error"]) / size, float(log["text_error"]) / 2


def error(ours, theirs):
    return float(((ours - theirs) ** 2).mean(-1).sum())


@pytest.mark.parametrize("pooling", READ)
def test_tokens_learn_their_vectors_and_the_one_that_is_read_the_mean(pooling):
    student_BLC, teacher_ND = torch.randn(2, 4, WIDTH), torch.randn(6, WIDTH)
    token_error, text_error, begin = 0.0, 0.0, 0
    for text, length in enumerate(LENGTHS):
        ours_LC, theirs_LD = student_BLC[text, :length], (teacher_ND[begin : begin + length] - 0.5) / 2
        wanted_LD, mean_D = theirs_LD.clone(), theirs_LD.mean(0)
        if READ[pooling][text] is not None:
            wanted_LD[READ[pooling][text]] = mean_D
        token_error += error(ours_LC, wanted_LD) / 6
        text_error += error(ours_LC.mean(0), mean_D) / 2
        begin += length
    found = losses_of(TOKENS, teacher_ND, student_BLC, pooling)
    assert found == pytest.approx((token_error + 8 * text_error, token_error, text_error), rel=1e-5)


@pytest.mark.parametrize("pooling", READ)
def test_without_vectors_of_tokens_the_mean_and_the_one_that_is_read_learn_that_of_the_text(pooling):
    student_BLC, teacher_BD = torch.randn(2, 4, WIDTH), torch.randn(2, WIDTH)
    theirs_BD, token_error = (teacher_BD - 0.5) / 2, 0.0
    ours_BD = torch.stack([student_BLC[text, :length].mean(0) for text, length in enumerate(LENGTHS)])
    text_error = error(ours_BD, theirs_BD) / 2
    if pooling != "mean":
        read_BD = torch.stack([student_BLC[text, READ[pooling][text]] for text in range(2)])
        token_error = error(read_BD, theirs_BD) / 2
    found = losses_of(TEXTS, teacher_BD, student_BLC, pooling)
    assert found == pytest.approx((token_error + 8 * text_error, token_error, text_error), rel=1e-5)
