"""Classify the test sentences of a binarized folder as `python -m eval evaluate` does, with a clock around
it.

python -m benchmarks.timed.eval_classify OUT.json CHECKPOINT DATA PRECISION
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from roberta_small.common.files import atomic_write
from roberta_small.eval.batches import probabilities
from roberta_small.eval.loading.checkpoint import read_checkpoint
from roberta_small.eval.loading.inputs import read_split
from roberta_small.eval.loading.network import Network, find_device
from roberta_small.fairseq_plugin.tasks.sentence_classification import class_names, load_dictionary
from roberta_small.fairseq_plugin.training.precision import resolve

WARM_UP = 8
"""Sentences classified before the clock starts, as by the other contenders."""


def main(output: str, checkpoint: str, data: str, precision: str) -> None:
    """Load the model, then write the seconds that reading and classifying the sentences took."""
    trained = read_checkpoint(Path(checkpoint))
    dictionary = load_dictionary(Path(data) / "input0" / "dict.txt")
    dictionary.add_symbol("<mask>")
    classes = class_names(load_dictionary(Path(data) / "label" / "dict.txt"))
    device = find_device("auto")
    network = Network(trained, dictionary, precision=resolve(precision, device))
    network.logits(read_split(trained, dictionary, classes, data, "valid").rows[:WARM_UP])
    start = time.perf_counter()
    examples = read_split(trained, dictionary, classes, data, "test")
    predicted_N = probabilities(network.logits(examples.rows)).argmax(-1)
    seconds = time.perf_counter() - start
    atomic_write(
        output, json.dumps({"seconds": [seconds], "correct": int((predicted_N == examples.labels).sum())})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
