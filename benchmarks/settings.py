"""Settings of all comparisons, and the generated sample that replaces data that are not given."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roberta_small.common.errors import UserError
from roberta_small.common.files import ROOT
from roberta_small.experiments.provenance import Machine


@dataclass(frozen=True)
class Sizes:
    """Sizes of the model; the defaults are those of `roberta_small`."""

    layers: int = 4
    embed: int = 512
    ffn: int = 512
    heads: int = 8

    def flags(self) -> dict[str, str]:
        """The flags of fairseq's RoBERTa."""
        return {
            "--encoder-layers": str(self.layers),
            "--encoder-embed-dim": str(self.embed),
            "--encoder-ffn-embed-dim": str(self.ffn),
            "--encoder-attention-heads": str(self.heads),
        }


SIZES = {"small": Sizes(), "base": Sizes(layers=12, embed=768, ffn=3072, heads=12)}
"""The values of --size: `roberta_small` and `roberta_base`."""
POSITIONS = {"small": 256, "base": 512}
"""Longest sentence in tokens: that of the reference recipe, and all positions of `roberta_base`."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One call of `python -m benchmarks`."""

    data: Path
    """Binarized folder for classification (input0/, label/)."""
    corpus: Path
    """Binarized folder of unlabelled text (dict.txt, train.bin, ...)."""
    sample: Path
    """Folder of the generated sample, see `make_sample`."""
    scratch: Path
    """For checkpoints and the like; removed at the end."""
    output: Path
    machine: Machine
    sizes: Sizes = Sizes()
    max_positions: int = POSITIONS["small"]
    rounds: int = 3
    batch_size: int = 8
    updates: int = 50
    """Of fine-tuning, of which the first `warm_up` and the last one are not timed."""
    warm_up: int = 10
    blocks: int = 32
    """Blocks of `block_tokens` tokens in an update of masked-lm."""
    block_tokens: int = 256
    lm_updates: int = 12
    """Of masked-lm, of which the first `lm_warm_up` and the last one are not timed."""
    lm_warm_up: int = 3
    quick: bool = False
    """Whether only the fastest setting of each tool is compared."""
    encoder: Path | None = None
    """Folder of Transformers that replaces the model of `sizes`; `data` are then in its tokens."""
    planned: tuple[str, ...] = ()
    """Its checkpoint and flags (`fairseq_commands.planned`)."""


def make_sample(folder: Path) -> None:
    """Write text/ and the data folders reviews/ and corpus/ below `folder`."""
    text, corpus = folder / "text", folder / "corpus"
    running = ["--corpus", text / "corpus.train.txt", "--valid", text / "corpus.valid.txt"]
    reviews = [text / "train.input0", "--valid", text / "valid.input0", "--test", text / "test.input0"]
    for words in (  # in processes of their own, to keep the memory of this one small
        ["roberta_small.preprocess.sample", "--out", text],
        ["roberta_small", "prepare", *running, "--vocabulary-size", 1300, "--out", corpus],
        ["roberta_small", "prepare", *reviews, "--tokenizer", corpus, "--out", folder / "reviews"],
    ):
        run_quietly(words)


def encode(data: Path, encoder: Path, folder: Path) -> None:
    """Write the texts of a data folder as another folder, in the tokens of the encoder."""
    train, valid, test = (data / "text" / f"{split}.input0" for split in ("train", "valid", "test"))
    words = [train, "--valid", valid, "--test", test, "--tokenizer", encoder, "--out", folder]
    run_quietly(["roberta_small", "prepare", *words])


def run_quietly(words: Sequence[object]) -> None:
    """Run a module of this project with these words; raises `UserError` with its last line if it fails."""
    command = [sys.executable, "-m", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise UserError(f"{words[0]}: {done.stderr.strip().splitlines()[-1].removeprefix('error: ')}")
