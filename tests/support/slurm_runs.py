"""Runs of the SLURM tests, and how two of them are compared."""

import itertools
import json
from pathlib import Path

RANDOM = ["--inits", "random", "--seeds", "1", "2"]
RUN1, RUN2 = Path("runs/fairseq/random/seed1"), Path("runs/fairseq/random/seed2")
VARYING = ("started", "ended", "seconds", "command", "hardware")
"""Manifest keys that depend on time and machine."""


def calls(cluster):
    """The options of each call of sbatch."""
    return [json.loads(line) for line in (cluster / "sbatch-calls").read_text().splitlines()]


def constant(content):
    """A manifest without the keys that depend on time and machine."""
    return {key: value for key, value in content.items() if key not in VARYING}


def table(out):
    """The words of the final table, which has a column of states, without its last column, the times."""
    lines = out.splitlines()
    first = max(i for i, line in enumerate(lines) if {"init", "status"} <= set(line.split()))
    return [line.split()[:-1] for line in itertools.takewhile(bool, lines[first:])]
