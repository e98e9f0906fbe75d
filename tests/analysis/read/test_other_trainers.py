"""Real logs of stock fairseq and Transformers (results/other-trainers), alone and beside this project's."""

import re
import shutil
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from roberta_small.analysis.__main__ import main
from roberta_small.analysis.read.long_table import load_runs, values_of
from roberta_small.analysis.read.runs import find_runs
from tests.support.analysis.command_words import words_of
from tests.support.analysis.html_page import Page
from tests.support.analysis.log_trees import write_fairseq
from tests.support.analysis.run_trees import write_run

ROOT = Path(__file__).parents[3] / "results" / "other-trainers"
RUNS, JSON_LOGS = ROOT / "runs", ROOT / "fairseq-json"
INITS = ("tiny-lr1e-3", "tiny-lr3e-3")
STEPS = [113, 226, 339]


def accumulated(folder):
    """{tag: [(step, value)]} of the event files of a folder, by TensorBoard's own reader.

    Of equal steps the last: Transformers logs `train/epoch` with each evaluation once more.
    """
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    curves = {tag: {e.step: e.value for e in reader.Scalars(tag)} for tag in reader.Tags()["scalars"]}
    return {tag: list(curve.items()) for tag, curve in curves.items()}


def logged(table, names, subset):
    """{metric: [(step, value)]} of a run, by ours."""
    arm, init, seed = names
    rows = table[(table["arm"] == arm) & (table["init"] == init) & (table["seed"] == seed)]
    rows = rows[rows["subset"] == subset]
    return {
        metric: list(zip(curve["step"], curve["value"], strict=True))
        for metric, curve in rows.groupby("metric")
    }


@pytest.fixture(scope="module")
def table():
    return load_runs(RUNS)


def test_who_the_runs_are():
    runs = find_runs(RUNS)
    expected = [(arm, init, seed) for arm in ("fairseq", "transformers") for init in INITS for seed in (1, 2)]
    assert [(run.arm, run.init, run.seed) for run in runs] == expected
    assert {run.named_by for run in runs} == {"path"}


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_scalar_of_stock_fairseq(table, init, seed):
    for subset in ("train", "train_inner", "valid", "test"):
        expected = accumulated(RUNS / "fairseq" / init / str(seed) / subset)
        assert "accuracy" in expected
        assert logged(table, ("fairseq", init, seed), subset) == expected


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_scalar_of_transformers(table, init, seed):
    (folder,) = (RUNS / "transformers" / init / f"seed{seed}" / "runs").iterdir()
    expected = accumulated(folder)
    found = {
        f"{prefix}{metric}": curve
        for subset, prefix in (("train", "train/"), ("valid", "eval/valid_"), ("test", "eval/test_"))
        for metric, curve in logged(table, ("transformers", init, seed), subset).items()
    }
    for tag in ("eval/valid_accuracy", "eval/test_accuracy"):
        assert [step for step, _ in expected[tag]] == STEPS
        expected[tag] = [(step, pytest.approx(100 * share)) for step, share in expected[tag]]
    assert found == expected


def test_fairseqs_json_logs_say_the_same_as_its_event_files(table):
    logs = load_runs(JSON_LOGS)
    for subset in ("valid", "test", "train", "train_inner"):
        events = values_of(table[table["arm"] == "fairseq"], subset, "accuracy")
        lines = values_of(logs, subset, "accuracy")
        same = ["init", "seed", "epoch", "step"]
        assert lines[same].values.tolist() == events[same].values.tolist()
        assert lines["value"].tolist() == pytest.approx(events["value"].tolist(), abs=0.051)


@pytest.fixture
def mixture(tmp_path):
    """Real logs of both trainers beside runs with manifests and a tree that only a pattern describes."""
    shutil.copytree(RUNS, tmp_path / "others")
    for seed in (1, 2, 3):
        write_run(tmp_path / "ours", "random", seed, [60.0, 65.0 + seed], [61.0, 66.0 + seed], arm="ours")
    write_fairseq(tmp_path / "more" / "7" / "bert")
    return tmp_path


@pytest.mark.long
def test_all_commands_on_a_mixture(mixture, tmp_path, capsys):
    root, chosen = str(mixture), "--include-unfinished"
    groups = ["fairseq/tiny-lr1e-3", "transformers/tiny-lr1e-3", "ours/random"]
    reference = tmp_path / "published.csv"
    reference.write_text(
        "arm,init,epoch,subset,metric,mean,std,n\ntransformers,tiny-lr1e-3,3,test,accuracy,72,1,3\n"
    )
    commands = {
        "runs": [],
        "tables": [chosen],
        "seeds": [chosen, "--test-size", "2000"],
        "expected": [chosen],
        "compare": [chosen, "--groups", *groups, "--reference", str(reference)],
        "figures": [chosen, "--out", str(tmp_path / "out"), "--test-size", "2000"],
        "report": [chosen, "--out", str(tmp_path / "out" / "report.html"), "--reference", str(reference)],
    }
    shown = {}
    for command, options in commands.items():
        assert main(words_of(command, root, *options)) == 0
        shown[command] = capsys.readouterr().out
    assert len([line for line in shown["runs"].splitlines() if "no manifest" in line]) == 9
    assert "72.28 ± 1.59 (2)" in shown["tables"]
    assert "| transformers | tiny-lr1e-3 | best |   2 | 72.28 | 1.59 |" in shown["seeds"]
    assert "−1.78" in shown["compare"]
    assert "72.43 ± 1.38 (2) | 72.00 ± 1.00 (3) |      +0.43" in shown["compare"]
    page = Page((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    (cells,) = [row[1:] for row in page.tables["overview"] if row[0] == "transformers/tiny-lr1e-3"]
    assert cells[:4] == ["72.28", "[57.98, 86.57]", "2", "+4.78 [−15.87, +25.42]"]
    assert {path.name for path in (tmp_path / "out").glob("*.png")} == {
        "accuracy_per_epoch.png", "accuracy_seeds.png", "accuracy_expected.png"
    }  # fmt: skip


def test_a_mixture_uses_finished_runs_by_default(mixture, capsys, caplog):
    assert main(["tables", str(mixture)]) == 0
    assert "transformers" not in capsys.readouterr().out
    assert re.search(r"\b9 unfinished\b", caplog.text)
    assert "--include-unfinished" in caplog.text
