"""How long raw text takes to become fairseq's binary data: `preprocess binarize` against the stock tools.

stock   a loop over the lines with SentencePiece's Python package, which writes the text of the pieces,
        then `fairseq-preprocess --only-source --workers N`
ours    `python -m preprocess binarize --only-source --workers N`

Every run is a fresh process, rounds alternate between the two, and the ratio is that of the medians.
The result is compared byte by byte.

    python -m benchmarks --text news.txt --sentencepiece-model sentencepiece.bpe.model \\
        --srcdict dict.txt --output bench-output/binarize.json
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from common.files import atomic_write, sha256

REPOSITORY = Path(__file__).resolve().parents[1]
STOCK_LOOP = """
import sys, sentencepiece
model, text, pieces = sys.argv[1:]
processor = sentencepiece.SentencePieceProcessor(model_file=model)
with open(text, encoding="utf-8", newline="\\n") as source, open(pieces, "w", encoding="utf-8") as target:
    for line in source:
        print(" ".join(processor.encode(line.rstrip("\\n"), out_type=str)), file=target)
"""
FILES = ("dict.txt", "train.bin", "train.idx")


def run_stock(args: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Seconds of both stock steps."""
    pieces = str(folder / "pieces")
    encode = [sys.executable, "-c", STOCK_LOOP, args.sentencepiece_model, args.text, pieces]
    binarize = [sys.executable, "-m", "fairseq_cli.preprocess", "--only-source", "--srcdict", args.srcdict]
    binarize += ["--trainpref", pieces, "--destdir", str(folder / "stock"), "--workers", str(args.workers)]
    return {"sentencepiece loop": _timed(encode), "fairseq-preprocess": _timed(binarize)}


def run_ours(args: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Seconds of the one command."""
    command = [sys.executable, "-m", "preprocess", "binarize", "--only-source", "--trainpref", args.text]
    command += ["--sentencepiece-model", args.sentencepiece_model, "--srcdict", args.srcdict]
    command += ["--destdir", str(folder / "ours"), "--workers", str(args.workers)]
    return {"preprocess binarize": _timed(command)}


def run_round(args: argparse.Namespace) -> dict[str, float]:
    """Seconds of each step of both; stops the program where their files differ."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds = run_stock(args, folder) | run_ours(args, folder)
        _, differing, missing = filecmp.cmpfiles(folder / "stock", folder / "ours", FILES, shallow=False)
    if differing or missing:
        raise SystemExit(f"error: not the same as stock: {', '.join(differing + missing)}")
    return seconds


def summarize(args: argparse.Namespace, rounds: Sequence[dict[str, float]]) -> dict[str, object]:
    """Medians, their ratio, and what is needed to judge them."""
    medians = {step: round(statistics.median(seconds[step] for seconds in rounds), 3) for step in rounds[0]}
    ours = [seconds["preprocess binarize"] for seconds in rounds]
    stock = [sum(seconds.values()) - own for seconds, own in zip(rounds, ours, strict=True)]
    size = os.path.getsize(args.text)
    return {
        "text": {"name": Path(args.text).name, "bytes": size, "sha256": sha256(args.text)},
        "workers": args.workers,
        "rounds": [{step: round(value, 3) for step, value in seconds.items()} for seconds in rounds],
        "medians": medians | {"stock": round(statistics.median(stock), 3)},
        "ratio_of_medians": round(statistics.median(stock) / statistics.median(ours), 2),
        "identical": True,
        "hardware": {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "packages": {name: version(name) for name in ("sentencepiece", "fairseq-fixed", "numpy")},
    }


def markdown(result: dict) -> str:
    """The result as a table for the reader."""
    megabytes = result["text"]["bytes"] / 1e6
    medians = result["medians"]
    rows = ["| step | median s | MB/s |", "|---|---:|---:|"]
    rows += [f"| {step} | {seconds:.2f} | {megabytes / seconds:.1f} |" for step, seconds in medians.items()]
    summary = (
        f"{result['text']['name']}, {megabytes:.1f} MB, {len(result['rounds'])} rounds, "
        f"{result['workers']} workers: {result['ratio_of_medians']:.1f} times faster, same bytes"
    )
    return "\n".join([*rows, "", summary])


def _timed(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The settings; without a text, the sample corpus is used."""
    parser.add_argument("--text", type=os.path.abspath, help="plain UTF-8 text (default: sample corpus)")
    parser.add_argument("--sentencepiece-model", type=os.path.abspath, help="model of the text's pieces")
    parser.add_argument("--srcdict", type=os.path.abspath, help="fairseq dictionary of these pieces")
    parser.add_argument("--workers", type=int, default=2, help="for both (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved (default: %(default)s)")
    parser.add_argument("--output", default="bench-output/binarize.json", help="JSON (default: %(default)s)")


def run(args: argparse.Namespace) -> None:
    """Run the rounds, print the table, write the JSON."""
    rounds = []
    for number in range(1, args.rounds + 1):
        rounds.append(run_round(args))
        print(f"round {number}: {rounds[-1]}", file=sys.stderr)
    result = summarize(args, rounds)
    atomic_write(args.output, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    print(markdown(result))
