import pytest

from roberta_small.common.run import Run, State
from roberta_small.experiments import report
from roberta_small.experiments.inputs.files import Majority
from roberta_small.experiments.plan import Planned
from roberta_small.experiments.progress import Progress
from roberta_small.experiments.recipe.recipe import Recipe
from roberta_small.experiments.report import Outcome
from roberta_small.experiments.sweep import Sweep, Training


def ended(tmp_path, metric, values, flags=(), **kwargs):
    """A sweep with runs that have these best values, their states before the start, and their outcomes."""
    recipe = Recipe("test", ("--best-checkpoint-metric", metric, "--valid-subset", "valid,test", *flags))
    trainings, planned, outcomes = [], [], {}
    for seed, value in enumerate(values, start=1):
        run = Run.below(tmp_path / "runs", "fairseq", "random", seed)
        progress = Progress(recipe, epoch=2, best=value, best_epoch=1, at_best={"test": 2 * value})
        trainings.append(Training(run, recipe, (), {}))
        planned.append(Planned(run, State.NEW, Progress(recipe)))
        outcomes[run] = Outcome(run, progress, 1.0, None)
    sweep = Sweep(settings=None, data=tmp_path, trainings=tuple(trainings), recipe=recipe, **kwargs)
    return sweep, planned, outcomes


def test_the_last_command_predicts_with_a_run_that_has_a_checkpoint(tmp_path, capsys):
    sweep, planned, outcomes = ended(tmp_path, "accuracy", [0.9, 0.5, 0.7], out=tmp_path / "runs")
    assert report.summary(sweep, planned, outcomes) == 0
    assert "roberta-small predict" not in capsys.readouterr().out  # no run has a checkpoint
    for state in planned:
        state.run.folder.mkdir(parents=True)
        (state.run.folder / "checkpoint_best.pt").touch()
    assert report.summary(sweep, planned, outcomes) == 0
    tables, curves, last = capsys.readouterr().out.splitlines()[-3:]
    assert tables.split() == ["roberta-small", "tables", f"{tmp_path}/runs"]
    assert curves.split() == ["tensorboard", "--logdir", f"{tmp_path}/runs"]
    assert f"predict --checkpoint {tmp_path}/runs/fairseq/random/seed1 " in last


def test_means_are_of_the_finished_runs(tmp_path, capsys):
    sweep, planned, outcomes = ended(tmp_path, "mcc", [0.1, 0.3, 0.9], out=tmp_path / "runs")
    run = planned[2].run
    outcomes[run] = Outcome(run, outcomes[run].progress, 1.0, "exit code 1")
    assert report.summary(sweep, planned, outcomes) == 1
    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if "±" in line and "0." in line]
    assert row == ["random", "2", "0.2000", "±", "0.1414", "0.4000", "±", "0.2828"]


@pytest.mark.parametrize(
    ("one", "shown", "values"),
    [
        (Majority("neg", 98.0, 100), "'neg', which gives 98.00", [98.0, 98.5, 50]),
        (Majority("mean 3", 0.0, 100, "pearson"), "mean 3, which gives 0.0000", [0.19, 0.21, -0.5]),
        (Majority("mean 3", 2.5, 100, "rmse"), "mean 3, which gives 2.5", [2.5, 2.4, 3]),
    ],
)
@pytest.mark.parametrize("flags", [(), ("--lr", "1e-5")], ids=["fitted", "trained"])
def test_runs_no_better_than_a_constant_are_named(tmp_path, capsys, one, shown, values, flags):
    ended_runs = ended(tmp_path, one.metric, values, flags, out=tmp_path / "runs", majorities={"valid": one})
    assert report.summary(*ended_runs) == 0
    (warning,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    assert "seed1" in warning
    assert "seed2" not in warning
    assert "seed3" in warning
    assert shown in warning
    assert ("--epochs N --lr R" in warning) == bool(flags)


def test_tail_shortens_long_lines_and_selects_an_error_message(tmp_path):
    log = tmp_path / "log"
    log.write_text("short\n" + "x" * 9000)
    assert report.tail(log) == ["short", "x" * report.FAILURE_WIDTH + " ..."]
    log.write_text("a\nerror: dict.txt: no such file; write it\n")
    assert report.tail(log) == ["error: dict.txt: no such file; write it"]
