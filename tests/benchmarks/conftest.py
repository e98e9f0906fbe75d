import random
from pathlib import Path

import pytest

from benchmarks.settings import Settings, Sizes
from roberta_small.experiments.provenance import Machine
from tests.support.data_folders import FIRST_PIECE, PIECES, write_data, write_dictionary, write_split

TINY = Sizes(layers=1, embed=16, ffn=16, heads=2)


def write_corpus(root: Path) -> Path:
    rng = random.Random(0)
    for split in ("train", "valid"):
        rows = [[rng.randrange(FIRST_PIECE, FIRST_PIECE + PIECES) for _ in range(40)] for _ in range(60)]
        write_split(root, split, rows)
    write_dictionary(root / "dict.txt", [f"piece{i}" for i in range(PIECES)])
    return root


@pytest.fixture(scope="session")
def settings(tmp_path_factory):
    """A model of one layer, five updates, one round, on generated folders."""
    root = tmp_path_factory.mktemp("benchmarks")
    (root / "scratch").mkdir()
    return Settings(
        data=write_data(root / "reviews"),
        corpus=write_corpus(root / "corpus"),
        sample=root / "sample",
        scratch=root / "scratch",
        output=root / "output",
        machine=Machine(gpus=(), threads=1),
        sizes=TINY,
        rounds=1,
        updates=5,
        warm_up=1,
        blocks=2,
        block_tokens=16,
        lm_updates=4,
        lm_warm_up=1,
    )
