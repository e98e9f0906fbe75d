"""Losses against Transformers, sums against scikit-learn and SciPy, and data of each kind of labels."""

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
from roberta_small.fairseq_plugin.tasks.objectives import OBJECTIVES
from roberta_small.fairseq_plugin.tasks.sentence_classification import (
    SentenceClassificationConfig,
    SentenceClassificationTask,
)
from tests.support.tiny_runs import make_labelled_data

SCALING = Scaling(2.0, 3.0)


def labels_of(kind, classes=4):
    if kind == REGRESSION:
        return Labels(KINDS[kind], scaling=SCALING)
    return Labels(KINDS[kind], tuple("abcdefgh"[:classes]))


def targets_of(kind, count, classes=4, seed=0):
    rng = torch.Generator().manual_seed(seed)
    if kind == REGRESSION:
        return torch.randn(count, generator=rng)
    if kind == SINGLE_LABEL:
        return torch.randint(classes, (count,), generator=rng)
    return (torch.rand(count, classes, generator=rng) < 0.4).float()


class Same(torch.nn.Module):
    def forward(self, logits, **_):
        return logits, {}


def criterion_of(kind, **options):
    task = SimpleNamespace(target_dictionary=None, labels=labels_of(kind))
    return SentenceClassificationCriterion(SentenceClassificationCriterionConfig(**options), task)


def output_of(kind, logits, target):
    target = target[:, None] if kind == SINGLE_LABEL else target
    sample = {"net_input": {"logits": logits}, "target": target, "ntokens": len(target)}
    return criterion_of(kind)(Same(), sample)


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


@pytest.mark.parametrize("kind", [MULTI_LABEL, REGRESSION])
def test_metrics_over_batches_and_workers(kind):
    count, size = 60, 1 if kind == REGRESSION else 4
    target, logits = targets_of(kind, count), torch.randn(count, size, generator=torch.manual_seed(1))
    logits = logits + target.view(count, -1)
    parts = [slice(i, i + 7) for i in range(0, count, 7)]
    outputs = [output_of(kind, logits[part], target[part])[2] for part in parts]
    summed = {key: sum(output[key] for output in outputs[:4]) for key in outputs[0]}
    metrics.reset()
    with metrics.aggregate(new_root=True) as meters:
        for part in ([summed], outputs[4:6], outputs[6:]):
            SentenceClassificationCriterion.reduce_metrics(part)
    logged = meters.get_smoothed_values()
    if kind == REGRESSION:
        t, p = target.numpy().astype(float), logits[:, 0].numpy().astype(float)
        expected = {
            "pearson": stats.pearsonr(t, p).statistic,
            "rmse": SCALING.scale * sk.root_mean_squared_error(t, p),
        }
        loss = float(((t - p) ** 2).mean())
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
    assert "accuracy" not in logged


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
