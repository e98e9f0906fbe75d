"""The tables that a command prints before and after its runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from common.cpu import environment
from common.files import shown_path
from common.run import LOG, Run, State
from common.tables import text_table

from .launchers.local import Outcome
from .plan import Job
from .progress import duration, read_log
from .provenance import Machine
from .recipes import Recipe

FAILURE_LINES = 15
FAILURE_WIDTH = 200
"""Characters shown of each line; fairseq logs its whole configuration in one line."""
RECIPE_ITSELF = "as the recipe"


def plan_table(jobs: Sequence[Job], notes: Sequence[str] = ()) -> None:
    """Print the runs with their state before the start, their initial checkpoints, and `notes`."""
    planned = [job.planned for job in jobs]
    runs = [p.run for p in planned]
    rows = [[*names, p.action] for names, p in zip(_names(runs), planned, strict=True)]
    print(table([*_heading(runs), "state"], rows))
    checkpoints = {run.init: run.checkpoint for run in runs if run.checkpoint is not None}
    for init, checkpoint in checkpoints.items():
        print(f"{init}: {shown_path(checkpoint)}")
    for note in notes:
        print(note)
    if all(p.state is State.FINISHED for p in planned):
        print("All runs are finished: nothing to do.")
    print(flush=True)


def dry_run(jobs: Sequence[Job], machine: Machine, notes: Sequence[str] = ()) -> int:
    """Print the plan and the commands without starting a run. Returns the exit code."""
    plan_table(jobs, notes)
    variables = " ".join(f"{name}={value}" for name, value in environment(machine.threads).items())
    print(f"export {variables}")
    for job in jobs:
        if job.planned.to_train:
            print(f"\n# {job.planned.run.label}\n{shlex.join(job.shown)}")
    return 0


def summary(jobs: Sequence[Job], outcomes: Sequence[Outcome], recipe: Recipe) -> int:
    """Print the final table and the cause of each failure. Returns the exit code."""
    ended = {outcome.run: outcome for outcome in outcomes}
    runs = [job.planned.run for job in jobs]
    rows = []
    for names, planned in zip(_names(runs), (job.planned for job in jobs), strict=True):
        outcome = ended.get(planned.run)
        progress = (
            outcome.progress if outcome else read_log(planned.run.folder / LOG, planned.progress.recipe)
        )
        rows.append(
            [
                *names,
                outcome.status if outcome else "finished",
                str(progress.epoch),
                "-" if progress.best is None else f"{progress.best:.4g}",
                "-" if progress.best_epoch is None else str(progress.best_epoch),
                duration(outcome.seconds) if outcome else "skipped",
            ]
        )
    heading = [*_heading(runs), "status", "epochs", f"best valid {recipe.metric}", "at epoch", "time"]
    print("\n" + table(heading, rows))
    failures = [outcome for outcome in outcomes if outcome.problem]
    for outcome in failures:
        _print_failure(outcome)
    return 1 if failures else 0


def _heading(runs: Sequence[Run]) -> list[str]:
    return [*(["setting"] if any(run.setting for run in runs) else []), "init", "seed"]


def _names(runs: Sequence[Run]) -> list[list[str]]:
    """For each run, the cells of the columns in `_heading`."""
    grid = any(run.setting for run in runs)
    return [[*([run.setting or RECIPE_ITSELF] if grid else []), run.init, str(run.seed)] for run in runs]


def _print_failure(outcome: Outcome) -> None:
    """Print why a run is not finished: the problem and the end of its log."""
    if outcome.stopped:
        print(f"\n{outcome.run.label} is not finished: {outcome.problem}. The same command resumes it.")
        return
    log = outcome.run.folder / LOG
    print(f"\n{outcome.run.label} failed: {outcome.problem}. The end of {shown_path(log)}:")
    for line in tail(log):
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
