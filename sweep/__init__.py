"""Which runs exist, where they live, what is finished: calls fairseq-train, knows no model.

    settings -> recipes, grid, inputs -> plan -> command -> runner (progress) -> manifest.json

Read `train.py` first: it is the sweep from top to bottom.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
