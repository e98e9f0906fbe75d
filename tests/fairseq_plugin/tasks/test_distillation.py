"""The criterion of distillation against its definition."""

from types import SimpleNamespace

import pytest
import torch

from roberta_small.fairseq_plugin.tasks.distillation import TEXTS, TOKENS, DistillationCriterion

PAD, WIDTH = 1, 6
LENGTHS = (4, 2)


def criterion(of, weight=8.0):
    record = {"mean": [0.5] * WIDTH, "std": [2.0] * WIDTH}
    task = SimpleNamespace(
        source_dictionary=SimpleNamespace(pad=lambda: PAD),
        teacher=lambda: SimpleNamespace(of=of, record=record, width=WIDTH),
        width=WIDTH,
    )
    found = DistillationCriterion(task, weight)
    with torch.no_grad():
        found.projection.weight.copy_(torch.eye(WIDTH))
        found.projection.bias.zero_()
    return found


def loss_of(of, teacher, student_BLC):
    tokens_BL = torch.tensor([[0, 5, 6, 2], [0, 2, PAD, PAD]])
    sample = {"net_input": {"src_tokens": tokens_BL}, "teacher": teacher, "ntokens": 6, "nsentences": 2}
    loss, size, log = criterion(of)(lambda *_, **__: (student_BLC, None), sample)
    return float(loss) / size, log


def test_tokens_learn_their_vectors_and_the_first_one_the_mean():
    student_BLC, teacher_ND = torch.randn(2, 4, WIDTH), torch.randn(6, WIDTH)
    found, log = loss_of(TOKENS, teacher_ND, student_BLC)
    token_errors, text_errors, begin = [], [], 0
    for text, length in enumerate(LENGTHS):
        ours_LC, theirs_LD = student_BLC[text, :length], (teacher_ND[begin : begin + length] - 0.5) / 2
        mean_D = theirs_LD.mean(0)
        wanted_LD = torch.cat([mean_D[None], theirs_LD[1:]])
        token_errors += ((ours_LC - wanted_LD) ** 2).mean(1).tolist()
        text_errors.append(float(((ours_LC.mean(0) - mean_D) ** 2).mean()))
        begin += length
    token_error, text_error = sum(token_errors) / 6, sum(text_errors) / 2
    assert found == pytest.approx(token_error + 8 * text_error, rel=1e-5)
    assert float(log["token_error"]) / 6 == pytest.approx(token_error, rel=1e-5)
    assert float(log["text_error"]) / 2 == pytest.approx(text_error, rel=1e-5)


def test_texts_learn_the_mean():
    student_BLC, teacher_BD = torch.randn(2, 4, WIDTH), torch.randn(2, WIDTH)
    found, _ = loss_of(TEXTS, teacher_BD, student_BLC)
    ours_BD = torch.stack([student_BLC[text, :length].mean(0) for text, length in enumerate(LENGTHS)])
    wanted = ((ours_BD - (teacher_BD - 0.5) / 2) ** 2).mean(1).sum() / 2
    assert found == pytest.approx(float(wanted), rel=1e-5)
