"""What grows with the text and the number of runs, at sizes where nothing has grown yet."""

import itertools
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from benchmarks.scale import __main__, memory, runs
from benchmarks.scale import lines as scale_lines
from benchmarks.scale import text as scale_text
from roberta_small.common import manifest
from roberta_small.common.errors import UserError


@pytest.fixture
def text(tmp_path):
    """40 documents of three lines."""
    lines = [f"le livre numéro {number} est long\nil est drôle\net beau {number}\n" for number in range(40)]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path / "text.txt"


def test_text_grows_by_whole_documents_in_new_orders(text, tmp_path):
    size = 3 * text.stat().st_size
    scale_text.grow(text, tmp_path / "grown.txt", size)
    grown = (tmp_path / "grown.txt").read_text(encoding="utf-8")
    assert size <= len(grown.encode()) < size + 60
    given = {document.strip() for document in text.read_text(encoding="utf-8").split("\n\n")}
    found = [document.strip() for document in grown.split("\n\n")]
    assert set(found) == given | {""}
    assert found[:40] != found[40:80]


def test_a_first_batch_is_found_in_the_log():
    line = "2026-01-02 03:04:05 | INFO | fairseq_cli.train | Start iterating over samples"
    assert scale_text.BEGIN.search(f"loaded\n{line}\n")[1] == "2026-01-02 03:04:05"


def test_runs_are_taken_for_what_they_are(settings, tmp_path):
    row = runs.measure(20, settings.data.absolute(), tmp_path)
    assert row["runs"] == 20
    assert {f"{name}_seconds" for name in ("plan", "skip", "tables", "plan_resumption")} < row.keys()
    assert (tmp_path / "skip.log").read_text().count("finished (skipped)") == 20
    resumed = (tmp_path / "plan_resumption.log").read_text()
    assert resumed.count("resume") == 2
    assert resumed.count("finished (skipped)") == 18
    assert "20" in (tmp_path / "tables.log").read_text()
    assert manifest.read(tmp_path / "runs/fairseq/random/seed1")["status"] == "finished"


def test_memory_is_that_of_all_processes_together(tmp_path):
    child = "x = bytearray(64 << 20); import time; time.sleep(2)"
    both = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]); {child}"
    alone = memory.watch([sys.executable, "-c", child], tmp_path / "log")
    assert 64 << 20 < alone.peak_bytes < 96 << 20
    assert alone.seconds > 2
    assert 128 << 20 < memory.watch([sys.executable, "-c", both], tmp_path / "log").peak_bytes < 192 << 20
    with pytest.raises(UserError, match="no such thing"):
        memory.watch([sys.executable, "-c", "raise SystemExit('no such thing')"], tmp_path / "log")


def test_tables(tmp_path, monkeypatch, capsys):
    row = {"runs": 1000, "tables_peak_bytes": 100 << 20}
    row |= {f"{name}_seconds": 1.5 for name in ("plan", "skip", "plan_resumption", "tables")}
    monkeypatch.setattr(__main__, "measure", lambda args, scratch: [row])
    assert __main__.main(["runs", "--output", str(tmp_path)]) == 0
    assert "| 1,000 | 1.5 s | 1.5 s | 1.5 s | 1.5 s | 100 MiB |" in capsys.readouterr().out
    assert json.loads((tmp_path / "runs.json").read_text())["rows"] == [row]
    row = {"text_bytes": 20e9, "binary_bytes": 11e9, "tokens": 5e9, "shards": 20, "binarize_seconds": 1000.0}
    row |= {"binarize_peak_bytes": 1 << 30, "start_seconds": 9.0, "training_peak_bytes": 2 << 30}
    monkeypatch.setattr(__main__, "measure", lambda args, scratch: [row])
    assert __main__.main(["text", "--output", str(tmp_path)]) == 0
    said = "| 20 GB | 5,000 M | 20 | 11 GB | 1,000 s | 20.0 MB/s | 1,024 MiB | 9 s | 2,048 MiB |"
    assert said in (tmp_path / "text.md").read_text()


def test_lines_are_repeated_and_classified(text, tmp_path, monkeypatch, capsys):
    seen = []

    def watch(command, log):
        words = dict(itertools.pairwise(command))
        lines = Path(words["--input"]).read_text(encoding="utf-8").splitlines()
        seen.append((words["predict"], words["--checkpoint"], lines))
        return memory.Watched(2.0, 100 << 20)

    monkeypatch.setattr(scale_lines, "watch", watch)
    words = ["lines", "--lines", "100", "200", "--checkpoint", "a/seed1", "b.onnx", "--text", str(text)]
    assert __main__.main([*words, "--out", str(tmp_path)]) == 0
    assert [(Path(path).name, len(lines)) for _, path, lines in seen] == [
        ("seed1", 100), ("b.onnx", 100), ("seed1", 200), ("b.onnx", 200),
    ]  # fmt: skip
    given = text.read_text(encoding="utf-8").splitlines()
    assert seen[-1][2] == (2 * given)[:200]
    assert "| b.onnx | 200 | 2 s | 100 | 100 MiB |" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "lines.json").read_text())["rows"]) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lines"], "--checkpoint"),
        (["runs", "--checkpoint", "a"], "--checkpoint"),
        (["text", "--gigabytes", "0"], "--gigabytes.* 0$"),
        (["text", "--text", "a.txt"], "--text.*--sentencepiece-model"),
        (["text", "--text", "a", "--sentencepiece-model", "b", "--srcdict", "c"], r"\ba: "),
        (["runs", "--data", "nowhere"], "nowhere: "),
    ],
)
def test_mistakes_are_clear_errors(words, said, capsys):
    assert __main__.main(words) == 1
    assert re.search(said, capsys.readouterr().err)


def test_what_is_interrupted_ends(tmp_path, monkeypatch):
    """Ctrl-C stops the process that is measured, and what it has started."""
    pid, sampled = tmp_path / "pid", memory.processes

    def interrupt(session):
        if pid.exists():
            os.kill(os.getpid(), signal.SIGINT)  # to the process, as a terminal does; this is another thread
        return sampled(session)

    monkeypatch.setattr(memory, "processes", interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    to_the_end = tmp_path / "to-the-end"
    child = f"""
import os, pathlib, time
pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))
time.sleep(60)
pathlib.Path({str(to_the_end)!r}).touch()
"""
    try:
        with pytest.raises(KeyboardInterrupt):
            memory.watch([sys.executable, "-c", child], tmp_path / "log")
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert not to_the_end.exists()
