"""Settings of all benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from roberta_small.common.errors import UserError
from roberta_small.experiments.provenance import Machine

TEXT_OPTIONS = ("text", "sentencepiece_model", "srcdict")
"""Text, SentencePiece model and dictionary: all three are specified, or the sample's are used."""


def check_text_options(given: Mapping[str, Path | None]) -> None:
    """Raise `UserError` if only some of `TEXT_OPTIONS` are given, or if a file does not exist."""
    paths = {name: given.get(name) for name in TEXT_OPTIONS}
    if any(paths.values()) and not all(paths.values()):
        raise UserError("--text, --sentencepiece-model and --dict belong together; give all or none")
    for name, path in paths.items():
        if path is not None and not path.is_file():
            raise UserError(
                f"{path}: no such file; correct --{'dict' if name == 'srcdict' else name.replace('_', '-')}"
            )


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
    text: Path
    """Plain text for `binarize`, with the two files that follow."""
    sentencepiece_model: Path
    srcdict: Path
    scratch: Path
    """For checkpoints and the like; removed at the end."""
    output: Path
    machine: Machine
    sizes: Sizes = Sizes()
    causal_sizes: Sizes = Sizes(layers=4, embed=200, ffn=200, heads=2)
    """Of `causal_lm_small`."""
    rounds: int = 3
    workers: int = 2
    """Processes of `binarize`."""
    batch_size: int = 8
    updates: int = 50
    """Of fine-tuning, of which the first `warm_up` are not timed."""
    warm_up: int = 10
    blocks: int = 32
    """Blocks of `block_tokens` tokens in an update of masked-lm."""
    block_tokens: int = 256
    causal_blocks: int = 16
    """Blocks in an update of causal-lm."""
    lm_updates: int = 12
    """Of masked-lm and causal-lm; the first `lm_warm_up` and the last one are not timed."""
    lm_warm_up: int = 3
    epochs: int = 1
    """Of each run of `sweep`."""
    limit: float = 3600.0
    """Seconds after which a process is stopped."""
    max_positions: int = POSITIONS["small"]
    quick: bool = False
    """Whether only the fastest setting of each tool is compared, in benchmarks that have several."""
    best_only: bool = False
    """Whether finetune compares only our defaults with the fastest settings of Transformers."""

    def with_batch_size(self, size: int) -> Settings:
        """Other batches with the same number of timed sentences, so that they can be sorted as well."""
        timed = max(2, (self.updates - self.warm_up) * self.batch_size // size)
        return replace(self, batch_size=size, updates=self.warm_up + timed)
