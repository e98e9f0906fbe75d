"""The method `lora`: LoRA of the sentence classifier.

The weights of the encoder are frozen. Adapters on the attention's query and value projections are trained,
and the classification head. Data, recipes, seeds and run folders are those of the method transformers, with
the arm `lora`, so that the tables compare them and `evaluate` reads them (checkpoint_best.pt is the merged
model). A run also contains

    base/       the initial weights, as a from_pretrained folder
    adapter/    adapter_model.safetensors: the adapters and the head of the best epoch
    merged/     with --merge: a from_pretrained folder without adapters

Its manifest also contains trainable_parameters, parameters, peak_memory_bytes (of the process, or of the GPU)
and reloaded_difference: the largest difference between a class probability of the reloaded adapter and that
in training. In Python:

    base = AutoModelForSequenceClassification.from_pretrained("RUN/base")
    model = PeftModel.from_pretrained(base, "RUN/adapter")
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from roberta_small.common.cli import SettingsParser
from roberta_small.experiments.methods.lora.settings import CLASSIFIER, MERGED, LoraSettings, add_lora
from roberta_small.experiments.methods.transformers.method import Transformers, TransformersSettings
from roberta_small.experiments.sweep import Sweep

EXAMPLES = """examples:
  roberta-small train --method lora --data data/books --pretrained pretrained/fr/model.pt
  roberta-small train --method lora --data data/books --pretrained model.pt --rank 4 --lr 5e-4 --arm lora-r4
  roberta-small train --method lora --data demo/reviews --pretrained model.pt --recipe sample --merge
  roberta-small tables runs --table cost
"""


class Lora(Transformers):
    """LoRA with the Transformers Trainer."""

    name = "lora"
    summary = "low-rank adapters, with the Transformers Trainer"
    inits = "pretrained"
    lr = 1e-3  # 100 times that of the recipe `reference`: the adapters start at zero and are small
    defaults = ("--lr", f"{lr:g}")

    def add_arguments(self, parser: SettingsParser) -> None:
        """Add the options of the method transformers and those of LoRA."""
        super().add_arguments(parser)
        parser.description, parser.epilog = __doc__, EXAMPLES
        add_lora(parser, CLASSIFIER)
        parser.add_argument(
            "--merge", action="store_true", help="also write the merged model of each finished run"
        )

    def settings(self, options: argparse.Namespace) -> TransformersSettings:
        """The settings of the sweep and of the adapters."""
        return replace(super().settings(options), lora=LoraSettings.of(options), merge=options.merge)

    def finish(self, sweep: Sweep, folder: Path) -> dict[str, Any]:
        """With --merge, write `merged/`."""
        if sweep.settings.merge and not (folder / MERGED).is_dir():
            from roberta_small.experiments.methods.lora.adapters import merged_classifier, save

            save(merged_classifier(folder), folder / MERGED)
            print(f"{folder / MERGED}: written")
        return super().finish(sweep, folder)


METHOD = Lora()
