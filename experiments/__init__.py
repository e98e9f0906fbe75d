"""Trains runs: which runs there are, where they are written, which are finished.

    settings -> recipe, grid, inputs -> experiment -> plan -> launcher (local or SLURM) -> manifest.json

`methods/` has the trainers, `launchers/` starts their processes. Read `train.py` first: it is the sweep from
start to end.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
