"""The criterion: losses against Transformers, metrics of sums against scikit-learn and SciPy, targets."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.logging import metrics
from scipy import stats
from sklearn import metrics as sk
from transformers import BertConfig, BertForSequenceClassification

from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION, SINGLE_LABEL, Labels, Scaling
from roberta_small.fairseq_plugin.models.ngrams import NgramHead
from roberta_small.fairseq_plugin.tasks.criterion import (
    SentenceClassificationCriterion,
    SentenceClassificationCriterionConfig,
)
from roberta_small.fairseq_plugin.tasks.objectives import OBJECTIVES, training_loss
from roberta_small.fairseq_plugin.tasks.sentence_classification import (
    SentenceClassificationConfig,
    SentenceClassificationTask,
)
from tests.support.tiny_runs import make_labelled_data
from tests.support.training import INPUT, SIZES, STEPS, build_trainer

SCALING = Scaling(2.0, 3.0)


def targets_of(kind, count):
    """Random labels of four classes, or numbers."""
    rng = torch.Generator().manual_seed(0)
    if kind == REGRESSION:
        return torch.randn(count, generator=rng)
    if kind == SINGLE_LABEL:
        return torch.randint(4, (count,), generator=rng)
    return (torch.rand(count, 4, generator=rng) < 0.4).float()


class Same(torch.nn.Module):
    def forward(self, logits, **_):
        return logits, {}


def criterion_of(kind, **options):
    labels = (
        Labels(KINDS[kind], scaling=SCALING) if kind == REGRESSION else Labels(KINDS[kind], tuple("abcd"))
    )
    task = SimpleNamespace(target_dictionary=None, labels=labels)
    return SentenceClassificationCriterion(SentenceClassificationCriterionConfig(**options), task)


def sample_of(logits, target):
    return {"net_input": {"logits": logits}, "target": target, "ntokens": len(target)}


def output_of(kind, logits, target):
    """The logging output of a batch."""
    target = target[:, None] if kind == SINGLE_LABEL else target
    return criterion_of(kind)(Same(), sample_of(logits, target))[2]


def single_output(labels, predicted):
    logits = torch.nn.functional.one_hot(torch.tensor(predicted), 2).float()
    return output_of(SINGLE_LABEL, logits, torch.tensor(labels))


def reduced(*worker_outputs):
    """The logged values after batches of outputs, one list per update."""
    metrics.reset()
    with metrics.aggregate(new_root=True) as meters:
        for outputs in worker_outputs:
            SentenceClassificationCriterion.reduce_metrics(outputs)
    return meters.get_smoothed_values()


@pytest.mark.parametrize("kind", KINDS)
def test_losses_equal_transformers(kind):
    size = 1 if kind == REGRESSION else 4
    config = BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
        num_labels=size, problem_type=kind,
    )  # fmt: skip
    model = BertForSequenceClassification(config).eval()
    target = targets_of(kind, 7)
    found = model(input_ids=torch.randint(20, (7, 5)), labels=target)
    loss, number = OBJECTIVES[kind].loss(found.logits, target)
    assert float(loss / number) == pytest.approx(float(found.loss), rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_metrics_over_batches_and_workers(kind):
    count, size = 60, 1 if kind == REGRESSION else 4
    target, logits = targets_of(kind, count), torch.randn(count, size, generator=torch.manual_seed(1))
    logits = logits + (torch.eye(size)[target] if kind == SINGLE_LABEL else target.view(count, -1))
    parts = [slice(i, i + 7) for i in range(0, count, 7)]
    outputs = [output_of(kind, logits[part], target[part]) for part in parts]
    # Three updates: fairseq has summed the outputs of the first, the others have several outputs.
    summed = {key: sum(output[key] for output in outputs[:4]) for key in outputs[0]}
    logged = reduced([summed], outputs[4:6], outputs[6:])
    if kind == REGRESSION:
        t, p = target.numpy().astype(float), logits[:, 0].numpy().astype(float)
        expected = {
            "pearson": stats.pearsonr(t, p).statistic,
            "rmse": SCALING.scale * sk.root_mean_squared_error(t, p),
        }
        loss = float(((t - p) ** 2).mean())
    elif kind == SINGLE_LABEL:
        t, p = target.numpy(), logits.argmax(1).numpy()
        expected = {
            "accuracy": 100 * sk.accuracy_score(t, p),
            "macro_f1": sk.f1_score(t, p, average="macro"),
            "mcc": sk.matthews_corrcoef(t, p),
        }
        loss = float(torch.nn.functional.cross_entropy(logits, target))
    else:
        t, p = target.numpy() > 0, logits.numpy() >= 0
        expected = {
            "micro_f1": sk.f1_score(t, p, average="micro"),
            "macro_f1": sk.f1_score(t, p, average="macro"),
            "subset_accuracy": 100 * sk.accuracy_score(t, p),
        }
        loss = float(torch.nn.functional.binary_cross_entropy_with_logits(logits, target))
    assert {name: logged[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert logged["loss"] == pytest.approx(loss / np.log(2), rel=1e-3)
    assert ("accuracy" in logged) == (kind == SINGLE_LABEL)


@pytest.mark.parametrize(
    ("labels", "predicted"), [([0, 0, 0], [0, 0, 0]), ([0, 1, 0], [0, 0, 0]), ([0, 0], [1, 1]), ([1], [1])]
)
def test_metrics_of_a_single_class_equal_scikit_learn(labels, predicted):
    logged = reduced([single_output(labels, predicted)])
    assert logged["mcc"] == sk.matthews_corrcoef(labels, predicted)
    assert logged["macro_f1"] == pytest.approx(sk.f1_score(labels, predicted, average="macro"))


def test_a_checkpoint_restores_the_confusion_matrix():
    output = single_output([0, 1, 1], [0, 1, 0])
    metrics.reset()
    with metrics.aggregate("train"):
        SentenceClassificationCriterion.reduce_metrics([output])
        state = metrics.state_dict()
    metrics.reset()
    metrics.load_state_dict(state)
    with metrics.aggregate("train"):
        SentenceClassificationCriterion.reduce_metrics([output])
    meters = metrics.get_meters("train")
    assert OBJECTIVES[SINGLE_LABEL].statistics(meters["_confusion"].sum).tolist() == [[2, 0], [2, 2]]
    assert meters.get_smoothed_value("accuracy") == pytest.approx(400 / 6)


def test_the_validation_loss_is_not_smoothed():
    sample = sample_of(torch.randn(8, 3), torch.randint(3, (8, 1)))
    smoothed, plain = criterion_of(SINGLE_LABEL, label_smoothing=0.3), criterion_of(SINGLE_LABEL)
    assert smoothed(Same(), sample)[0] != plain(Same(), sample)[0]
    assert smoothed.eval()(Same(), sample)[0] == plain(Same(), sample)[0]


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
    sample = sample_of(logits, labels[:, None])
    soft, trained = sample | {"soft_target": p_BK}, criterion_of(SINGLE_LABEL)
    loss, size, _ = trained(Same(), soft)
    torch.testing.assert_close(loss / size, torch.nn.functional.cross_entropy(logits, p_BK))
    assert torch.equal(trained.eval()(Same(), soft)[0], trained(Same(), sample)[0])


@pytest.mark.parametrize("kind", [MULTI_LABEL, REGRESSION])
@pytest.mark.parametrize("option", [{"label_smoothing": 0.1}, {"class_weights": "balanced"}])
def test_options_for_exclusive_classes_are_one_error(kind, option):
    with pytest.raises(UserError, match=f"--{next(iter(option)).replace('_', '-')}.*{kind}"):
        criterion_of(kind, **option)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    return {kind: make_labelled_data(root / kind, kind) for kind in (MULTI_LABEL, REGRESSION)}


def setup(folder, **flags):
    cfg = SentenceClassificationConfig(data=str(folder), no_shuffle=True, init_token=0, **flags)
    return SentenceClassificationTask.setup_task(cfg)


def batch_of(task):
    dataset = task.load_dataset("train")
    return dataset.collater([dataset[i] for i in range(len(dataset))])


def test_targets_of_several_labels(folders):
    task = setup(folders[MULTI_LABEL], multi_label=True)
    batch = batch_of(task)
    found = [
        [name for name, has in zip(task.class_names, row, strict=True) if has] for row in batch["target"]
    ]
    wanted = [
        json.loads(line) for line in (folders[MULTI_LABEL] / "text/train.label").read_text().splitlines()
    ]
    assert list(map(sorted, found)) == wanted
    assert batch["target"].dtype == torch.float32
    assert task.labels.kind.name == MULTI_LABEL


def test_targets_of_numbers_are_standardized(folders):
    task = setup(folders[REGRESSION], regression_target=True)
    assert task.cfg.num_classes == 1
    batch = batch_of(task)
    values = np.array((folders[REGRESSION] / "text/train.label").read_text().split(), dtype=float)
    assert batch["target"].numpy() == pytest.approx(stats.zscore(values), abs=1e-6)
    assert task.get_checkpoint_dict()["SentenceClassificationTask"]["label_scaling"] == {
        "mean": values.mean(), "scale": values.std(),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "flags", "named"),
    [
        (REGRESSION, {}, "--regression-target"),
        (MULTI_LABEL, {}, "--multi-label"),
        (MULTI_LABEL, {"regression_target": True}, "--multi-label"),
        (MULTI_LABEL, {"regression_target": True, "multi_label": True}, "--regression-target"),
        (REGRESSION, {"regression_target": True, "num_classes": 2}, "--num-classes 2"),
    ],
)
def test_flags_that_contradict_the_data_are_one_error(folders, name, flags, named):
    with pytest.raises(UserError, match=named):
        setup(folders[name], **flags)


def test_changed_numbers_are_one_error(folders, tmp_path):
    shutil.copytree(folders[REGRESSION], tmp_path / "copy")
    (tmp_path / "copy/label/valid.label").write_text("1\nx\n")
    with pytest.raises(UserError, match=r"valid\.label"):
        setup(tmp_path / "copy", regression_target=True).load_dataset("valid")


def test_numbers_of_stock_fairseq_are_not_scaled(folders, tmp_path):
    shutil.copytree(folders[REGRESSION], tmp_path / "copy")
    (tmp_path / "copy/preprocess.json").unlink()
    batch = batch_of(setup(tmp_path / "copy", regression_target=True))
    values = (tmp_path / "copy/label/train.label").read_text().split()
    assert batch["target"].tolist() == pytest.approx(list(map(float, values)))


def test_ngrams_of_several_labels_and_numbers():
    rows = [torch.tensor([0, 5, 6, 2]), torch.tensor([0, 5, 7, 2]), torch.tensor([0, 8, 2])]
    head = NgramHead(1, 64, 2)
    several = [torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0]), torch.tensor([0.0, 0.0])]
    head.count(list(zip(rows, several, strict=True)), KINDS[MULTI_LABEL])
    assert (head.spread > 0).any()
    head = NgramHead(1, 64, 1)
    head.count(list(zip(rows, torch.tensor([1.0, 3.0, -2.0]), strict=True)), KINDS[REGRESSION])
    buckets = [int(head.occurrences(torch.tensor([[token]]))[1]) for token in (5, 6, 7, 8)]
    assert head.spread[buckets].tolist() == pytest.approx([4 / 3, 1 / 2, 3 / 2, 1.0])
