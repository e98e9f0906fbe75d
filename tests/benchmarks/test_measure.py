import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import fairseq_cli.train
import numpy as np
import pytest
import torch
from fairseq.trainer import Trainer

from benchmarks import measure, timed
from benchmarks.__main__ import describe
from benchmarks.measure import RESULT, Contender, compare, execute, summarize, with_ratios
from benchmarks.timed import Clock
from roberta_small.common.errors import UserError
from roberta_small.common.files import ROOT
from roberta_small.common.hardware import TUNING
from tests.support.signals import restore_defaults

WRITE = "import json, sys; json.dump({0}, open(sys.argv[1], 'w'))"


def command(code, *words):
    return (sys.executable, "-c", code, *words)


def record(*seconds, wall=9.0, peak=1, **more):
    return {"seconds": list(seconds), "wall": wall, "peak_bytes": peak, **more}


def test_the_summary_is_that_of_numpy():
    rounds = [record(1.0, 2.0, 6.0, peak=5), record(4.0, 5.0, 3.0, peak=7), record(9.0, 9.0, 9.0, peak=6)]
    summary = summarize(rounds)
    every = [1, 2, 6, 4, 5, 3, 9, 9, 9]
    assert summary["median"] == np.median([3.0, 4.0, 9.0])
    assert (summary["q1"], summary["q3"]) == tuple(np.percentile(every, (25, 75)))
    assert (summary["times"], summary["wall"], summary["peak_bytes"]) == (9, 9.0, 7)
    assert "tokens_per_second" not in summary
    # Tokens a second are the median of the rounds.
    rounds = [record(1.0, 2.0, tokens=[10, 20]), record(1.0, tokens=[30]), record(2.0, tokens=[30])]
    assert summarize(rounds)["tokens_per_second"] == np.median([30 / 3, 30 / 1, 30 / 2])


def test_ratios_are_of_medians_with_the_first_of_others():
    rows = [{"median": 6.0}, {"problem": "none"}, {"median": 2.0}]
    for others, ratios in ((False, [1.0, None, 3.0]), (True, [None, None, None])):
        found = with_ratios([{"ours": others, **row} for row in rows])
        assert [row.get("ratio") for row in found] == ratios
    assert "ratio" not in with_ratios([{"ours": False, "problem": "x"}, {"ours": True, "median": 2.0}])[1]


def test_quick_leaves_out_other_contenders(settings, tmp_path):
    """Not in a benchmark without quick contenders."""
    write = command(WRITE.format("{'seconds': [1.0]}"), RESULT)
    several = [Contender("a", write, quick=True), Contender("b", write)]
    quick = replace(settings, quick=True, rounds=1, output=tmp_path)
    for contenders, names in ((several, ["a"]), (several[1:], ["b"])):
        rows = compare("x", "X", contenders, quick)["contenders"]
        assert [row["contender"] for row in rows] == names


def test_without_a_result_the_wall_time_counts(settings, tmp_path):
    code = "import time; x = bytearray(300_000_000); time.sleep(0.3)"
    found = execute(Contender("a", command(code)), settings, "log")
    assert found["seconds"] == [found["wall"]]
    assert 0.3 < found["wall"] < 30
    assert 300e6 < found["peak_bytes"] < 3e9


def test_contenders_alternate_and_one_that_fails_leaves_the_others(settings, tmp_path):
    order = tmp_path / "order"
    write = f"open({str(order)!r}, 'a').write(NAME)"
    contenders = [
        Contender("a", command(write.replace("NAME", "'a'"))),
        Contender("broken", command("raise SystemExit('no luck')")),
        Contender("b", command(write.replace("NAME", "'b'")), ours=True),
    ]
    result = compare("x", "X", contenders, replace(settings, rounds=3), work=1)
    assert order.read_text() == "ababab"
    first, broken, own = result["contenders"]
    assert re.search(r"\b1\b.*no luck", broken["problem"])
    assert own["ratio"] == first["median"] / own["median"]
    assert [len(row["rounds"]) for row in (first, own)] == [3, 3]
    assert result["work"] == 1
    json.dumps(result)


def test_results_do_not_say_where_this_machine_has_its_python_and_its_sample(settings, tmp_path):
    used = Contender("a", command("pass"), {"PYTHON": sys.executable})
    (row,) = compare("x", "X", [used], settings)["contenders"]
    assert row["environment"] == {"PYTHON": "python"}
    assert sys.executable not in json.dumps(row)
    mine = replace(settings, scratch=tmp_path, data=tmp_path / "sample" / "reviews")
    assert describe(mine)["settings"]["data"] == "sample/reviews"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("error: a.txt: no such file\n", "error: a.txt: no such file"),
        (
            "Traceback\n  x\nomegaconf.errors.KeyError: lost\n    object_type=Y\n",
            "omegaconf.errors.KeyError: lost",
        ),
        ("one\n\n  two \n", "two"),
        ("", "no output"),
    ],
)
def test_the_reason_is_the_line_about_the_error(settings, tmp_path, output, reason):
    code = f"import sys; sys.stdout.write({output!r}); sys.exit(3)"
    with pytest.raises(UserError) as caught:
        execute(Contender("a", command(code)), settings, "log")
    assert f" 3: {reason} (" in str(caught.value)
    assert str(settings.output / "logs" / "log.txt") in str(caught.value)


def test_a_contender_tells_its_own_times_and_peers_do_not_get_our_variables(settings, monkeypatch):
    name = next(iter(TUNING))
    monkeypatch.setenv(name, "123")
    monkeypatch.setenv("KEPT", "yes")
    code = WRITE.format("{'seconds': [0.25, 0.5], 'losses': [1.0], 'seen': dict(__import__('os').environ)}")
    found = execute(Contender("a", command(code, RESULT)), settings, "log")
    assert (found["seconds"], found["losses"]) == ([0.25, 0.5], [1.0])
    plain = found["seen"]
    tuned = execute(Contender("a", command(code, RESULT), {name: "7"}), settings, "log")["seen"]
    assert name not in plain
    assert plain["KEPT"] == "yes"
    assert tuned[name] == "7"


def test_who_takes_too_long_is_stopped_with_its_children(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "GRACE_SECONDS", 5)
    monkeypatch.setenv("BENCHMARK_SECONDS", "1")
    assert "export BENCHMARK_SECONDS=" in (ROOT / "benchmarks/gpu/check.sh").read_text()
    pid = tmp_path / "pid"
    slow = ("sh", "-c", f"sleep 300 & echo $! > {pid}; wait")
    start = time.monotonic()
    with pytest.raises(UserError, match=r"\b1 s\b"):
        execute(Contender("slow", slow), settings, "log")
    assert time.monotonic() - start < 20
    assert is_gone(int(pid.read_text()))


def test_interrupt_stops_the_contender(tmp_path):
    pid = tmp_path / "pid"
    code = (
        "from benchmarks.measure import run_bounded\n"
        f"run_bounded(['sh', '-c', 'echo $$ > {pid}; sleep 300 & wait'], {{}}, None, 300)"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.DEVNULL, preexec_fn=restore_defaults
    )
    deadline = time.monotonic() + 30
    while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)  # the shell may write before its parent waits for it
    program.send_signal(signal.SIGINT)
    program.wait(timeout=30)
    assert is_gone(int(pid.read_text()))


def is_gone(pid):
    """Whether a process has ended, within some seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        with open(f"/proc/{pid}/stat") as stat:  # nobody reaps orphans in some containers
            if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        time.sleep(0.1)
    return False


def test_an_update_that_stock_fairseq_leaves_out_is_timed(monkeypatch):
    """In fp16, if a gradient overflows, `Trainer.train_step` returns None."""
    logged = [{"loss": 1.0}, None, {}, {"loss": 2.0}]
    trainer = SimpleNamespace()
    monkeypatch.setattr(Trainer, "train_step", lambda *_: logged.pop(0))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", torch.cuda.reset_peak_memory_stats)
    monkeypatch.setattr(sys, "argv", [])

    def four_updates():
        for _ in range(4):
            Trainer.train_step(trainer, [{"ntokens": 5}])

    monkeypatch.setattr(fairseq_cli.train, "cli_main", four_updates)
    found = timed.fairseq_train("1")
    assert len(found["seconds"]) == 2
    assert found["losses"] == [1.0, 2.0]


def test_updates_after_the_warm_up_are_timed():
    clock = Clock()
    for tokens in (10, 20, 30, 40):
        clock.start(tokens)
        clock.losses.append(tokens / 10)
    found = clock.result(1)
    assert len(found["seconds"]) == 2
    assert found["tokens"] == [20, 30]
    assert found["losses"] == [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(SystemExit, match=r"\b4\b.*\b3\b"):
        clock.result(3)
