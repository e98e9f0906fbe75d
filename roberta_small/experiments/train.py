"""The commands `train`, `pretrain` and `lora-causal`, in their steps: parse, prepare, plan, execute.

`--data NAME=PATH NAME=PATH ...` trains several data sets with the same settings; the runs of each are written
to OUT/NAME (`common.run`). Every step is done for all data sets before the next one begins, so that the
first run starts when all data sets have been checked.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roberta_small.common.cli import PREFIX, SettingsParser, load_extensions
from roberta_small.common.errors import UserError, count, message_of
from roberta_small.common.files import shown_path
from roberta_small.common.run import BEST_CHECKPOINT, State, is_named, split_named
from roberta_small.experiments import methods, slurm
from roberta_small.experiments.inputs import prepare
from roberta_small.experiments.inputs.prepare import Source
from roberta_small.experiments.methods import Method
from roberta_small.experiments.methods.fairseq import Fairseq
from roberta_small.experiments.recipe import recipe
from roberta_small.experiments.settings import HYPERPARAMETERS, REFERENCE, SweepSettings
from roberta_small.experiments.sweep import Sweep, Training

OTHER_NAMES = {
    "--num-train-epochs": "--epochs",
    "--learning-rate": "--lr",
    "--max-seq-length": "--max-length",
    "--batch_size": "--batch-size",
}
"""What other programs call hyperparameters -> the options here."""
NGRAMS = "ngrams"
"""The recipe of the classifier of token n-grams, a baseline, and the name of its runs."""
Fits = tuple[Method, Sweep]
"""Runs that come before those of a sweep, and their method."""


def train(argv: Sequence[str], trainer: Sequence[str] = ()) -> int:
    """The command `train`; --method is parsed first. `trainer` replaces fairseq-train in tests."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--method", nargs="?")
    name = first.parse_known_args(list(argv[: argv.index("--")] if "--" in argv else argv))[0].method
    if name is None:
        name = os.environ.get(f"{PREFIX}METHOD") or methods.DEFAULT
    load_extensions()  # they may register the method
    method = Fairseq(trainer) if name == "fairseq" and trainer else methods.find(name)
    parser = SettingsParser(
        prog="roberta-small train",
        usage="roberta-small train [--method NAME] [options] [-- options of fairseq-train]",
        description=method.summary,
    )
    parser.add_setting(
        "method",
        methods.DEFAULT,
        f"{', '.join(methods.REGISTERED)} or package.module:OBJECT for a method outside the project",
    )
    method.add_arguments(parser)
    parser.hints = _hints(tuned=True)
    if not parser.has("--lr"):
        parser.hints = dict.fromkeys(parser.hints, f"the method {method.name} has no such hyperparameter")
    listed = f"methods (--method NAME --help shows the options of each):\n{methods.summaries()}"
    parser.description = f"{parser.description}\n\n{listed}"
    options = parser.parse_settings(slurm.join_value(argv), os.environ)
    return run(method, options, ["train", *argv])


def pretrain(argv: Sequence[str], trainer: Sequence[str] = ()) -> int:
    """The command `pretrain`; `trainer` replaces fairseq-train in tests."""
    from roberta_small.experiments.methods.pretrain import METHOD, Pretrain

    method = Pretrain(trainer) if trainer else METHOD
    parser = SettingsParser(
        prog="roberta-small pretrain",
        usage="roberta-small pretrain [options] [-- options of fairseq-train]",
    )
    method.add_arguments(parser)
    parser.hints = _hints(tuned=False)
    options = parser.parse_settings(slurm.join_value(argv), os.environ)
    parser.require(options, "data", "out")
    return run(method, options, ["pretrain", *argv])


def lora_causal(argv: Sequence[str]) -> int:
    """The command `lora-causal`; with --sample it only writes the sample."""
    from roberta_small.experiments.methods.lora.causal import METHOD

    parser = SettingsParser(prog="roberta-small lora-causal")
    METHOD.add_arguments(parser)
    options = parser.parse_settings(slurm.join_value(argv), os.environ)
    if options.sample is not None:
        from roberta_small.experiments.methods.lora import sample

        sample.write(options.sample)
        print(f"{options.sample}: faq.json and bloom/")
        return 0
    parser.require(options, "data")
    return run(METHOD, options, ["lora-causal", *argv])


def run(method: Method, options: argparse.Namespace, command: Sequence[str]) -> int:
    """Train the runs of a command for its data sets; returns the exit code.

    `command` are the words of the command, for SLURM. Raises `UserError` before the first run starts.
    """
    by_name = data_sets(options)
    if len(by_name) > 1:
        print(f"{count(len(by_name), 'data set')}: all are checked before the first run", flush=True)
    settings, sweeps, before, extra = {}, {}, {}, {}
    for name, own in by_name.items():
        with _naming(name):
            settings[name] = method.settings(own)
    for name, values in settings.items():
        with _naming(name):
            sweep, before[name] = _from_fitted_heads(method, method.sweep(values, method.prepare(values)))
            extra[name], notes = _baselines(method, sweep, fitted=before[name] is not None)
            sweeps[name] = replace(sweep, notes=(*sweep.notes, *notes))
    (first, sweep), *others = sweeps.items()
    for name, other in others:
        if list(other.inits) != list(sweep.inits):
            raise UserError(
                f"the initializations differ: {', '.join(sweep.inits)} for {first}, but "
                f"{', '.join(other.inits)} for {name} (the shipped weights have the dictionary of one of "
                "them only); choose with --inits or --pretrained"
            )
    if sweep.settings.slurm is not None:
        return _submit(method, sweeps, Path(options.out), command)
    if sweep.settings.dry_run:
        from roberta_small.experiments import execute  # not at the top, so that --help stays fast

        for name, sweep in sweeps.items():
            _print_heading(name, sweep)
            execute.dry_run(method, sweep, before[name])
        return 0
    return _execute(method, sweeps, before, extra, Path(options.out))


def _from_fitted_heads(method: Method, sweep: Sweep) -> tuple[Sweep, Fits | None]:
    """The sweep, with the checkpoints of fitted heads (`Training.fits_head`), and the runs that fit these."""
    inits = {one.run.init: sweep.inits[one.run.init] for one in sweep.trainings if one.fits_head}
    if not inits or not isinstance(method, Fairseq):
        return sweep, None
    from roberta_small.experiments.methods.frozen.method import VECTORS  # slow to import

    frozen, fits = before = _frozen(sweep, inits)

    def key(training: Training) -> tuple[Any, ...]:
        return training.run.init, *(training.recipe.flags.get(flag) for flag in VECTORS)

    found = {key(training): training.run.folder / BEST_CHECKPOINT for training in fits.trainings}
    trainings = tuple(
        replace(one, run=replace(one.run, checkpoint=found[key(one)])) if one.fits_head else one
        for one in sweep.trainings
    )
    note = f"{', '.join(inits)}: fine-tuning starts from the linear classifier of {frozen.name}, fitted first"
    return replace(sweep, trainings=trainings, notes=(*sweep.notes, note)), before


def _frozen(sweep: Sweep, inits: Mapping[str, Path | None]) -> Fits:
    """The linear classifiers of encoders, for the vectors that the runs of a sweep have."""
    from roberta_small.experiments.methods.frozen.method import METHOD as FROZEN

    alone = replace(sweep.settings, source=Source(str(sweep.data)), given=inits)
    return FROZEN, FROZEN.sweep(FROZEN.of_sweep(alone), sweep.data)


def _baselines(method: Method, sweep: Sweep, *, fitted: bool) -> tuple[list[Fits], list[str]]:
    """The baselines, if the settings ask for them, and lines for the plan; not frozen if it is `fitted`."""
    settings = sweep.settings
    if not isinstance(settings, SweepSettings) or not settings.baselines:
        return [], []
    if settings.slurm is not None:
        return [], ["baselines: not submitted; without --slurm, the same command fits them"]
    from roberta_small.experiments.methods.tfidf.method import METHOD as TFIDF
    from roberta_small.experiments.methods.tfidf.method import Features, TfidfSettings

    folder = Source(str(sweep.data))
    tfidf = TfidfSettings(out=settings.out, device="cpu", source=folder, text=None, features=Features())
    planned: dict[str, Callable[[], Fits]] = {
        TFIDF.name: lambda: (TFIDF, TFIDF.sweep(tfidf, TFIDF.prepare(tfidf)))
    }
    if (pretrained := settings.given.get("pretrained")) is not None and not fitted:
        planned["frozen"] = lambda: _frozen(sweep, {"pretrained": pretrained})
    found: list[Fits] = []
    notes = []
    for name, plan in planned.items():
        try:
            found.append(plan())
        except UserError as error:
            notes.append(f"baseline {name}: left out ({error})")
    trainer = method if isinstance(method, Fairseq) else Fairseq()
    ngrams = replace(
        settings, source=folder, recipe=NGRAMS, arm=NGRAMS, passthrough=(), grid={}, given={"random": None},
        shipped=False, device="cpu", baselines=False,
    )  # fmt: skip
    found.append((trainer, trainer.sweep(ngrams, sweep.data)))
    names = ", ".join(one.trainings[0].run.method for _, one in found)
    return found, [f"baselines: {names} (--no-baselines leaves them out)", *notes]


def _hints(*, tuned: bool) -> dict[str, str]:
    """What to write for flags of fairseq-train and of other programs; `tuned`: with `HYPERPARAMETERS`."""
    ours = {f"--{name}": flag for name, (flag, _) in HYPERPARAMETERS.items()}
    flags = {flag: flag for name in ("reference", "pretrain") for flag in recipe.load(name).flags}
    other = {name: ours[option] for name, option in OTHER_NAMES.items()}
    hints = {
        name: f"hyperparameters are options of fairseq-train: -- {flag} VALUE"
        for name, flag in {**flags, **ours, **other}.items()
    }
    return hints | ({name: f"write {option}" for name, option in OTHER_NAMES.items()} if tuned else {})


def data_sets(options: argparse.Namespace) -> dict[str, argparse.Namespace]:
    """Name -> the options for this data set alone; the name is "" for one data set without a name.

    Raises `UserError` for several data sets without names, for names as `common.run.split_named`, and for
    files of other splits, which belong to one data set.
    """
    given = {}
    for name in ("data", "text"):  # the options that take data sets
        if (value := getattr(options, name, None)) is not None:
            words = value if isinstance(value, list) else value.split() if is_named(value) else [value]
            # A single value is split only if every part is NAME=PATH, as in RS_DATA.
            given[name] = words if isinstance(value, list) or all(map(is_named, words)) else [value]
    named = {name: words for name, words in given.items() if len(words) > 1 or is_named(words[0])}
    if not named:
        return {"": options}
    if len(given) > 1:
        raise UserError(f"{' and '.join(f'--{name}' for name in given)} are both given; pass one of them")
    ((option, words),) = named.items()
    for word in words:
        if not is_named(word):
            raise UserError(
                f"--{option}: '{word}' has no name, but there are {count(len(words), 'data set')}; write "
                "NAME=PATH for each"
            )
    from roberta_small.preprocess.dataset import is_source  # not at the top, so that --help stays fast

    for name in ("valid", "test", "soft_labels"):
        value = getattr(options, name, None)
        if value is not None and (name == "soft_labels" or is_source(value)):
            raise UserError(
                f"--{name.replace('_', '-')} {value}: a file belongs to one data set; prepare each data set "
                "with `roberta-small prepare`, and pass the folders"
            )
    paths = split_named(f"--{option}", words)
    common = vars(options)
    if hasattr(options, "no_baselines") and len({prepare.is_source(path) for path in paths.values()}) > 1:
        # Files and folders have other defaults, but the data sets of a command have the same settings.
        common = common | {"recipe": options.recipe or REFERENCE, "no_baselines": True}
    return {
        name: argparse.Namespace(**common | {option: path, "out": str(Path(options.out) / name)})
        for name, path in paths.items()
    }


def _execute(
    method: Method,
    sweeps: Mapping[str, Sweep],
    before: Mapping[str, Fits | None],
    extra: Mapping[str, Sequence[Fits]],
    out: Path,
) -> int:
    """Train the data sets, each after its fits and baselines; one that fails does not stop the others."""
    from roberta_small.experiments import execute, report

    limit = next(iter(sweeps.values())).settings.max_runs
    problems: dict[str, str] = {}
    # A task of a job array begins with the data set that has its run, at this position among all runs.
    task = os.environ.get(slurm.TASK, "")
    names, first = list(sweeps), int(task) if limit is not None and task.isdigit() else 0
    first %= sum(len(sweep.trainings) for sweep in sweeps.values())
    while first >= len(sweeps[names[0]].trainings):
        first -= len(sweeps[names[0]].trainings)
        names = [*names[1:], names[0]]
    for index, name in enumerate(names):
        sweep = sweeps[name]
        if limit == 0:
            break
        _print_heading(name, sweep)
        try:
            code, started = execute.execute(
                method,
                sweep,
                first=0 if index else first,
                max_runs=limit,
                before=before[name],
                baselines=extra[name],
            )
        except Exception as error:
            message = message_of(error)
            if message is None or not name:
                raise
            print(f"{name}: {message}", file=sys.stderr, flush=True)
            problems[name] = message
            continue
        if limit is not None:
            limit -= started
        if code:
            problems[name] = f"exit code {code}; the cause is printed above"
    if "" not in sweeps:
        rows = [
            [name, shown_path(sweep.settings.out), "FAILED" if name in problems else "finished"]
            for name, sweep in sweeps.items()
        ]
        print("\n" + report.table(["data set", "runs in", "status"], rows))
        for name, problem in problems.items():
            print(f"{name}: {problem}")
        print(f"\nNext, over all data sets:\n  roberta-small tables {shown_path(out)}", flush=True)
    return 1 if problems else 0


def _submit(method: Method, sweeps: Mapping[str, Sweep], out: Path, command: Sequence[str]) -> int:
    """Submit the unfinished runs of all data sets as one job array; returns the exit code.

    With --wait among the options of sbatch, prints the table of the runs when all tasks have ended.
    """
    from roberta_small.experiments import execute, report

    settings = next(iter(sweeps.values())).settings
    states, positions = {}, []
    for name, sweep in sweeps.items():
        _print_heading(name, sweep)
        states[name] = execute.planned(method, sweep)
        report.plan_table(states[name], sweep.notes)
    for position, state in enumerate(state for found in states.values() for state in found):
        positions += [position] if state.to_train else []
    if not positions:
        return 0
    words = slurm.task_words(command, *(("--max-runs", "1", "--jobs", "1") if command[0] == "train" else ()))
    if settings.dry_run:
        call = shlex.join(slurm.words(settings.slurm, out, positions))
        print(f"submitted as one job array:\n{call} <<'END'\n{slurm.script(words)}END")
        return 0
    slurm.submit(words, settings.slurm, out, positions)
    if "--wait" not in settings.slurm and "-W" not in settings.slurm:
        print(f"When its tasks have ended: roberta-small tables {shown_path(out)}")
        return 0
    found = [execute.planned(method, sweep) for sweep in sweeps.values()]
    for sweep, now in zip(sweeps.values(), found, strict=True):
        report.summary(sweep, now, {})
    return int(any(state.state is not State.FINISHED for now in found for state in now))


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the data set in errors, if it has a name."""
    try:
        yield
    except UserError as error:
        if not name:
            raise
        raise UserError(f"data set {name}: {error}") from None


def _print_heading(name: str, sweep: Sweep) -> None:
    if name:
        print(f"\n== {name}: {shown_path(sweep.data)} ==\n", flush=True)
