"""The tables that a command prints before and after its runs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.files import shown_path
from roberta_small.common.hardware import environment
from roberta_small.common.metrics import number
from roberta_small.common.run import LOG, TFIDF, Run, State, find_checkpoint, rank
from roberta_small.common.statistics import mean_std, wilson_interval
from roberta_small.common.tables import duration, mean_std_cell, text_table
from roberta_small.experiments.inputs import files as inputs
from roberta_small.experiments.methods import Command
from roberta_small.experiments.plan import Planned
from roberta_small.experiments.progress import Progress, read_log
from roberta_small.experiments.provenance import Machine
from roberta_small.experiments.recipe.recipe import Recipe
from roberta_small.experiments.sweep import Sweep

FAILURE_LINES = 15
FAILURE_WIDTH = 200
"""Characters shown of each line; fairseq logs its whole configuration in one line."""
RECIPE_ITSELF = "as the recipe"
ROUNDING = 0.005
"""Of a percentage in a log."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended; `problem` is None for a finished run."""

    run: Run
    progress: Progress
    seconds: float | None
    """Training time; None if another process trained it."""
    problem: str | None


def plan_table(planned: Sequence[Planned], notes: Sequence[str] = ()) -> None:
    """Print the runs with their state before the start, their initial checkpoints, and `notes`."""
    runs = [state.run for state in planned]
    heading, names = _names(runs)
    rows = [[*cells, state.action] for cells, state in zip(names, planned, strict=True)]
    print(table([*heading, "state"], rows))
    checkpoints = {run.init: run.checkpoint for run in runs if run.checkpoint is not None}
    for init, checkpoint in checkpoints.items():
        print(f"{init}: {shown_path(checkpoint)}")
    for note in notes:
        print(note)
    if any(state.longer for state in planned):
        print(
            "continue: from its last checkpoint, the learning rate follows the schedule of the longer run; "
            "for a run with as many epochs from the start, choose another --out or --arm"
        )
    if all(state.state is State.FINISHED for state in planned):
        print("All runs are finished: nothing to do.")
    print(flush=True)


def commands(found: Sequence[tuple[Run, Command]], machine: Machine) -> None:
    """Print the commands of runs that would be trained, and how many are trained at a time."""
    place = f"{len(machine.gpus)} GPU(s)" if machine.gpus else "the CPU"
    print(f"# {machine.slots} run(s) at a time on {place}")
    variables = " ".join(f"{name}={value}" for name, value in environment(machine.threads).items())
    print(f"export {variables}")
    for run, command in found:
        print(f"\n# {run.label}\n{shlex.join(command.shown)}")


def summary(
    sweep: Sweep, planned: Sequence[Planned], outcomes: Mapping[Run, Outcome], *, compare: bool = False
) -> int:
    """Print the final table and the cause of each failure; returns the exit code.

    The table contains the best value of the metric on the first validation subset, and those on the other
    subsets at the same epoch. For a sweep, the means over the seeds and the next commands follow, and with
    `compare` the table of all methods in the folder of the runs.
    """
    recipe, runs = sweep.recipe, [state.run for state in planned]
    others = recipe.valid_subsets[1:]
    heading, names = _names(runs)
    rows, finished = [], {}
    for cells, state, training in zip(names, planned, sweep.trainings, strict=True):
        outcome = outcomes.get(state.run)
        progress = outcome.progress if outcome else read_log(state.run.folder / LOG, training.recipe)
        if outcome is not None and outcome.problem:
            status = "failed"
        elif outcome is not None or state.state is State.FINISHED:
            status = "finished"
            finished[state.run] = progress
        else:
            status = "not finished"
        tests = [progress.at_best.get(subset) for subset in others]
        rows.append(
            [
                *cells,
                status,
                str(progress.epoch),
                "-" if progress.best is None else f"{progress.best:.4g}",
                "-" if progress.best_epoch is None else str(progress.best_epoch),
                *("-" if value is None else number(value, recipe.metric) for value in tests),
                duration(outcome.seconds) if outcome and outcome.seconds is not None else "–",
            ]
        )
    best, test = f"best valid {recipe.metric}", [f"{subset} {recipe.metric}" for subset in others]
    print("\n" + table([*heading, "status", "epochs", best, "at epoch", *test, "time"], rows))
    if sweep.out is not None:
        _print_means(finished, recipe, [best, *test])
    _print_chance(finished, sweep)
    failures = [outcome for outcome in outcomes.values() if outcome.problem]
    for outcome in failures:
        log = outcome.run.folder / LOG
        lines = tail(log)
        end = f". The end of {shown_path(log)}:" if lines else ""
        print(f"\n{outcome.run.label} failed: {outcome.problem}{end}")
        for line in lines:
            print(f"    {line}")
    if sweep.out is not None and (finished or compare):
        model = sweep.out if compare and _print_comparison(sweep, sweep.out) else _best(list(finished))
        _print_next(sweep.out, model, sweep.data)
    return 1 if failures else 0


def _best(finished: Sequence[Run]) -> Path | None:
    """The folder of the best of these runs, or of the first one if they cannot be compared; None of none."""
    try:
        return rank(finished)[0].runs[0].folder if finished else None
    except UserError:
        return finished[0].folder


def _print_comparison(sweep: Sweep, out: Path) -> bool:
    """Print the finished runs of a folder as one table, the baselines among them, and name the best one.

    Intervals are Wilson's, of an accuracy on so many examples. Prints why if the runs cannot be compared;
    returns whether they can.
    """
    runs = [run for path in sorted(out.glob("*/*/seed*")) if (run := Run.at(path)) is not None]
    try:
        groups = rank(run for run in runs if (run.read_manifest() or {}).get("status") == "finished")
    except UserError as error:
        print(f"\nNo table of all methods: {error}.")
        return False
    if not groups:
        return False
    metric, subsets = groups[0].metric, list(groups[0].scores)
    majorities = {subset: one for subset, one in sweep.majorities.items() if one.metric == metric}

    def cell(subset: str, value: float | None) -> str:
        if value is None:
            return "-"
        if (one := majorities.get(subset)) is None or metric == "rmse":
            return number(value, metric)
        low, high = (number(bound, metric) for bound in _interval(value, one))
        return f"{number(value, metric)} [{low}, {high}]"

    rows = [
        [
            group.runs[0].arm, group.runs[0].init, str(len(group.runs)),
            *(cell(subset, group.scores.get(subset)) for subset in subsets), duration(group.seconds),
        ]
        for group in groups
    ]  # fmt: skip
    if majorities:
        shown = [number(majorities[name].value, metric) if name in majorities else "-" for name in subsets]
        name = "majority class" if metric == "accuracy" else next(iter(majorities.values())).name
        rows.append([name, "-", "-", *shown, "-"])
    sizes = ", ".join(f"{subset}: {majorities[subset].examples:,}" for subset in subsets if majorities)
    intervals = f" with 95 % intervals ({sizes} examples)" if sizes else ""
    print(f"\nAll methods, mean {metric} over the seeds{intervals}:")
    print(table(["method", "weights", "seeds", *subsets, "time"], rows))
    best = groups[0].runs[0]
    print(f"\nBest on {groups[0].subset}: {shown_path(best.folder)}", flush=True)
    return True


def _print_next(out: Path, model: Path | None, data: Path) -> None:
    """Print the next commands, to copy: tables and curves of `out`, and predictions of `model`."""
    folder = shlex.quote(shown_path(out))
    print(f"\nNext:\n  roberta-small tables {folder}\n  tensorboard --logdir {folder}", flush=True)
    if model is not None and (model == out or find_checkpoint(model) or (model / TFIDF).is_file()):
        text = '"..." "..."' if (data / "input1").is_dir() else '"..."'
        predict = f"  roberta-small predict --checkpoint {shlex.quote(shown_path(model))}"
        print(f"{predict} {text}", flush=True)
        if inputs.subset_flags(data):
            print(f"{predict} --input test.csv --out predictions.csv", flush=True)


def _print_means(finished: Mapping[Run, Progress], recipe: Recipe, columns: Sequence[str]) -> None:
    """Print mean and sample standard deviation over the seeds, if there are several seeds."""
    groups: dict[str, list[Run]] = {}
    for run in finished:
        groups.setdefault(run.group, []).append(run)
    if all(len(runs) < 2 for runs in groups.values()):
        return
    heading, names = _names([runs[0] for runs in groups.values()])
    rows = []
    for cells, runs in zip(names, groups.values(), strict=True):
        found = [finished[run] for run in runs]
        values = [[math.nan if progress.best is None else progress.best for progress in found]]
        for subset in recipe.valid_subsets[1:]:
            values.append([progress.at_best.get(subset, math.nan) for progress in found])
        means = [mean_std_cell(*mean_std(column), recipe.metric) for column in values]
        rows.append([*cells[:-1], str(len(runs)), *means])
    print("\nmean ± sample standard deviation over the seeds:")
    print(table([*heading[:-1], "seeds", *columns], rows))


def _interval(value: float, one: inputs.Majority) -> tuple[float, ...]:
    """The 95 % interval of an accuracy (Wilson's) or a correlation (Fisher's)."""
    if one.metric == "accuracy":
        return tuple(100 * bound for bound in wilson_interval(value / 100, one.examples))
    z, half = math.atanh(max(-0.9999, min(value, 0.9999))), 1.96 / math.sqrt(max(one.examples - 3, 0.01))
    return math.tanh(z - half), math.tanh(z + half)


def _print_chance(finished: Mapping[Run, Progress], sweep: Sweep) -> None:
    """Warn of runs that are no better than always predicting the majority class, or the mean."""
    subset = sweep.recipe.valid_subsets[0]
    one = sweep.majorities.get(subset)
    if one is None or sweep.recipe.metric != one.metric:
        return
    useless = {
        "accuracy": lambda value: value <= one.value + ROUNDING,
        "pearson": lambda value: _interval(value, one)[0] <= 0,
        "rmse": lambda value: value >= one.value,
    }[one.metric]
    if found := [run.label for run, made in finished.items() if made.best is not None and useless(made.best)]:
        accuracy = one.metric == "accuracy"
        what, advice = f"'{one.name}'" if accuracy else f"the {one.name}", ""
        if "--lr" in sweep.recipe.flags:  # not of a linear model, which has one optimum
            advice = "; train longer or with a higher rate (--epochs N --lr R)"
            if accuracy:
                advice += (
                    ", and for rare classes add -- --class-weights balanced --best-checkpoint-metric macro_f1"
                )
        print(
            f"\nwarning: {enumerate_some(found)}: no better than always predicting {what}, which gives "
            f"{number(one.value, one.metric)} on {subset} ({one.examples:,} examples){advice}"
        )


def _names(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """The heading of the columns that name runs, and the cells of each run; the last one is the seed."""
    grid = any(run.setting for run in runs)
    heading = [*(["setting"] if grid else []), "init", "seed"]
    return heading, [
        [*([run.setting or RECIPE_ITSELF] if grid else []), run.init, str(run.seed)] for run in runs
    ]


def tail(log: Path, lines: int = FAILURE_LINES) -> list[str]:
    """The last lines of a log; only the last one if it is an error message. Empty without a log."""
    if not log.is_file():
        return []
    shown = log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    if shown and shown[-1].startswith("error: "):  # the format of common.errors
        return shown[-1:]
    return [line if len(line) <= FAILURE_WIDTH else f"{line[:FAILURE_WIDTH]} ..." for line in shown]


def table(header: list[str], rows: list[list[str]]) -> str:
    """A text table with aligned columns."""
    return "\n".join(text_table([header, *rows]))
