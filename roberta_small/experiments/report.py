"""The tables that a command prints before and after its runs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
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
FINISHED = "finished"
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
    rows = [[*names, state.action] for names, state in zip(_names(runs), planned, strict=True)]
    print(table([*_heading(runs), "state"], rows))
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

    `compare`: also the table of all methods in the folder of the runs, and which run is the best one.

    The table contains the best value of the metric on the first validation subset, and those on the other
    subsets at the same epoch. For a sweep, the means over the seeds and the next commands follow.
    """
    recipe, runs = sweep.recipe, [state.run for state in planned]
    reached = {
        run: outcomes[run].progress if run in outcomes else read_log(run.folder / LOG, training.recipe)
        for run, training in zip(runs, sweep.trainings, strict=True)
    }
    statuses = {state.run: _status(state, outcomes) for state in planned}
    others = recipe.valid_subsets[1:]
    rows = []
    for names, run in zip(_names(runs), runs, strict=True):
        outcome, progress = outcomes.get(run), reached[run]
        tests = [progress.at_best.get(subset) for subset in others]
        rows.append(
            [
                *names,
                statuses[run],
                str(progress.epoch),
                "-" if progress.best is None else f"{progress.best:.4g}",
                "-" if progress.best_epoch is None else str(progress.best_epoch),
                *("-" if value is None else number(value, recipe.metric) for value in tests),
                duration(outcome.seconds) if outcome and outcome.seconds is not None else "–",
            ]
        )
    best, test = f"best valid {recipe.metric}", [f"{subset} {recipe.metric}" for subset in others]
    print("\n" + table([*_heading(runs), "status", "epochs", best, "at epoch", *test, "time"], rows))
    finished = {run: reached[run] for run in runs if statuses[run] == FINISHED}
    if sweep.out is not None:
        _print_means(finished, recipe, [best, *test])
    _print_chance(finished, sweep)
    failures = [outcome for outcome in outcomes.values() if outcome.problem]
    for outcome in failures:
        _print_failure(outcome)
    if sweep.out is not None and (finished or compare):
        named = compare and _print_comparison(sweep, sweep.out)
        _print_next(sweep.out, sweep.out if named else _best_folder(finished), sweep.data)
    return 1 if failures else 0


def _best_folder(finished: Iterable[Run]) -> Path | None:
    """The folder of the best of these runs, or of the first one if they cannot be compared; None of none."""
    runs = list(finished)
    try:
        return rank(runs)[0].runs[0].folder if runs else None
    except UserError:
        return runs[0].folder


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
    majorities = sweep.majorities if metric == "accuracy" else {}

    def cell(subset: str, value: float | None) -> str:
        if value is None:
            return "-"
        if (size := majorities.get(subset)) is None:
            return number(value, metric)
        low, high = (number(100 * bound, metric) for bound in wilson_interval(value / 100, size.examples))
        return f"{number(value, metric)} [{low}, {high}]"

    rows = [
        [
            group.runs[0].arm, group.runs[0].init, str(len(group.runs)),
            *(cell(subset, group.scores.get(subset)) for subset in subsets), duration(group.seconds),
        ]
        for group in groups
    ]  # fmt: skip
    if majorities:
        shown = [number(majorities[subset].percent, metric) for subset in subsets]
        rows.append(["majority class", "-", "-", *shown, "-"])
    sizes = ", ".join(f"{subset}: {majorities[subset].examples:,}" for subset in subsets if majorities)
    intervals = f" with 95 % intervals ({sizes} examples)" if sizes else ""
    print(f"\nAll methods, mean {metric} over the seeds{intervals}:")
    print(table(["method", "weights", "seeds", *subsets, "time"], rows))
    best = groups[0].runs[0]
    print(f"\nBest on {groups[0].subset}: {shown_path(best.folder)}", flush=True)
    return True


def _status(state: Planned, outcomes: Mapping[Run, Outcome]) -> str:
    """The status of a run in the final table."""
    if (outcome := outcomes.get(state.run)) is not None:
        return "failed" if outcome.problem else FINISHED
    return FINISHED if state.state is State.FINISHED else "not finished"


def _print_next(out: Path, model: Path | None, data: Path) -> None:
    """Print the commands after training, to copy: tables and curves of `out`, and a prediction of `model`.

    Of data without a test set, also the predictions of a file without labels.
    """
    folder = shlex.quote(shown_path(out))
    print(f"\nNext:\n  roberta-small tables {folder}\n  tensorboard --logdir {folder}", flush=True)
    if model is not None and (model == out or find_checkpoint(model) or (model / TFIDF).is_file()):
        text = '"..." "..."' if (data / "input1").is_dir() else '"..."'
        predict = f"  roberta-small predict --checkpoint {shlex.quote(shown_path(model))}"
        print(f"{predict} {text}", flush=True)
        if inputs.subset_flags(data):
            print(f"{predict} --input test.csv --out predictions.csv", flush=True)


def _print_means(finished: Mapping[Run, Progress], recipe: Recipe, heading: Sequence[str]) -> None:
    """Print mean and sample standard deviation over the seeds, if there are several seeds."""
    groups: dict[str, list[Run]] = {}
    for run in finished:
        groups.setdefault(run.group, []).append(run)
    if all(len(runs) < 2 for runs in groups.values()):
        return
    first = [runs[0] for runs in groups.values()]
    rows = []
    for names, runs in zip(_names(first), groups.values(), strict=True):
        found = [finished[run] for run in runs]
        values = [[math.nan if progress.best is None else progress.best for progress in found]]
        for subset in recipe.valid_subsets[1:]:
            values.append([progress.at_best.get(subset, math.nan) for progress in found])
        cells = [mean_std_cell(*mean_std(column), recipe.metric) for column in values]
        rows.append([*names[:-1], str(len(runs)), *cells])
    print("\nmean ± sample standard deviation over the seeds:")
    print(table([*_heading(first)[:-1], "seeds", *heading], rows))


def _print_chance(finished: Mapping[Run, Progress], sweep: Sweep) -> None:
    """Warn of runs that are no better than always predicting the majority class."""
    subset = sweep.recipe.valid_subsets[0]
    majority = sweep.majorities.get(subset)
    if majority is None or sweep.recipe.metric != "accuracy":
        return
    useless = [
        run.label
        for run, progress in finished.items()
        if progress.best is not None and progress.best <= majority.percent + ROUNDING
    ]
    if useless:
        print(
            f"\nwarning: {enumerate_some(useless)}: no better than always predicting '{majority.name}', "
            f"which gives {majority.percent:.2f} on {subset}; train longer or with a higher rate "
            "(--epochs N --lr R), and for rare classes add -- --class-weights balanced "
            "--best-checkpoint-metric macro_f1"
        )


def _heading(runs: Sequence[Run]) -> list[str]:
    return [*(["setting"] if any(run.setting for run in runs) else []), "init", "seed"]


def _names(runs: Sequence[Run]) -> list[list[str]]:
    """For each run, the cells of the columns in `_heading`."""
    grid = any(run.setting for run in runs)
    return [[*([run.setting or RECIPE_ITSELF] if grid else []), run.init, str(run.seed)] for run in runs]


def _print_failure(outcome: Outcome) -> None:
    """Print why a run is not finished: the problem and the end of its log."""
    log = outcome.run.folder / LOG
    lines = tail(log)
    heading = f". The end of {shown_path(log)}:" if lines else ""
    print(f"\n{outcome.run.label} failed: {outcome.problem}{heading}")
    for line in lines:
        print(f"    {line}")


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
