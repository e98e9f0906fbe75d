"""Left-to-right training with fairseq's task `language_modeling`, and the way to a classifier."""

import logging
import math
import shlex

import pytest
import torch
from data_folders import PIECES, write_data, write_dictionary, write_split
from fairseq import checkpoint_utils, utils
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.logging import metrics
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from training import OURS, SIZES, STEPS, build_trainer, losses_of, save

from common.errors import UserError
from fairseq_plugin.checkpoints import ppmi_svd
from fairseq_plugin.checkpoints.loading import load_checkpoint
from fairseq_plugin.tasks.language_modeling import FastLmCriterion

BLOCKS = shlex.split("--task language_modeling --tokens-per-sample 16 --sample-break-mode none")
FAST = shlex.split("--optimizer fused_adam --precision fp32 --max-positions 32")
CLASSIFY = [*OURS[:-2], *shlex.split("--init-token 2 --shorten-method truncate")]
RESET = ("--reset-optimizer", "--reset-dataloader", "--reset-meters")
ARCHITECTURES = ("causal_lm_small", "causal_roberta_small")
HEAD = "classification_heads."


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Running text: a piece follows another by a rule that can be learnt."""
    folder = tmp_path_factory.mktemp("text")
    for split, count in (("train", 60), ("valid", 10)):
        rows = [[4 + (i * 7 + 3 * j) % (PIECES - 1) for j in range(9)] for i in range(count)]
        write_split(folder, split, rows)
    write_dictionary(folder / "dict.txt", [f"piece{i}" for i in range(PIECES)])
    return folder


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


def trainer_of(text, arch, criterion="fast_lm"):
    words = [text, *BLOCKS, "--criterion", criterion, "--arch", arch, *STEPS, *SIZES, *FAST]
    return build_trainer(words)


def classifier(labelled, folder, arch, *flags):
    """As far as `fairseq-train` goes before the first update of a classifier."""
    words = [labelled, *CLASSIFY, "--arch", arch, *STEPS, *SIZES, *FAST, "--save-dir", folder, *flags]
    _, trainer = build_trainer(words)
    checkpoint_utils.load_checkpoint(trainer.cfg.checkpoint, trainer)
    return trainer


@pytest.fixture(scope="module", params=ARCHITECTURES)
def pretrained(request, text, tmp_path_factory):
    """Architecture, checkpoint of some updates, and losses on the way (bits)."""
    _, trainer = trainer_of(text, request.param)
    losses = losses_of(trainer, 25)
    path = tmp_path_factory.mktemp(request.param) / "model.pt"
    save(trainer, path)
    return request.param, path, losses


def test_it_learns_what_comes_next(pretrained):
    _, _, losses = pretrained
    assert losses[0] > 0.9 * math.log2(PIECES)
    assert sum(losses[-3:]) < sum(losses[:3]) - 0.3


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_it_can_start_from_counted_weights(text, tmp_path, arch):
    start = tmp_path / "start.pt"
    sizes = shlex.split(f"--arch {arch} --max-positions 32 --tokens-per-sample 16")
    counted = ["--window", "1", "--task", "language_modeling", *sizes, *SIZES]
    assert ppmi_svd.main([str(text), "--output", str(start), *counted]) == 0
    flags = ["--restore-file", start, "--save-dir", tmp_path, *RESET]
    words = [text, *BLOCKS, "--criterion", "fast_lm", *sizes, *SIZES, *STEPS, *FAST, *flags]
    _, trainer = build_trainer(words)
    checkpoint_utils.load_checkpoint(trainer.cfg.checkpoint, trainer)
    written = load_checkpoint(start)["model"]
    for name, weight in trainer.get_model().state_dict().items():
        assert torch.equal(weight, written[name]), name
    random = trainer_of(text, arch)[1]
    assert losses_of(trainer, 1)[0] < losses_of(random, 1)[0] - 0.1


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_criterion_equals_fairseqs_cross_entropy(text, arch):
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
def test_model_flops_are_those_that_torch_counts(text, arch):
    task, trainer = trainer_of(text, arch)
    model = trainer.get_model().train()
    tokens = torch.randint(4, PIECES, (8, 16))  # a whole number of packed blocks: no fillers
    sample = {"net_input": {"src_tokens": tokens}, "target": tokens, "ntokens": 128, "nsentences": 8}
    logged = FastLmCriterion(task)(model, sample)[2]
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):  # fused: not counted
        model(tokens)[0].sum().backward()
    assert logged["flops"] == counter.get_total_flops()
    assert FastLmCriterion(task)(model.eval(), sample)[2]["flops"] == 0


@pytest.mark.parametrize(
    ("task", "arch", "flags", "said"),
    [
        ("language_modeling", "roberta_small", [], "sees what it is to predict; take --arch causal_roberta"),
        ("masked_lm", "causal_lm_small", [], "has no <mask>; take --task language_modeling"),
        ("masked_lm", "causal_roberta_small", [], "has no <mask>; take --task language_modeling"),
        ("language_modeling", "causal_lm_small", ["--add-bos-token"], "--add-bos-token: texts begin with"),
    ],
)
def test_a_task_that_does_not_suit_the_model_is_refused(text, task, arch, flags, said):
    words = ["--task", task, "--criterion", "fast_lm", "--arch", arch, "--tokens-per-sample", "16", *flags]
    with pytest.raises(UserError, match=said):
        build_trainer([text, *words, *STEPS, *SIZES, *FAST])


def test_criterion_wants_a_left_to_right_model(text):
    _, trainer = trainer_of(text, "causal_lm_small")
    masked = ["--task", "masked_lm", "--criterion", "fast_lm", "--arch", "roberta_small"]
    task, other = build_trainer([text, *masked, "--tokens-per-sample", "16", *STEPS, *SIZES, *FAST])
    sample = next(iter(trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=False)))
    with pytest.raises(UserError, match="--arch causal_lm_small or"):
        FastLmCriterion(task)(other.get_model(), sample)


def test_a_language_model_becomes_a_classifier(pretrained, labelled, tmp_path, caplog):
    arch, path, _ = pretrained
    fresh = classifier(labelled, tmp_path / "fresh", arch).get_model().state_dict()
    with caplog.at_level(logging.INFO):
        trainer = classifier(labelled, tmp_path / "run", arch, "--restore-file", path, *RESET)
    assert f"{path} has no classification head" in caplog.text
    model = trainer.get_model()
    saved = torch.load(path, weights_only=True)["model"]
    for name, value in model.state_dict().items():
        assert torch.equal(value, fresh[name] if name.startswith(HEAD) else saved[name]), name
    assert not any("lm_head" in name for name in model.state_dict())
    losses = losses_of(trainer, 30)
    assert sum(losses[-6:]) < sum(losses[:6])


def test_a_classifier_goes_on_where_it_stopped(labelled, tmp_path):
    arch = "causal_lm_small"
    trainer = classifier(labelled, tmp_path / "run", arch)
    losses_of(trainer, 2)
    (tmp_path / "run").mkdir()
    save(trainer, tmp_path / "run" / "checkpoint_last.pt")
    resumed = classifier(labelled, tmp_path / "run", arch).get_model().state_dict()
    for name, value in trainer.get_model().state_dict().items():
        assert torch.equal(resumed[name], value), name


def test_a_head_of_other_classes_is_replaced(labelled, tmp_path, caplog):
    trainer = classifier(labelled, tmp_path / "run", "causal_lm_small", "--num-classes", "3")
    save(trainer, tmp_path / "three.pt")
    two = classifier(
        labelled, tmp_path / "two", "causal_lm_small", "--restore-file", tmp_path / "three.pt", *RESET
    )
    name = f"{HEAD}sentence_classification_head.out_proj.weight"
    assert two.get_model().state_dict()[name].shape == (2, 16)
    assert "other classes: left out" in caplog.text


def test_words_that_a_mask_would_hide_are_refused(labelled, tmp_path):
    with pytest.raises(UserError, match="--word-dropout: a left-to-right model has no <mask>"):
        classifier(labelled, tmp_path, "causal_roberta_small", "--word-dropout", "0.1")


def test_another_architectures_checkpoint_is_refused(pretrained, labelled, tmp_path):
    own, path, _ = pretrained
    for arch in {*ARCHITECTURES, "roberta_small"} - {own}:
        with pytest.raises(UserError, match=r"does not fit the model: .*use the --arch"):
            classifier(labelled, tmp_path / arch, arch, "--restore-file", path, *RESET)


def test_a_dictionary_that_does_not_fit_is_refused(pretrained, tmp_path):
    arch, path, _ = pretrained
    data = write_data(tmp_path / "data")
    write_dictionary(data / "input0" / "dict.txt", [f"piece{i}" for i in range(PIECES + 3)])
    with pytest.raises(UserError, match=r"embed_tokens\.weight is \(44, 16\) in the file and \(47, 16\)"):
        classifier(data, tmp_path / "run", arch, "--restore-file", path, *RESET)
