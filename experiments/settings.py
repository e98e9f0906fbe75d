"""Settings of a command, typed: from flags, else from environment variables, else defaults."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from common.cli import Collect, SettingsParser, integer, split_words
from common.errors import UserError

from . import grid
from .grid import Grid
from .inputs import checkpoint_of, shipped_for
from .launchers.slurm import settings
from .launchers.slurm.settings import Slurm

DEVICES = ("auto", "cpu", "cuda")
KNOWN_INITS = ("random", "pretrained")
MAX_SEED = 2**32 - 1  # numpy's, which fairseq seeds
NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
MULTIPLES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
MOST = 10**18
"""Larger counts are a mistake."""

TRAIN_DESCRIPTION = """\
Fine-tune a sentence classifier with fairseq from each initialization with each seed, and with each
setting of a grid where there is one. Runs are written to OUT/ARM/INIT/seedN, those with another
setting than the recipe's to OUT/ARM,FLAG=VALUE/INIT/seedN. Finished runs are skipped and
interrupted runs resume from their last checkpoint: run the same command again.

Settings are options or environment variables, shown in brackets (the option wins)."""

TRAIN_EXAMPLES = """\
examples:
  ./train.sh --data data/books/bin --pretrained pretrained/fr/model.pt
  RS_DATA=data/books/bin RS_INITS=random RS_SEEDS="1 2 3 4 5" RS_JOBS=2 ./train.sh
  ./train.sh --data data/books/bin --inits random "small=ckpt/a.pt" --dry-run
  ./train.sh --data data/books/bin --inits random --grid lr=1e-5,3e-5,1e-4 --dry-run
  RS_GRID="lr=1e-5,1e-4 dropout=0.1,0.3" ./train.sh --data data/books/bin --inits random
  ./train.sh --data data/books/bin --inits random --out runs/lr1e-4 -- --lr 1e-4
  ./train.sh --data data/books/bin --seeds 1 2 3 4 5 --launcher slurm --partition gpu --time 60 --gpus 1
  ./train.sh --data data/books/bin --launcher slurm --cpus 2 --slurm "--account=lab --qos=low" --no-wait

OMP_NUM_THREADS, where it is set, is the number of threads of each run instead of cores / JOBS.

With --launcher slurm each run that is not finished becomes a task of a job array, on nodes that share this
folder, OUT and the Python with this machine. The table at the end and the exit code are the same. Runs that
the cluster ended (scancel, time limit, node failure) resume with the same command; runs in the queue are not
submitted twice."""

PRETRAIN_DESCRIPTION = """\
Pre-train a language model with fairseq, masked (roberta_small) or left to right (the recipes
causal-pretrain and causal-roberta-pretrain), on a folder with dict.txt, train.bin/.idx and
valid.bin/.idx, or on one with shards (preprocess binarize --shards), of which each epoch opens the
next. Writes OUT/model.pt (weights of the checkpoint with the lowest validation loss, without the
optimizer's state) and OUT/dict.txt beside it; pass OUT/model.pt to train.sh as --pretrained. An
interrupted run resumes from its last checkpoint.

Settings are options or environment variables, shown in brackets (the option wins)."""

PRETRAIN_EXAMPLES = """\
examples:
  ./pretrain.sh --data data/fr/bin --out pretrained/fr --tokens 50M
  ./pretrain.sh --data data/fr/bin --out pretrained/fr --hours 1.5
  RS_DATA=data/fr/bin RS_OUT=pretrained/fr RS_TOKENS=2e8 ./pretrain.sh -- --lr 5e-4"""

PASSTHROUGH = "Words after -- go to fairseq-train and count as part of the recipe."


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What train.sh and pretrain.sh both take."""

    data: Path
    """Folder that fairseq-preprocess (or this project's preprocess) wrote."""
    out: Path
    recipe: str
    """A name in recipes/ or a path."""
    device: str
    """One of DEVICES."""
    dry_run: bool
    passthrough: tuple[str, ...]
    """Words after `--`, for fairseq-train."""


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Settings):
    """Settings of train.sh."""

    inits: dict[str, Path | None]
    """Name of each initialisation -> its checkpoint, None for random weights."""
    seeds: tuple[int, ...]
    arm: str
    jobs: int | None
    """Runs at a time; None for as many as suit the machine."""
    grid: Grid = field(default_factory=dict)
    """Settings to try, every combination; none for the recipe as it is."""
    slurm: Slurm | None = None
    """None: the runs are trained on this machine."""


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(Settings):
    """Settings of pretrain.sh."""

    seed: int
    start: Path | None
    """Checkpoint whose weights it starts from; None for random weights."""
    tokens: int | None = None
    """Budget in tokens seen."""
    hours: float | None = None
    """Budget in time; where neither is given, --max-update is."""
    processes: int = 1
    """That share each update."""


def add_sweep(parser: SettingsParser, *, arm: str, inits: str = "random pretrained") -> None:
    """Add the options of a method that trains on binarized data, with its defaults; see `sweep_settings`."""
    add = parser.add_setting
    add("data", None, "folder of binarized data, with input0/ and label/ (required)")
    add(
        "pretrained", None,
        "checkpoint of the init 'pretrained', a file or its folder (default: the repository's, if the data "
        "have its dictionary)",
    )  # fmt: skip
    add("inits", inits, "initializations: random, pretrained or NAME=FILE", nargs="+")
    add("seeds", "1 2 3", "one run of each initialization for each seed", nargs="+")
    add(
        "grid", None, "settings to try, FLAG=VALUE,VALUE of fairseq; several flags make all combinations",
        nargs="+", action=Collect,
    )  # fmt: skip
    add("arm", arm, "first folder below OUT")
    add("recipe", "reference", "hyper-parameters: a name in recipes/ or a file of flags, one a line")
    add("out", "runs", "folder of the runs")
    add("jobs", "auto", "runs at a time, which share the cores; auto: one for each core, or for each GPU")
    add("device", "auto", "auto, cpu or cuda; auto takes a GPU where there is one")
    parser.add_argument("--dry-run", action="store_true", help="print plan and commands, start nothing")


def sweep_settings(options: argparse.Namespace) -> TrainSettings:
    """The settings that the options of `add_sweep` (and those of SLURM, if added) contain.

    Raises `UserError` that names the option at fault.
    """
    slurm = settings.parse(options) if hasattr(options, "launcher") else None
    return TrainSettings(
        slurm=slurm,
        **_common(options),
        inits=_inits(_init_words(options.inits), options.pretrained, Path(options.data)),
        seeds=_seeds(split_words(options.seeds)),
        arm=_name("--arm", options.arm),
        jobs=None if options.jobs == "auto" else integer("--jobs", options.jobs, minimum=1),
        grid=grid.parse(split_words(options.grid or "")),
    )


def add_train(parser: SettingsParser) -> None:
    """Add the options of the method fairseq."""
    parser.description = TRAIN_DESCRIPTION
    parser.epilog = f"{TRAIN_EXAMPLES}\n\n{PASSTHROUGH}"
    add_sweep(parser, arm="fairseq")
    settings.add_flags(parser)


def train_settings(argv: Sequence[str], environ: Mapping[str, str]) -> TrainSettings:
    """Settings of the method fairseq; raises `UserError` that names the option at fault."""
    parser = _parser("train.sh")
    add_train(parser)
    return sweep_settings(parser.parse_settings(settings.joined(argv), environ))


def pretrain_settings(argv: Sequence[str], environ: Mapping[str, str]) -> PretrainSettings:
    """Settings of pretrain.sh; raises `UserError` that names the option at fault."""
    parser = _parser("pretrain.sh")
    parser.description = PRETRAIN_DESCRIPTION
    parser.epilog = f"{PRETRAIN_EXAMPLES}\n\n{PASSTHROUGH}"
    add = parser.add_setting
    add("data", None, "folder of binarized text (required)")
    add("out", None, "folder of the run, for example pretrained/NAME (required)")
    add("tokens", None, "total number of tokens to train on, for example 50M; rounded up to whole updates")
    add("hours", None, "training time instead, for example 1.5; the learning rate follows the clock")
    add("processes", "1", "processes that share each update; the batch is that many times the recipe's")
    add(
        "start", None,
        "checkpoint to start from, for example of python -m fairseq_plugin ppmi-svd (default: random)",
    )  # fmt: skip
    add("seed", "1", "random seed")
    add("recipe", "pretrain", "hyper-parameters: a name in recipes/ or a file of flags, one a line")
    add("device", "auto", "auto, cpu or cuda; auto takes a GPU where there is one")
    parser.add_argument("--dry-run", action="store_true", help="print plan and commands, start nothing")
    options = parser.parse_settings(argv, environ)
    parser.require(options, "data", "out")
    tokens = None if options.tokens is None else parse_count("--tokens", options.tokens)
    return PretrainSettings(
        **_common(options),
        seed=integer("--seed", options.seed, minimum=0, maximum=MAX_SEED),
        start=Path(options.start) if options.start else None,
        tokens=tokens,
        hours=None if options.hours is None else _hours(options.hours),
        processes=integer("--processes", options.processes, minimum=1),
    )


def parse_count(flag: str, text: str) -> int:
    """A positive whole number, also written 5e6, 5_000_000 or 5M (k, M and G are powers of ten)."""
    match = re.fullmatch(r"([0-9][0-9_]*(?:\.[0-9]+)?(?:e[0-9]+)?)([kmg]?)", text.strip().lower())
    number = Decimal(match[1].replace("_", "")) * MULTIPLES[match[2]] if match else Decimal(0)
    if not (1 <= number < MOST and number == number.to_integral_value()):
        raise UserError(f"{flag} {text!r}: not a positive whole number; write 5000000, 5e6 or 5M")
    return int(number)


def _parser(prog: str) -> SettingsParser:
    return SettingsParser(prog=prog, usage=f"{prog} [options] [-- options of fairseq-train]")


def _common(options: argparse.Namespace) -> dict[str, Any]:
    if options.data is None:
        raise UserError("--data (or RS_DATA=) is missing; it is the folder of binarized data")
    if options.device not in DEVICES:
        raise UserError(f"--device {options.device!r}: choose from {', '.join(DEVICES)}")
    return {
        "data": Path(options.data),
        "out": Path(options.out),
        "recipe": options.recipe,
        "device": options.device,
        "dry_run": options.dry_run,
        "passthrough": options.passthrough,
    }


def _init_words(value: str | list[str]) -> list[str]:
    """The words of --inits. A single word of the command line is split only if every part is an init.

    So `--inits "random small=a.pt"` is two, and `--inits "small=my folder/a.pt"` is one.
    """
    if isinstance(value, list) and len(value) == 1 and re.match(r"[^\s=]+=", value[0]):
        try:
            parts = split_words(value)
        except UserError:  # a single quote in a path
            return value
        return parts if all(part in KNOWN_INITS or "=" in part for part in parts) else value
    return split_words(value)


def _inits(words: list[str], pretrained: str | None, data: Path) -> dict[str, Path | None]:
    inits: dict[str, Path | None] = {}
    for word in words:
        name, equals, path = word.partition("=")
        _name("--inits", name)
        if name in inits:
            raise UserError(f"--inits: '{name}' is given twice; name each initialisation once")
        if equals:
            if name == "random" or not path:
                raise UserError(f"--inits {word!r}: write NAME=FILE, with a name other than 'random'")
            inits[name] = checkpoint_of(Path(path))
        elif name == "random":
            inits[name] = None
        elif name == "pretrained":
            checkpoint = shipped_for(data) if pretrained is None else checkpoint_of(Path(pretrained))
            if checkpoint is None:
                raise UserError(
                    "--inits has 'pretrained' but --pretrained (or RS_PRETRAINED=) names no checkpoint file, "
                    f"and none that comes with the project has the dictionary of {data}; name one, or "
                    "take --inits random"
                )
            inits[name] = checkpoint
        else:
            raise UserError(f"--inits: '{name}' is unknown; known are {', '.join(KNOWN_INITS)} and NAME=FILE")
    if not inits:
        raise UserError("--inits is empty; for example: --inits random pretrained")
    if pretrained is not None and "pretrained" not in words:
        raise UserError(
            f"--pretrained {pretrained} contradicts --inits {' '.join(words)}, which does not use it; "
            f"add 'pretrained' to --inits or leave --pretrained out"
        )
    return inits


def _seeds(words: list[str]) -> tuple[int, ...]:
    seeds = tuple(integer("--seeds", word, minimum=0, maximum=MAX_SEED) for word in words)
    if not seeds:
        raise UserError("--seeds is empty; for example: --seeds 1 2 3")
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds {' '.join(words)}: a seed is given twice; each run needs its own")
    return seeds


def _hours(text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) or not float(text):
        raise UserError(f"--hours {text!r}: not a positive number; write 1.5 for an hour and a half")
    return float(text)


def _name(flag: str, text: str) -> str:
    if not NAME_PATTERN.fullmatch(text):
        raise UserError(f"{flag} {text!r}: a name of a folder takes only letters, digits, '_', '-' and '.'")
    return text
