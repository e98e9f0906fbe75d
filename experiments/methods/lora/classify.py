"""The method `lora`: LoRA of the sentence classifier.

The weights of the encoder are frozen. Adapters on the attention's query and value projections are trained,
and the classification head. Data, recipes, seeds and run folders are those of the method transformers, with
the arm `lora`, so that python -m analysis compares them and python -m eval evaluates them (checkpoint_best.pt
is the merged model). A run also contains

    base/       the initial weights, as a from_pretrained folder
    adapter/    adapter_model.safetensors: the adapters and the head of the best epoch
    merged/     with --merge: a from_pretrained folder without adapters

Its manifest also contains trainable_parameters, parameters, peak_memory_bytes (of the process, or of the GPU)
and reloaded_difference: the largest difference between a class probability of the reloaded adapter and that
in training. In Python:

    base = RobertaForSequenceClassification.from_pretrained("RUN/base")
    model = PeftModel.from_pretrained(base, "RUN/adapter")
"""

from __future__ import annotations

import argparse
from pathlib import Path

from roberta_small.common import manifest
from roberta_small.common.cli import SettingsParser
from roberta_small.experiments.methods.lora.settings import CLASSIFIER, add_lora, lora_settings
from roberta_small.experiments.methods.transformers.method import Variant, add_arguments, settings_of, train

LR = 1e-3
"""100 times that of the recipe `reference`: the adapters start at zero and are small."""
MERGED = "merged"
EXAMPLES = """examples:
  ./train.sh --method lora --data data/books/bin --pretrained pretrained/fr/model.pt
  ./train.sh --method lora --data data/books/bin --pretrained model.pt --rank 4 --lr 5e-4 --arm lora-r4
  ./train.sh --method lora --data demo/reviews --pretrained demo/pretrained/model.pt --recipe sample --merge
  roberta-small tables runs --table cost
"""


class Lora:
    """LoRA of the sentence classifier (see `experiments.methods.Method`)."""

    name = "lora"
    summary = "low-rank adapters, with the Transformers Trainer"

    def add_arguments(self, parser: SettingsParser) -> None:
        """Add the options of the method transformers and those of LoRA."""
        parser.description, parser.epilog = __doc__, EXAMPLES
        add_arguments(parser, arm="lora", inits="pretrained", lr=LR)
        add_lora(parser, CLASSIFIER)
        parser.add_argument(
            "--merge", action="store_true", help="also write the merged model of each finished run"
        )

    def train(self, options: argparse.Namespace) -> int:
        """Train the runs and return the exit code."""
        command = ("./train.sh", "--method", "lora")
        variant = Variant(command, lora_settings(options), defaults=("--lr", f"{LR:g}"))
        return train(settings_of(options), variant, then=merge if options.merge else None)


METHOD = Lora()


def merge(folder: Path) -> None:
    """Write `merged/` of a finished run, unless it exists."""
    from roberta_small.experiments.methods.lora.adapters import merged_classifier, save_model

    content = manifest.read(folder)
    if content is None or content["status"] != "finished" or (folder / MERGED).is_dir():
        return
    save_model(merged_classifier(folder), folder / MERGED)
    print(f"{folder / MERGED}: written")
