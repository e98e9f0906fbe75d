"""Pre-training: trains a language model, or the student of a teacher; writes a checkpoint for fine-tuning.

The recipe selects the model, masked or left to right; all kinds read the same data. There is one run, and its
folder is OUT. With --teacher, the teacher first reads the text (`teacher.py`).
"""

from __future__ import annotations

import argparse
import logging
import math
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from roberta_small.common.cli import SettingsParser, integer
from roberta_small.common.data_folder import read_sizes, shards_of
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write, read_object, shown_path
from roberta_small.common.run import Run
from roberta_small.experiments.inputs import checkpoints
from roberta_small.experiments.inputs import files as inputs
from roberta_small.experiments.methods import Command
from roberta_small.experiments.methods.fairseq import FairseqTrain
from roberta_small.experiments.recipe import architecture, fairseq_flags, recipe
from roberta_small.experiments.recipe.recipe import Recipe
from roberta_small.experiments.settings import MAX_SEED, PASSTHROUGH, Settings, add_execution, execution
from roberta_small.experiments.sweep import Sweep, Training

WARMUP_FRACTION = 0.06
"""Fraction of all updates, as in the fine-tuning of RoBERTa (Liu et al. 2019, appendix C)."""
WITH_TOTAL = ("polynomial_decay",)
"""Schedules of fairseq with --total-num-update."""
WITH_WARMUP = (*WITH_TOTAL, "fixed", "inverse_sqrt", "cosine", "reduce_lr_on_plateau", "step")
"""Schedules of fairseq with --warmup-updates."""
UPDATE_FLAGS = ("--total-num-update", "--warmup-updates", "--end-learning-rate", "--power", "--force-anneal")
"""Flags of schedules over updates, which a schedule over time does not have."""
MULTIPLES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
MAX_COUNT = 10**18
"""Larger counts are rejected as typing errors."""
MODEL, DICTIONARY = "model.pt", "dict.txt"
TEACHER, STUDENT = "teacher", "student.pt"
"""In the folder of a run with a teacher: its vectors, and the initial weights."""
DISTILLATION = "distillation"

DESCRIPTION = """\
Pre-train a language model with fairseq, masked (roberta_small) or left to right (the recipes
causal-pretrain and causal-roberta-pretrain). The data folder contains dict.txt, train.bin/.idx and
valid.bin/.idx, or shards (prepare --shards), which are read one per epoch. Writes
OUT/model.pt (the weights with the lowest validation loss, without optimizer state) and
OUT/dict.txt; pass OUT/model.pt to `roberta-small train` as --pretrained. An interrupted run resumes from
its last checkpoint.

With --teacher ENCODER, the model learns the hidden states of a larger encoder for the text instead (recipe
distill). The teacher reads the text once; its vectors are kept in OUT/teacher, two bytes for each token and
dimension.

Settings are options or environment variables, shown in brackets (the option takes precedence)."""

EXAMPLES = """\
examples:
  roberta-small pretrain --data data/fr/bin --out pretrained/fr --tokens 50M
  roberta-small pretrain --data data/fr/bin --out pretrained/fr --hours 1.5
  roberta-small pretrain --data data/fr/bin --teacher intfloat/multilingual-e5-small --out pretrained/e5 \\
      --tokens 50M
  RS_DATA=data/fr/bin RS_OUT=pretrained/fr RS_TOKENS=2e8 roberta-small pretrain -- --lr 5e-4"""


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(Settings):
    """Settings of `pretrain`."""

    data: Path
    """Folder of binarized text."""
    recipe: str
    """A name in recipes/ or a path."""
    passthrough: tuple[str, ...]
    """Words after `--`, for fairseq-train."""
    seed: int
    start: Path | None
    """Checkpoint or model with the initial weights, as the user wrote it; None for random weights."""
    teacher: Path | None = None
    """The encoder whose hidden states are learned, as the user wrote it; None for language modeling."""
    tokens: int | None = None
    """Length of the training in tokens."""
    hours: float | None = None
    """Length of the training in hours; without `tokens` and `hours`, --max-update of the recipe is used."""


class Pretrain(FairseqTrain):
    """The command `pretrain`."""

    name = "pretrain"
    summary = "pre-train a language model"

    def add_arguments(self, parser: SettingsParser) -> None:
        """Add the options of the command."""
        parser.description, parser.epilog = DESCRIPTION, f"{EXAMPLES}\n\n{PASSTHROUGH}"
        add = parser.add_setting
        add("data", None, "folder of binarized text (required)")
        add(
            "tokens", None, "total number of tokens to train on, for example 50M; rounded up to whole updates"
        )
        add(
            "hours", None,
            "training time instead of tokens, for example 1.5; the learning rate decays over this time",
        )  # fmt: skip
        add("processes", "1", "number of data-parallel processes; multiplies the batch size")
        add(
            "start", None,
            "initial weights: of PPMI-SVD, or as train --pretrained (default: random)",
        )  # fmt: skip
        add(
            "teacher", None,
            "distillation: learn the hidden states of this encoder; what train --pretrained takes, or a run",
        )  # fmt: skip
        add("seed", "1", "random seed")
        add(
            "recipe", None,
            "hyperparameters: a name in recipes/ or a file with one flag per line (default: pretrain, or "
            "distill with --teacher)",
        )  # fmt: skip
        add_execution(parser, out=None, jobs=False)

    def settings(self, options: argparse.Namespace) -> PretrainSettings:
        """The settings of the run."""
        hours = options.hours
        if hours is not None and (not re.fullmatch(r"[0-9]+(\.[0-9]+)?", hours) or not float(hours)):
            raise UserError(f"--hours {hours!r}: not a positive number of hours, such as 1.5")
        return PretrainSettings(
            **execution(options),
            data=Path(options.data),
            recipe=options.recipe or ("distill" if options.teacher else "pretrain"),
            passthrough=options.passthrough,
            seed=integer("--seed", options.seed, minimum=0, maximum=MAX_SEED),
            start=checkpoints.written(options.start) if options.start else None,
            teacher=checkpoints.written(options.teacher) if options.teacher else None,
            tokens=None if options.tokens is None else parse_count("--tokens", options.tokens),
            hours=None if hours is None else float(hours),
            processes=integer("--processes", options.processes, minimum=1),
        )

    def sweep(self, settings: PretrainSettings, data: Path) -> Sweep:
        """The run, with its length in updates or hours."""
        inputs.require_fairseq()
        several = ("--distributed-world-size", str(settings.processes)) if settings.processes > 1 else ()
        own = recipe.load(settings.recipe, (*settings.passthrough, *several))
        files = inputs.masked_lm_files(data, ["train", *own.valid_subsets])
        own, budget = with_budget(own, settings.tokens, settings.hours, data)
        start = None if settings.start is None else checkpoints.resolve(settings.start, "--start")
        if start is not None:
            remedy = f"prepare the text with --dict {start.path.parent / DICTIONARY}"
            checkpoints.require_dictionary(start, shards_of(data)[0] / DICTIONARY, remedy)
        first = None if start is None else start.path
        inputs.require_writable(settings.out)
        notes: list[str] = []
        teacher = None if settings.teacher is None else checkpoints.resolve(settings.teacher, "--teacher")
        if (own.value("--task") == DISTILLATION) != (teacher is not None):
            raise UserError(
                f"recipe '{own.name}': --task {own.value('--task')}, but --task {DISTILLATION} and --teacher "
                "belong together"
            )
        if self.real:
            places = architecture.places_of(settings.recipe, settings.passthrough)
            read = None if first is None else architecture.read(first)
            fitted = architecture.fit(own, places, {"--start": read})
            own, notes = own.replace(fitted.flags.get("--start", ())), fitted.notes
            if settings.passthrough:
                fairseq_flags.check(own.words)
        if start is not None and start.note:
            notes = [f"--start: {start.note}", *notes]
        init = "random" if start is None else Path(start.source or start.path).stem
        run = Run(settings.out, self.name, init, settings.seed, first)
        identity = {
            "data": inputs.fingerprint_data(data, files),
            "checkpoint": None if start is None else start.fingerprint(),
            "recipe_flags": list(own.words),
        }
        if teacher is not None:
            identity["teacher"] = teacher.fingerprint()
            notes = [f"teacher: {teacher.note or shown_path(teacher.path)}", *notes]
            notes += reading_note(own, settings.tokens, data)
        return Sweep(
            settings=settings,
            data=data,
            trainings=(Training(run, own, own.words, identity),),
            recipe=own,
            notes=(*budget, *notes),
        )

    def command(self, sweep: Sweep, training: Training, *, resume: bool, cpu: bool) -> Command:
        """fairseq-train with the flags of the recipe; with a teacher, its vectors and the first student."""
        if sweep.settings.teacher is None or not self.real:
            return super().command(sweep, training, resume=resume, cpu=cpu)
        run, vectors = training.run, training.run.folder / TEACHER
        words = (*training.flags, "--teacher-vectors", str(vectors.absolute()))
        if run.checkpoint is None:
            run = replace(run, checkpoint=run.folder / STUDENT)
        command = super().command(sweep, replace(training, run=run, flags=words), resume=resume, cpu=cpu)
        shown = [shown_path(vectors) if word == str(vectors.absolute()) else word for word in command.shown]
        return replace(command, shown=tuple(shown))

    def begin(self, sweep: Sweep, training: Training) -> None:
        """With a teacher: let it read the text, and write the first student."""
        if sweep.settings.teacher is None or not self.real:
            return
        logging.getLogger("fairseq").setLevel(logging.WARNING)  # fairseq logs hints when it is imported
        from roberta_small.experiments.methods import teacher  # imports torch

        teacher.prepare(sweep, training, TEACHER, STUDENT)

    def finish(self, sweep: Sweep, folder: Path) -> dict[str, Any]:
        """Write model.pt (weights and configuration of checkpoint_best.pt) and dict.txt."""
        if (folder / MODEL).is_file() and (folder / DICTIONARY).is_file():
            return {}
        logging.getLogger("fairseq").setLevel(logging.WARNING)  # fairseq logs hints when it is imported
        from roberta_small.fairseq_plugin.checkpoints.loading import save_weights  # imports torch

        save_weights(folder / "checkpoint_best.pt", folder / MODEL)
        atomic_write(folder / DICTIONARY, (shards_of(sweep.data)[0] / DICTIONARY).read_bytes())
        if sweep.settings.teacher is None or not self.real:
            return {}
        remedy = "delete the folder, and the teacher reads the text again"
        return {"teacher_seconds": float(read_object(folder / TEACHER / "teacher.json", remedy)["seconds"])}


METHOD = Pretrain()


def with_budget(
    recipe: Recipe, tokens: int | None, hours: float | None = None, data: Path | None = None
) -> tuple[Recipe, list[str]]:
    """The recipe with a length of the training: `tokens`, `hours`, or --max-update of the recipe; and notes.

    Adds --total-num-update and --warmup-updates if the schedule has them and the recipe does not. For hours,
    the schedule is one over wall-clock time (`fairseq_plugin/training/time_budget.py`). Raises `UserError`
    unless exactly one length is given, if the warm-up takes all updates, and for hours if the recipe has
    flags of a schedule over updates.
    """
    if sum(given is not None for given in (tokens, hours, recipe.number("--max-update"))) != 1:
        raise UserError(
            "set the length of the training in exactly one way: --tokens, --hours, or --max-update (in "
            "the recipe or after --)"
        )
    if hours is not None:
        if unusable := [flag for flag in UPDATE_FLAGS if recipe.value(flag) is not None]:
            raise UserError(
                f"--hours: cannot be combined with {' '.join(unusable)}, because the learning rate depends "
                "on elapsed time; remove one of them"
            )
        return recipe.replace(("--lr-scheduler", "time_budget", "--stop-time-hours", f"{hours:g}")), []
    if tokens is None:
        return recipe, []
    per_update = tokens_per_update(recipe, data)
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
    note = f"{tokens:,} tokens at {per_update:,} per update: {updates:,} updates ({total:,} tokens)"
    return recipe.replace(words), [note]


def tokens_per_update(recipe: Recipe, data: Path | None = None) -> int:
    """Tokens per update over all processes, with full batches; the last batch of an epoch may be smaller.

    The texts of a distillation end with their document. Their mean length is that in the folder `data`.
    Raises `UserError` if the recipe lacks --batch-size or --tokens-per-sample.
    """
    factors = []
    for flag in ("--batch-size", "--tokens-per-sample"):
        if not (value := recipe.number(flag)):
            raise UserError(
                f"recipe '{recipe.name}': --tokens requires {flag}; add it, or use --max-update instead"
            )
        factors.append(value)
    longest = factors[-1]
    factors += [recipe.number(flag) or 1 for flag in ("--update-freq", "--distributed-world-size")]
    total = math.prod(factors)
    if data is None or recipe.value("--task") != DISTILLATION:
        return total
    tokens, texts = _size_of_text(data, longest) or (longest, 1)
    return max(1, round(total * tokens / texts / longest))


def reading_note(recipe: Recipe, tokens: int | None, data: Path) -> list[str]:
    """What the teacher of a distillation reads, for the plan; `tokens` is the length of the training."""
    size = _size_of_text(data, recipe.number("--tokens-per-sample") or 1)
    if size is None:
        return []
    note = f"the teacher reads the training text of {size[0]:,} tokens once"
    if tokens is not None and tokens < size[0]:
        note += f", and the student only {tokens:,} of them: a smaller text saves the teacher's time"
    return [note]


def _size_of_text(data: Path, longest: int) -> tuple[int, int] | None:
    """Numbers of tokens, with `<s>`, and of training texts of a distillation, which have at most `longest`.

    None without texts, or for an index in another of fairseq's formats, whose sizes are unknown here.
    """
    from roberta_small.preprocess.indexed import text_blocks  # imports sentencepiece

    tokens = texts = 0
    for shard in shards_of(data):
        sizes = read_sizes(shard / "train.idx")
        if sizes is None:
            return None
        for begin, end in text_blocks(sizes.tolist(), longest - 1):
            tokens += end - begin + 1
            texts += 1
    return (tokens, texts) if texts else None


def parse_count(flag: str, text: str) -> int:
    """A positive integer, also as 5e6, 5_000_000 or 5M; raises `UserError` naming `flag` for other text."""
    match = re.fullmatch(r"([0-9][0-9_]*(?:\.[0-9]+)?(?:e[0-9]+)?)([kmg]?)", text.strip().lower())
    number = Decimal(match[1].replace("_", "")) * MULTIPLES[match[2]] if match else Decimal(0)
    if not (1 <= number < MAX_COUNT and number == number.to_integral_value()):
        raise UserError(f"{flag} {text!r}: not a positive integer; write 5000000, 5e6 or 5M")
    return int(number)
