"""Measure this project and the usual tools on the same task.

Every contender runs in fresh processes, rounds alternate between them, and ratios are those of
medians. Run nothing else on the machine meanwhile. Without --data and --corpus the small generated
sample is used; use your own data for meaningful numbers.

With --encoder, finetune and classify measure that encoder instead of roberta_small: an update, and making a
vector of each of 1,000 texts. First, the tools must agree. sentence-transformers is compared if it is
installed (pip install sentence-transformers).

{comparisons}

Written to --out: benchmarks.json, benchmarks.md, benchmarks.png and the contenders' logs.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from benchmarks import fairseq_commands, report
from benchmarks.comparisons import COMPARISONS
from benchmarks.measure import say
from benchmarks.settings import POSITIONS, SIZES, Settings, encode, make_sample
from roberta_small.common.cli import DEVICES, Parser, positive
from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import shown_path
from roberta_small.experiments import provenance
from roberta_small.experiments.inputs import files as inputs
from roberta_small.experiments.inputs.checkpoints import CONFIG

LEAST_UPDATES = 3
"""The first is not timed, and the last has no end."""
EXAMPLES = """\
examples:
  make bench
  python -m benchmarks floor finetune --data data/cls-books --rounds 5 --quick
  python -m benchmarks --data data/cls-books --corpus data/corpus --out bench-output/cls-books
  python -m benchmarks finetune --size base --quick --updates 36 --data data/cls-books
  python -m benchmarks finetune classify --encoder models/multilingual-e5-small --data data/cls-books
"""
OF_ENCODERS = ("finetune", "classify")
"""The comparisons that --encoder changes."""
NUMBERS = {
    "rounds": "of all contenders",
    "batch-size": "sentences of an update of finetune",
    "updates": "of finetune; the first ones, a fifth or on a GPU a half, are not timed",
}


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """The command line; raises `UserError` for an unknown comparison or too few updates."""
    listed = [f"  {name:10} {str(module.__doc__).splitlines()[0]}" for name, module in COMPARISONS.items()]
    parser = Parser(
        prog="python -m benchmarks",
        description=(__doc__ or "").replace("{comparisons}", "\n".join(listed)),
        examples=EXAMPLES,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure (default: all)")
    parser.add_argument("--data", type=_path, help="binarized classification folder (default: sample)")
    parser.add_argument("--corpus", type=_path, help="binarized folder of unlabelled text (default: sample)")
    parser.add_argument("--device", choices=DEVICES, default="auto", help="default: %(default)s")
    for name, explanation in NUMBERS.items():
        default = getattr(Settings, name.replace("-", "_"))
        text = f"{explanation} (default: {default})"
        parser.add_argument(f"--{name}", type=positive, default=default, metavar="N", help=text)
    parser.add_argument("--quick", action="store_true", help="compare only the fastest setting of each tool")
    model = parser.add_mutually_exclusive_group()
    model.add_argument(
        "--size", choices=SIZES, default="small",
        help="of the model; base: 12 x 768 with 512 positions (default: %(default)s)",
    )  # fmt: skip
    model.add_argument("--encoder", type=_path, help="folder of Transformers, for finetune and classify")
    parser.add_argument(
        "--out", dest="output", type=_path, default="bench-output",
        help="output folder, overwritten (default: %(default)s)",
    )  # fmt: skip
    args = parser.parse_args(argv)
    if unknown := [name for name in args.names if name not in COMPARISONS]:
        raise UserError(f"{', '.join(unknown)}: no such comparison; there are {', '.join(COMPARISONS)}")
    if args.encoder and (others := set(args.names) - set(OF_ENCODERS)):
        raise UserError(f"--encoder: not for {', '.join(sorted(others))}; only for {', '.join(OF_ENCODERS)}")
    if args.encoder and not (args.encoder / CONFIG).is_file():
        raise UserError(f"--encoder {args.encoder}: no {CONFIG} there; name a folder of save_pretrained")
    if args.updates < LEAST_UPDATES:
        raise UserError(f"--updates {args.updates}: at least {LEAST_UPDATES}")
    return args


def prepare(args: argparse.Namespace, scratch: Path) -> Settings:
    """Settings from the command line; the generated sample replaces data that are not given."""
    if args.data:
        inputs.classification_files(args.data, ["train", "valid", "test"])
    if args.corpus:
        inputs.masked_lm_files(args.corpus, ["train", "valid"])
    sample = scratch / "sample"
    if not (args.data and (args.corpus or args.encoder)):
        say("preparing: the generated sample")
        make_sample(sample)
    given = {field.name: getattr(args, field.name) for field in fields(Settings) if hasattr(args, field.name)}
    given |= {"data": args.data or sample / "reviews", "corpus": args.corpus or sample / "corpus"}
    given |= {"sizes": SIZES[args.size], "max_positions": POSITIONS[args.size]}
    machine = provenance.machine(args.device)
    given["warm_up"] = max(1, args.updates // (5 if machine.cpu else 2))
    settings = Settings(**given, sample=sample, scratch=scratch, machine=machine)
    if settings.encoder is None:
        return settings
    encoded = scratch / f"{settings.data.name} in tokens of {settings.encoder.name}"
    encode(settings.data, settings.encoder, encoded)
    settings = replace(settings, data=encoded)
    return replace(settings, planned=fairseq_commands.planned(settings))


def describe(settings: Settings) -> dict[str, Any]:
    """Machine, device and settings: the first keys of benchmarks.json."""
    place = report.describe_machine(settings.machine)
    left_out = ("machine", "sizes", "scratch", "sample", "output", "planned")
    kept = {name: value for name, value in vars(settings).items() if name not in left_out}
    scratch = settings.scratch
    for name, path in kept.items():
        if isinstance(path, Path):
            kept[name] = str(path.relative_to(scratch)) if path.is_relative_to(scratch) else shown_path(path)
    return {
        "machine": place,
        "device": place["hardware"]["gpu"] or "CPU",
        "settings": kept | {"sizes": vars(settings.sizes)},
        "benchmarks": [],
    }


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Measure, write, print; exit code 1 if one of our own contenders failed."""
    args = parse_args(argv)
    # SIGTERM stops the contenders as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        settings = prepare(args, Path(folder))
        document = describe(settings)
        for name in args.names or (OF_ENCODERS if args.encoder else COMPARISONS):
            document["benchmarks"].append(COMPARISONS[name].run(settings))
            text = report.write(document, args.output)  # after each, so that an interruption loses nothing
    print(text)
    rows = [row for result in document["benchmarks"] for row in result.get("contenders", ())]
    return int(any(row["ours"] and "problem" in row for row in rows))


def _path(text: str) -> Path:
    return Path(os.path.abspath(text))


if __name__ == "__main__":
    sys.exit(main())
