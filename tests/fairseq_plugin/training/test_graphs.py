"""Forward and backward pass and the update as CUDA graphs, which are emulated on a CPU."""

import copy
import logging
import shlex

import pytest
import torch
from fairseq.logging import metrics

from roberta_small.fairseq_plugin.tasks.criterion import SentenceClassificationCriterion
from roberta_small.fairseq_plugin.training import gpu_update
from roberta_small.fairseq_plugin.training import graphs as module
from roberta_small.fairseq_plugin.training.gpu_update import GpuUpdate
from tests.support import emulated_graphs, pretended_gpu
from tests.support.training import CLASSIFIER, FAST, INPUT, OURS, SIZES, STEPS, build_trainer

WITHOUT = shlex.split("--dropout 0 --attention-dropout 0 --activation-dropout 0 --pooler-dropout 0")
CASES = {
    "first token": [*OURS, *INPUT, *WITHOUT],
    "mean, clipped": [*OURS, *INPUT, *WITHOUT, *shlex.split("--pooling mean --clip-norm 0.5")],
    "left to right": [*OURS[:-1], "causal_roberta_small", *INPUT, *WITHOUT],
    "two batches an update": [*OURS, *INPUT, *WITHOUT, "--update-freq", "2"],
}


@pytest.fixture
def gpu(gpu_kernels, monkeypatch):
    """A pretended GPU with graphs, and sizes of which several occur in the data."""
    monkeypatch.setattr(module, "TOKENS", 64)
    module._graphs.clear()
    return pretended_gpu.pretend(monkeypatch)


def trained(gpu, words, updates=12):
    """The trainer after some updates, and the gradient norm and the loss of each."""
    _, trainer = build_trainer([*words, "--encoder-layers", "1"])
    pretended_gpu.train_on(gpu, trainer)
    found = []
    step = type(trainer.task).train_step

    def noted(task, *args, **kwargs):
        result = step(task, *args, **kwargs)
        gradients = [p.grad for p in trainer.model.parameters() if p.grad is not None]
        found.append((float(result[0]), float(torch.nn.utils.get_total_norm(gradients))))
        return result

    iterator = trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=False)
    batches = list(iterator)
    frequency = trainer.cfg.optimization.update_freq[0]
    with gpu, pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(trainer.task), "train_step", noted)
        trainer.begin_epoch(1)
        for update in range(updates):
            first = update * frequency
            trainer.train_step([batches[(first + i) % len(batches)] for i in range(frequency)])
    return trainer, found


@pytest.mark.parametrize("case", list(CASES))
def test_updates_equal_those_without_graphs(gpu, monkeypatch, data, case):
    words = [data, *FAST, *CASES[case], *STEPS, *SIZES]
    trainer, found = trained(gpu, words)
    replays = sum(graph.replays for graph in emulated_graphs.GRAPHS)
    assert len(emulated_graphs.GRAPHS) >= 3
    assert replays > 2 * len(emulated_graphs.GRAPHS)
    (update,) = updates_of_weights()
    assert update.replays >= 6
    assert all(graph.pool != update.pool for graph in emulated_graphs.GRAPHS if graph is not update)
    monkeypatch.setattr(module, "repeatable", lambda *args: False)
    other, expected = trained(gpu, words)
    assert sum(graph.replays for graph in emulated_graphs.GRAPHS) == replays
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-4, atol=1e-5)
    for one, two in zip(trainer.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def updates_weights(graph):
    return any("fused_adam" in str(function) for function, *_ in graph.calls)


def updates_of_weights():
    return [graph for graph in emulated_graphs.GRAPHS if updates_weights(graph)]


def test_a_graph_of_the_update_reads_the_learning_rate_and_survives_a_checkpoint(gpu, data):
    """Weights move by the learning rate of each update; a state that is loaded is in other tensors."""
    words = [data, *FAST, *OURS, *INPUT, *WITHOUT, *STEPS, *SIZES, "--embedding-lr-factor", "3"]
    trainer, _ = trained(gpu, words)
    (update,) = updates_of_weights()
    batch = next(trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=False))
    with gpu:
        for rate in (1e-3, 1e-6, 0.0):
            before, already = [p.detach().clone() for p in trainer.model.parameters()], update.replays
            trainer.optimizer.set_lr(rate)
            trainer.train_step([batch])
            pairs = zip(trainer.model.parameters(), before, strict=True)
            moved = max(float((one - two).abs().max()) for one, two in pairs)
            assert update.replays == already + 1
            assert rate <= moved <= 4 * rate
        trainer.optimizer.load_state_dict(copy.deepcopy(trainer.optimizer.state_dict()))
        state = trainer.optimizer.optimizer.state_dict()["state"]
        counts = {float(values["step"]) for values in state.values()}
        for _ in range(3):
            trainer.train_step([batch])
        assert {float(values["step"]) for values in state.values()} == {count + 3 for count in counts}
    assert len(updates_of_weights()) == 2


FORWARD = SentenceClassificationCriterion.forward


@pytest.fixture(scope="module")
def expected():
    """Part that has no graph -> the weights and the losses of a training without it, when first needed."""
    return {}


def failing(how, function, recording=lambda: emulated_graphs.RECORDING):
    """A function that fails while a graph is recorded: it waits for the GPU, or raises an error."""

    def wrapped(*args, **kwargs):
        result = function(*args, **kwargs)
        if recording():
            if how == "record":
                raise ValueError("Wrong\nsizes")
            result[0].item()
        return result

    return wrapped


@pytest.mark.parametrize(
    ("part", "broken"), [("passes", "replay"), ("passes", "wait"), ("update", "replay"), ("update", "record")]
)
def test_a_graph_that_fails_or_differs_changes_nothing(
    gpu, monkeypatch, data, caplog, expected, part, broken
):
    words = [data, *CLASSIFIER]
    if part not in expected:
        with pytest.MonkeyPatch.context() as patch:
            if part == "update":
                patch.setattr(gpu_update, "LARGEST", 0)
            else:
                patch.setattr(module, "repeatable", lambda *args: False)
            trainer, losses = trained(gpu, words)
        assert not updates_of_weights()
        expected[part] = [p.detach().clone() for p in trainer.model.parameters()], losses
        module._graphs.clear()
        caplog.clear()
    weights, losses = expected[part]
    default, replay = torch.cuda.current_stream(), emulated_graphs.Graph.replay

    def wrong(graph):
        for _ in range(2 if updates_weights(graph) else part == "update"):
            replay(graph)

    if broken == "replay":
        monkeypatch.setattr(emulated_graphs.Graph, "replay", wrong)
    elif part == "update":
        monkeypatch.setattr(GpuUpdate, "_scaled", failing(broken, GpuUpdate._scaled))
    else:
        monkeypatch.setattr(SentenceClassificationCriterion, "forward", failing(broken, FORWARD))
    trainer, found = trained(gpu, words)
    assert found == losses
    for one, two in zip(trainer.model.parameters(), weights, strict=True):
        assert torch.equal(one, two)
    (warning,) = [r for r in caplog.records if "without CUDA graphs" in r.message]
    assert warning.levelno == logging.WARNING
    assert {"replay": "differ", "wait": "permitted", "record": "Wrong"}[broken] in warning.message
    assert torch.cuda.current_stream() is default
    assert part == "update" or torch.cuda.default_generators[0].replaced == 1
    assert not module.of(trainer.model)


def test_a_graph_draws_new_dropout_masks_from_the_seed_of_the_update(gpu, data):
    words = [data, *CLASSIFIER, "--lr", "0"]
    _, once = trained(gpu, words)
    assert emulated_graphs.GRAPHS
    module._graphs.clear()
    _, again = trained(gpu, words)
    assert once == again
    assert len(set(once)) == len(once)


@pytest.mark.parametrize(
    "flags",
    [
        ["--class-weights", "balanced"],
        ["--encoder", "padded"],
        ["--optimizer", "adam"],
        ["--arch", "causal_roberta_small", "--pooling", "last-piece"],
    ],
)
def test_other_updates_have_no_graph(gpu, data, flags):
    trained(gpu, [data, *CLASSIFIER, *flags], updates=4)
    assert not emulated_graphs.GRAPHS


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_updates_equal_those_without_graphs_on_a_real_gpu(monkeypatch, data, caplog, precision):
    words = [str(word) for word in [data, *FAST, *CASES["first token"], *STEPS, *SIZES] if word != "--cpu"]
    losses = []
    for graphs in (True, False):
        if not graphs:
            monkeypatch.setattr(module, "repeatable", lambda *args: False)
        _, trainer = build_trainer([*words, "--precision", precision])
        batches = list(trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=False))
        trainer.begin_epoch(1)
        found = []
        for update in range(12):
            trainer.train_step([batches[update % len(batches)]])
            found.append(metrics.get_smoothed_values("train")["loss"])
        losses.append(found)
        if graphs:
            assert module.of(trainer.model)
            assert trainer.optimizer.optimizer.on_gpu.repeats()
            assert "without" not in caplog.text
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-2, atol=1e-3)


@pytest.mark.cuda
def test_training_continues_when_recording_fails_on_a_real_gpu(monkeypatch, data, caplog):
    waiting = failing("wait", FORWARD, torch.cuda.is_current_stream_capturing)
    monkeypatch.setattr(SentenceClassificationCriterion, "forward", waiting)
    words = [str(word) for word in [data, *CLASSIFIER] if word != "--cpu"]
    _, trainer = build_trainer(words)  # with dropout, whose random numbers recording has to give back
    batches = list(trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=False))
    trainer.begin_epoch(1)
    default = torch.cuda.current_stream()
    for update in range(12):
        trainer.train_step([batches[update % len(batches)]])
    assert "without CUDA graphs" in caplog.text
    assert not module.of(trainer.model)
    assert torch.cuda.current_stream() == default
    assert torch.isfinite(torch.tensor(metrics.get_smoothed_values("train")["loss"]))
