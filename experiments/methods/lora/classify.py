"""The method `lora`: LoRA of the sentence classifier.

The encoder stays as the checkpoint has it; small matrices beside the attention's query and value maps are
trained, and the classification head. Data, recipes, seeds and run folders are those of the method
transformers, with the arm `lora`, so that python -m analysis compares them and python -m eval evaluates them
(checkpoint_best.pt is the merged model). A run also holds

    base/       what it started from, as a from_pretrained folder
    adapter/    adapter_model.safetensors: the trained matrices and the head, at the best epoch
    merged/     with --merge: a from_pretrained folder without adapters

and its manifest trainable_parameters, parameters, peak_memory_bytes (of the process, or of the GPU) and
reloaded_difference: how far a probability of the adapter, read back, is from that in training. In Python:

    base = RobertaForSequenceClassification.from_pretrained("RUN/base")
    model = PeftModel.from_pretrained(base, "RUN/adapter")
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common.cli import SettingsParser

from ..transformers.command import add_arguments, settings_of
from .options import add_lora, lora_settings

COMMAND = ("./train.sh", "--method", "lora")
RANK, ALPHA, DROPOUT = 8, 16, 0.1
TARGETS = ("query", "value")
"""Of the attention, as in the paper (section 4.2)."""
LR = 1e-3
"""What is trained begins at zero or at random and is small: it takes a hundred times the reference's rate."""
MERGED = "merged"
EXAMPLES = """examples:
  ./train.sh --method lora --data data/books/bin --pretrained pretrained/fr/model.pt
  ./train.sh --method lora --data data/books/bin --pretrained model.pt --rank 4 --lr 5e-4 --arm lora-r4
  ./train.sh --method lora --data demo/reviews --pretrained demo/pretrained/model.pt --recipe sample --merge
  python -m experiments lora-table runs
"""


class Lora:
    """LoRA of the sentence classifier (see `experiments.methods.Method`)."""

    name = "lora"
    summary = "low-rank adapters, with the Transformers Trainer"

    def add_arguments(self, parser: SettingsParser) -> None:
        """Add the options of the method transformers and those of LoRA."""
        parser.description, parser.epilog = __doc__, EXAMPLES
        add_arguments(parser, arm="lora", inits="pretrained", lr=LR)
        add_lora(parser, rank=RANK, alpha=ALPHA, dropout=DROPOUT, targets=TARGETS)
        parser.add_argument(
            "--merge", action="store_true", help="also write the merged model of each finished run"
        )

    def train(self, options: argparse.Namespace) -> int:
        """Train the runs; the exit code."""
        from ..transformers.sweep import Arm, train

        arm = Arm(COMMAND, lora_settings(options), defaults=("--lr", f"{LR:g}"))
        return train(settings_of(options), arm, then=merge if options.merge else None)


METHOD = Lora()


def merge(folder: Path) -> None:
    """Write `merged/` of a finished run, where it is not there yet."""
    from common import manifest

    from ..transformers.finish import save
    from .adapters import merged_classifier

    content = manifest.read(folder)
    if content is None or content["status"] != "finished" or (folder / MERGED).is_dir():
        return
    save(merged_classifier(folder), folder / MERGED)
    print(f"{folder / MERGED}: written")
