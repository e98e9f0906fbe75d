"""Typed settings of the commands that train: from options, else environment variables, else defaults.

Parsing reads the options and looks which files exist; it prepares and writes nothing.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roberta_small.common.cli import (
    DEVICES,
    Collect,
    SettingsParser,
    flags_of,
    integer,
    positive,
    positive_number,
    split_words,
)
from roberta_small.common.errors import UserError
from roberta_small.common.files import shown_path
from roberta_small.common.hardware import RUNS_PER_GPU
from roberta_small.common.run import folder_name
from roberta_small.experiments import slurm
from roberta_small.experiments.inputs import files as inputs
from roberta_small.experiments.inputs import prepare
from roberta_small.experiments.inputs.checkpoints import flag_of, tokenizer_source, written
from roberta_small.experiments.inputs.files import shipped_for
from roberta_small.experiments.inputs.prepare import Source
from roberta_small.experiments.recipe import recipe
from roberta_small.experiments.recipe.recipe import Grid, parse_grid

MAX_SEED = 2**32 - 1  # NumPy's limit; fairseq seeds NumPy
MISSING = "--inits contains 'pretrained', but --pretrained (or RS_PRETRAINED=) is missing"
REMEDY = "add --pretrained FILE, or use --inits random"
Inits = dict[str, Path | None]
"""Name of each initialization -> its checkpoint as given (`checkpoints.resolve`); None for random weights."""
HYPERPARAMETERS = {
    "lr": ("--lr", "peak learning rate"),
    "epochs": ("--max-epoch", "number of epochs"),
    "batch-size": ("--batch-size", "texts of an update"),
    "max-length": ("--max-positions", "maximum number of tokens of a text, including <s>"),
    "layers": ("--encoder-layers", "number of layers"),
}
"""Option -> the flag of fairseq-train that it sets, and its explanation."""
REFERENCE, OWN_DATA = "reference", "own-data"
"""The default recipes: that of published reports, and the one for a file of labelled text."""
PASSTHROUGH = "Words after -- are passed to fairseq-train and are part of the recipe."


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where and how the runs of a command are trained, whatever the method."""

    out: Path
    dry_run: bool = False
    device: str = "auto"
    """One of `DEVICES`."""
    jobs: int | None = 1
    """Number of runs trained at the same time; None to choose it from the hardware."""
    processes: int = 1
    """Number of data-parallel processes of a run."""
    max_runs: int | None = None
    """Number of runs that this process trains at most; the others are left to other processes."""
    slurm: tuple[str, ...] | None = None
    """Options of sbatch for a job array; None to train on this machine."""


@dataclass(frozen=True, kw_only=True)
class SweepSettings(Settings):
    """Settings of a method that fine-tunes on binarized data, over seeds, initializations and a grid."""

    source: Source
    recipe: str
    """A name in recipes/ or a path."""
    passthrough: tuple[str, ...]
    """Flags of fairseq-train that replace those of the recipe: of options, and the words after `--`."""
    given: Inits
    """The initializations as the user gave them."""
    shipped: bool | None
    """Whether pretrained is the repository's checkpoint; None to add it if it fits the data."""
    seeds: tuple[int, ...]
    arm: str
    """Name of the method in run folders and tables."""
    grid: Grid = field(default_factory=dict)
    """Values of flags, of which every combination is trained; empty for the recipe alone."""
    baselines: bool = False
    """Whether to fit the baselines too (`experiments.train`)."""

    def prepare(self) -> Path:
        """The data folder; a file is prepared, after checks that would stop its runs. Raises `UserError`."""
        checkpoints = {init: path for init, path in self.given.items() if path is not None}
        if self.source.is_file:
            inputs.require_fairseq()
            recipe.load(self.recipe, self.passthrough)
            inputs.require_writable(self.out)
            for init, path in checkpoints.items():
                tokenizer_source(path, flag_of(init))
        return prepare.data_folder(self.source, checkpoints)

    def initial_weights(self, data: Path) -> tuple[Inits, tuple[str, ...]]:
        """The initializations for a data folder, and a note where the shipped checkpoint is left out.

        Raises `UserError` if --inits requires the shipped checkpoint and the data have another dictionary.
        """
        if self.shipped is False:
            return self.given, ()
        if (found := shipped_for(data)) is not None:
            return self.given | {"pretrained": found}, ()
        if self.shipped:
            raise UserError(
                f"{MISSING}, and the repository's checkpoint does not have the dictionary of {data}; {REMEDY}"
            )
        if inputs.shipped() is None:
            return self.given, ()
        left_out = shown_path(inputs.SHIPPED)
        return self.given, (f"pretrained: left out, because {left_out} has another dictionary than the data",)


def add_execution(parser: SettingsParser, *, out: str | None = "runs", jobs: bool = True) -> None:
    """Add --out, --device, --dry-run and --slurm, and with `jobs` also --jobs and --max-runs."""
    add = parser.add_setting
    one = "folder of the run, for example pretrained/NAME (required)"
    add("out", out, "folder of the runs" if out else one)
    if jobs:
        add(
            "jobs", "auto",
            "number of runs trained in parallel; auto: one per CPU core, or up to "
            f"{RUNS_PER_GPU} per GPU, as memory allows",
        )  # fmt: skip
        add(
            "max-runs", None,
            "train at most this number of runs and leave the others to other processes with the same command",
        )  # fmt: skip
    add("device", "auto", "auto, cpu or cuda; auto uses a GPU if there is one")
    add(
        "slurm", None,
        'submit this command to SLURM, one task for each run; the value has options of sbatch, for example '
        '"--partition=gpu --gres=gpu:1 --time=2:00:00", or is empty',
    )  # fmt: skip
    parser.add_argument(
        "--dry-run", action="store_true", help="print the plan and the commands only (a file is prepared)"
    )


def execution(options: argparse.Namespace) -> dict[str, Any]:
    """The values of `add_execution`; raises `UserError` for an invalid one."""
    if options.device not in DEVICES:
        raise UserError(f"--device {options.device!r}: choose from {', '.join(DEVICES)}")
    found = {
        "out": Path(options.out),
        "device": options.device,
        "dry_run": options.dry_run,
        "slurm": slurm.parse(options.slurm),
    }
    if hasattr(options, "jobs"):
        limit = options.max_runs
        found["jobs"] = None if options.jobs == "auto" else integer("--jobs", options.jobs, minimum=1)
        found["max_runs"] = None if limit is None else integer("--max-runs", limit, minimum=1)
    return found


def add_initial(parser: SettingsParser, inits: str | None = None) -> None:
    """Add --pretrained and --inits with the default `inits`."""
    parser.add_setting(
        "pretrained", None,
        "checkpoint of the init 'pretrained': a fairseq file or its folder, or an encoder of Transformers "
        "(RoBERTa, CamemBERT, XLM-R, BERT, DistilBERT, ELECTRA, FlauBERT), a folder or hub name (default: "
        "the repository's, if it has the same dictionary as the data)",
    )  # fmt: skip
    usual = " (default: random, and pretrained if there is a checkpoint for it; pretrained for a file with "
    usual += "--pretrained, and for the method frozen)"
    shown = f"initializations: random, pretrained or NAME=CHECKPOINT{'' if inits else usual}"
    parser.add_setting("inits", inits, shown, nargs="+")


def add_hyperparameters(parser: SettingsParser, names: Iterable[str], lr: float | None = None) -> None:
    """Add options of `HYPERPARAMETERS`; `lr` is the default of the rate, None for that of the recipe."""
    group = parser.add_argument_group("hyperparameters (default: those of the recipe); others after --")
    for name in names:
        flag, explanation = HYPERPARAMETERS[name]
        default = "" if name != "lr" or lr is None else f" (default: {lr:g})"
        group.add_argument(
            f"--{name}",
            type=_as_written(positive_number if name == "lr" else positive),
            metavar="X" if name == "lr" else "N",
            help=f"{explanation}{'' if flag == f'--{name}' else f' ({flag} of fairseq-train)'}{default}",
        )


def add_sweep(
    parser: SettingsParser,
    *,
    arm: str,
    inits: str | None = None,
    lr: float | None = None,
    own_data: bool = False,
) -> None:
    """Add the options of a method that trains on binarized data; `sweep_settings` reads them.

    `arm`, `inits` and `lr` are the defaults of the method. `inits` None: random, and pretrained if there is a
    checkpoint for it. `lr` None: that of the recipe. `own_data`: whether a file of labelled text has other
    defaults than a data folder, `OWN_DATA` and the baselines.
    """
    add = parser.add_setting
    prepare.add_data(parser, " (required)")
    add_initial(parser, inits)
    add("seeds", "1 2 3", "random seeds; each initialization is trained once with each seed", nargs="+")
    add(
        "grid", None,
        "grid of hyperparameters, FLAG=VALUE,VALUE with flags of fairseq-train; all combinations are trained",
        nargs="+", action=Collect,
    )  # fmt: skip
    add("arm", arm, "name of the runs in folders and tables, by default that of the method")
    default = None if own_data else REFERENCE
    shown = f" (default: {REFERENCE}; for a file of labelled text {OWN_DATA})" if own_data else ""
    add("recipe", default, f"hyperparameters: a name in recipes/ or a file with one flag per line{shown}")
    if own_data:
        parser.add_argument(
            "--no-baselines", action="store_true",
            help="without TF-IDF, the classifier of token n-grams and, with pretrained weights, the method "
            "frozen, which are fitted too if --data is a file of labelled text",
        )  # fmt: skip
    add_execution(parser)
    add_hyperparameters(parser, HYPERPARAMETERS, lr)
    prepare.add_options(parser)


def _as_written(check: Callable[[str], object]) -> Callable[[str], str]:
    """A type of argparse: the text of the option, which `check` accepts; a recipe records it."""

    def checked(text: str) -> str:
        check(text)
        return text

    checked.__name__ = check.__name__  # argparse names the type in its message
    return checked


def sweep_settings(options: argparse.Namespace, more: Mapping[str, str] = {}) -> SweepSettings:
    """The settings in the options of `add_sweep`, and of `more` (option -> flag). Raises `UserError`."""
    if options.data is None:
        raise UserError("--data (or RS_DATA=) is required: a file of labelled text or a data folder")
    source = prepare.source(options)
    own_data = source.is_file and hasattr(options, "no_baselines")
    values = parse_grid(split_words(options.grid or ""))
    after = flags_of(options.passthrough)
    for flag in values:
        if f"--{flag}" in after:
            raise UserError(f"--{flag} is both in --grid and after --; keep one of them")
    flags: list[str] = []
    for name, flag in {**{name: flag for name, (flag, _) in HYPERPARAMETERS.items()}, **more}.items():
        value = getattr(options, name.replace("-", "_"))
        if value is None:
            continue
        if flag in after:
            raise UserError(f"--{name} {value}: {flag} is also set after --; keep one of them")
        if flag.removeprefix("--") in values:
            raise UserError(f"--{name} {value}: {flag} is also in --grid; keep one of them")
        flags += [flag, str(value)]
    seeds = split_words(options.seeds)
    if not seeds:
        raise UserError("--seeds is empty; list at least one seed, for example --seeds 1 2 3")
    numbers = tuple(integer("--seeds", word, minimum=0, maximum=MAX_SEED) for word in seeds)
    if len(set(numbers)) < len(numbers):
        raise UserError(f"--seeds {' '.join(seeds)}: duplicate seed; list each seed once")
    words = None if options.inits is None else _init_words(options.inits)
    if own_data and words is None and options.pretrained is not None:
        words = ["pretrained"]
    shipped = None if words is None else "pretrained" in words
    return SweepSettings(
        **execution(options),
        source=source,
        recipe=options.recipe or (OWN_DATA if own_data else REFERENCE),
        passthrough=(*flags, *options.passthrough),
        given=_inits(words, options.pretrained),
        shipped=shipped if options.pretrained is None else False,
        seeds=numbers,
        arm=folder_name("--arm", options.arm),
        grid=values,
        baselines=own_data and not options.no_baselines,
    )


def _init_words(value: str | list[str]) -> list[str]:
    """The values of --inits. A single word of the command line is split only if every part is an init.

    `--inits "random small=a.pt"` contains two inits, `--inits "small=my folder/a.pt"` contains one.
    """
    if isinstance(value, list) and len(value) == 1 and re.match(r"[^\s=]+=", value[0]):
        try:
            parts = split_words(value)
        except UserError:  # a single quote in a path
            return value
        return parts if all(part in recipe.STARTS or "=" in part for part in parts) else value
    return split_words(value)


def _inits(words: Sequence[str] | None, pretrained: str | None) -> Inits:
    """The initializations; `words` None: random, and pretrained if --pretrained is given.

    Without --pretrained, pretrained is the repository's checkpoint, which `SweepSettings.initial_weights`
    compares with the data.
    """
    if words is None:
        words = ["random"] if pretrained is None else ["random", "pretrained"]
    inits: Inits = {}
    for word in words:
        name, equals, path = word.partition("=")
        folder_name("--inits", name)
        if name in inits:
            raise UserError(f"--inits: '{name}' is repeated; list each initialization once")
        if equals:
            if name == "random" or not path:
                raise UserError(f"--inits {word!r}: write NAME=FILE; the name 'random' is reserved")
            inits[name] = written(path)
        elif name == "random":
            inits[name] = None
        elif name == "pretrained":
            checkpoint = inputs.shipped() if pretrained is None else written(pretrained)
            if checkpoint is None:
                raise UserError(f"{MISSING}, and {inputs.SHIPPED} contains no checkpoint; {REMEDY}")
            inits[name] = checkpoint
        else:
            raise UserError(f"--inits: '{name}' is unknown; use {', '.join(recipe.STARTS)} or NAME=FILE")
    if not inits:
        raise UserError("--inits is empty; name at least one initialization, for example --inits random")
    if pretrained is not None and "pretrained" not in words:
        raise UserError(
            f"--pretrained {pretrained} is not used by --inits {' '.join(words)}; "
            f"add 'pretrained' to --inits or remove --pretrained"
        )
    return inits
