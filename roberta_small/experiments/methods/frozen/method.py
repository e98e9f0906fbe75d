"""The method frozen: its options and its runs. Importing this module does not import torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from roberta_small.common.cli import SettingsParser, flags_of
from roberta_small.common.errors import UserError
from roberta_small.common.files import shown_path
from roberta_small.common.run import BEST_CHECKPOINT
from roberta_small.eval.precision import AUTO, BF16, FP32, INT8
from roberta_small.experiments.inputs import prepare
from roberta_small.experiments.methods import MODEL, Command, Method
from roberta_small.experiments.recipe.architecture import LINEAR, POOLING, POSITIONS
from roberta_small.experiments.recipe.recipe import PRETRAINED, load
from roberta_small.experiments.settings import (
    HYPERPARAMETERS,
    SweepSettings,
    add_execution,
    add_hyperparameters,
    add_initial,
    sweep_settings,
)
from roberta_small.experiments.sweep import Sweep, Training, classifiers

SEED = "0"
RECIPE = "frozen"
PRECISIONS = (AUTO, FP32, BF16, INT8)
VECTORS = (POSITIONS, POOLING)
"""The flags of fairseq-train that the vector of a text depends on."""
AFTER = (POOLING, "--precision")
"""The flags that may follow --."""

DESCRIPTION = """\
A linear classifier of a pretrained encoder that is not trained: the encoder reads each text once, and a
logistic regression is fitted to its vectors (numeric labels: a ridge regression; several labels: a logistic
regression for each). The strength of the penalty is chosen by the loss on valid, among 13 values of C from
0.01 to 10000; the smallest one wins a tie. Test is not used for the choice.

The vectors are kept in vectors/ beside the data folder, by the weights and the tokens of a text, so that no
text is read twice. The run is an ordinary checkpoint with a linear classification head (--head linear), which
every command reads, and from which fine-tuning can start: --inits probed=OUT/frozen/INIT/seed0.

The vector of a text is the mean over all tokens; -- --pooling first is the first token. The encoder computes
in bf16 if the hardware is faster then, else in fp32; -- --precision int8 is faster on a CPU, and approximate.

The fit is deterministic: there is one run for each encoder, OUT/frozen/INIT/seed0."""

EXAMPLES = """examples:
  roberta-small train --method frozen --data reviews.csv --pretrained intfloat/multilingual-e5-small
  roberta-small train --method frozen --data reviews.csv --inits e5=models/e5 minilm=models/minilm --out runs
  roberta-small train --method frozen --data data/books --pretrained roberta_small_fr --max-length 512
  roberta-small train --data reviews.csv --inits probed=runs/frozen/pretrained/seed0 --no-baselines
"""


@dataclass(frozen=True, kw_only=True)
class FrozenSettings(SweepSettings):
    """Settings of the method."""

    precision: str
    """Of the encoder, one of `PRECISIONS`."""
    defaults: tuple[str, ...] = ()
    """Flags that replace those of the recipe."""


class Frozen(Method):
    """The method `frozen`."""

    name = "frozen"
    summary = "a linear classifier of the vectors of a pretrained encoder, which is not trained"
    outputs = (BEST_CHECKPOINT, MODEL)

    def add_arguments(self, parser: SettingsParser) -> None:
        """Add the options of the encoder, of its input and of the execution."""
        parser.description, parser.epilog = DESCRIPTION, EXAMPLES
        prepare.add_data(parser, " (required)")
        add_initial(parser)
        add_execution(parser)
        add_hyperparameters(parser, ["max-length"])
        prepare.add_options(parser)

    def settings(self, options: argparse.Namespace) -> FrozenSettings:
        """The settings; raises `UserError` without a pretrained encoder."""
        flags = flags_of(options.passthrough)
        if unknown := [flag for flag in flags if flag not in AFTER]:
            raise UserError(f"after --: {unknown[0]}: the method frozen accepts only {' and '.join(AFTER)}")
        precision = flags.pop("--precision", ("", AUTO))[-1]
        if precision not in PRECISIONS:
            raise UserError(f"after --: --precision {precision}: choose from {', '.join(PRECISIONS)}")
        if options.pretrained is None and options.inits is None:
            raise UserError(
                "--method frozen: needs a pretrained encoder; name one with --pretrained or --inits"
            )
        values = dict.fromkeys(["grid", *(name.replace("-", "_") for name in HYPERPARAMETERS)])
        values |= vars(options) | {"seeds": SEED, "arm": self.name, "recipe": RECIPE}
        values |= {"passthrough": [word for group in flags.values() for word in group]}
        found = sweep_settings(argparse.Namespace(**values | {"inits": options.inits or "pretrained"}))
        if None in found.given.values():
            raise UserError("--inits random: the method frozen needs pretrained weights; remove it")
        return self._settings(found, precision)

    def of_sweep(self, settings: SweepSettings) -> FrozenSettings:
        """The settings for the encoders and the vectors of a sweep."""

        def words(flags: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
            return tuple(word for flag in VECTORS for word in flags.get(flag, ()))

        grid = {name: values for name, values in settings.grid.items() if f"--{name}" in VECTORS}
        fixed = replace(
            settings, recipe=RECIPE, arm=self.name, seeds=(int(SEED),), grid=grid,
            passthrough=words(flags_of(settings.passthrough)), shipped=False, baselines=False,
        )  # fmt: skip
        defaults = words(load(settings.recipe, start=PRETRAINED).flags)
        return self._settings(fixed, AUTO, defaults)

    @staticmethod
    def _settings(settings: SweepSettings, precision: str, defaults: tuple[str, ...] = ()) -> FrozenSettings:
        # The head is that of the method, whatever head a checkpoint has.
        values = vars(settings) | {"passthrough": (*settings.passthrough, *LINEAR)}
        return FrozenSettings(**values, precision=precision, defaults=defaults)

    def sweep(self, settings: FrozenSettings, data: Path) -> Sweep:
        """One run for each encoder."""
        recorded = [] if settings.precision == AUTO else ["--precision", settings.precision]
        return classifiers(
            settings,
            data,
            defaults=settings.defaults,
            recorded=recorded,
            packages=("scikit-learn", "scipy"),
        )

    def command(self, sweep: Sweep, training: Training, *, resume: bool, cpu: bool) -> Command:
        """The process that fits and writes the run."""
        run = training.run
        assert run.checkpoint is not None
        argv = (
            *(sys.executable, "-P", "-m", "roberta_small.experiments.methods.frozen.fit"),
            *("cpu" if cpu else "auto", sweep.settings.precision, str(run.checkpoint.absolute())),
            *(str(run.folder.absolute()), str(sweep.data.absolute()), *training.flags),
        )
        own, usual = training.recipe.flags, load(RECIPE).flags
        given = {
            flag: own[flag] for flag in VECTORS if own[flag] != usual[flag] and flag not in training.added
        }
        after = given.get(POOLING, ())
        if sweep.settings.precision != AUTO:
            after += ("--precision", sweep.settings.precision)
        shown = (
            *("roberta-small", "train", "--method", self.name, "--data", shown_path(sweep.data)),
            *("--inits", f"{run.init}={sweep.inits[run.init]}", "--out", shown_path(sweep.settings.out)),
            *(("--max-length", *given[POSITIONS][1:]) if POSITIONS in given else ()),
            *(("--", *after) if after else ()),
        )
        return Command(argv, shown)


METHOD = Frozen()
