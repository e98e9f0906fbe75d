"""The command line and the Python interface, also without torch and fairseq."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from roberta_small import analysis
from roberta_small.analysis.__main__ import main
from roberta_small.analysis.read import long_table
from tests.support.analysis.printed_tables import printed
from tests.support.analysis.run_trees import write_events, write_run

ROOT = Path(__file__).parents[2]
WITHOUT_TORCH = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "fairseq", "tensorflow"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from roberta_small.analysis.__main__ import main
assert not {"matplotlib", "scipy"} & set(sys.modules)
runs, output = sys.argv[1:]
codes = [main(["tables", runs]), main(["runs", runs])]
codes += [main(["figures", runs, "--figure", "seeds", "--out", output])]
codes += [main(["report", runs, "--out", output + "/report.html"])]
sys.exit(max(codes))
"""


def test_tables_prints_both_tables_and_a_summary_of_the_runs(runs, capsys):
    assert main(["tables", str(runs)]) == 0
    out, err = capsys.readouterr()
    assert "66.83 ± 1.38 (3)" in out
    assert "72.67 ± 4.73 (3)" in out
    assert err.startswith("6 runs: 3 fairseq/pretrained, 3 fairseq/random\n")


def test_options_reach_the_tables(runs, capsys):
    out = printed(capsys, "tables", runs, "--ddof", "0", "--ties", "earliest")
    assert "79.08 ± 0.82 (3)" in out  # 79.25, 78 (epoch 1) and 80
    assert "earliest" in out


@pytest.mark.parametrize("options", [["--metric", "wpb"], ["--metric", "accuracy", "--by", "wpb"]])
def test_a_metric_of_speed_is_a_warning(tmp_path, caplog, options):
    run = write_run(tmp_path, "random", 1, [80.0], [81.0])
    for subset in ("valid", "test"):
        write_events(run / "tensorboard" / subset, [(225, "wpb", 99.0)], 1.8e9)
    assert main(["tables", str(tmp_path), "--metric", "accuracy"]) == 0
    assert not caplog.records
    assert main(["tables", str(tmp_path), *options]) == 0
    assert any("wpb" in record.message for record in caplog.records)


@pytest.fixture
def selected_by_mcc(tmp_path):
    """Two runs whose best epoch is the first by accuracy, and the second by MCC, which they recorded."""
    flags = ["--best-checkpoint-metric", "mcc", "--maximize-best-checkpoint-metric"]
    for seed in (1, 2):
        run = write_run(tmp_path, "random", seed, [80.0, 70.0], [81.0, 71.0], recipe_flags=flags)
        for subset, values in (("valid", (0.1, 0.5)), ("test", (0.2, 0.6))):
            write_events(
                run / "tensorboard" / subset, [(225, "mcc", values[0]), (450, "mcc", values[1])], 1.8e9
            )
    return tmp_path


@pytest.mark.parametrize(
    ("options", "value", "warns"),
    [
        ([], "71.00", False),
        (["--metric", "mcc"], "0.6000", False),
        (["--metric", "accuracy"], "81.00", True),
        (["--by", "accuracy"], "81.00", True),
        (["--metric", "accuracy", "--by", "mcc"], "71.00", False),
    ],
)
def test_the_metric_that_the_runs_recorded_selects_the_checkpoint(
    selected_by_mcc, capsys, caplog, options, value, warns
):
    out = printed(capsys, "tables", selected_by_mcc, *options)
    assert f"{value} ± 0." in out.partition("after each epoch")[0]
    assert any("mcc" in record.message for record in caplog.records) == warns
    assert value in printed(capsys, "tables", selected_by_mcc, "--table", "seeds", *options)


def test_unfinished_runs_are_used_only_on_request(runs, capsys):
    write_run(runs, "random", 4, [50.0], [50.0], status="failed")
    assert "66.83 ± 1.38 (3)" in printed(capsys, "tables", runs)
    assert "(4)" in printed(capsys, "tables", runs, "--include-unfinished")


def test_runs_without_torch_fairseq_and_tensorflow(runs, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(runs), str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "66.83 ± 1.38 (3)" in done.stdout


HEAVY = ("torch", "fairseq", "matplotlib", "scipy", "tensorflow", "sklearn", "transformers")
IMPORTED = "import json, sys; from roberta_small.analysis import *; print(json.dumps(sorted(sys.modules)))"


def test_every_public_name_is_there():
    assert sorted(analysis.__all__) == dir(analysis)
    for name in analysis.__all__:
        assert getattr(analysis, name).__module__ == analysis.MODULES[name]
    assert analysis.load_runs is long_table.load_runs
    # `from roberta_small.analysis import NAME` would give a module of this name.
    assert not {path.stem for path in Path(analysis.__file__).parent.glob("*.py")} & set(analysis.__all__)


def test_reading_imports_no_trainer_and_no_matplotlib():
    words = [sys.executable, "-c", IMPORTED]
    modules = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    assert "pandas" in modules
    assert not [module for module in modules if module.split(".")[0] in HEAVY]
