"""The criterion of distillation against its definition."""

from types import SimpleNamespace

import pytest
import torch

from roberta_small.fairseq_plugin.tasks import distillation
from roberta_small.fairseq_plugin.tasks.distillation import TEXTS, TOKENS, DistillationCriterion
from tests.support.data_folders import PIECES, write_dictionary, write_split

PAD, WIDTH = 1, 6
TOKENS_BL = torch.tensor([[0, 5, 6, 2], [0, 7, PAD, PAD]])
LENGTHS = (4, 2)


def test_texts_end_with_their_document(tmp_path):
    write_split(tmp_path, "train", [[5, 6, 7], [], [8]])  # an empty sentence ends a text
    dictionary = write_dictionary(tmp_path / "dict.txt", [f"token{i}" for i in range(PIECES)])
    texts = distillation.TextBlocks(str(tmp_path), "train", dictionary, 9)
    assert [text.tolist() for text in texts] == [[5, 6, 7, 2], [8, 2]]
    assert texts.sizes.tolist() == [4, 2]


def criterion(of, causal):
    record = {"mean": [0.5] * WIDTH, "std": [2.0] * WIDTH}
    task = SimpleNamespace(
        source_dictionary=SimpleNamespace(pad=lambda: PAD),
        teacher=lambda: SimpleNamespace(of=of, record=record, width=WIDTH),
        width=WIDTH,
        causal=causal,
    )
    found = DistillationCriterion(task, 8.0)
    with torch.no_grad():
        found.projection.weight.copy_(torch.eye(WIDTH))
        found.projection.bias.zero_()
    return found


def losses_of(of, teacher, student_BLC, causal):
    """The loss, and the errors of tokens, texts and first tokens, per vector, as logged."""
    sample = {"net_input": {"src_tokens": TOKENS_BL}, "teacher": teacher, "ntokens": 6, "nsentences": 2}
    loss, size, log = criterion(of, causal)(SimpleNamespace(features=lambda *_: student_BLC), sample)
    counts = {"token_error": size, "text_error": 2, "first_error": 2}
    return {"loss": float(loss) / size} | {n: float(log[n]) / counts[n] for n in log.keys() & counts.keys()}


def error(ours, theirs):
    return float(((ours - theirs) ** 2).mean(-1).sum())


@pytest.mark.parametrize("causal", [False, True])
def test_tokens_learn_their_vectors_and_texts_the_mean(causal):
    """As does the first token, which a left-to-right model reads before the text."""
    student_BLC, teacher_ND = torch.randn(2, 4, WIDTH), torch.randn(6, WIDTH)
    token_error, text_error, first_error, begin = 0.0, 0.0, 0.0, 0
    for text, length in enumerate(LENGTHS):
        ours_LC, theirs_LD = student_BLC[text, :length], (teacher_ND[begin : begin + length] - 0.5) / 2
        token_error += error(ours_LC, theirs_LD) / 6
        text_error += error(ours_LC.mean(0), theirs_LD.mean(0)) / 2
        first_error += error(ours_LC[0], theirs_LD.mean(0)) / 2
        begin += length
    found = losses_of(TOKENS, teacher_ND, student_BLC, causal)
    wanted = {"token_error": token_error, "text_error": text_error}
    wanted |= {} if causal else {"first_error": first_error}
    wanted["loss"] = token_error + 8 * (text_error + wanted.get("first_error", 0.0))
    assert found == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_without_vectors_of_tokens_the_mean_learns_that_of_the_text(causal):
    student_BLC, teacher_BD = torch.randn(2, 4, WIDTH), torch.randn(2, WIDTH)
    ours_BD = torch.stack([student_BLC[text, :length].mean(0) for text, length in enumerate(LENGTHS)])
    text_error = error(ours_BD, (teacher_BD - 0.5) / 2) / 2
    found = losses_of(TEXTS, teacher_BD, student_BLC, causal)
    wanted = {"text_error": text_error}
    wanted |= {} if causal else {"first_error": error(student_BLC[:, 0], (teacher_BD - 0.5) / 2) / 2}
    assert found == pytest.approx(wanted | {"loss": sum(wanted.values())}, rel=1e-5)
