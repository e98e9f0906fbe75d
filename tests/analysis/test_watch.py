"""The live table: runs in every state, on a terminal, line by line and interrupted."""

import io
import os
import time

import pytest

from roberta_small.analysis.__main__ import main
from roberta_small.analysis.watch import Progress, Row, Watcher, duration, totals, watch
from roberta_small.common.errors import UserError
from tests.support.analysis.log_trees import write_json_log
from tests.support.analysis.run_trees import write_manifest, write_run

FLAGS = ["--max-epoch", "4", "--max-update", "1000"]


@pytest.fixture
def sweep(tmp_path):
    """One run finished, one at work, one failed; random/seed2 has not begun."""
    root = tmp_path / "runs"
    write_run(root, "random", 1, [50.0, 62.0, 61.0], [50.5, 65.5, 64.0], recipe_flags=FLAGS)
    working = root / "fairseq" / "pretrained" / "seed1"
    write_manifest(working, "fairseq", "pretrained", 1, "running", recipe_flags=FLAGS)
    write_json_log(working / "train.log")
    failed = root / "fairseq" / "pretrained" / "seed2"
    write_manifest(failed, "fairseq", "pretrained", 2, "failed", recipe_flags=FLAGS)
    (failed / "train.log").write_text("start\nRuntimeError: out of \x1b[31mmemory\n\n", encoding="utf-8")
    return root


class Terminal(io.StringIO):
    def isatty(self):
        return True


def rows_of(root, **more):
    return {row.name: row for row in Watcher(root, **more).look()}


def test_every_state(sweep):
    rows = rows_of(sweep)
    assert {name: row.status for name, row in rows.items()} == {
        "fairseq/pretrained/seed1": "running",
        "fairseq/pretrained/seed2": "failed",
        "fairseq/random/seed2": "waiting",
        "fairseq/random/seed1": "finished",
    }
    assert next(iter(rows)) == "fairseq/pretrained/seed1"
    assert rows["fairseq/random/seed1"].progress == Progress(3, 675, None, 61.0, 62.0, None, 225)
    working = rows["fairseq/pretrained/seed1"]
    assert (working.progress.epoch, working.progress.update, working.progress.valid) == (2, 50, 49.5)
    assert (working.max_epoch, working.max_update) == (4, 1000)
    assert totals(list(rows.values())) == "4 runs: 1 running, 1 failed, 1 waiting, 1 finished"


def test_time_left_until_the_first_limit():
    done = Progress(epoch=2, update=50, updates_per_second=2.0, updates_per_epoch=25)
    assert Row("a", "running", done, max_epoch=4, max_update=1000).seconds_left == 25
    assert Row("a", "running", done, max_epoch=4).seconds_left == 25
    assert Row("a", "running", done, max_update=60).seconds_left == 5
    assert Row("a", "running", done).seconds_left is None
    assert Row("a", "finished", done, max_epoch=4).seconds_left is None
    assert duration(3725) == "1:02:05"
    assert duration(65) == "1:05"


def test_a_loss_is_best_where_it_is_lowest(tmp_path):
    write_run(tmp_path, "random", 1, [0.7, 0.5, 0.6], [0.7, 0.5, 0.6], metric="loss")
    progress = rows_of(tmp_path, metric="loss")["fairseq/random/seed1"].progress
    assert progress.best == pytest.approx(0.5)
    assert progress.valid == pytest.approx(0.6)


def test_once_prints_the_table(sweep, capsys):
    assert main(["watch", str(sweep), "--once"]) == 0
    out = capsys.readouterr().out
    words = [line.split() for line in out.splitlines()]
    assert ["fairseq/pretrained/seed1", "running", "2/4", "50/1000"] in [line[:4] for line in words]
    assert "RuntimeError: out of  [31mmemory" in out  # no escape reaches the terminal
    assert "\x1b" not in out


def test_planned_runs_are_waiting(tmp_path, capsys):
    main(["watch", str(tmp_path), "--once"])
    assert capsys.readouterr().out == "no run yet\n"
    main(["watch", str(tmp_path), "--once", "--inits", "random", "b", "--seeds", "1", "2"])
    assert "4 runs: 4 waiting" in capsys.readouterr().out


def test_missing_runs_are_waiting_only_with_a_plan_or_a_running_one(tmp_path):
    write_run(tmp_path, "random", 1, [50.0], [50.0])
    write_run(tmp_path, "pretrained", 1, [50.0], [50.0])
    write_run(tmp_path, "pretrained", 2, [50.0], [50.0])
    assert totals(list(rows_of(tmp_path).values())) == "3 runs: 3 finished"
    waiting = {"fairseq/random/seed2"}
    for plan in ({"seeds": [1, 2]}, {"inits": ["random", "pretrained"]}):
        assert {row.name for row in rows_of(tmp_path, **plan).values() if row.status == "waiting"} == waiting


def test_a_run_without_logs_and_a_silent_one(sweep):
    write_manifest(sweep / "fairseq" / "random" / "seed3", "fairseq", "random", 3, "running")
    log = sweep / "fairseq" / "pretrained" / "seed1" / "train.log"
    os.utime(log, (time.time() - 3600,) * 2)
    rows = rows_of(sweep)
    assert rows["fairseq/random/seed3"].note == "nothing logged yet"
    assert rows["fairseq/pretrained/seed1"].note.startswith("nothing logged for 1:00:0")


def test_lines_tell_only_news(sweep):
    output, looks = io.StringIO(), iter(range(3))
    new = sweep / "fairseq" / "random" / "seed2"

    def sleep(_):
        match next(looks):
            case 0:
                output.write("--\n")
            case 1:
                output.write("--\n")
                write_run(sweep, "random", 2, [50.0], [50.0])
            case _:
                raise KeyboardInterrupt

    watch(sweep, stream=output, sleep=sleep)
    assert new.is_dir()
    first, second, third = output.getvalue().split("--\n")
    assert len(first.splitlines()) == 2 + 4
    assert second == ""
    assert [line.split()[:2] for line in third.splitlines()] == [["fairseq/random/seed2", "finished"]]


def test_a_terminal_is_redrawn_in_place_and_never_overflows(sweep, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "6")
    output, looks = Terminal(), iter(range(2))

    def sleep(_):
        if next(looks):
            raise KeyboardInterrupt

    watch(sweep, stream=output, sleep=sleep)
    first, second = output.getvalue().split("\x1b[5F\x1b[J")
    lines = first.splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= 39
    assert lines[-1] == "... and 2 more"
    assert second.splitlines()[1:5] == lines[1:]


def test_logs_that_did_not_change_are_read_once(sweep, monkeypatch):
    from roberta_small.analysis import watch as watch_runs

    read, calls = watch_runs.read_progress, []
    monkeypatch.setattr(
        watch_runs, "read_progress", lambda run, *more: calls.append(run.name) or read(run, *more)
    )
    watcher = Watcher(sweep)
    before = watcher.look()
    known = len(calls)
    assert watcher.look() == before
    assert "fairseq/random/seed1" not in calls[known:]
    with open(sweep / "fairseq" / "pretrained" / "seed1" / "train.log", "a", encoding="utf-8") as log:
        log.write('{"epoch": 3, "valid_accuracy": "77", "valid_num_updates": "75"}\n')
    rows = {row.name: row for row in watcher.look()}
    assert rows["fairseq/pretrained/seed1"].progress.best == 77.0


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(UserError, match="absent"):
        watch(tmp_path / "absent", once=True)
