"""How time and memory grow with the text, the number of runs and the number of predictions.

  text   writes text of each size (the documents of --text, repeatedly, in random order), binarizes it into
         shards and starts a pre-training of 20 updates; memory is the sum over all processes
  runs   writes each number of finished runs, then times planning, skipping, resuming and the tables
  lines  classifies each number of lines (those of --text, repeatedly) with each --checkpoint

Written to --out: text.json, runs.json or lines.json, and the table that is printed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import report, sample
from benchmarks.measure import say
from benchmarks.scale import lines as scale_lines
from benchmarks.scale import runs
from benchmarks.scale import text as scale_text
from benchmarks.settings import TEXT_OPTIONS, check_text_options
from roberta_small.common.cli import Parser
from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import atomic_write, shown_path
from roberta_small.common.tables import markdown
from roberta_small.experiments import provenance
from roberta_small.experiments.inputs import files as inputs

EXAMPLES = """\
examples:
  python -m benchmarks.scale text --gigabytes 0.2 2 20 --text corpus.txt --sentencepiece-model xlmr.model --dict dict.txt
  python -m benchmarks.scale runs --runs 100 1000 5000
  python -m benchmarks.scale lines --lines 10000 1000000 --checkpoint runs/fairseq/random/seed1 int8.onnx --text reviews.txt
"""  # noqa: E501


def main_parser() -> Parser:
    """The command line."""
    parser = Parser(
        prog="python -m benchmarks.scale",
        description=__doc__,
        examples=EXAMPLES,
    )
    parser.add_argument("what", choices=tuple(KINDS))
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.02, 0.2], help="GB of text")
    parser.add_argument(
        "--shard-gigabytes", type=float, default=1.0, help="GB of text per shard (default: %(default)s)"
    )
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 1000], help="numbers of runs")
    parser.add_argument("--lines", type=int, nargs="+", default=[10_000, 100_000], help="numbers of lines")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        nargs="+",
        metavar="PATH",
        default=[],
        help="for lines: what eval predict takes, such as a run folder or an .onnx file",
    )
    parser.add_argument(
        "--text",
        type=Path,
        help="plain UTF-8 text (default: of the sample); for text with a blank line between documents, for "
        "lines with one text per line",
    )
    parser.add_argument("--sentencepiece-model", type=Path, help="SentencePiece model of that text")
    parser.add_argument("--dict", dest="srcdict", type=Path, help="fairseq dictionary of these tokens")
    parser.add_argument("--data", type=Path, help="binarized classification folder for runs (sample)")
    parser.add_argument(
        "--scratch", type=Path, help="folder with free space for twice the text (default: /tmp)"
    )
    parser.add_argument(
        "--out", dest="output", type=Path, default=Path("bench-output"), help="default: %(default)s"
    )
    return parser


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Measure, write, print."""
    args = main_parser().parse_args(argv)
    if args.what != "lines":
        check_text_options(vars(args))
    if args.scratch is not None and not args.scratch.is_dir():
        raise UserError(f"{args.scratch}: no such folder; correct --scratch")
    if min(*args.gigabytes, args.shard_gigabytes, *args.runs, *args.lines) <= 0:
        raise UserError("--gigabytes, --shard-gigabytes, --runs and --lines must be above 0")
    if (args.what == "lines") != bool(args.checkpoint):
        raise UserError("--checkpoint: required for lines, and only for it")
    if args.data is not None:
        inputs.classification_files(args.data, ["train", "valid", "test"])
    with tempfile.TemporaryDirectory(prefix="scale-", dir=args.scratch) as name:
        rows = measure(args, Path(name))
    hardware = report.describe_machine(provenance.machine("cpu"))
    document = {"machine": hardware, "settings": shown(args), "rows": rows}
    atomic_write(args.output / f"{args.what}.json", json.dumps(document, indent=2) + "\n")
    text = report.machine_line({"machine": hardware, "device": "CPU"}) + "\n\n" + table(args.what, rows)
    atomic_write(args.output / f"{args.what}.md", text + "\n")
    print(text)
    return 0


def measure(args: argparse.Namespace, scratch: Path) -> list[dict[str, Any]]:
    """A row for each size, and for lines also for each checkpoint."""
    given = args.data if args.what == "runs" else args.text
    made = {} if given else sample.make(scratch / "sample")
    sizes = {"text": args.gigabytes, "runs": args.runs, "lines": args.lines}[args.what]
    rows = []
    for size, checkpoint in itertools.product(sizes, args.checkpoint or [None]):
        say(f"{args.what}: {size:g} {checkpoint or ''}".rstrip())
        with tempfile.TemporaryDirectory(dir=scratch) as name:
            if args.what == "runs":
                rows.append(runs.measure(size, (args.data or made["data"]).absolute(), Path(name)))
            elif args.what == "lines":
                text = args.text or scratch / "sample" / "text" / "test.input0"
                rows.append(scale_lines.measure(size, checkpoint.absolute(), text, Path(name)))
            else:
                files = [(getattr(args, option) or made[option]).absolute() for option in TEXT_OPTIONS]
                rows.append(scale_text.measure(size, *files, args.shard_gigabytes, Path(name)))
    return rows


def table(what: str, rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    header, cells = KINDS[what](rows)
    return markdown(header, cells, "r", pad=False).rstrip("\n")


def text_cells(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of `scale_text.measure`'s."""
    header = ["text", "tokens", "shards", "binary data", "binarize", "its speed", "its memory"]
    header += ["until the first batch", "memory of training"]
    return header, [
        [
            size(row["text_bytes"]), f"{row['tokens'] / 1e6:,.0f} M", str(row["shards"]),
            size(row["binary_bytes"]), report.duration(row["binarize_seconds"]),
            f"{row['text_bytes'] / row['binarize_seconds'] / 1e6:.1f} MB/s", mib(row["binarize_peak_bytes"]),
            report.duration(row["start_seconds"]), mib(row["training_peak_bytes"]),
        ]
        for row in rows
    ]  # fmt: skip


def run_cells(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of `scale_runs.measure`'s."""
    header = ["runs", "plan", "skip all", "plan, a tenth to resume", "tables", "memory of tables"]
    names = ("plan", "skip", "plan_resumption", "tables")
    return header, [
        [
            f"{row['runs']:,}",
            *(report.duration(row[f"{name}_seconds"]) for name in names),
            mib(row["tables_peak_bytes"]),
        ]
        for row in rows
    ]


def line_cells(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of `scale_lines.measure`'s."""
    header = ["checkpoint", "lines", "time", "lines/s", "memory"]
    return header, [
        [
            row["checkpoint"],
            f"{row['lines']:,}",
            report.duration(row["seconds"]),
            f"{row['lines'] / row['seconds']:,.0f}",
            mib(row["peak_bytes"]),
        ]
        for row in rows
    ]


KINDS = {"text": text_cells, "runs": run_cells, "lines": line_cells}
"""What is measured -> its table."""


def size(count: int) -> str:
    """Bytes in the powers of ten that disks are sold in."""
    return f"{count / 1e9:.3g} GB"


def mib(count: int) -> str:
    """Memory."""
    return f"{count / 2**20:,.0f} MiB"


def shown(args: argparse.Namespace) -> dict[str, Any]:
    """The settings without the places of files."""
    kept = {name: value for name, value in vars(args).items() if name not in ("scratch", "output")}
    return {name: _place(value) for name, value in kept.items()}


def _place(value: Any) -> Any:
    if isinstance(value, list):
        return [_place(one) for one in value]
    return shown_path(value) if isinstance(value, Path) else value


if __name__ == "__main__":
    sys.exit(main())
