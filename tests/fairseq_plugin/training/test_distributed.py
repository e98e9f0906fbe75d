"""Two workers against one process with twice the --update-freq; errors of a worker."""

import functools
import shlex
import subprocess
import sys
import time

import pytest
import torch
from fairseq.distributed import utils
from fairseq_cli import train
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from roberta_small.common.errors import UserError
from tests.support.data_folders import write_data
from tests.support.training import FAST, INPUT, LM, OURS, ROOT, SIZES, STEPS, configuration, fairseq_train
from tests.support.workers import fail, train_all, train_and_validate

NO_DROPOUT = shlex.split("--dropout 0 --attention-dropout 0")
CLASSIFY = [*OURS, *INPUT, *STEPS, *SIZES, *NO_DROPOUT, *FAST, "--clip-norm", "0.5"]
MASKED = [*LM, *STEPS, *SIZES, *NO_DROPOUT, *FAST]
RUN = shlex.split(
    "--valid-subset valid,test --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric "
    "--no-epoch-checkpoints"
)
WEIGHTS = '{"0": 3.0, "1": 0.25}'
TWO = shlex.split("--distributed-world-size 2")
UPDATES = 8
# Name -> part of the data, flags, --update-freq of two workers, tolerance of losses (bits) and weights.
# Sums in another order differ in the sixth digit in fp32. In bf16, with 8 bits, some round differently.
TRAININGS = {
    "classification": (".", CLASSIFY, 1, 2e-5),
    "empty batches": (".", CLASSIFY, 2, 2e-5),
    "class weights": (".", [*CLASSIFY, "--class-weights", WEIGHTS, "--label-smoothing", "0.2"], 2, 2e-5),
    "masked lm": ("input0", MASKED, 1, 2e-5),
    "masked lm in bf16": ("input0", [*MASKED, "--precision", "bf16"], 1, 5e-3),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """7 batches of training and 3 of validation, not multiples of the workers; the last ones are not full."""
    folder = tmp_path_factory.mktemp("data")
    return write_data(folder, sizes={"train": 53, "valid": 21, "test": 16}, longest=28)


@pytest.fixture(scope="module")
def words_of_run(data):
    common = [data, *CLASSIFY, *RUN, "--save-dir"]
    return lambda run, *more: [*common, run, "--tensorboard-logdir", run / "tensorboard", *more]


@pytest.fixture(scope="module")
def folder(data, words_of_run, tmp_path_factory):
    """The results of two workers: rank0.pt and rank1.pt with all trainings, and a run of one epoch."""
    folder = tmp_path_factory.mktemp("workers")
    trainings = {
        name: ([data / part, *words, *TWO, "--ddp-backend", "legacy_ddp", "--update-freq", every], UPDATES)
        for name, (part, words, every, _) in TRAININGS.items()
    }
    cfg = configuration(words_of_run(folder / "run", *TWO, "--max-epoch", 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        utils.call_main(cfg, train_all, trainings=trainings, folder=folder)
    return folder


@pytest.fixture(scope="module")
def worker_results(folder):
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.fixture(scope="module")
def single_results(data):
    """The same trainings in one process, with the batches of both workers."""

    @functools.cache
    def results(name):
        part, words, every, _ = TRAININGS[name]
        return train_and_validate([data / part, *words, "--update-freq", 2 * every], UPDATES)

    return results


def without_loss(summary):
    return {name: number for name, number in summary.items() if name != "loss"}


@pytest.mark.long
@pytest.mark.parametrize("name", TRAININGS)
def test_two_workers_make_the_same_updates_as_one_process(name, worker_results, single_results):
    first, second = (results[name] for results in worker_results)
    single, tolerance = single_results(name), TRAININGS[name][-1]
    assert [step["loss"] for step in first["log"]] == pytest.approx(
        [step["loss"] for step in single["log"]], abs=tolerance
    )
    assert first["valid"]["loss"] == pytest.approx(single["valid"]["loss"], abs=tolerance)
    for key, weight in single["weights"].items():
        torch.testing.assert_close(first["weights"][key], weight, rtol=0, atol=tolerance)
        assert torch.equal(first["weights"][key], second["weights"][key]), key

    # Counts of sentences, tokens and cells of the confusion matrix are exact: every sentence counts once.
    assert [without_loss(step) for step in first["log"]] == [without_loss(step) for step in single["log"]]
    assert without_loss(first["valid"]) == without_loss(single["valid"])
    assert first["valid"] == second["valid"]


@pytest.mark.long
def test_workers_have_different_random_numbers_and_share_broadcast_values(worker_results, single_results):
    first, second = (results["classification"]["random"] for results in worker_results)
    assert torch.equal(first, single_results("classification")["random"])
    assert not torch.equal(first, second)
    assert [results["broadcast"] for results in worker_results] == ["rank 0"] * 2


@pytest.mark.long
def test_torchrun_resumes_the_run_and_logs_once(folder, words_of_run, tmp_path):
    two, single = folder / "run", tmp_path / "single"
    result = fairseq_train(*words_of_run(single, "--max-epoch", 2, "--update-freq", 2))
    assert result.returncode == 0, result.stderr
    output = torchrun(2, words_of_run(two, "--max-epoch", 2))
    assert output.count("Loaded checkpoint") == 1
    assert output.count("begin validation on") == 2  # subsets, not workers
    check_equivalent(two, single, 2e-5)


@pytest.mark.cuda
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_make_the_same_updates_as_one(words_of_run, tmp_path, monkeypatch):
    runs = []
    for processes, visible, every in ((2, "0,1", 1), (1, "0", 2)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        runs.append(tmp_path / visible)
        words = words_of_run(runs[-1], "--max-epoch", 2, "--update-freq", every)
        torchrun(processes, [word for word in words if word != "--cpu"])
    check_equivalent(*runs, 1e-4)


def torchrun(processes, words):
    """Run fairseq-train with torchrun; returns its output."""
    launcher = f"-m torch.distributed.run --standalone --nproc-per-node {processes} -m fairseq_cli.train"
    words = [*shlex.split(launcher), *map(str, words), "--user-dir", str(ROOT / "fairseq_plugin")]
    result = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def check_equivalent(ours, theirs, tolerance):
    """Two runs have equal counts, and weights that are equal up to the order of summation."""
    for subset in ("train", "valid", "test"):
        assert scalars(ours / "tensorboard" / subset) == scalars(theirs / "tensorboard" / subset)
    ours, theirs = (torch.load(run / "checkpoint_last.pt", weights_only=True) for run in (ours, theirs))
    assert ours["extra_state"]["best"] == theirs["extra_state"]["best"]
    for name, weight in theirs["model"].items():
        torch.testing.assert_close(ours["model"][name], weight, rtol=0, atol=tolerance)


def scalars(folder):
    """Metric -> (step, value) after each epoch, each once, for the metrics that are computed from counts."""
    accumulator = EventAccumulator(str(folder)).Reload()
    names = ("accuracy", "macro_f1", "mcc")
    return {name: {(event.step, event.value) for event in accumulator.Scalars(name)} for name in names}


@pytest.fixture
def fails(monkeypatch, capfd):
    """A function that runs failing workers; returns the parent's exception and the lines of all processes."""
    # Forking avoids importing fairseq in each worker, which takes seconds.
    fork = functools.partial(torch.multiprocessing.start_processes, start_method="fork")
    monkeypatch.setattr(torch.multiprocessing, "spawn", fork)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(words, main, **kwargs):
        start = time.monotonic()
        with pytest.raises((UserError, SystemExit)) as raised:
            utils.call_main(configuration([*words, *TWO]), main, **kwargs)
        assert time.monotonic() - start < 60  # gloo's timeout is half an hour
        return raised.value, capfd.readouterr().err.splitlines()

    return run


@pytest.mark.long
def test_a_user_error_of_all_workers_is_reported_once(fails, words_of_run, tmp_path):
    words = [tmp_path / "missing", *words_of_run(tmp_path / "run")[1:]]
    raised, lines = fails(words, train.main)
    assert (type(raised), raised.code) == (SystemExit, 1)
    assert sum("missing" in line for line in lines) == 1
    assert lines[-1].startswith(f"error: {tmp_path / 'missing'}")
    assert not any("Traceback" in line for line in lines)


@pytest.mark.long
@pytest.mark.parametrize("how", ["user error", "bug", "killed"])
def test_a_worker_that_fails_stops_all(how, fails, data):
    raised, lines = fails([data, *CLASSIFY], fail, how=how)
    tracebacks = sum("Traceback" in line for line in lines)
    if how == "killed":
        assert all(fact in str(raised) for fact in ("worker 1 of 2", "SIGKILL"))
        assert tracebacks == 0
    else:
        assert raised.code == 1
        assert {"user error": "error: the disk is full", "bug": "RuntimeError: a bug"}[how] in lines
        assert tracebacks == (how == "bug")


def test_more_workers_than_gpus_are_an_error(data, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    words = [word for word in CLASSIFY if word != "--cpu"]
    with pytest.raises(UserError, match=r"--distributed-world-size: .* 2 .* 1 .*--cpu"):
        utils.call_main(configuration([data, *words, *TWO]), train.main)
