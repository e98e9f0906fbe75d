"""The criterion: metrics against scikit-learn, summed over batches and workers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from data_folders import write_data
from fairseq.logging import metrics
from sklearn import metrics as sklearn
from training import INPUT, SIZES, STEPS, build_trainer

from common.errors import UserError
from fairseq_plugin.tasks import criterion
from fairseq_plugin.tasks.criterion import SentenceClassificationCriterion

METRICS = {
    "accuracy": lambda labels, predicted: 100 * sklearn.accuracy_score(labels, predicted),
    "macro_f1": lambda labels, predicted: sklearn.f1_score(labels, predicted, average="macro"),
    "mcc": sklearn.matthews_corrcoef,
}


class Logits(torch.nn.Module):
    """A model that returns its input as logits."""

    def forward(self, logits, **_):
        return logits, {}


def logging_output(labels, predicted, classes):
    logits = torch.nn.functional.one_hot(torch.tensor(predicted), classes).float()
    sample = {
        "net_input": {"logits": logits},
        "target": torch.tensor(labels).view(-1, 1),
        "ntokens": len(labels),
    }
    cfg = SimpleNamespace(classification_head_name="head")
    task = SimpleNamespace(target_dictionary=None)
    loss, size, output = SentenceClassificationCriterion(cfg, task)(Logits(), sample)
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
@pytest.mark.parametrize("seed", range(5))
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


def test_values_are_not_rounded():
    logged = reduced([logging_output([0] * 7, [0, 0, 0, 0, 0, 1, 1], 2)])
    assert logged["accuracy"] == 500 / 7


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
    assert criterion.confusion_matrix(meters).tolist() == [[2, 0], [2, 2]]
    assert meters.get_smoothed_value("accuracy") == pytest.approx(400 / 6)


def test_an_update_without_sentences_logs_nothing():
    assert reduced([{"sample_size": 0}]) == {}


def test_a_task_without_labels_is_an_error(tmp_path):
    words = "--task sentence_prediction --criterion sentence_classification --arch roberta --num-classes 2"
    arguments = [write_data(tmp_path), *words.split(), *INPUT, *SIZES, *STEPS, "--optimizer", "adam"]
    trainer = build_trainer(arguments)[1]
    batch = next(trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=False))
    with pytest.raises(UserError, match="--task sentence_classification"):
        trainer.criterion(trainer.model, batch)
