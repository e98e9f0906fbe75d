"""The kinds of labels and their metrics, against PyTorch, scikit-learn and SciPy."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics as sk
from sklearn.preprocessing import StandardScaler

from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import (
    KINDS,
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    Labels,
    Scaling,
    best_thresholds,
    kind_of,
)
from roberta_small.common.metrics import (
    Metric,
    Moments,
    ScoredLabels,
    ScoredValues,
    check_selectable,
    find,
    logged,
    measure_statistics,
    metrics_of,
    register,
)

ONE = np.ones((1, 1))


def several(count=300, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(count, classes)).round(1)
    targets = rng.random((count, classes)) < 1 / (1 + np.exp(-2 * logits))
    p = 1 / (1 + np.exp(-logits))
    return ScoredLabels(targets, p, p >= 0.6)


def numbers(count=200, seed=0, mean=1e4):
    rng = np.random.default_rng(seed)
    targets = mean + rng.normal(size=count).round(1)
    return ScoredValues(targets, targets + rng.normal(size=count).round(1))


def values(scored, weights=None):
    weights = np.ones((1, scored.count)) if weights is None else weights
    return {name: one.measure(scored, weights) for name, one in metrics_of(scored.kind).items()}


def test_activations_equal_torch():
    logits = np.array([[1.5, -800.0, 3.0], [0.0, 2.0, 900.0]])
    tensor = torch.tensor(logits)
    for name, expected in (
        (SINGLE_LABEL, tensor.softmax(dim=1)),
        (MULTI_LABEL, tensor.sigmoid()),
        (REGRESSION, tensor),
    ):
        assert KINDS[name].activation(logits) == pytest.approx(expected.numpy(), abs=1e-15)


def test_scaling_equals_scikit_learn():
    x = np.array([1.0, 5.0, 7.5])
    scaler = StandardScaler().fit(x[:, None])
    scaling = Scaling.of(x)
    assert (scaling.mean, scaling.scale) == pytest.approx((scaler.mean_[0], scaler.scale_[0]))
    labels = Labels(KINDS[REGRESSION], scaling=scaling)
    standardized = scaler.transform(x[:, None])
    assert labels.outputs(standardized)[:, 0] == pytest.approx(x)
    assert Scaling.from_record(scaling.record(), "a") == scaling
    assert Scaling.of([3.0, 3.0]).scale == 1.0


@pytest.mark.parametrize("record", [None, {"mean": 1}, {"mean": 1, "scale": 0}, {"mean": "x", "scale": 1}])
def test_a_malformed_scaling_is_one_error(record):
    with pytest.raises(UserError, match=r"a\.json"):
        Scaling.from_record(record, "a.json")


def test_an_unknown_kind_is_one_error():
    with pytest.raises(UserError, match=r"a\.json.*'ranking'"):
        kind_of("ranking", "a.json")


def test_multi_label_metrics_equal_scikit_learn():
    scored = several()
    y, p = scored.targets, scored.predicted
    expected = {
        "micro_f1": sk.f1_score(y, p, average="micro"),
        "macro_f1": sk.f1_score(y, p, average="macro"),
        "subset_accuracy": 100 * sk.accuracy_score(y, p),
    }
    assert {name: value[0] for name, value in values(scored).items()} == pytest.approx(expected)
    cells = scored.statistics(np.ones((1, scored.count))).cells[0]
    tn, fp, fn, tp = np.moveaxis(sk.multilabel_confusion_matrix(y, p).reshape(-1, 4), -1, 0)
    assert np.array_equal(cells, np.stack([tp, fp, fn, tn], axis=1))


def test_a_class_that_never_occurs_has_no_f1():
    scored = ScoredLabels(*[np.array([[1, 0, 0], [1, 1, 0]], dtype=bool)] * 3)
    assert values(scored)["macro_f1"][0] == 1.0


def test_regression_metrics_equal_scipy():
    scored = numbers()
    t, p = scored.targets, scored.values
    expected = {
        "pearson": stats.pearsonr(t, p).statistic,
        "spearman": stats.spearmanr(t, p).statistic,
        "rmse": sk.root_mean_squared_error(t, p),
    }
    assert {name: value[0] for name, value in values(scored).items()} == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("scored", [several(60), numbers(60)])
def test_weights_equal_repeated_examples(scored):
    weights = np.random.default_rng(1).multinomial(scored.count, [1 / scored.count] * scored.count, size=4)
    found = values(scored, weights.astype(float))
    for d, row in enumerate(weights):
        again = np.repeat(np.arange(scored.count), row)
        fields = [getattr(scored, name) for name in scored.__dataclass_fields__]
        expected = values(type(scored)(*(field[again] for field in fields)))
        for name, value in expected.items():
            assert found[name][d] == pytest.approx(value[0])


def test_constant_values_have_no_correlation():
    found = values(ScoredValues(np.array([1.0, 2.0, 4.0]), np.full(3, 0.1)))
    assert found["pearson"][0] == 0.0
    assert np.isnan(found["spearman"][0])
    assert measure_statistics(REGRESSION, Moments(np.zeros(6))) == {"pearson": 0.0, "rmse": 0.0}


def test_thresholds_have_the_highest_f1_of_all():
    scored = several(80, seed=3)
    found = best_thresholds(scored.probabilities, scored.targets)
    for k, threshold in enumerate(found):
        y, p = scored.targets[:, k], scored.probabilities[:, k]
        of_all = [sk.f1_score(y, p >= t, zero_division=0) for t in np.unique(p)]
        assert sk.f1_score(y, p >= threshold) == pytest.approx(max(of_all))


def test_thresholds_of_separable_and_absent_classes():
    p = np.array([[0.9, 0.2], [0.8, 0.3], [0.1, 0.9]])
    y = np.array([[1, 0], [1, 0], [0, 0]], dtype=bool)
    assert best_thresholds(p, y) == [0.5, 0.5]
    assert best_thresholds(p / 10, y) == [pytest.approx(0.045), 0.5]


def test_names_are_shared_only_by_metrics_that_are_shown_alike():
    with pytest.raises(ValueError, match="macro_f1"):
        register(Metric("macro_f1", higher_is_better=False, from_counts=lambda counts: ONE))
    with pytest.raises(ValueError, match="accuracy"):
        register(Metric("accuracy", higher_is_better=True, from_confusion=lambda matrix: ONE))
    with pytest.raises(ValueError, match="rmse"):
        register(Metric("rmse", higher_is_better=False, from_moments=lambda moments: ONE))
    with pytest.raises(ValueError, match="exactly one"):
        Metric("a", higher_is_better=True)
    with pytest.raises(ValueError, match="exactly one"):
        Metric("a", higher_is_better=True, from_counts=lambda c: ONE, from_moments=lambda m: ONE)


def test_the_default_metrics_are_logged():
    for name, kind in KINDS.items():
        check_selectable(kind.metric, name)
        assert find(kind.metric) in logged(name)
    with pytest.raises(UserError, match="accuracy"):
        check_selectable("accuracy", REGRESSION)
