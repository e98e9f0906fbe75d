"""Errors before the first update, and the gradient of an update with class weights."""

import pytest
import torch

from roberta_small.common.errors import UserError
from tests.support.data_folders import write_data
from tests.support.training import CLASSIFIER, INPUT, OURS, SIZES, build_trainer

SGD = ["--optimizer", "sgd", "--momentum", "0", "--weight-decay", "0", "--lr", "1", "--lr-scheduler", "fixed"]
SGD += ["--batch-size", "8", "--cpu", "--num-workers", "0"]
DETERMINISTIC = ["--dropout", "0", "--attention-dropout", "0", "--pooler-dropout", "0", "--precision", "fp32"]
WEIGHTS = '{"0": 4.0, "1": 0.5, "2": 0.1}'
MAXIMIZE = "--maximize-best-checkpoint-metric"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"), classes=("0", "1", "2"))


def metric(name, *more):
    return ["--best-checkpoint-metric", name, *more]


@pytest.mark.parametrize(
    ("flags", "facts"),
    [
        (metric("macro-f1", MAXIMIZE), ["macro-f1", "did you mean macro_f1?"]),
        (metric("accuracy"), ["accuracy", f"add {MAXIMIZE}"]),
        (metric("loss", MAXIMIZE), ["loss", f"remove {MAXIMIZE}"]),
        (["--class-weights", "balance"], ["did you mean balanced?"]),
        (["--label-smoothing", "1.0"], ["--label-smoothing 1.0"]),
        (["--label-smoothing", "nan"], ["--label-smoothing nan"]),
    ],
)
def test_wrong_flags_are_errors(data, flags, facts):
    with pytest.raises(UserError) as error:
        build_trainer([data, *CLASSIFIER, *flags])
    assert all(fact in str(error.value) for fact in facts)


@pytest.mark.parametrize(("weights", "smoothing"), [("none", "0.1"), (WEIGHTS, "0"), (WEIGHTS, "0.1")])
def test_the_gradient_is_that_of_torchs_weighted_mean_over_accumulated_batches(data, weights, smoothing):
    words = [data, *OURS, *INPUT, *SIZES, *SGD, *DETERMINISTIC]
    _, trainer = build_trainer([*words, "--class-weights", weights, "--label-smoothing", smoothing])
    trainer.begin_epoch(1)
    samples = list(trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=False))[:3]
    model = trainer.get_model()
    head = {"features_only": True, "classification_head_name": "sentence_classification_head"}
    loss = torch.nn.functional.cross_entropy(
        torch.cat([model(**sample["net_input"], **head)[0] for sample in samples]),
        torch.cat([sample["target"].view(-1) for sample in samples]),
        None if weights == "none" else torch.tensor([4.0, 0.5, 0.1]),
        label_smoothing=float(smoothing),
    )
    head = model.classification_heads["sentence_classification_head"].out_proj.weight
    (expected,) = torch.autograd.grad(loss, head)
    before = head.detach().clone()
    output = trainer.train_step(samples)
    torch.testing.assert_close(before - head.detach(), expected, atol=1e-6, rtol=1e-4)
    assert output["loss"] == pytest.approx(loss.item() / torch.log(torch.tensor(2.0)).item(), rel=1e-5)
