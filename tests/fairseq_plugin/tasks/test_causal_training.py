"""Left-to-right models: pre-training with fairseq's task `language_modeling`, fine-tuning as classifiers."""

import logging
import shlex

import pytest
import torch
from fairseq import utils
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.logging import metrics
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.tasks.language_modeling import FastLmCriterion
from tests.support.data_folders import PIECES, write_dictionary, write_split
from tests.support.training import LM, OURS, SIZES, STEPS, build_trainer, losses_of, save, started

BLOCKS = shlex.split("--task language_modeling --tokens-per-sample 16 --sample-break-mode none")
FAST = shlex.split("--optimizer fused_adam --precision fp32 --max-positions 32")
CLASSIFY = [*OURS[:-2], *shlex.split("--init-token 2 --shorten-method truncate")]
RESET = ("--reset-optimizer", "--reset-dataloader", "--reset-meters")
ARCHITECTURES = ("causal_lm_small", "causal_roberta_small")
HEAD = "classification_heads."


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Running text in which the next token follows from the previous one by a simple rule."""
    folder = tmp_path_factory.mktemp("text")
    for split, count in (("train", 60), ("valid", 10)):
        rows = [[4 + (i * 7 + 3 * j) % (PIECES - 1) for j in range(9)] for i in range(count)]
        write_split(folder, split, rows)
    write_dictionary(folder / "dict.txt", [f"token{i}" for i in range(PIECES)])
    return folder


def trainer_of(text, arch):
    return build_trainer([text, *BLOCKS, "--criterion", "fast_lm", "--arch", arch, *STEPS, *SIZES, *FAST])


def classifier(data, folder, arch, *flags):
    """The trainer of a classifier with its initial checkpoint loaded."""
    return started([data, *CLASSIFY, "--arch", arch, *STEPS, *SIZES, *FAST, "--save-dir", folder, *flags])


@pytest.mark.parametrize(("mode", "blocks"), [("none", 7), ("eos", 10)])
@pytest.mark.parametrize("task", ["language_modeling", "masked_lm"])
def test_validation_is_over_all_blocks(text, task, mode, blocks):
    words = LM if task == "masked_lm" else [*BLOCKS, "--criterion", "fast_lm", "--arch", "causal_lm_small"]
    flags = ["--sample-break-mode", mode, *STEPS, *SIZES, *FAST]
    _, trainer = build_trainer([text, *words, *flags])
    assert losses_of(trainer, 1)
    trainer.task.load_dataset("valid")
    samples = list(trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False))
    assert sum(sample["nsentences"] for sample in samples) == blocks
    assert sum(sample["ntokens"] for sample in samples) == 100 + (blocks if task == "masked_lm" else 0)  # <s>


@pytest.fixture(scope="module", params=ARCHITECTURES)
def pretrained(request, text, tmp_path_factory):
    """An architecture and a checkpoint after 25 updates."""
    _, trainer = trainer_of(text, request.param)
    losses_of(trainer, 25)
    path = tmp_path_factory.mktemp(request.param) / "model.pt"
    save(trainer, path)
    return request.param, path


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_fast_lm_equals_fairseqs_cross_entropy(text, arch):
    task, trainer = trainer_of(text, arch)
    model = trainer.get_model().eval()
    sample = next(iter(trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=False)))
    sample = utils.move_to_cpu(sample)
    results = []
    for criterion in (FastLmCriterion(task), CrossEntropyCriterion(task, sentence_avg=False)):
        model.zero_grad()
        loss, size, logged = criterion(model, sample)
        loss.backward()
        metrics.reset()
        with metrics.aggregate(new_root=True) as meters:
            criterion.reduce_metrics([logged])
        figures = (loss.item(), int(size), float(meters["loss"].avg))
        gradients = {name: p.grad.to_dense() for name, p in model.named_parameters()}
        results.append((figures, meters.get_smoothed_values()["ppl"], gradients))
    (ours, our_ppl, our_gradients), (theirs, their_ppl, their_gradients) = results
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert our_ppl == pytest.approx(their_ppl, rel=1e-3)  # rounded by both
    assert ours[1] == sample["ntokens"]
    for name, gradient in our_gradients.items():
        torch.testing.assert_close(gradient, their_gradients[name], rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_flops_equal_those_that_torch_counts(text, arch):
    task, trainer = trainer_of(text, arch)
    model = trainer.get_model().train()
    tokens = torch.randint(4, PIECES, (8, 16))  # a multiple of Packing.MULTIPLE: no padding
    sample = {"net_input": {"src_tokens": tokens}, "target": tokens, "ntokens": 128, "nsentences": 8}
    logged = FastLmCriterion(task)(model, sample)[2]
    # torch does not count the FLOPs of fused attention kernels.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(tokens)[0].sum().backward()
    assert logged["flops"] == counter.get_total_flops()
    assert FastLmCriterion(task)(model.eval(), sample)[2]["flops"] == 0


@pytest.mark.parametrize(
    ("task", "arch", "flags", "facts"),
    [
        ("language_modeling", "roberta_small", [], "--arch roberta_small .*--arch causal_roberta_small"),
        ("masked_lm", "causal_lm_small", [], "--task masked_lm: .*--task language_modeling"),
        ("masked_lm", "causal_roberta_small", [], "--task masked_lm: .*--task language_modeling"),
        ("language_modeling", "causal_lm_small", ["--add-bos-token"], "--add-bos-token: "),
    ],
)
def test_a_task_that_does_not_fit_the_model_is_an_error(text, task, arch, flags, facts):
    words = ["--task", task, "--criterion", "fast_lm", "--arch", arch, "--tokens-per-sample", "16", *flags]
    with pytest.raises(UserError, match=facts):
        build_trainer([text, *words, *STEPS, *SIZES, *FAST])


def test_fast_lm_needs_a_left_to_right_model(text):
    _, trainer = trainer_of(text, "causal_lm_small")
    masked = ["--task", "masked_lm", "--criterion", "fast_lm", "--arch", "roberta_small"]
    task, other = build_trainer([text, *masked, "--tokens-per-sample", "16", *STEPS, *SIZES, *FAST])
    sample = next(iter(trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=False)))
    with pytest.raises(UserError, match=r"--criterion fast_lm .*--arch causal_lm_small"):
        FastLmCriterion(task)(other.get_model(), sample)


def test_a_language_model_can_be_fine_tuned_as_a_classifier(pretrained, data, tmp_path, caplog):
    arch, path = pretrained
    fresh = classifier(data, tmp_path / "fresh", arch).get_model().state_dict()
    with caplog.at_level(logging.INFO):
        trainer = classifier(data, tmp_path / "run", arch, "--restore-file", path, *RESET)
    assert [m for m in caplog.messages if str(path) in m and "classification head" in m]
    model = trainer.get_model()
    saved = torch.load(path, weights_only=True)["model"]
    for name, value in model.state_dict().items():
        assert torch.equal(value, fresh[name] if name.startswith(HEAD) else saved[name]), name
    assert not any("lm_head" in name for name in model.state_dict())
    losses = losses_of(trainer, 30)
    assert sum(losses[-6:]) < sum(losses[:6])


def test_a_classification_head_with_other_classes_is_replaced_and_logged(data, tmp_path, caplog):
    trainer = classifier(data, tmp_path / "run", "causal_lm_small", "--num-classes", "3")
    save(trainer, tmp_path / "three.pt")
    start = ("--restore-file", tmp_path / "three.pt", *RESET)
    two = classifier(data, tmp_path / "two", "causal_lm_small", *start)
    name = f"{HEAD}sentence_classification_head.out_proj.weight"
    assert two.get_model().state_dict()[name].shape == (2, 16)
    warnings = [record.name for record in caplog.records if record.levelno == logging.WARNING]
    assert "roberta_small.fairseq_plugin.models.roberta" in warnings


def test_word_dropout_is_an_error(data, tmp_path):
    with pytest.raises(UserError, match=r"--word-dropout: .*<mask>"):
        classifier(data, tmp_path, "causal_roberta_small", "--word-dropout", "0.1")


def test_a_checkpoint_of_another_architecture_is_an_error(pretrained, data, tmp_path):
    own, path = pretrained
    for arch in {*ARCHITECTURES, "roberta_small"} - {own}:
        with pytest.raises(UserError, match=r"model\.pt .*--arch"):
            classifier(data, tmp_path / arch, arch, "--restore-file", path, *RESET)
