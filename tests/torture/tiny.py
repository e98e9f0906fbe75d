"""A sweep of two real trainings that take a second each once fairseq is there."""

import os
import sys
from pathlib import Path
from subprocess import STDOUT, Popen

from data_folders import write_data
from tiny_recipe import CLASSIFIER

from sweep.command import TRAINER

ROOT = Path(__file__).parents[2]
VICTIM = (sys.executable, str(Path(__file__).with_name("victim.py")))
FAKE = (sys.executable, str(ROOT / "tests/sweep/fake_trainer.py"))
"""Writes what fairseq-train writes, in milliseconds."""
SEEDS = (1, 2)
EPOCHS, UPDATES = 6, 57
"""Ten updates an epoch, the last one is cut short."""

RECIPE = f"""{CLASSIFIER}\
--encoder-layers 1
--max-epoch {EPOCHS}
--max-update {UPDATES}
--total-num-update {UPDATES}
--warmup-updates 3
--encoder packed
--num-workers 0
--log-interval 4    # the epochs are no multiple of it
--no-epoch-checkpoints
"""


def prepare(folder):
    """Data and recipe, for sweeps in folders beside them."""
    write_data(folder / "data", sizes={"train": 80, "valid": 16, "test": 16})
    (folder / "tiny.txt").write_text(RECIPE)
    return folder


def start(folder, *words, state=None, aim="", trainer=TRAINER):
    """The same command each time, in a session of its own; what it says is added to `said`."""
    flags = ["train", "--data", "../data", "--recipe", "../tiny.txt", "--out", "runs", "--device", "cpu"]
    flags += ["--inits", "random", "--seeds", *map(str, SEEDS), "--jobs", "1", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TORTURE_AIM": aim}
    if state is not None:
        environment["TORTURE_STATE"] = str(state)
    program = (
        f"import sys; from sweep.__main__ import main; sys.exit(main(sys.argv[1:], trainer={trainer!r}))"
    )
    with open(folder / "said", "ab") as said:
        return Popen(
            [sys.executable, "-P", "-c", program, *flags],
            cwd=folder,
            env=environment,
            stdout=said,
            stderr=STDOUT,
            start_new_session=True,
        )


def run(folder, *words, **options):
    """`start`, and wait: the exit code, and all that was ever said in this folder."""
    code = start(folder, *words, **options).wait()
    return code, (folder / "said").read_text(errors="replace")
