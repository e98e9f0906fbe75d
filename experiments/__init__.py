"""Which runs exist, where they live, what is finished: calls fairseq-train, knows no model.

    settings -> recipes, grid, inputs -> experiment -> plan -> command -> runner (progress) -> manifest.json

or, between plan and runner, through SLURM:  slurm -> sbatch -> slurm_task on a node; slurm_watch waits

Read `train.py` first: it is the sweep from top to bottom.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
