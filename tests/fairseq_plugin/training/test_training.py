"""fairseq-train with the plugin: parity with stock, logs, resuming, errors."""

import json
import re
import shlex

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.support.training import (
    CLASSIFIER,
    FAST,
    INPUT,
    OURS,
    SIZES,
    SLOW,
    STEPS,
    STOCK,
    build_trainer,
    fairseq_command,
    fairseq_train,
    losses_and_accuracy,
    losses_of,
)

UPDATES = 50
NO_DROPOUT = shlex.split("--dropout 0 --attention-dropout 0")
LENGTH = shlex.split("--max-epoch 2 --no-epoch-checkpoints")
SUBSETS = shlex.split(
    "--valid-subset valid,test --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric"
)
LOGS = shlex.split("--no-epoch-checkpoints --log-interval 4 --log-format json")
VALIDATE = shlex.split(
    "--task sentence_classification --valid-subset valid,test --batch-size 5 --cpu --log-format json"
)
RECORD = re.compile(r"\| INFO \| (valid|test) \| (\{.*\})$", flags=re.MULTILINE)


def test_losses_and_accuracy_with_the_padded_encoder_equal_stock(data):
    stock = losses_and_accuracy([data, *STOCK, *INPUT, *STEPS, *SIZES, "--optimizer", "adam"], UPDATES)
    losses, accuracy = losses_and_accuracy([data, *OURS, *INPUT, *STEPS, *SIZES, *SLOW], UPDATES)
    # The same operations in the same order on the same random numbers, with dropout. Stock divides the sum
    # of a batch in fp32 before logging it, so that the seventh digit can differ.
    assert losses == pytest.approx(stock[0], rel=1e-6)
    assert accuracy == pytest.approx(stock[1], rel=1e-6)


def test_losses_and_accuracy_with_the_fast_defaults_equal_stock_without_dropout(data):
    stock = losses_and_accuracy(
        [data, *STOCK, *INPUT, *STEPS, *SIZES, *NO_DROPOUT, "--optimizer", "adam"], UPDATES
    )
    fast = losses_and_accuracy([data, *OURS, *INPUT, *STEPS, *SIZES, *NO_DROPOUT, *FAST], UPDATES)
    # Sums in another order (packed attention, fused optimizer), in fp32, over 50 updates.
    assert fast[0] == pytest.approx(stock[0], abs=2e-4)
    assert fast[1] == pytest.approx(stock[1], rel=1e-6)
    assert stock[0][-1] != stock[0][0]


def scalars(folder):
    accumulator = EventAccumulator(str(folder)).Reload()
    return {tag: {e.step: e.value for e in accumulator.Scalars(tag)} for tag in accumulator.Tags()["scalars"]}


def records(output):
    """Subset -> its last metrics; the training log has the subset in their names."""
    found = {}
    for subset, text in RECORD.findall(output):
        record = {key.removeprefix(f"{subset}_"): value for key, value in json.loads(text).items()}
        found[subset] = [record[name] for name in ("loss", "accuracy", "macro_f1", "mcc")]
    return found


def test_a_run_logs_its_metrics(data, tmp_path):
    """And fairseq-validate, without --criterion, computes those of the last epoch."""
    places = ["--save-dir", tmp_path, "--tensorboard-logdir", tmp_path / "tensorboard"]
    name = ["--classification-head-name", "sentiment"]
    result = fairseq_train(data, *CLASSIFIER, *SUBSETS, *LOGS, *name, "--max-epoch", 3, *places)
    assert (result.returncode, result.stderr) == (0, "")
    assert "tensorboardX" not in result.stdout
    done = fairseq_command("validate", data, *VALIDATE, "--path", tmp_path / "checkpoint_last.pt")
    assert done.returncode == 0, done.stderr
    validated = records(done.stdout)
    assert validated.keys() == {"valid", "test"}
    assert validated == records(result.stdout)

    # Unrounded metrics at the end of each epoch of 6 updates.
    logs = {
        subset: scalars(tmp_path / "tensorboard" / subset)
        for subset in ("train_inner", "train", "valid", "test")
    }
    for subset in ("train", "valid", "test"):
        assert {"loss", "accuracy", "macro_f1", "mcc"} <= logs[subset].keys()
        assert list(logs[subset]["accuracy"]) == [6, 12, 18]
    assert any(round(value, 3) != value for value in logs["valid"]["loss"].values())
    assert list(logs["train_inner"]["loss"]) == list(range(4, 19, 4))


@pytest.mark.cuda
def test_training_on_a_gpu(data, tmp_path):
    assert torch.cuda.is_available()
    steps = [word for word in STEPS if word != "--cpu"]
    result = fairseq_train(
        data, *OURS, *INPUT, *steps, *SIZES, *FAST, *SUBSETS, *LENGTH, "--save-dir", tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "checkpoint_best.pt").is_file()


@pytest.mark.parametrize("kind", ["--encoder packed", "--encoder padded", "--arch causal_roberta_small"])
def test_embedding_lr_factor_scales_the_updates_of_the_embeddings(data, kind):
    common = [data, *OURS, *INPUT, *STEPS, *SIZES, *NO_DROPOUT, *FAST, *shlex.split(kind)]
    _, trainer = build_trainer([*common, "--embedding-lr-factor", "10", "--weight-decay", "0"])
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    losses_of(trainer, 2)  # the first update has a learning rate of 0 (warm-up)
    moved = {name: (p.detach() - before[name]).abs().max() for name, p in trainer.model.named_parameters()}
    embeddings = moved.pop("encoder.sentence_encoder.embed_tokens.weight")
    # A step of Adam is about the learning rate, whatever the size of the gradients.
    assert embeddings / max(moved.values()) == pytest.approx(10, rel=0.05)


def test_masked_lm_losses_equal_stock(data):
    """Our encoder, criterion and optimizer against stock, with fairseq's task and without dropout."""
    task = shlex.split("--task masked_lm --tokens-per-sample 32 --max-positions 32 --sample-break-mode none")
    common = [data / "input0", *task, *STEPS, *SIZES, *NO_DROPOUT]
    slow = shlex.split("--criterion masked_lm --arch roberta --optimizer adam")
    fast = shlex.split("--criterion fast_masked_lm --arch roberta_small")
    stock, fast = (losses_of(build_trainer([*common, *words])[1], 20) for words in (slow, [*fast, *FAST]))
    assert fast == pytest.approx(stock, abs=2e-4)
    assert stock[-1] < stock[0]
