"""Losses of the Transformers Trainer; runs and initial heads for multi-label data and numbers."""

import json

import numpy as np
import pytest
import torch
from fairseq import tasks
from fairseq.trainer import Trainer as FairseqTrainer

from roberta_small.common import predictions
from roberta_small.common.data_folder import keys_of
from roberta_small.common.families import FAMILIES
from roberta_small.common.label_kinds import (
    KINDS,
    MULTI_LABEL,
    REGRESSION,
    SCALING,
    Scaling,
    chosen_thresholds,
)
from roberta_small.common.run import read_thresholds
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.model import open_model
from roberta_small.experiments.methods.transformers.train_run import initial_model
from roberta_small.experiments.methods.transformers.trainer import ClassifierTrainer, pad_batch
from roberta_small.export.transformers.networks import to_transformers
from tests.support.data_folders import write_data
from tests.support.method_runs import batch_of, measured, parsed, train_one, words
from tests.support.tiny_runs import make_labelled_data, make_run
from tests.support.training import configuration

HEAD = "sentence_classification_head"
NO_DROPOUT = {"--dropout": "0", "--attention-dropout": "0", "--pooler-dropout": "0"}
OTHERS = (MULTI_LABEL, REGRESSION)


@pytest.fixture(scope="module", params=OTHERS)
def labelled(request, tmp_path_factory):
    """(kind, data folder)."""
    return request.param, make_labelled_data(tmp_path_factory.mktemp("data"), request.param)


def changes_for(kind, **changes):
    number = "3" if kind == MULTI_LABEL else "1"
    return {
        KINDS[kind].flags[0]: "",
        "--num-classes": number,
        "--best-checkpoint-metric": KINDS[kind].metric,
        "--lr": "1e-2",
        **changes,
    }


def compare_update(data, run, changes):
    """Loss and gradient of an update equal those of fairseq; three batches are averaged as one."""
    changes = NO_DROPOUT | {"--max-epoch": None, "--max-update": "3"} | changes
    cfg = configuration([data, *words(changes), "--cpu", "--num-workers", "0", "--seed", "1"])
    task = tasks.setup_task(cfg.task)
    theirs = FairseqTrainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    ours, task = parsed(data, changes | {"--update-freq": "3"})
    model = initial_model(ours, task, None, seed=1)
    trainer = ClassifierTrainer(model, ours, task, run, lambda model: None, seed=1, bf16=False, cpu=True)
    weights = theirs.model.state_dict()
    model.load_state_dict(to_transformers(weights, FAMILIES["roberta"], head=HEAD, lm_head=False))
    model.train()
    theirs.model.train()
    train = trainer.train_dataset
    batches = [pad_batch([train[i] for i in range(n, n + 11)]) for n in (0, 11, 22)]
    trainer.current_gradient_accumulation_steps = 3
    size = trainer._get_num_items_in_batch(batches, torch.device("cpu"))
    for batch in batches:
        trainer.training_step(model, batch, num_items_in_batch=size)

    total = divisor = 0
    for batch in batches:
        net_input = {"src_tokens": batch["input_ids"], "src_lengths": batch["attention_mask"].sum(1)}
        sample = {"net_input": net_input, "target": batch["labels"], "ntokens": 1}
        one, number, _ = theirs.criterion(theirs.model, sample)
        total, divisor = total + one, divisor + number
    (total / divisor).backward()
    expected = theirs.model.classification_heads[HEAD].out_proj.weight.grad
    torch.testing.assert_close(model.classifier.out_proj.weight.grad, expected, atol=1e-6, rtol=1e-4)
    assert trainer.whole_epoch.loss == pytest.approx((total / divisor).item() / np.log(2), rel=1e-5)


LOSSES = {
    MULTI_LABEL: None,
    REGRESSION: None,
    "weighted and smoothed": {"--class-weights": '{"0": 4.0, "1": 0.25}', "--label-smoothing": "0.2"},
}
"""Kind of labels, or the flags of a loss of one class per text."""


@pytest.mark.parametrize("loss", LOSSES)
def test_updates_equal_those_of_fairseq(tmp_path, loss):
    if (changes := LOSSES[loss]) is None:
        compare_update(make_labelled_data(tmp_path, loss), tmp_path / "run", changes_for(loss))
    else:
        compare_update(write_data(tmp_path / "data", longest=40), tmp_path / "run", changes)


@pytest.mark.parametrize(
    ("labelled", "method"),
    [(MULTI_LABEL, "transformers"), (REGRESSION, "transformers"), (REGRESSION, "lora")],
    indirect=["labelled"],
)
def test_a_run_predicts_what_its_checkpoint_predicts(labelled, tmp_path, method):
    kind, data = labelled
    options = ("--lora",) if method == "lora" else ()
    assert train_one(data, tmp_path, *options, changes=changes_for(kind)) == 0
    texts = (data / "text/test.input0").read_text().splitlines()
    rows = predictions.read(tmp_path / "predictions-test.jsonl")
    assert [row.key for row in rows] == keys_of([texts])
    found = predictions.to_arrays(rows)
    wanted = SentenceClassifier.from_run(tmp_path / "checkpoint_best.pt", data=data)
    assert found.outputs == pytest.approx(wanted.probabilities(texts), abs=1e-5)
    rows = [json.loads(line) for line in (data / "text/test.label").read_text().splitlines()]
    assert wanted.labels.thresholds == found.labels.thresholds
    if kind == REGRESSION:
        assert found.targets.tolist() == rows
        config = json.loads((tmp_path / ("base" if options else "model") / "config.json").read_text())
        assert config["problem_type"] == REGRESSION
        assert config[SCALING] == wanted.labels.scaling.record()
    else:
        names = np.array(found.labels.classes)
        assert [sorted(names[row].tolist()) for row in found.targets] == [sorted(row) for row in rows]
        valid = predictions.to_arrays(predictions.read(tmp_path / "predictions-valid.jsonl"))
        best = chosen_thresholds(wanted.labels, valid.targets, valid.outputs)
        assert read_thresholds(tmp_path) == best
    assert measured(tmp_path)["reloaded_difference"] < 1e-5


def initial(data, kind, checkpoint):
    cfg, task = parsed(data, changes_for(kind, **{"--max-positions": "32"}))
    return initial_model(cfg, task, checkpoint, seed=1)


@pytest.mark.parametrize("labelled", [REGRESSION], indirect=True)
def test_a_head_for_numbers_is_rescaled_to_the_data(labelled, tmp_path):
    """The run starts with the same predictions, in the unit of the labels."""
    kind, data = labelled
    make_run(data, tmp_path / "run", *KINDS[kind].flags, updates=2)
    path = tmp_path / "run/checkpoint_best.pt"
    state = torch.load(path, weights_only=False)
    other = Scaling(-4.0, 7.5)
    state["extra_state"]["SentenceClassificationTask"][SCALING] = other.record()
    torch.save(state, path)
    trained = open_model(path, data=data)
    assert trained.labels.scaling == other
    wanted = trained.labels.outputs(trained.network.logits(trained.examples("test").rows[:4]))
    with torch.no_grad():
        logits = initial(data, kind, path)(**batch_of(data, count=4, changes=changes_for(kind))).logits
    labels = parsed(data, changes_for(kind))[1].labels
    assert labels.outputs(logits.numpy()) == pytest.approx(wanted, abs=1e-4)


def test_a_head_for_another_kind_of_labels_is_not_loaded(labelled, tmp_path):
    kind, data = labelled
    other = {MULTI_LABEL: REGRESSION, REGRESSION: MULTI_LABEL}[kind]
    theirs = make_labelled_data(tmp_path, other)
    make_run(theirs, tmp_path / "run", *KINDS[other].flags, updates=1)
    model = initial(data, kind, tmp_path / "run/checkpoint_best.pt")
    random = initial(data, kind, None)
    assert torch.equal(model.classifier.out_proj.weight, random.classifier.out_proj.weight)
    assert not torch.equal(model.base_model.embeddings.word_embeddings.weight,
                           random.base_model.embeddings.word_embeddings.weight)  # fmt: skip
