"""Readers of each kind of file with the project's own code; their results can be compared.

A reader returns the content of the file. It raises `UserError`, or an `OSError` with the file's name, for a
file that it refuses.
"""

import hashlib
import logging
from pathlib import Path

import numpy as np
import torch

from roberta_small.analysis.read.events import read_scalars
from roberta_small.common import manifest, predictions
from roberta_small.common.data_folder import read_report
from roberta_small.common.errors import UserError
from roberta_small.eval.base import find_tokenizer
from roberta_small.eval.origin import DataFolder, RunCheckpoint
from roberta_small.experiments import plan
from roberta_small.experiments.inputs import files as inputs
from roberta_small.experiments.methods.fairseq import METHOD
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from roberta_small.fairseq_plugin.tasks.datasets import load_split
from roberta_small.fairseq_plugin.tasks.sentence_classification import load_dictionary
from roberta_small.preprocess import dictionary as plain_dictionary
from roberta_small.preprocess.tokenization.encoder import load_model
from tests.faults import originals
from tests.faults.originals import RUN
from tests.faults.outcome import digest

FILES = [f"{part}/{name}" for part in ("input0", "label") for name in ("dict.txt", "train.bin", "train.idx")]


class Said(logging.Handler):
    """What is said of a file that is read in part."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def checkpoint(path):
    return digest(load_checkpoint(path))


def safetensors(path):
    state = load_checkpoint(path)
    shapes = {name: tuple(weight.shape) for name, weight in state["model"].items()}
    assert all(weight.dtype == torch.float32 for weight in state["model"].values())
    return {"shapes": shapes, "all": digest(state)}


def dictionary(path):
    """As fairseq's side reads it, and as that of preprocess does."""
    theirs = refusal(load_dictionary, path)
    ours = refusal(plain_dictionary.load, str(path))
    return [getattr(found, "symbols", found) for found in (theirs, ours)]


def labels(path):
    return refusal(inputs.class_names, path), dictionary(path)


def split(path):
    """Every sentence; the dictionary is the original one."""
    data = path.parents[1]
    loaded = load_split(str(data), "input0", "train", load_dictionary(data / "input0/dict.txt"))
    tokens = np.concatenate([loaded[index].numpy() for index in range(len(loaded))])
    assert len(tokens) == loaded.sizes.sum()
    return loaded.sizes.tolist(), hashlib.sha256(tokens.tobytes()).hexdigest()


def report(path):
    found = read_report(path.parent)
    inputs.fingerprint_data(path.parent, FILES)
    return found


def sentencepiece(path):
    model = load_model(str(path))
    return [model.id_to_piece(index) for index in range(len(model))], model.encode(originals.TEXT[:4])


def events(path):
    said = Said()
    logging.getLogger("roberta_small.analysis").addHandler(said)
    try:
        rows = read_scalars(path)
    finally:
        logging.getLogger("roberta_small.analysis").removeHandler(said)
    assert all(str(path) in line for line in said.lines)
    return [tuple(row) for row in rows], len(said.lines)


def run_manifest(path):
    """What the sweep would do with the run."""
    sweep = originals.experiment()
    content = manifest.read(RUN)
    resumable = METHOD.resumable
    intention = plan.inspect(sweep.trainings[0], resumable).state.name
    kept = {key: content[key] for key in ("status", "arm", "init", "seed", "recipe_flags")}
    return intention, kept, content["data"]["sha256"], content["checkpoint"]["sha256"]


def recipe(path):
    """The words, and whether the run in the folder may resume with them."""
    words = recipes.load(str(path)).words
    run_manifest(path)
    return words


READERS = {
    "checkpoint": checkpoint,
    "safetensors": safetensors,
    "dictionary": dictionary,
    "labels": labels,
    "index": split,
    "binary": split,
    "report": report,
    "sentencepiece": sentencepiece,
    "events": events,
    "manifest": run_manifest,
    "recipe": recipe,
    "predictions": predictions.read,
}


def refusal(read, path):
    """What is read, or the line of the refusal where another reader is still to be tried."""
    try:
        return read(path)
    except UserError as error:
        if str(path) not in str(error):
            raise RuntimeError(f"does not name the file: {error}") from None
        return f"refused: {error}"


def data_folder():
    """The data as the sweep takes them: each file is that of the folder's report."""
    inputs.fingerprint_data(Path("data"), FILES)


def model_of_data():
    """The SentencePiece model as a prediction takes it: the one that the data were made with."""
    find_tokenizer(RunCheckpoint(Path(RUN) / "checkpoint_best.pt", None, None), DataFolder.given("data"))


RECORDED = {
    "dictionary": data_folder,
    "labels": data_folder,
    "index": data_folder,
    "binary": data_folder,
    "sentencepiece": model_of_data,
    "safetensors": lambda: run_manifest(None),
}
"""Kinds whose digest is on record -> what compares it, and must refuse every other content."""
