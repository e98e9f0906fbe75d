"""Measure this project and the usual tools on the same task.

Every contender runs in fresh processes, rounds alternate between them, and ratios are those of
medians. Run nothing else on the machine meanwhile. Without --data, --corpus and --text the small generated
sample is used; use your own data for meaningful numbers.

  floor      what the machine can do at most, and the least time of an update
  finetune   an update of fine-tuning: stock fairseq, ours, Transformers
  masked-lm  an update of pre-training, tokens a second and model FLOPs a second
  classify   classifying the test split
  sweep      six runs with validation and saving (long)
  binarize   raw text to binary data
  causal     an update of the left-to-right classifier: a plain PyTorch loop, ours
  causal-lm  the same of its pre-training
  logs       TensorBoard logs of 200 runs to tables
  profile    the operators of our own updates
  busy       what our training, pre-training and classification keep of their speed beside a process
  start      commands from start to end, warm and cold: help, a prediction, the first update, tables

How time and memory grow with text and runs is measured by python -m benchmarks.scale.

Written to --out: benchmarks.json, benchmarks.md, benchmarks.png, profile.md and the contenders' logs.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks import report, sample
from benchmarks.comparisons import (
    binarize,
    busy,
    causal,
    classify,
    finetune,
    floor,
    logs,
    masked_lm,
    start,
    sweep,
)
from benchmarks.measure import say
from benchmarks.settings import POSITIONS, SIZES, Settings, check_text_options
from roberta_small.common.cli import DEVICES, Parser, positive
from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import shown_path
from roberta_small.experiments import provenance
from roberta_small.experiments.inputs import files as inputs

BENCHMARKS: dict[str, Callable[[Settings], dict[str, Any]]] = {
    "floor": floor.run,
    "finetune": finetune.run,
    "masked-lm": masked_lm.run,
    "classify": classify.run,
    "sweep": sweep.run,
    "binarize": binarize.run,
    "causal": causal.finetune,
    "causal-lm": causal.pretrain,
    "logs": logs.run,
    "profile": finetune.profile,
    "busy": busy.run,
    "start": start.run,
}
EXAMPLES = """\
examples:
  make bench
  python -m benchmarks floor finetune --data data/cls-books --rounds 5 --quick
  python -m benchmarks --data data/cls-books --corpus data/corpus --out bench-output/cls-books
  python -m benchmarks finetune --size base --batch-sizes 8 32 --updates 36 --warm-up 3 --data data/cls-books
  python -m benchmarks binarize --text news.txt --sentencepiece-model xlmr.model --dict dict.txt
"""


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """The command line; raises `UserError` for an unknown benchmark or an incomplete set of text options."""
    parser = Parser(
        prog="python -m benchmarks",
        description=__doc__,
        examples=EXAMPLES,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure (default: all)")
    parser.add_argument("--data", type=_path, help="binarized classification folder (default: sample)")
    parser.add_argument("--corpus", type=_path, help="binarized folder of unlabelled text (default: sample)")
    parser.add_argument("--text", type=_path, help="plain UTF-8 text for binarize (default: sample)")
    parser.add_argument("--sentencepiece-model", type=_path, help="SentencePiece model of that text")
    parser.add_argument("--dict", dest="srcdict", type=_path, help="fairseq dictionary of these tokens")
    parser.add_argument("--device", choices=DEVICES, default="auto", help="default: %(default)s")
    for name, explanation in (
        ("rounds", "of all contenders but those of sweep (one) and start (ten)"),
        ("updates", "of finetune, including --warm-up, with 8 sentences each; larger batches get fewer"),
        ("warm_up", "updates of finetune that are not timed"),
        ("epochs", "of each run of sweep"),
        ("workers", "processes of binarize"),
    ):
        default = getattr(Settings, name)
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=int,
            default=default,
            help=f"{explanation} (default: {default})",
        )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="compare only the fastest setting of each tool in finetune, masked-lm and classify",
    )
    parser.add_argument(
        "--size",
        choices=SIZES,
        default="small",
        help="of the model; base: 12 x 768 with 512 positions, of which finetune and classify compare only "
        "ours with the fastest settings of Transformers (default: %(default)s)",
    )
    parser.add_argument(
        "--batch-sizes",
        type=positive,
        nargs="+",
        metavar="N",
        default=[Settings.batch_size],
        help=f"sentences of an update of finetune, one comparison each (default: {Settings.batch_size})",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=Settings.limit,
        help="maximum seconds of a process (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        dest="output",
        type=_path,
        default="bench-output",
        help="output folder, overwritten (default: %(default)s)",
    )
    args = parser.parse_args(argv)
    if unknown := [name for name in args.names if name not in BENCHMARKS]:
        raise UserError(f"{', '.join(unknown)}: no such benchmark; there are {', '.join(BENCHMARKS)}")
    check_text_options(vars(args))
    if min(args.rounds, args.epochs, args.workers, args.warm_up, args.limit) < 1:
        raise UserError("--rounds, --epochs, --workers, --warm-up and --limit are at least 1")
    if args.updates < args.warm_up + 2:
        raise UserError(f"--updates {args.updates}: at least {args.warm_up + 2}, two more than --warm-up")
    return args


def prepare(args: argparse.Namespace, scratch: Path) -> Settings:
    """Settings from the command line; the generated sample replaces data that are not given."""
    given = {field.name: getattr(args, field.name) for field in fields(Settings) if hasattr(args, field.name)}
    given = {name: value for name, value in given.items() if value is not None}
    given |= {"sizes": SIZES[args.size], "max_positions": POSITIONS[args.size]}
    given["best_only"] = args.size != "small"
    if args.data:
        inputs.classification_files(args.data, ["train", "valid", "test"])
    if args.corpus:
        inputs.masked_lm_files(args.corpus, ["train", "valid"])
    if not (args.data and args.corpus and args.text):
        say("preparing: the generated sample")
        given = sample.make(scratch / "sample") | given
    return Settings(**given, scratch=scratch, machine=provenance.machine(args.device))


def describe(settings: Settings) -> dict[str, Any]:
    """Machine, device and settings: the first keys of benchmarks.json."""
    place = report.describe_machine(settings.machine)
    left_out = ("machine", "sizes", "causal_sizes", "scratch", "output")
    kept = {name: value for name, value in vars(settings).items() if name not in left_out}
    shown = {
        name: _place(value, settings.scratch) if isinstance(value, Path) else value
        for name, value in kept.items()
    }
    return {
        "machine": place,
        "device": place["hardware"]["gpu"] or "CPU",
        "settings": shown | {"sizes": vars(settings.sizes)},
        "benchmarks": [],
    }


def _place(path: Path, scratch: Path) -> str:
    """A path as a user would type it, or relative to the temporary folder."""
    return str(path.relative_to(scratch)) if path.is_relative_to(scratch) else shown_path(path)


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Measure, write, print; exit code 1 if one of our own contenders failed."""
    args = parse_args(argv)
    # SIGTERM stops the contenders as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        settings = prepare(args, Path(folder))
        document = describe(settings)
        for name in args.names or BENCHMARKS:
            for size in args.batch_sizes if name == "finetune" else args.batch_sizes[:1]:
                document["benchmarks"].append(BENCHMARKS[name](settings.with_batch_size(size)))
                # After each, so that an interruption loses nothing.
                text = report.write(document, args.output)
                report.save(document, args.output)
    print(text)
    rows = [row for result in document["benchmarks"] for row in result.get("contenders", ())]
    return int(any(row["ours"] and "problem" in row for row in rows))


def _path(text: str) -> Path:
    return Path(os.path.abspath(text))


if __name__ == "__main__":
    sys.exit(main())
