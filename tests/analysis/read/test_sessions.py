"""Values that a run logged more than once: restarts, other trainings, later evaluations."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from torch.utils.tensorboard import SummaryWriter

from roberta_small.analysis.read.long_table import load_runs, values_of
from roberta_small.common.errors import UserError
from tests.support.analysis.run_trees import write_events

TIMES = (1_700_000_000.0, 1_700_100_000.0)


def write(folder, values, time=TIMES[0], tag="eval/accuracy"):
    """An event file of a trainer that names the split in the tag; `values` are (step, value)."""
    write_events(
        folder, [(step, tag, value) for step, value in values], wall_time=time, suffix=f".{time:.0f}"
    )


def curve(root, subset="valid", metric="accuracy"):
    rows = values_of(load_runs(root), subset, metric)
    return list(zip(rows["step"], rows["value"].round(4), strict=True)), rows["epoch"].tolist()


@pytest.fixture
def run(tmp_path):
    return tmp_path / "roberta" / "seed1"


@pytest.mark.parametrize(
    "second", [[(20, 50.0), (40, 56.0), (60, 59.0)], [(50, 52.0), (100, 55.0)], [(70, 52.0), (140, 55.0)]]
)
def test_two_trainings_in_two_folders_are_an_error_with_files_steps_and_values(tmp_path, run, second):
    write(run / "runs/Nov21_07-00-00_host", [(50, 61.0), (100, 71.0), (150, 91.0)])
    write(run / "runs/Nov22_07-00-00_host", second, TIMES[1])
    with pytest.raises(UserError) as raised:
        load_runs(tmp_path)
    facts = (
        "Nov21_07-00-00_host",
        "Nov22_07-00-00_host",
        "91 at step 150",
        f"{second[-1][1]:g} at step {second[-1][0]}",
    )
    assert all(fact in str(raised.value) for fact in facts), raised.value


@pytest.mark.parametrize("second", [[(20, 50.0), (40, 56.0)], [(70, 52.0), (140, 55.0)]])
def test_of_two_trainings_in_one_folder_the_later_is_used(tmp_path, run, caplog, second):
    write(run, [(50, 61.0), (100, 71.0), (150, 91.0)])
    write(run, second, TIMES[1])
    assert curve(tmp_path)[0] == second
    (message,) = [text for text in caplog.messages if "91 at step 150" in text]
    assert f"{second[0][1]:g} at step {second[0][0]}" in message


def test_a_resumed_training_may_have_several_folders(tmp_path, run, caplog):
    write(run / "runs/Nov21_07-00-00_host", [(50, 61.0), (100, 71.0), (150, 72.0)])
    write(run / "runs/Nov22_07-00-00_host", [(100, 71.0), (150, 73.0), (200, 74.0)], TIMES[1])
    assert curve(tmp_path) == ([(50, 61.0), (100, 71.0), (150, 73.0), (200, 74.0)], [1, 2, 3, 4])
    assert [text for text in caplog.messages if text.startswith("1 value ") and "roberta" in text]


def test_values_that_were_logged_again_with_equal_values_are_not_mentioned(tmp_path, run, caplog):
    write(run, [(50, 61.0), (100, 71.0)])
    write(run, [(100, 71.0), (150, 73.0)], TIMES[1])
    assert curve(tmp_path)[0] == [(50, 61.0), (100, 71.0), (150, 73.0)]
    assert not [text for text in caplog.messages if "restart" in text]


@pytest.mark.parametrize("second_file", [False, True])
@pytest.mark.parametrize("step", [0, 20, 30])
def test_an_evaluation_after_the_training_is_not_part_of_it(tmp_path, run, caplog, step, second_file):
    """Perhaps of a test set under the same names: both values are shown."""
    trained = [(10, 80.0), (20, 70.0), (30, 60.0)]
    write(run, trained if second_file else [*trained, (step, 75.0)])
    if second_file:
        write(run, [(step, 75.0)], TIMES[1])
    assert curve(tmp_path)[0] == trained
    before = {0: 60, 20: 70, 30: 60}[step]
    shown = f"step {step}: {before}, later 75"
    assert [text for text in caplog.messages if shown in text and "metric_key_prefix" in text]


def write_process(run, layout, number, updates=(), evaluations=()):
    """What one process of Transformers (one file) or fairseq (a folder a subset) logs: (step, value) each."""
    rows = [(step, "train", "loss", value) for step, value in updates]
    rows += [(step, "valid", "accuracy", value) for step, value in evaluations]
    time, suffix = TIMES[0] + 1000 * number, f".{number}"
    if layout == "transformers":  # each evaluation logs the epoch, too
        rows += [(step, "train", "epoch", step / 10) for step, _ in evaluations]
        named = [(step, f"{subset}/{metric}", value) for step, subset, metric, value in sorted(rows)]
        write_events(run / "runs" / "Nov21_07-00-00_host", named, time, suffix)
        return
    for subset in {subset for _, subset, _, _ in rows}:
        own = [(step, metric, value) for step, name, metric, value in sorted(rows) if name == subset]
        write_events(run / "tb" / subset, own, time, suffix)


@pytest.mark.parametrize("layout", ["transformers", "fairseq"])
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(1, 3)), max_size=4))
def test_generated_processes_that_resume_or_evaluate(tmp_path_factory, layout, processes):
    """Evaluations change nothing, at whatever step; a resumed training replaces what follows."""
    run = tmp_path_factory.mktemp("logs") / "roberta" / "seed1"
    wanted: dict[int, float] = {}
    for number, (evaluates, place, epochs) in enumerate([(False, 0, 3), *processes]):
        last = max(wanted, default=0)
        if evaluates:
            step = (last, last + 1, last - 10, 0, last)[place]
            write_process(run, layout, number, evaluations=[(step, 50.0 + number)])
            continue
        start = min(10 * place, last)
        own = {step: 10.0 * number + step / 10 for step in range(start + 10, start + 10 * epochs + 1, 10)}
        updates = [(step, 0.7) for step in range(start + 5, start + 10 * epochs + 1, 5)]
        write_process(run, layout, number, updates, own.items())
        wanted = {step: value for step, value in wanted.items() if step <= start} | own
    assert curve(run.parents[1])[0] == sorted(wanted.items())


def test_the_mark_of_one_worker_does_not_remove_what_another_logs_later(tmp_path, run):
    write(run, [(10, 50.0), (20, 51.0)])
    writer = EventFileWriter(str(run), filename_suffix=".coordinator")
    start = SessionLog(status=SessionLog.START)
    writer.add_event(Event(wall_time=TIMES[0] - 1, step=5, session_log=start))
    summary = Summary(value=[Summary.Value(tag="eval/accuracy", simple_value=52.0)])
    writer.add_event(Event(wall_time=TIMES[0] + 0.5, step=15, summary=summary))
    writer.close()
    assert curve(tmp_path)[0] == [(10, 50.0), (15, 52.0), (20, 51.0)]


@given(st.lists(st.sets(st.integers(0, 1), min_size=1), max_size=8), st.sets(st.integers(2, 9)))
def test_generated_workers_are_merged_or_refused(tmp_path_factory, workers_of, unequal):
    """`workers_of` has the workers that log each step, with different values at the steps `unequal`."""
    run = tmp_path_factory.mktemp("logs") / "roberta" / "seed1"
    workers_of = [{0}, {1}, *workers_of, {0}, {1}]
    files, wanted = [], {}
    for worker in (0, 1):
        steps = [step for step, workers in enumerate(workers_of) if worker in workers]
        rows = [(step, step + (0.5 if worker and step in unequal else 0.0)) for step in steps]
        wanted |= rows
        events = [(step, "eval/accuracy", value) for step, value in rows]
        files.append(write_events(run, events, TIMES[0] + worker / 9, f".{worker}"))
    if any(workers_of[step : step + 1] == [{0, 1}] for step in unequal):
        with pytest.raises(UserError) as raised:
            load_runs(run.parents[1])
        assert all(str(file) in str(raised.value) for file in files)
        files[0].unlink()  # the advice: keep the file of one worker
        wanted = rows
    assert curve(run.parents[1])[0] == sorted(dict(wanted).items())


def fairseq_line(epoch, step, accuracy, subset="valid"):
    prefix = "" if subset == "train_inner" else f"{subset}_"
    stats = {"epoch": epoch, f"{prefix}accuracy": str(accuracy), f"{prefix}num_updates": str(step)}
    return f"2026-11-21 07:43:53 | INFO | {subset} | {json.dumps(stats)}\n"


def test_a_restart_in_a_json_log_drops_what_it_abandons(tmp_path, run, caplog):
    run.mkdir(parents=True)
    lines = [(1, 100, 61), (2, 200, 66), (3, 300, 91), (3, 280, 67), (4, 360, 68), (5, 440, 69)]
    (run / "train.log").write_text("".join(fairseq_line(*line) for line in lines))
    steps, epochs = curve(tmp_path)
    assert steps == [(100, 61.0), (200, 66.0), (280, 67.0), (360, 68.0), (440, 69.0)]
    assert epochs == [1, 2, 3, 4, 5]
    assert [text for text in caplog.messages if text.startswith("1 value ")]


def test_a_restart_that_only_the_training_shows_drops_validations_too(tmp_path, run):
    """The validation at step 300 belongs to what was abandoned, and is not logged again."""
    run.mkdir(parents=True)
    inner = [fairseq_line(1, step, 50, "train_inner") for step in (50, 100, 150, 200, 250, 300, 350)]
    lines = [*inner[:2], fairseq_line(1, 100, 61), *inner[2:6], fairseq_line(2, 300, 91)]
    lines += [*inner[2:], fairseq_line(2, 350, 66)]
    (run / "train.log").write_text("".join(lines))
    assert curve(tmp_path)[0] == [(100, 61.0), (350, 66.0)]


def test_the_epoch_that_a_resumed_run_logs_again_keeps_its_validation(tmp_path):
    """fairseq logs the training metrics of the last epoch once more, and does not validate again."""
    for subset, parts in {
        "train": ([(225, 1.0), (450, 0.9), (675, 0.8)], [(450, 0.9), (675, 0.7)]),
        "valid": ([(225, 1.1), (450, 1.0), (675, 0.9)], [(675, 0.95)]),
    }.items():
        folder = tmp_path / "fairseq" / "random" / "seed1" / subset
        for part, time in zip(parts, TIMES, strict=True):
            write(folder, part, time, tag="loss")
    assert curve(tmp_path, metric="loss")[0] == [(225, 1.1), (450, 1.0), (675, 0.95)]


def test_a_run_that_was_killed_between_its_metrics_keeps_the_validation_of_its_checkpoint(tmp_path):
    """It was killed after the training metrics of epoch 3, and resumes after epoch 2; speed differs."""
    folder = tmp_path / "fairseq" / "random" / "seed1"
    write(folder / "train", [(225, 10.0), (450, 11.0), (675, 12.0)], tag="wps")
    write(folder / "train", [(450, 21.0), (675, 22.0)], TIMES[1], tag="wps")
    write(folder / "valid", [(225, 1.1), (450, 1.0)], tag="loss")
    write(folder / "valid", [(675, 0.9)], TIMES[1], tag="loss")
    assert curve(tmp_path, metric="loss")[0] == [(225, 1.1), (450, 1.0), (675, 0.9)]


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9)), min_size=1, max_size=6), min_size=1,
             max_size=3),
    st.integers(0, 45),
)  # fmt: skip
def test_marks_of_restarts_are_read_as_tensorboard_reads_them(tmp_path_factory, parts, purge):
    """Generated logs of writers with `purge_step`: TensorBoard's own reader has the same values."""
    folder = tmp_path_factory.mktemp("logs") / "roberta" / "seed1" / "valid"
    step = 0
    for number, part in enumerate(parts):
        start = None if number == 0 else min(step, purge) + 1
        step = step if start is None else start - 1
        with SummaryWriter(folder, purge_step=start, filename_suffix=f".{number}") as writer:
            for index, (gap, value) in enumerate(part):
                step += gap
                time = TIMES[0] + 1000 * number + index
                writer.add_scalar("accuracy", 10.0 + value, step, walltime=time)
        for path in folder.glob(f"*.{number}"):  # torch writes the mark with the current time
            path.rename(path.with_name(f"events.out.tfevents.{number}"))
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    wanted = [(event.step, event.value) for event in reader.Scalars("accuracy")]
    assert curve(folder.parents[2])[0] == wanted
