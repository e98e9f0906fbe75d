"""How time and memory grow with the text and with the number of runs.

  text   writes text of each size (the documents of --text, repeatedly, in random order), binarizes it into
         shards and starts a pre-training of 20 updates; memory is the sum over all processes
  runs   writes each number of finished runs, then times planning, skipping, resuming and the tables

Written to --out: text.json or runs.json, and the table that is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from common.cli import Parser
from common.errors import UserError, report_errors
from common.files import atomic_write, shown_path
from common.tables import markdown
from experiments import inputs, provenance

from .. import report, sample
from ..measure import say
from ..settings import TEXT_OPTIONS, check_text_options
from . import runs
from . import text as scale_text

EXAMPLES = """\
examples:
  python -m benchmarks.scale text --gigabytes 0.2 2 20 --text corpus.txt --sentencepiece-model xlmr.model --dict dict.txt
  python -m benchmarks.scale runs --runs 100 1000 5000
"""  # noqa: E501


def main_parser() -> Parser:
    """The command line."""
    parser = Parser(
        prog="python -m benchmarks.scale",
        description=__doc__,
        examples=EXAMPLES,
    )
    parser.add_argument("what", choices=("text", "runs"))
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.02, 0.2], help="GB of text")
    parser.add_argument(
        "--shard-gigabytes", type=float, default=1.0, help="GB of text per shard (default: %(default)s)"
    )
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 1000], help="numbers of runs")
    parser.add_argument("--text", type=Path, help="plain UTF-8 text, a blank line between documents (sample)")
    parser.add_argument("--sentencepiece-model", type=Path, help="SentencePiece model of that text")
    parser.add_argument("--dict", dest="srcdict", type=Path, help="fairseq dictionary of these tokens")
    parser.deprecated("--srcdict", "--dict")
    parser.add_argument("--data", type=Path, help="binarized classification folder for runs (sample)")
    parser.add_argument(
        "--scratch", type=Path, help="folder with free space for twice the text (default: /tmp)"
    )
    parser.add_argument(
        "--out", dest="output", type=Path, default=Path("bench-output"), help="default: %(default)s"
    )
    parser.deprecated("--output", "--out")
    return parser


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Measure, write, print."""
    args = main_parser().parse_args(argv)
    check_text_options(vars(args))
    if args.scratch is not None and not args.scratch.is_dir():
        raise UserError(f"{args.scratch}: no such folder; correct --scratch")
    if min(*args.gigabytes, args.shard_gigabytes, *args.runs) <= 0:
        raise UserError("--gigabytes, --shard-gigabytes and --runs must be above 0")
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
    """A row for each size."""
    given = args.text if args.what == "text" else args.data
    made = {} if given else sample.make(scratch / "sample")
    rows = []
    for size in args.gigabytes if args.what == "text" else args.runs:
        say(f"{args.what}: {size:g}")
        with tempfile.TemporaryDirectory(dir=scratch) as name:
            if args.what == "runs":
                rows.append(runs.measure(int(size), (args.data or made["data"]).absolute(), Path(name)))
            else:
                files = [(getattr(args, option) or made[option]).absolute() for option in TEXT_OPTIONS]
                rows.append(scale_text.measure(size, *files, args.shard_gigabytes, Path(name)))
    return rows


def table(what: str, rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    header, cells = (text_cells if what == "text" else run_cells)(rows)
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


def size(count: int) -> str:
    """Bytes in the powers of ten that disks are sold in."""
    return f"{count / 1e9:.3g} GB"


def mib(count: int) -> str:
    """Memory."""
    return f"{count / 2**20:,.0f} MiB"


def shown(args: argparse.Namespace) -> dict[str, Any]:
    """The settings without the places of files."""
    kept = {name: value for name, value in vars(args).items() if name not in ("scratch", "output")}
    return {name: shown_path(value) if isinstance(value, Path) else value for name, value in kept.items()}


if __name__ == "__main__":
    sys.exit(main())
