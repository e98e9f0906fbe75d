"""Processor time and peak memory of `roberta-small predict`, with one run of each method and initialization.

    python results/encoders/prediction.py books-1800 movies-1800 ... > results/encoders/prediction.csv

reads all texts of the table `data/NAME.csv` with the first run of each folder in `runs/NAME`, in one thread.
The start of the program, which imports torch and fairseq, is part of it. Seconds are those of 1,000 texts.
"""

import csv
import os
import subprocess
import sys
from pathlib import Path

OUT = Path("runs/predicted.jsonl")


def predict(run: Path, table: Path) -> tuple[float, float]:
    """Seconds of processor time and MiB of the command."""
    OUT.unlink(missing_ok=True)
    command = ["roberta-small", "predict", "--checkpoint", run, "--input", table, "--out", OUT]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(process.returncode)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main(names: list[str]) -> None:
    """Write the table."""
    writer = csv.writer(sys.stdout)
    writer.writerow(["data", "group", "texts", "cpu_seconds_per_1000", "peak_mib"])
    for name in names:
        table = Path("data", f"{name}.csv")
        if not table.is_file():
            sys.exit(f"{table}: no such file; write it with make_data.py")
        with open(table, encoding="utf-8", newline="") as stream:
            texts = sum(1 for _ in csv.DictReader(stream))
        for group in sorted({run.parent for run in Path("runs", name).glob("*/*/seed*")}):
            seconds, mib = predict(min(group.glob("seed*")), table)
            group = group.relative_to(Path("runs", name))
            writer.writerow([name, group, texts, f"{1000 * seconds / texts:.2f}", f"{mib:.0f}"])


if __name__ == "__main__":
    main(sys.argv[1:])
