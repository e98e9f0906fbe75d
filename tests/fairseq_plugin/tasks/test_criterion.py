"""The criterion: metrics against scikit-learn, summed over batches and workers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.logging import metrics
from sklearn import metrics as sklearn

from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import SINGLE_LABEL
from roberta_small.fairseq_plugin.tasks import criterion
from roberta_small.fairseq_plugin.tasks.criterion import (
    SentenceClassificationCriterion,
    SentenceClassificationCriterionConfig,
)
from roberta_small.fairseq_plugin.tasks.objectives import training_loss
from tests.support.training import INPUT, SIZES, STEPS, build_trainer

METRICS = {
    "accuracy": lambda labels, predicted: 100 * sklearn.accuracy_score(labels, predicted),
    "macro_f1": lambda labels, predicted: sklearn.f1_score(labels, predicted, average="macro"),
    "mcc": sklearn.matthews_corrcoef,
}


class Logits(torch.nn.Module):
    """A model that returns its input as logits."""

    def forward(self, logits, **_):
        return logits, {}


def build(label_smoothing=0.0):
    cfg = SentenceClassificationCriterionConfig(label_smoothing=label_smoothing)
    return SentenceClassificationCriterion(cfg, SimpleNamespace(target_dictionary=None))


def sample_of(logits, labels):
    return {
        "net_input": {"logits": logits},
        "target": torch.as_tensor(labels).view(-1, 1),
        "ntokens": len(labels),
    }


def logging_output(labels, predicted, classes):
    logits = torch.nn.functional.one_hot(torch.tensor(predicted), classes).float()
    loss, size, output = build()(Logits(), sample_of(logits, labels))
    assert size == len(labels)
    assert loss.item() == pytest.approx(
        torch.nn.functional.cross_entropy(logits, torch.tensor(labels), reduction="sum").item()
    )
    return output


def reduced(*worker_outputs):
    """The logged values after batches of outputs, one list per update."""
    metrics.reset()
    with metrics.aggregate(new_root=True) as meters:
        for outputs in worker_outputs:
            SentenceClassificationCriterion.reduce_metrics(outputs)
    return meters.get_smoothed_values()


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("seed", range(2))
def test_metrics_over_batches_and_workers_equal_scikit_learn(classes, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, 60).tolist()
    predicted = [g if rng.random() < 0.6 else int(rng.integers(0, classes)) for g in labels]
    outputs = [logging_output(labels[i : i + 7], predicted[i : i + 7], classes) for i in range(0, 60, 7)]
    # Three updates: fairseq has summed the outputs of the first, the others have several outputs.
    summed = {key: sum(o[key] for o in outputs[:4]) for key in outputs[0]}
    logged = reduced([summed], outputs[4:6], outputs[6:])
    for name, reference in METRICS.items():
        assert logged[name] == pytest.approx(reference(labels, predicted), abs=1e-12), name


@pytest.mark.parametrize(
    ("labels", "predicted"), [([0, 0, 0], [0, 0, 0]), ([0, 1, 0], [0, 0, 0]), ([0, 0], [1, 1]), ([1], [1])]
)
def test_metrics_of_a_single_class_equal_scikit_learn(labels, predicted):
    logged = reduced([logging_output(labels, predicted, 2)])
    assert logged["mcc"] == sklearn.matthews_corrcoef(labels, predicted)
    assert logged["macro_f1"] == pytest.approx(sklearn.f1_score(labels, predicted, average="macro"))


def test_a_checkpoint_restores_the_confusion_matrix():
    output = logging_output([0, 1, 1], [0, 1, 0], 2)
    metrics.reset()
    with metrics.aggregate("train"):
        SentenceClassificationCriterion.reduce_metrics([output])
        state = metrics.state_dict()
    metrics.reset()
    metrics.load_state_dict(state)
    with metrics.aggregate("train"):
        SentenceClassificationCriterion.reduce_metrics([output])
    meters = metrics.get_meters("train")
    assert criterion.statistics(meters, SINGLE_LABEL).tolist() == [[2, 0], [2, 2]]
    assert meters.get_smoothed_value("accuracy") == pytest.approx(400 / 6)


@pytest.mark.parametrize("weights", [None, [0.2, 1.0, 7.5]], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_the_training_loss_over_batches_equals_torchs_mean(weights, smoothing):
    generator = torch.Generator().manual_seed(1)
    logits_NK = torch.randn(29, 3, generator=generator)
    labels_N = torch.randint(3, (29,), generator=generator)
    weights_K = None if weights is None else torch.tensor(weights)
    parts = [
        training_loss(x_BK, y_B, weights_K, smoothing)
        for x_BK, y_B in zip(logits_NK.split(8), labels_N.split(8), strict=True)
    ]
    ours = sum(loss for loss, _ in parts) / sum(size for _, size in parts)
    expected = torch.nn.functional.cross_entropy(logits_NK, labels_N, weights_K, label_smoothing=smoothing)
    torch.testing.assert_close(ours, expected)


def test_the_validation_loss_is_not_smoothed():
    sample, smoothed, plain = sample_of(torch.randn(8, 3), torch.randint(3, (8,))), build(0.3), build()
    assert smoothed(Logits(), sample)[0] != plain(Logits(), sample)[0]
    assert smoothed.eval()(Logits(), sample)[0] == plain(Logits(), sample)[0]


def test_an_update_without_sentences_logs_nothing():
    assert reduced([{"sample_size": 0}]) == {}


def test_a_task_without_labels_is_an_error(data):
    words = "--task sentence_prediction --criterion sentence_classification --arch roberta --num-classes 2"
    arguments = [data, *words.split(), *INPUT, *SIZES, *STEPS, "--optimizer", "adam"]
    trainer = build_trainer(arguments)[1]
    batch = next(trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=False))
    with pytest.raises(UserError, match="--task sentence_classification"):
        trainer.criterion(trainer.model, batch)


@pytest.mark.parametrize("weights", [None, [0.2, 1.0, 7.5]], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_certain_soft_labels_are_labels(weights, smoothing):
    logits_BK, labels_B = torch.randn(16, 3), torch.randint(3, (16,))
    weights_K = None if weights is None else torch.tensor(weights)
    hard, number = training_loss(logits_BK, labels_B, weights_K, smoothing)
    one_hot_BK = torch.nn.functional.one_hot(labels_B, 3).float()
    soft, weight = training_loss(logits_BK, one_hot_BK, weights_K, smoothing)
    torch.testing.assert_close(soft, hard)
    assert weight == pytest.approx(number)


def test_soft_labels_are_targets_of_training_only():
    logits, labels, p_BK = torch.randn(8, 3), torch.randint(3, (8,)), torch.rand(8, 3).softmax(1)
    sample = sample_of(logits, labels)
    soft, trained = sample | {"soft_target": p_BK}, build()
    loss, size, _ = trained(Logits(), soft)
    torch.testing.assert_close(loss / size, torch.nn.functional.cross_entropy(logits, p_BK))
    assert torch.equal(trained.eval()(Logits(), soft)[0], trained(Logits(), sample)[0])
