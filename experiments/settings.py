"""Typed settings of train.sh and pretrain.sh: from options, else environment variables, else defaults."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from roberta_small.common.cli import DEVICES, Collect, SettingsParser, integer, split_words
from roberta_small.common.errors import UserError
from roberta_small.common.files import shown_path
from roberta_small.common.suite import folder_name
from roberta_small.experiments import grid, inputs, prepare, recipes
from roberta_small.experiments.checkpoints import flag_of, tokenizer_source, written
from roberta_small.experiments.grid import Grid
from roberta_small.experiments.inputs import shipped_for
from roberta_small.experiments.launchers.slurm import settings as slurm_settings
from roberta_small.experiments.launchers.slurm.settings import Slurm

KNOWN_INITS = ("random", "pretrained")
MAX_SEED = 2**32 - 1  # NumPy's limit; fairseq seeds NumPy
MULTIPLES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
MAX_COUNT = 10**18
"""Larger counts are rejected as typing errors."""
MISSING = "--inits contains 'pretrained', but --pretrained (or RS_PRETRAINED=) is missing"
REMEDY = "add --pretrained FILE, or use --inits random"
Inits = dict[str, Path | None]
"""Name of each initialization -> its checkpoint as given (`checkpoints.resolve`); None for random weights."""

TRAIN_DESCRIPTION = """\
Fine-tune a sentence classifier with fairseq for each initialization and seed and, with --grid,
for each setting. Runs are written to OUT/ARM/INIT/seedN, or OUT/ARM,FLAG=VALUE/INIT/seedN if
their setting differs from the recipe. A file given as --data is prepared once, in data/. To resume,
run the same command again: finished runs are skipped, and interrupted runs resume from their last
checkpoint.

Several data sets, --data NAME=PATH NAME=PATH ..., are all checked before the first run starts. Each is
trained with the same settings, and its runs are written to OUT/NAME/ARM/INIT/seedN.

Settings are options or environment variables, shown in brackets (the option takes precedence)."""

TRAIN_EXAMPLES = """\
examples:
  ./train.sh --data reviews.csv --seeds 1 2 3
  ./train.sh --data reviews.csv --text-column body --label-column stars --valid 0.1 --test test.csv
  ./train.sh --data data/books/bin --pretrained pretrained/fr/model.pt
  ./train.sh --data books=data/books/bin films=films.csv --seeds 1 2 3 --dry-run
  RS_DATA=data/books/bin RS_INITS=random RS_SEEDS="1 2 3 4 5" RS_JOBS=2 ./train.sh
  ./train.sh --data data/books/bin --inits random "small=ckpt/a.pt" --dry-run
  ./train.sh --data data/mine --pretrained camembert-base --seeds 1 2 3
  ./train.sh --data data/books/bin --inits random --grid lr=1e-5,3e-5,1e-4 --dry-run
  RS_GRID="lr=1e-5,1e-4 dropout=0.1,0.3" ./train.sh --data data/books/bin --inits random
  ./train.sh --data data/books/bin --inits random --out runs/lr1e-4 -- --lr 1e-4
  ./train.sh --data data/books/bin --seeds 1 2 3 4 5 --launcher slurm --partition gpu --time 60 --gpus 1
  ./train.sh --data data/books/bin --launcher slurm --cpus 2 --slurm "--account=lab --qos=low" --no-wait

Each run uses OMP_NUM_THREADS threads if this variable is set, else cores / JOBS.

With --launcher slurm each unfinished run becomes a task of a job array. The nodes must share this folder, the
data, OUT and the Python installation with this machine. The final table and the exit code are the same. Runs
that the cluster ended (scancel, time limit, node failure) resume with the same command; queued runs are not
submitted again."""

PRETRAIN_DESCRIPTION = """\
Pre-train a language model with fairseq, masked (roberta_small) or left to right (the recipes
causal-pretrain and causal-roberta-pretrain). The data folder contains dict.txt, train.bin/.idx and
valid.bin/.idx, or shards (preprocess binarize --shards), which are read one per epoch. Writes
OUT/model.pt (the weights with the lowest validation loss, without optimizer state) and
OUT/dict.txt; pass OUT/model.pt to train.sh as --pretrained. An interrupted run resumes from its
last checkpoint.

Settings are options or environment variables, shown in brackets (the option takes precedence)."""

PRETRAIN_EXAMPLES = """\
examples:
  ./pretrain.sh --data data/fr/bin --out pretrained/fr --tokens 50M
  ./pretrain.sh --data data/fr/bin --out pretrained/fr --hours 1.5
  RS_DATA=data/fr/bin RS_OUT=pretrained/fr RS_TOKENS=2e8 ./pretrain.sh -- --lr 5e-4"""

PASSTHROUGH = "Words after -- are passed to fairseq-train and are part of the recipe."


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings that train.sh and pretrain.sh share."""

    data: Path
    """Folder written by fairseq-preprocess or by this project's preprocess."""
    out: Path
    recipe: str
    """A name in recipes/ or a path."""
    device: str
    """One of `DEVICES`."""
    dry_run: bool
    passthrough: tuple[str, ...]
    """Words after `--`, for fairseq-train."""


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Settings):
    """Settings of train.sh."""

    inits: Inits
    seeds: tuple[int, ...]
    arm: str
    """Name of the method in run folders and tables."""
    jobs: int | None
    """Number of runs trained at the same time; None to choose it from the hardware."""
    grid: Grid = field(default_factory=dict)
    """Values of flags, of which every combination is trained; empty for the recipe alone."""
    slurm: Slurm | None = None
    """None to train the runs on this machine."""
    notes: tuple[str, ...] = ()
    """About the choice of the initializations, for the plan."""


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(Settings):
    """Settings of pretrain.sh."""

    seed: int
    start: Path | None
    """Checkpoint with the initial weights; None for random weights."""
    tokens: int | None = None
    """Length of the training in tokens."""
    hours: float | None = None
    """Length of the training in hours; without `tokens` and `hours`, --max-update of the recipe is used."""
    processes: int = 1
    """Number of data-parallel processes."""


def add_sweep(parser: SettingsParser, *, arm: str, inits: str | None = None) -> None:
    """Add the options of a method that trains on binarized data; `sweep_settings` reads them.

    `arm` and `inits` are the defaults of the method. `inits` None: random, and pretrained if there is a
    checkpoint for it.
    """
    add = parser.add_setting
    prepare.add_data(parser, " (required)")
    add(
        "pretrained", None,
        "checkpoint of the init 'pretrained': a fairseq file or its folder, or a RoBERTa, CamemBERT or "
        "XLM-RoBERTa of Transformers, a folder or hub name (default: the repository's, if it has the same "
        "dictionary as the data)",
    )  # fmt: skip
    usual = "" if inits else " (default: random, and pretrained if there is a checkpoint for it)"
    add("inits", inits, f"initializations: random, pretrained or NAME=CHECKPOINT{usual}", nargs="+")
    add("seeds", "1 2 3", "random seeds; each initialization is trained once with each seed", nargs="+")
    add(
        "grid", None,
        "grid of hyperparameters, FLAG=VALUE,VALUE with flags of fairseq-train; all combinations are trained",
        nargs="+", action=Collect,
    )  # fmt: skip
    add("arm", arm, "name of the runs in folders and tables, by default that of the method")
    add("recipe", "reference", "hyperparameters: a name in recipes/ or a file with one flag per line")
    add("out", "runs", "folder of the runs")
    add("jobs", "auto", "number of runs trained in parallel; auto: one per GPU or CPU core, as memory allows")
    add("device", "auto", "auto, cpu or cuda; auto uses a GPU if there is one")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the plan and the commands only (a file is prepared)"
    )
    prepare.add_options(parser)


def sweep_settings(options: argparse.Namespace) -> TrainSettings:
    """The settings in the options of `add_sweep` (and in those of SLURM, if the parser has them).

    A file that is given as --data is prepared (`experiments.prepare`) after all options have been checked.
    Raises `UserError` for an invalid option, and as `prepare.data_folder` does.
    """
    slurm = slurm_settings.parse(options) if hasattr(options, "launcher") else None
    settings = TrainSettings(
        slurm=slurm,
        **_common(options),
        inits={},
        seeds=_seeds(split_words(options.seeds)),
        arm=folder_name("--arm", options.arm),
        jobs=None if options.jobs == "auto" else integer("--jobs", options.jobs, minimum=1),
        grid=grid.parse(split_words(options.grid or "")),
    )
    words = None if options.inits is None else _init_words(options.inits)
    inits = _inits(words, options.pretrained)
    data = _data(options, settings, inits)
    inits, notes = _with_shipped(inits, words, options.pretrained, data)
    options.chosen_inits = tuple(inits)  # `experiments.suite` compares those of several data sets
    return replace(settings, data=data, inits=inits, notes=notes)


def _data(options: argparse.Namespace, settings: TrainSettings, inits: Inits) -> Path:
    """The data folder; before a file is prepared, what would stop the runs afterwards is checked."""
    checkpoints = {init: path for init, path in inits.items() if path is not None}
    if prepare.is_source(options.data):
        inputs.require_fairseq()
        recipes.load(settings.recipe, settings.passthrough)
        inputs.require_writable(settings.out)
        for init, path in checkpoints.items():
            tokenizer_source(path, flag_of(init))
    return prepare.data_folder(options, checkpoints)


def add_train(parser: SettingsParser) -> None:
    """Add the options of the method fairseq."""
    parser.description = TRAIN_DESCRIPTION
    parser.epilog = f"{TRAIN_EXAMPLES}\n\n{PASSTHROUGH}"
    add_sweep(parser, arm="fairseq")
    slurm_settings.add_flags(parser)


def train_settings(argv: Sequence[str], environ: Mapping[str, str]) -> TrainSettings:
    """Settings of the method fairseq; raises `UserError` for an invalid option."""
    parser = _parser("train.sh")
    add_train(parser)
    return sweep_settings(parser.parse_settings(slurm_settings.join_slurm_value(argv), environ))


def pretrain_settings(argv: Sequence[str], environ: Mapping[str, str]) -> PretrainSettings:
    """Settings of pretrain.sh; raises `UserError` for an invalid option."""
    parser = _parser("pretrain.sh")
    parser.description = PRETRAIN_DESCRIPTION
    parser.epilog = f"{PRETRAIN_EXAMPLES}\n\n{PASSTHROUGH}"
    add = parser.add_setting
    add("data", None, "folder of binarized text (required)")
    add("out", None, "folder of the run, for example pretrained/NAME (required)")
    add("tokens", None, "total number of tokens to train on, for example 50M; rounded up to whole updates")
    add(
        "hours", None,
        "training time instead of tokens, for example 1.5; the learning rate decays over this time",
    )  # fmt: skip
    add("processes", "1", "number of data-parallel processes; multiplies the batch size")
    add(
        "start", None,
        "checkpoint of the initial weights, for example of roberta-small ppmi-svd (default: "
        "random)",
    )  # fmt: skip
    add("seed", "1", "random seed")
    add("recipe", "pretrain", "hyperparameters: a name in recipes/ or a file with one flag per line")
    add("device", "auto", "auto, cpu or cuda; auto uses a GPU if there is one")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and the commands only")
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
    """Parse a positive integer, also written 5e6, 5_000_000 or 5M (k, M and G are powers of ten).

    Raises `UserError` naming `flag` for other text.
    """
    match = re.fullmatch(r"([0-9][0-9_]*(?:\.[0-9]+)?(?:e[0-9]+)?)([kmg]?)", text.strip().lower())
    number = Decimal(match[1].replace("_", "")) * MULTIPLES[match[2]] if match else Decimal(0)
    if not (1 <= number < MAX_COUNT and number == number.to_integral_value()):
        raise UserError(f"{flag} {text!r}: not a positive integer; write 5000000, 5e6 or 5M")
    return int(number)


def _parser(prog: str) -> SettingsParser:
    return SettingsParser(prog=prog, usage=f"{prog} [options] [-- options of fairseq-train]")


def _common(options: argparse.Namespace) -> dict[str, Any]:
    if options.data is None:
        raise UserError("--data (or RS_DATA=) is required: a file of labelled text or a data folder")
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
    """The values of --inits. A single word of the command line is split only if every part is an init.

    `--inits "random small=a.pt"` contains two inits, `--inits "small=my folder/a.pt"` contains one.
    """
    if isinstance(value, list) and len(value) == 1 and re.match(r"[^\s=]+=", value[0]):
        try:
            parts = split_words(value)
        except UserError:  # a single quote in a path
            return value
        return parts if all(part in KNOWN_INITS or "=" in part for part in parts) else value
    return split_words(value)


def _inits(words: list[str] | None, pretrained: str | None) -> Inits:
    """The initializations; `words` None: random, and pretrained if --pretrained is given.

    Without --pretrained, pretrained is the repository's checkpoint, which `_with_shipped` compares with the
    data.
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
            raise UserError(f"--inits: '{name}' is unknown; use {', '.join(KNOWN_INITS)} or NAME=FILE")
    if not inits:
        raise UserError("--inits is empty; name at least one initialization, for example --inits random")
    if pretrained is not None and "pretrained" not in words:
        raise UserError(
            f"--pretrained {pretrained} is not used by --inits {' '.join(words)}; "
            f"add 'pretrained' to --inits or remove --pretrained"
        )
    return inits


def _with_shipped(
    inits: Inits, words: list[str] | None, pretrained: str | None, data: Path
) -> tuple[Inits, tuple[str, ...]]:
    """The initializations with the repository's checkpoint, and a note where it is left out by default.

    Raises `UserError` if `words` require it and the data have another dictionary.
    """
    if pretrained is not None or (words is not None and "pretrained" not in words):
        return inits, ()
    found = shipped_for(data)
    if found is not None:
        return inits | {"pretrained": found}, ()
    if words is not None:
        raise UserError(
            f"{MISSING}, and the repository's checkpoint does not have the dictionary of {data}; {REMEDY}"
        )
    if inputs.shipped() is None:
        return inits, ()
    left_out = shown_path(inputs.SHIPPED)
    return inits, (f"pretrained: left out, because {left_out} has another dictionary than the data",)


def _seeds(words: list[str]) -> tuple[int, ...]:
    seeds = tuple(integer("--seeds", word, minimum=0, maximum=MAX_SEED) for word in words)
    if not seeds:
        raise UserError("--seeds is empty; list at least one seed, for example --seeds 1 2 3")
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds {' '.join(words)}: duplicate seed; list each seed once")
    return seeds


def _hours(text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) or not float(text):
        raise UserError(f"--hours {text!r}: not a positive number of hours, such as 1.5")
    return float(text)
