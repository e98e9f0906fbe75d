"""Trainings of one second (without the import of fairseq): a sweep of two runs, a sharded pre-training."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import STDOUT, Popen

from roberta_small.experiments.methods.fairseq import TRAINER
from tests.support.data_folders import write_data, write_shards
from tests.support.tiny_recipe import CLASSIFIER, SIZES

ROOT = Path(__file__).parents[2]
TRACED = (sys.executable, str(Path(__file__).with_name("traced_trainer.py")))
FAKE = (sys.executable, str(ROOT / "tests/support/fake_trainer.py"))
"""Writes what fairseq-train writes, in milliseconds."""


@dataclass(frozen=True)
class Work:
    """A command, and the runs that it makes in a folder beside data and recipe."""

    command: str
    flags: tuple[str, ...]
    recipe: str
    write_data: Callable[[Path], Path]
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    """Of the runs, in this order."""
    updates: int
    """Of each run."""


EPOCHS, UPDATES = 6, 57
"""Ten updates an epoch, the last one is cut short."""
SEEDS = (1, 2)

STEPS = f"""\
--max-update {UPDATES}
--total-num-update {UPDATES}
--warmup-updates 3
--encoder packed
--num-workers 0
--log-interval 4    # the epochs are no multiple of it
--no-epoch-checkpoints
"""

SWEEP = Work(
    command="train",
    flags=("--out", "runs", "--inits", "random", "--seeds", *map(str, SEEDS), "--jobs", "1"),
    recipe=f"{CLASSIFIER}--encoder-layers 1\n--max-epoch {EPOCHS}\n{STEPS}",
    write_data=lambda folder: write_data(folder, sizes={"train": 80, "valid": 16, "test": 16}),
    runs=tuple(f"runs/fairseq/random/seed{seed}" for seed in SEEDS),
    seeds=SEEDS,
    updates=UPDATES,
)

PRETRAINING = Work(
    command="pretrain",
    flags=("--out", "pretrained"),
    recipe=f"""\
--task masked_lm
--criterion fast_masked_lm
--bag-of-words 1
--arch roberta_small
{SIZES}--encoder-layers 1
--tokens-per-sample 16
--max-positions 16
--sample-break-mode none
--batch-size 4
--lr 1e-2
--lr-scheduler polynomial_decay
--optimizer fused_adam
--precision fp32
--save-interval-updates 7
--keep-interval-updates 1
{STEPS}""",
    write_data=lambda folder: write_shards(folder, [10, 14, 12]),
    runs=("pretrained",),
    seeds=(1,),
    updates=UPDATES,
)


def prepare(folder, work=SWEEP):
    """Data and recipe, for sweeps in folders beside them."""
    work.write_data(folder / "data")
    (folder / "tiny.txt").write_text(work.recipe)
    return folder


def start(folder, *words, work=SWEEP, state=None, aim="", trainer=TRAINER):
    """The same command each time, in a session of its own; what it says is added to `said`."""
    places = ("--data", "../data", "--recipe", "../tiny.txt", "--device", "cpu")
    flags = [work.command, *places, *work.flags, *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "FAULTS_AIM": aim}
    if state is not None:
        environment["FAULTS_STATE"] = str(state)
    program = (
        "import sys; from roberta_small.experiments.__main__ import main;"
        f"sys.exit(main(sys.argv[1:], trainer={trainer!r}))"
    )
    with open(folder / "said", "ab") as said:
        return Popen(
            [sys.executable, "-P", "-c", program, *flags], cwd=folder, env=environment, stdout=said,
            stderr=STDOUT, start_new_session=True,
        )  # fmt: skip


def run(folder, *words, **options):
    """`start`, and wait: the exit code, and all that was ever said in this folder."""
    code = start(folder, *words, **options).wait()
    return code, (folder / "said").read_text(errors="replace")
