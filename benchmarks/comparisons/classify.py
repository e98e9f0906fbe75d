"""Classifying the test split with a trained model: fairseq-validate, our eval, Transformers, ONNX Runtime."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import fairseq_commands, tools
from benchmarks.comparisons.finetune import Review, pad, peer, read_reviews
from benchmarks.measure import Contender, compare, execute, python, say, timed
from benchmarks.settings import Settings
from roberta_small.common.cli import flags_of
from roberta_small.common.data_folder import read_header

BATCH_SIZES, GPU_BATCH_SIZES = (1, 8, 32), (32, 128, 512)
"""Of Transformers and ONNX Runtime; the fastest is used."""
STOCK_GPU_BATCH_SIZE = 128
"""Of fairseq-validate: enough work for a GPU."""
TRIAL = 200
"""Number of sentences with which each batch size is tried."""
WARM_UP = 8
"""Sentences that we classify before the clock starts, as the others do."""
TEXTS, CHECKED = 1000, 32
"""Texts of which an encoder makes vectors, and those whose vectors are compared first."""
Compute = Callable[[Any, int], Any]
"""From N inputs and a size of batches to N results."""


def run(settings: Settings) -> dict[str, Any]:
    """Seconds after the model is loaded; `wall` is that of the whole process."""
    if settings.encoder is not None:
        return run_encoder(settings)
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


def run_encoder(settings: Settings) -> dict[str, Any]:
    """Seconds from texts to the mean vectors of an encoder, after it is loaded."""
    assert settings.encoder is not None
    longest = flags_of(settings.planned)["--max-positions"][-1]
    count = min(TEXTS, read_header(settings.data / "input0" / "test.idx").sentences)
    names = [*READERS]
    if find_spec("sentence_transformers") is None:
        say(f"{names.pop(0)} is left out (pip install sentence-transformers)")
    options = {"encoder": str(settings.encoder), "longest": int(longest), "data": str(settings.data)}
    options |= {"planned": settings.planned}

    def command(name: str, precision: str, *, check: bool = False) -> tuple[str, ...]:
        more = {"reader": name, "precision": precision, "check": check, "count": CHECKED if check else count}
        return timed(make_vectors, json.dumps(options | more))

    checks = {name: functools.partial(command, name, check=True) for name in names}
    agreement = tools.agreement(checks, settings, lambda _, record: record["vectors"])
    commands = {name: functools.partial(command, name) for name in names}
    own = tools.ours(commands.pop("ours"), settings)
    others = [tools.of_tool(f"{name}, {{}}, sorted", one, settings) for name, one in commands.items()]
    return compare(
        "classify",
        f"Vectors of {count:,} texts from {settings.encoder.name}",
        [*chain(*others), *own],
        settings,
        agreement=agreement,
        sentences=count,
        about=f"means of at most {longest} tokens; tokenizing included; others: the fastest size of batches",
    )


def contenders(settings: Settings) -> list[Contender]:
    """fairseq-validate, our eval, Transformers, and int8 on a CPU."""
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
    classify = functools.partial(timed, eval_classify, path, settings.data)
    found += tools.ours(classify, settings)
    transformers = functools.partial(timed, transformers_classify, peer(settings))
    found += tools.of_tool("Transformers, {}, sorted", transformers, settings)
    if settings.machine.cpu:
        tuned = fairseq_commands.tuned(settings)
        found.append(Contender("ours, int8", classify("int8"), tuned, ours=True))
        session = timed(onnx_classify, exported(path, settings), peer(settings))
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


def transformers_classify(folder: str, precision: str) -> dict[str, Any]:
    """RoBERTa of Transformers on ids: what a pipeline does after its tokenizer, without its overhead.

    The weights are random, which does not change the time.
    """
    from transformers import AutoModelForSequenceClassification

    output = network(AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True))
    classes_of = by_length(lambda reviews: output(pad(reviews)).logits.argmax(-1).cpu())
    with computing(precision):
        return fastest_batches(read_reviews(folder, "test"), classes_of)


def onnx_classify(path: str, folder: str) -> dict[str, Any]:
    """A session of ONNX Runtime with its own defaults."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def classes_of(reviews: Sequence[Review]) -> Any:
        batch = pad(reviews)
        feed = {name: batch[name].numpy() for name in ("input_ids", "attention_mask")}
        return session.run(["logits"], feed)[0].argmax(-1)

    return fastest_batches(read_reviews(folder, "test"), by_length(classes_of))


def make_vectors(words: str) -> dict[str, Any]:
    """The vectors of a reader for a check, or their time."""
    options = json.loads(words)
    lines = Path(options["data"], "text", "test.input0").read_bytes().split(b"\n")
    texts = [line.decode() for line in lines[: options["count"]]]
    vectors = READERS[options["reader"]](options)
    with computing(options["precision"]):
        check = options["check"]
        return {"vectors": vectors(texts, CHECKED).tolist()} if check else fastest_batches(texts, vectors)


def sentence_transformers_reader(options: dict[str, Any]) -> Compute:
    """`SentenceTransformer.encode` (tested with 6.2.0), with the mean whatever the folder asks for."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    model = Transformer(options["encoder"], max_seq_length=options["longest"])
    pooled = SentenceTransformer(modules=[model, Pooling(model.auto_model.config.hidden_size, "mean")])
    return lambda texts, size: pooled.encode(texts, batch_size=size, show_progress_bar=False)


def transformers_reader(options: dict[str, Any]) -> Compute:
    """A model of Transformers, and the mean of its tokens."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options["encoder"])
    output = network(AutoModel.from_pretrained(options["encoder"]))

    def means(reviews: Sequence[Review]) -> Any:
        batch = pad(reviews, tokenizer.pad_token_id)
        x_BLC = output(batch).last_hidden_state.float()
        mask_BL1 = batch["attention_mask"].unsqueeze(-1).to(x_BLC.device)
        return ((x_BLC * mask_BL1).sum(1) / mask_BL1.sum(1)).cpu()

    def vectors(texts: Sequence[str], size: int) -> Any:
        rows = tokenizer(texts, truncation=True, max_length=options["longest"])["input_ids"]
        return by_length(means)([{"input_ids": torch.tensor(row)} for row in rows], size)

    return vectors


def our_reader(options: dict[str, Any]) -> Compute:
    """The encoder of `train --method frozen`, which chooses its batches itself."""
    from roberta_small.eval.model import open_model
    from roberta_small.eval.texts import InputFormat
    from roberta_small.experiments.methods.frozen.fit import Encoder

    checkpoint, *words = options["planned"]
    words = [options["data"], *words, "--pooling", "mean", "--keep-eos"]  # as the others truncate
    encoder = Encoder.of("auto", options["precision"], checkpoint, words)
    text_input = replace(open_model(checkpoint).text_input, format=InputFormat.from_config(encoder.cfg.task))
    encoder.model  # noqa: B018  loaded before the clock starts
    return lambda texts, _: encoder.read(text_input.encode(texts).rows)


READERS = {
    "sentence-transformers": sentence_transformers_reader,
    "Transformers": transformers_reader,
    "ours": our_reader,
}
"""Tool -> from the options of `make_vectors` to how it reads texts."""


@contextlib.contextmanager
def computing(precision: str) -> Iterator[None]:
    """Inference of a model that is loaded, in fp32 or bf16; ours does so itself."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.inference_mode(), torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
        yield


def network(model: Any) -> Callable[[dict[str, Any]], Any]:
    """From a batch to the output of a model of Transformers, on a GPU if there is one."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.eval().to(device)
    return lambda batch: model(**{name: batch[name].to(device) for name in ("input_ids", "attention_mask")})


def by_length(compute: Callable[[Sequence[Review]], Any]) -> Compute:
    """`compute` for batches of similar length; results are in the order of the sentences."""

    def computed(reviews: Sequence[Review], size: int) -> Any:
        order = np.argsort([-len(review["input_ids"]) for review in reviews], kind="stable")
        batches = [order[first : first + size] for first in range(0, len(order), size)]
        results = [compute([reviews[i] for i in batch]) for batch in batches]
        return np.concatenate(results)[np.argsort(order)]

    return computed


def fastest_batches(inputs: Sequence[Any], compute: Compute) -> dict[str, Any]:
    """Seconds for all inputs with the size of batches that is fastest for a part of them."""
    import torch

    def seconds(inputs: Sequence[Any], size: int) -> float:
        start = time.perf_counter()
        compute(inputs, size)
        return time.perf_counter() - start

    sizes = GPU_BATCH_SIZES if torch.cuda.is_available() else BATCH_SIZES
    trial = inputs[: max(TRIAL, 2 * sizes[-1])]
    seconds(trial, sizes[0])  # warm-up
    trials = {size: seconds(trial, size) for size in sizes}
    best = min(trials, key=trials.__getitem__)
    return {"seconds": [seconds(inputs, best)], "batch_size": best, "trials": trials}
