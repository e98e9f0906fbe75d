"""The Trainer of the Transformers method: updates against stock fairseq, the best model, resuming."""

import json
import math

import numpy as np
import pytest
import torch
from fairseq import tasks
from fairseq.data.data_utils import collate_tokens
from fairseq_cli.train import should_stop_early
from safetensors.torch import load_file
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from transformers import RobertaForSequenceClassification, TrainerState, TrainingArguments

from roberta_small.common import predictions
from roberta_small.common.families import FAMILIES
from roberta_small.common.label_kinds import Labels
from roberta_small.experiments.methods.transformers import last_checkpoint
from roberta_small.experiments.methods.transformers.train_run import initial_model
from roberta_small.experiments.methods.transformers.trainer import (
    ClassifierTrainer,
    Counts,
    on_one_device,
    pad_batch,
    read_sentences,
    since_best,
)
from roberta_small.export.transformers.networks import to_fairseq, to_transformers
from roberta_small.fairseq_plugin.training import precision
from tests.support.data_folders import write_data
from tests.support.method_runs import batch_of, measured, parsed, train_one
from tests.support.training import (
    FAST,
    INPUT,
    OURS,
    SIZES,
    STEPS,
    STOCK,
    build_trainer,
    configuration,
    losses_of,
)

HEAD = "sentence_classification_head"
NO_DROPOUT = {"--dropout": "0", "--attention-dropout": "0", "--lr": "1e-3", "--max-epoch": None}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"), longest=40)


def build(data, run, changes):
    """A trainer of the recipe with `changes`, and a list to which it appends each new best model."""
    (cfg, task), kept = parsed(data, changes), []
    model = initial_model(cfg, task, None, seed=1)
    trainer = ClassifierTrainer(model, cfg, task, run, kept.append, seed=1, bf16=False, cpu=True)
    return trainer, kept


def scored(monkeypatch, trainer, values, metric="accuracy"):
    """Let the trainer measure these scores on valid; returns the updates at which it validates."""
    scores, steps = iter(values), []

    def measure(subset, logits):
        if subset == "valid":
            steps.append(trainer.state.global_step)
        return {"loss": 1.0, "accuracy": 0.0} | ({metric: next(scores)} if subset == "valid" else {})

    monkeypatch.setattr(trainer, "measure", measure)
    return steps


def has_stopped(trainer, folder):
    """Whether training ended early, from the last checkpoint alone."""
    path = last_checkpoint(folder / "trainer") / "trainer_state.json"
    return trainer.has_stopped(TrainerState.load_from_json(str(path)))


@pytest.mark.parametrize("accumulation", [1, 3])
def test_updates_equal_those_of_stock_fairseq(data, tmp_path, accumulation):
    flags = ["--dropout", "0", "--attention-dropout", "0", "--optimizer", "adam", "--arch", "roberta"]
    flags += ["--batch-size", "48", "--total-num-update", "18", "--warmup-updates", "2"]
    _, theirs = build_trainer([data, *STOCK, *SIZES, *INPUT, *STEPS, *flags])
    before = {key: value.clone() for key, value in theirs.model.state_dict().items()}
    losses, after = losses_of(theirs, 6), theirs.model.state_dict()
    changes = NO_DROPOUT | {"--max-update": "6", "--batch-size": str(48 // accumulation)}
    trainer, _ = build(data, tmp_path, changes | {"--update-freq": str(accumulation)})
    trainer.model.load_state_dict(to_transformers(before, FAMILIES["roberta"], head=HEAD, lm_head=False))
    decayed = trainer.get_decay_parameter_names(trainer.model)
    assert len(decayed) == len(list(trainer.model.parameters()))
    # fairseq has no token types; here their embedding starts at zero and must not be trained.
    trainer.model.roberta.embeddings.token_type_embeddings.weight.requires_grad_(False)
    ours, write = [], trainer.log_of_run.write

    def logged(subset, values, **kwargs):
        if subset == "train":
            ours.append(values["loss"])
        write(subset, values, **kwargs)

    trainer.log_of_run.write = logged
    trainer.train()
    assert ours == pytest.approx(losses, rel=2e-5)
    for key, value in to_fairseq(trainer.model.state_dict(), FAMILIES["roberta"], head=HEAD).items():
        if key.endswith("k_proj.bias"):
            continue  # its gradient is only rounding error, which Adam scales to full steps
        # Norms instead of elements: Adam scales the rounding error of tiny gradients to full steps.
        moved, apart = float((after[key] - before[key]).norm()), float((value - after[key]).norm())
        assert moved > 1e-3, key
        # Gradients of queries and keys are a thousandth of the others here.
        assert apart < (0.15 if "q_proj" in key or "k_proj" in key else 0.02) * moved, key


def test_validations_can_be_epochs_apart(data, tmp_path, monkeypatch):
    intervals = {"--validate-interval": "2", "--save-interval": "2"}
    trainer, kept = build(data, tmp_path, intervals | {"--max-epoch": "5", "--total-num-update": "30"})
    steps = scored(monkeypatch, trainer, [50.0, 60.0, 60.0])
    trainer.train()
    assert steps == [12, 24, 30]
    assert last_checkpoint(tmp_path / "trainer").name == "checkpoint-30"
    assert len(kept) == 3  # the later one on a tie
    assert trainer.state.best_metric == 60


def test_training_stops_after_validations_without_a_better_score(data, tmp_path, monkeypatch):
    """The count continues after an interruption."""
    changes = {"--patience": "3", "--max-epoch": "9", "--total-num-update": "54"}
    killed, _ = build(data, tmp_path, changes)
    steps = scored(monkeypatch, killed, [50.0, 60.0, 60.0])
    with pytest.raises(StopIteration):  # there is no score for the fourth validation
        killed.train()
    assert steps == [6, 12, 18, 24]
    assert not has_stopped(killed, tmp_path)
    resumed, _ = build(data, tmp_path, changes)
    steps = scored(monkeypatch, resumed, [55.0, 50.0, 90.0])
    resumed.train(resume_from_checkpoint=str(last_checkpoint(tmp_path / "trainer")))
    assert steps == [24, 30]
    assert has_stopped(resumed, tmp_path)


@pytest.mark.parametrize("maximize", [True, False])
def test_validations_since_the_best_one_are_counted_as_by_fairseq(maximize):
    cfg = configuration(["data", *OURS, *FAST, *STEPS, "--patience", "1000"])
    cfg.checkpoint.maximize_best_checkpoint_metric = maximize
    scores = np.random.default_rng(1).integers(0, 5, 50).tolist()
    vars(should_stop_early).clear()
    for n, score in enumerate(scores, start=1):
        should_stop_early(cfg, score)
        assert since_best(scores[:n], maximize=maximize) == getattr(should_stop_early, "num_runs", 0)
    vars(should_stop_early).clear()


def test_the_epoch_with_the_lowest_loss_is_stored(data, tmp_path, monkeypatch):
    minimize = {"--best-checkpoint-metric": "loss", "--maximize-best-checkpoint-metric": None}
    trainer, kept = build(data, tmp_path, minimize)
    scored(monkeypatch, trainer, [0.5, 0.7, 0.4], "loss")
    trainer.train()
    assert len(kept) == 2
    assert trainer.state.best_metric == 0.4


def interrupted(monkeypatch, data, run, *options, after, changes=()):
    """Train a run that Ctrl-C interrupts in the validation after `after` complete epochs."""
    evaluate, calls = ClassifierTrainer.evaluate, []

    def validate(trainer, *args, **kwargs):
        calls.append(trainer.state.global_step)
        if len(calls) == after + 1:
            raise KeyboardInterrupt
        return evaluate(trainer, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(ClassifierTrainer, "evaluate", validate)
        assert train_one(data, run, *options, changes=changes) == 130
    assert not (run / "checkpoint_best.pt").exists()


def test_a_resumed_run_reaches_the_same_weights(data, tmp_path, monkeypatch):
    changes = {"--family": "bert", "--layer-norm-eps": "1e-12"}
    assert train_one(data, tmp_path / "whole", changes=changes) == 0
    interrupted(monkeypatch, data, tmp_path / "cut", after=2, changes=changes)
    assert (tmp_path / "cut/trainer/checkpoint-12/trainer_state.json").is_file()
    assert train_one(data, tmp_path / "cut", "--resume", changes=changes) == 0
    assert json.loads((tmp_path / "cut/model/config.json").read_text())["model_type"] == "bert"
    assert not (tmp_path / "cut/trainer").exists()
    whole, cut = (load_file(tmp_path / name / "model/model.safetensors") for name in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    for key in whole:
        assert torch.equal(whole[key], cut[key]), key
    for split in ("valid", "test"):
        name = predictions.file_name(split)
        assert (tmp_path / "whole" / name).read_text() == (tmp_path / "cut" / name).read_text()


def test_incomplete_checkpoints_are_skipped(tmp_path):
    for updates, text in ((6, "{}"), (12, '{"epoch": 2'), (18, None)):
        (tmp_path / f"checkpoint-{updates}").mkdir()
        if text is not None:
            (tmp_path / f"checkpoint-{updates}/trainer_state.json").write_text(text)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-6"
    assert last_checkpoint(tmp_path / "absent") is None


def test_a_resumed_run_keeps_its_precision_and_saves_fp32_weights(data, tmp_path, monkeypatch):
    """Even if bf16 is slow on the machine that resumes it."""
    auto = {"--precision": "auto", "--max-epoch": "2"}
    monkeypatch.setattr(precision, "_resolved", {})
    monkeypatch.setattr(precision, "bf16_speedup", lambda: 9.0)
    precision.resolve.cache_clear()
    interrupted(monkeypatch, data, tmp_path / "run", after=1, changes=auto)
    monkeypatch.setattr(precision, "_resolved", {})
    monkeypatch.setattr(precision, "bf16_speedup", lambda: 0.1)
    precision.resolve.cache_clear()
    assert train_one(data, tmp_path / "run", "--resume", changes=auto) == 0
    precision.resolve.cache_clear()
    assert measured(tmp_path / "run")["reloaded_difference"] < 0.01
    assert 1e-6 < difference_in_fp32(data, tmp_path / "run") < 0.05
    config = json.loads((tmp_path / "run/model/config.json").read_text())
    assert config["dtype"] == "float32"


def difference_in_fp32(data, run):
    """Largest difference between the probabilities of the saved model in fp32 and those that it wrote."""
    model = RobertaForSequenceClassification.from_pretrained(run / "model").eval()
    written_NK = predictions.to_arrays(predictions.read(run / "predictions-valid.jsonl")).outputs
    logits_NK = model(**batch_of(data, "valid")).logits
    return np.abs(logits_NK.softmax(-1).detach().numpy() - written_NK).max()


def test_the_batch_size_does_not_depend_on_the_number_of_gpus(data, tmp_path, monkeypatch):
    monkeypatch.setattr(TrainingArguments, "n_gpu", property(lambda arguments: arguments._n_gpu))
    arguments = TrainingArguments(str(tmp_path), per_device_train_batch_size=8, use_cpu=True)
    arguments._n_gpu = 4
    assert arguments.train_batch_size == 32
    on_one_device(arguments)
    assert arguments.train_batch_size == 8


@pytest.mark.parametrize("split", ["train", "test"])
def test_ids_and_labels_equal_those_of_stock_fairseq(data, split):
    task = tasks.setup_task(
        configuration([data, *STOCK, "--no-shuffle", *INPUT, *STEPS, *SIZES, "--optimizer", "adam"]).task
    )
    task.load_dataset(split)
    theirs = task.dataset(split)
    ours = read_sentences(parsed(data)[1], split)
    assert len(ours) == len(theirs)
    for i in range(len(ours)):
        assert ours[i]["input_ids"].tolist() == theirs[i]["net_input.src_tokens"].tolist()
        assert int(ours[i]["labels"]) == int(theirs[i]["target"])
    longest = max(len(row) for row in ours.rows)
    assert longest == 32
    assert all(row[0] == 0 for row in ours.rows)
    assert any(row[-1] != 2 for row in ours.rows), "no sentence was truncated"
    batch = pad_batch([ours[i] for i in range(8)])
    wanted_BL = collate_tokens(ours.rows[:8], pad_idx=1)
    assert torch.equal(batch["input_ids"], wanted_BL)
    assert torch.equal(batch["attention_mask"], wanted_BL.ne(1).long())


def test_metrics_summed_over_batches_equal_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    logits_NK = torch.randn(50, 3, generator=generator)
    labels_N = torch.randint(3, (50,), generator=generator)
    counts = Counts(Labels.single("abc"))
    for start in range(0, 50, 8):
        counts.add(logits_NK[start : start + 8], labels_N[start : start + 8], tokens=5)
    predicted_N = logits_NK.argmax(dim=-1)
    found = counts.metrics()
    assert found["accuracy"] == pytest.approx(100 * accuracy_score(labels_N, predicted_N))
    assert found["macro_f1"] == pytest.approx(f1_score(labels_N, predicted_N, average="macro"))
    assert found["mcc"] == pytest.approx(matthews_corrcoef(labels_N, predicted_N))
    wanted = float(torch.nn.functional.cross_entropy(logits_NK, labels_N)) / math.log(2)
    assert found["loss"] == pytest.approx(wanted, rel=1e-6)
    assert counts.tokens == 35
    assert np.isfinite(list(Counts(Labels.single("abc")).metrics().values())).all()
