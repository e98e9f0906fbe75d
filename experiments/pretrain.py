"""pretrain.sh: trains a masked or causal language model and writes a checkpoint for fine-tuning.

The recipe selects the model; both kinds read the same data.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path

from roberta_small.common.data_folder import shards_of
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write
from roberta_small.common.run import Run, State
from roberta_small.experiments import inputs, plan, provenance, recipes, report
from roberta_small.experiments.launchers.local import Runner, locked
from roberta_small.experiments.methods import architecture, fairseq, fairseq_flags
from roberta_small.experiments.plan import Job
from roberta_small.experiments.recipes import Recipe
from roberta_small.experiments.settings import PretrainSettings

WARMUP_FRACTION = 0.06
"""Fraction of all updates, as in the fine-tuning of RoBERTa (Liu et al. 2019, appendix C)."""
WITH_TOTAL = ("polynomial_decay",)
"""Schedules of fairseq with --total-num-update."""
WITH_WARMUP = (*WITH_TOTAL, "fixed", "inverse_sqrt", "cosine", "reduce_lr_on_plateau", "step")
"""Schedules of fairseq with --warmup-updates."""
UPDATE_FLAGS = ("--total-num-update", "--warmup-updates", "--end-learning-rate", "--power", "--force-anneal")
"""Flags of schedules over updates, which a schedule over time does not have."""


def pretrain(settings: PretrainSettings, trainer: Sequence[str] = fairseq.TRAINER) -> int:
    """Check the settings, train the model and write OUT/model.pt; returns the exit code.

    Raises `UserError` before the training starts.
    """
    inputs.require_fairseq()
    recipe = recipes.load(settings.recipe, (*settings.passthrough, *process_flags(settings.processes)))
    recipe = with_budget(recipe, settings.tokens, settings.hours)
    files = inputs.masked_lm_files(settings.data, ["train", *recipe.valid_subsets])
    if settings.start is not None:
        inputs.require_checkpoint(settings.start, "--start")
    inputs.require_writable(settings.out)
    notes: list[str] = []
    if tuple(trainer) == fairseq.TRAINER:
        recipe, notes = with_architecture(recipe, settings)
        if settings.passthrough:
            fairseq_flags.check(recipe.words)
    machine = provenance.machine(settings.device, processes=settings.processes)
    identity = {
        "data": inputs.fingerprint_data(settings.data, files),
        "checkpoint": inputs.fingerprint_checkpoint(settings.start),
        "recipe_flags": list(recipe.words),
    }
    init = "random" if settings.start is None else settings.start.stem
    run = Run(settings.out, "pretrain", init, settings.seed, settings.start)

    def planned_job() -> Job:
        planned = plan.inspect(run, identity, recipe)
        return fairseq.build(planned, settings.data, recipe.words, cpu=machine.cpu, trainer=trainer)

    if settings.dry_run:
        return report.dry_run([planned_job()], machine, notes)
    with locked(settings.out) as lock:
        job = planned_job()
        report.plan_table([job], notes)
        static = provenance.static(machine)
        runner = Runner(
            slots=1,
            machine=machine,
            recipe=recipe,
            record=lambda job: provenance.describe(job, recipe) | identity | static,
            lock=lock,
            finish=lambda run: export(run.folder, settings.data),
        )
        outcomes = runner.run([job] if job.planned.state is not State.FINISHED else [])
    return report.summary([job], outcomes, recipe)


def with_architecture(recipe: Recipe, settings: PretrainSettings) -> tuple[Recipe, list[str]]:
    """The recipe with the architecture of the initial checkpoint, and notes for the plan.

    Raises `UserError` as `architecture.fit` does.
    """
    places = architecture.places_of(settings.recipe, settings.passthrough)
    fitted = architecture.fit({"": recipe}, places, {"--start": settings.start})
    return recipe.replace(fitted.flags.get("", {}).get("--start", ())), fitted.notes.get("", [])


def process_flags(processes: int) -> tuple[str, ...]:
    """Flags of fairseq for a run with several data-parallel processes."""
    return ("--distributed-world-size", str(processes)) if processes > 1 else ()


def with_budget(recipe: Recipe, tokens: int | None, hours: float | None = None) -> Recipe:
    """The recipe with a length of the training: `tokens`, `hours`, or --max-update of the recipe.

    Raises `UserError` unless exactly one of them is given.
    """
    if sum(given is not None for given in (tokens, hours, recipe.number("--max-update"))) != 1:
        raise UserError(
            "set the length of the training in exactly one way: --tokens, --hours, or --max-update (in "
            "the recipe or after --)"
        )
    if hours is not None:
        return for_hours(recipe, hours)
    return recipe if tokens is None else for_tokens(recipe, tokens)


def for_hours(recipe: Recipe, hours: float) -> Recipe:
    """The recipe with a schedule over wall-clock time (`fairseq_plugin/training/time_budget.py`).

    Raises `UserError` if the recipe has flags of a schedule over updates.
    """
    if unusable := [flag for flag in UPDATE_FLAGS if recipe.value(flag) is not None]:
        raise UserError(
            f"--hours: cannot be combined with {' '.join(unusable)}, because the learning rate depends on "
            "elapsed time; remove one of them"
        )
    return recipe.replace(("--lr-scheduler", "time_budget", "--stop-time-hours", f"{hours:g}"))


def for_tokens(recipe: Recipe, tokens: int) -> Recipe:
    """The recipe with the number of updates that train on `tokens` tokens, rounded up.

    Adds --total-num-update and --warmup-updates (`WARMUP_FRACTION` of the updates) if the schedule has them
    and the recipe does not set them. Raises `UserError` if the warm-up takes all updates.
    """
    per_update = tokens_per_update(recipe)
    updates = math.ceil(tokens / per_update)
    words = ["--max-update", str(updates)]
    schedule = recipe.value("--lr-scheduler") or "fixed"  # fairseq's default
    if recipe.value("--total-num-update") is None and schedule in WITH_TOTAL:
        words += ["--total-num-update", str(updates)]
    warmup = recipe.number("--warmup-updates")
    if warmup is None and schedule in WITH_WARMUP:
        words += ["--warmup-updates", str(math.ceil(WARMUP_FRACTION * updates))]
    elif warmup is not None and warmup >= updates:
        raise UserError(
            f"--tokens {tokens} gives {updates} updates, not more than --warmup-updates {warmup}; "
            f"raise --tokens or lower --warmup-updates"
        )
    total = updates * per_update
    print(f"{tokens:,} tokens at {per_update:,} per update: {updates:,} updates ({total:,} tokens)\n")
    return recipe.replace(words)


def tokens_per_update(recipe: Recipe) -> int:
    """Tokens per update over all processes, with full batches; the last batch of an epoch may be smaller.

    Raises `UserError` if the recipe lacks --batch-size or --tokens-per-sample.
    """
    required = {flag: recipe.number(flag) for flag in ("--batch-size", "--tokens-per-sample")}
    factors = []
    for flag, value in required.items():
        if not value:
            raise UserError(
                f"recipe '{recipe.name}': --tokens requires {flag}; add it, or use --max-update instead"
            )
        factors.append(value)
    factors += [recipe.number(flag) or 1 for flag in ("--update-freq", "--distributed-world-size")]
    return math.prod(factors)


def export(folder: Path, data: Path) -> None:
    """Write model.pt (weights and configuration of checkpoint_best.pt) and dict.txt into `folder`."""
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # fairseq logs hints when it is imported
    from roberta_small.fairseq_plugin.checkpoints.loading import save_weights  # imports torch

    save_weights(folder / "checkpoint_best.pt", folder / "model.pt")
    atomic_write(folder / "dict.txt", (shards_of(data)[0] / "dict.txt").read_bytes())
