"""Classify the test sentences of a binarized folder as `roberta-small evaluate` does, with a clock around
it.

python -m benchmarks.timed.eval_classify OUT.json CHECKPOINT DATA PRECISION
"""

from __future__ import annotations

import json
import sys
import time

from roberta_small.common.files import atomic_write
from roberta_small.eval.model import open_model
from roberta_small.eval.network import find_device, read_split, text_dictionary
from roberta_small.eval.texts import probabilities
from roberta_small.fairseq_plugin.training.precision import resolve

WARM_UP = 8
"""Sentences classified before the clock starts, as by the other contenders."""


def main(output: str, checkpoint: str, data: str, precision: str) -> None:
    """Load the model, then write the seconds that reading and classifying the sentences took."""
    model = open_model(checkpoint, data=data, precision=resolve(precision, find_device("auto")))
    dictionary = text_dictionary(model.dictionary)
    model.network.logits(model.examples("valid").rows[:WARM_UP])
    start = time.perf_counter()
    examples = read_split(model.checkpoint, dictionary, model.classes, data, "test")
    predicted_N = probabilities(model.network.logits(examples.rows)).argmax(-1)
    seconds = time.perf_counter() - start
    atomic_write(
        output, json.dumps({"seconds": [seconds], "correct": int((predicted_N == examples.labels).sum())})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
