"""Classifying the test split with a trained model: fairseq-validate, our eval, Transformers, ONNX Runtime."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks import fairseq_commands
from benchmarks.comparisons.finetune import (
    ENGINES,
    Review,
    pad,
    read_reviews,
    transformers_model,
    transformers_options,
)
from benchmarks.fairseq_commands import SAME_VARIABLES
from benchmarks.measure import Contender, compare, execute, python, say, timed
from benchmarks.settings import Settings
from roberta_small.common.data_folder import read_header

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor

BATCH_SIZES, GPU_BATCH_SIZES = (1, 8, 32), (32, 128, 512)
"""Of Transformers and ONNX Runtime; the fastest is used."""
STOCK_GPU_BATCH_SIZE = 128
"""Of fairseq-validate: enough work for a GPU."""
TRIAL = 200
"""Number of sentences with which each batch size is tried."""
WARM_UP = 8
"""Sentences that we classify before the clock starts, as the others do."""


def run(settings: Settings) -> dict[str, Any]:
    """Seconds after the model is loaded; `wall` is that of the whole process."""
    count = read_header(settings.data / "input0" / "test.idx").sentences
    sizes = BATCH_SIZES if settings.machine.cpu else GPU_BATCH_SIZES
    return compare(
        "classify",
        f"Classifying {count:,} sentences",
        contenders(settings),
        settings,
        sentences=count,
        about=(
            "after the model is loaded; Transformers: random weights of the same sizes; Transformers and "
            "ONNX Runtime: ids instead of a tokenizer and a pipeline, sorted by length, the fastest of "
            f"batches of {sizes[0]}, {sizes[1]} and {sizes[2]} (whose choice is part of the whole process); "
            "stock fairseq reads its checkpoint with torch's weights_only switched off"
        ),
    )


def contenders(settings: Settings) -> list[Contender]:
    """fairseq-validate, our eval, Transformers, and int8 on a CPU."""
    tuned = fairseq_commands.tuned(settings)
    precision, flags = fairseq_commands.stock_precision(settings)
    # A CPU is fastest without padding, which fairseq-validate does not avoid.
    size = 1 if settings.machine.cpu else STOCK_GPU_BATCH_SIZE
    flags |= {"--cpu": ""} if settings.machine.cpu else {}
    words = {"--path": str(fairseq_commands.checkpoint("stock", settings)), "--valid-subset": "test"}
    words |= {"--batch-size": str(size), "--log-format": "json", "--log-interval": 1000}
    words |= {"--task": "sentence_prediction", "--criterion": "sentence_prediction"}
    validate = timed(fairseq_validate, settings.data, *fairseq_commands.flatten(words | flags))
    name = f"stock fairseq, {precision}, batches of {size}"
    found = [Contender(name, validate, fairseq_commands.TRUST, quick=True)]
    path = fairseq_commands.checkpoint("ours", settings)
    for name, precision in ENGINES.items():
        command = timed(eval_classify, path, settings.data, precision)
        found.append(Contender(name, command, tuned, ours=True, quick=name == "ours"))
    for precision, variables, suffix in (("fp32", {}, ""), ("bf16", {}, ""), ("bf16", tuned, SAME_VARIABLES)):
        command = timed(transformers_classify, transformers_options(settings, precision))
        name = f"Transformers, {precision}, sorted{suffix}"
        found.append(Contender(name, command, variables, quick=bool(suffix)))
    if settings.machine.cpu:
        int8 = timed(eval_classify, path, settings.data, "int8")
        found.append(Contender("ours, int8", int8, tuned, ours=True))
        session = timed(onnx_classify, exported(path, settings), transformers_options(settings, "int8"))
        found.append(Contender("ONNX Runtime, int8, sorted", session))
    return found


def exported(checkpoint: Path, settings: Settings) -> Path:
    """Our model as an ONNX file in int8, written by `export onnx`; cached."""
    path = settings.scratch / "classify" / "model.onnx"
    if path.exists():
        return path
    words = ("onnx", checkpoint, "--data", settings.data, "--split", "valid", "--int8", "--out", path)
    say("preparing: the ONNX file")
    execute(Contender("export", python("roberta_small.export", *words)), settings, "classify export")
    return path


def fairseq_validate(*flags: str) -> dict[str, Any]:
    """fairseq-validate with a clock from the end of loading the model to the end.

    The first batch goes through the model once more, before, and does not count: no contender's time
    includes what is done only once.
    """
    from fairseq import checkpoint_utils
    from fairseq.tasks import FairseqTask
    from fairseq_cli.validate import cli_main

    loaded: list[float] = []
    warm_up: list[float] = []
    valid_step, load = FairseqTask.valid_step, checkpoint_utils.load_model_ensemble_and_task

    def warmed(*args: Any, **kwargs: Any) -> Any:
        if not warm_up:
            start = time.perf_counter()
            valid_step(*args, **kwargs)
            warm_up.append(time.perf_counter() - start)
        return valid_step(*args, **kwargs)

    def load_and_note(*args: Any, **kwargs: Any) -> Any:
        ensemble = load(*args, **kwargs)
        loaded.append(time.perf_counter())
        return ensemble

    checkpoint_utils.load_model_ensemble_and_task = load_and_note
    FairseqTask.valid_step = warmed
    sys.argv = ["fairseq-validate", *flags]
    cli_main()
    return {"seconds": [time.perf_counter() - loaded[0] - warm_up[0]]}


def eval_classify(checkpoint: str, data: str, precision: str) -> dict[str, Any]:
    """What `eval evaluate` does, with a clock around reading and classifying the sentences."""
    from roberta_small.common.label_kinds import softmax
    from roberta_small.eval.model import open_model
    from roberta_small.eval.network import find_device, read_split, text_dictionary
    from roberta_small.fairseq_plugin.training.precision import resolve

    model = open_model(checkpoint, data=data, precision=resolve(precision, find_device("auto")))
    dictionary = text_dictionary(model.dictionary)
    # On a GPU, the memory of all batches is allocated, and kernels are loaded; the others have trials.
    rows = model.examples("valid").rows
    model.network.logits(rows[:WARM_UP] if model.network.device.type == "cpu" else rows)
    start = time.perf_counter()
    examples = read_split(model.checkpoint, dictionary, model.classes, data, "test")
    predicted_N = softmax(model.network.logits(examples.rows)).argmax(-1)
    seconds = time.perf_counter() - start
    return {"seconds": [seconds], "correct": int((predicted_N == examples.labels).sum())}


def transformers_classify(words: str) -> dict[str, Any]:
    """RoBERTa of Transformers on ids: what a pipeline does after its tokenizer, without its overhead.

    The weights are random, which does not change the time.
    """
    import torch

    options = json.loads(words)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = transformers_model(options).eval().to(device)
    bf16 = options["precision"] == "bf16"

    @torch.inference_mode()
    def classes_of(batch: dict[str, Tensor]) -> Any:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
            logits = model(batch["input_ids"].to(device), batch["attention_mask"].to(device)).logits
        return logits.argmax(-1).cpu()

    sizes = BATCH_SIZES if device.type == "cpu" else GPU_BATCH_SIZES
    return fastest_batches(read_reviews(options, "test"), classes_of, sizes)


def onnx_classify(path: str, words: str) -> dict[str, Any]:
    """A session of ONNX Runtime with its own defaults."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def classes_of(batch: dict[str, Tensor]) -> Any:
        feed = {name: batch[name].numpy() for name in ("input_ids", "attention_mask")}
        return session.run(["logits"], feed)[0].argmax(-1)

    return fastest_batches(read_reviews(json.loads(words), "test"), classes_of, BATCH_SIZES)


def fastest_batches(
    reviews: Sequence[Review], classes_of: Callable[[dict[str, Tensor]], Any], sizes: Sequence[int]
) -> dict[str, Any]:
    """Seconds for all reviews, sorted by length, with the batch size that is fastest for a part of them."""

    def classify(reviews: Sequence[Review], batch_size: int) -> float:
        start = time.perf_counter()
        reviews = sorted(reviews, key=lambda review: -len(review["input_ids"]))
        for first in range(0, len(reviews), batch_size):
            classes_of(pad(reviews[first : first + batch_size]))
        return time.perf_counter() - start

    trial = reviews[: max(TRIAL, 2 * sizes[-1])]
    classify(trial, sizes[0])  # warm-up
    trials = {size: classify(trial, size) for size in sizes}
    best = min(trials, key=trials.__getitem__)
    return {"seconds": [classify(reviews, best)], "batch_size": best, "trials": trials}
