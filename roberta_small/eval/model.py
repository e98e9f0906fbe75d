"""`open_model`: the model of a path, whatever its kind.

Neither torch nor fairseq is imported before a checkpoint is read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from roberta_small.common.run import TFIDF
from roberta_small.eval.base import Given, Model
from roberta_small.eval.origin import GRAPH, MODELS, RunCheckpoint, find_run


def open_model(path: str | os.PathLike[str] | RunCheckpoint, *, text: bool = False, **options: Any) -> Model:
    """The model of a run folder (its best checkpoint), of a checkpoint file, or of an ONNX or TF-IDF file.

    A folder may also contain a single finished run, or weights without a run. `options` are the fields of
    `Given`. With `text`, the tokenizer is loaded while torch is imported.

    Raises `UserError` if there is no such model, the checkpoint cannot be read, or an option is not possible.
    Other files are read, and reported if they are missing or do not belong to the model, when they are first
    needed.
    """
    given = Given(**options)
    model: Model
    if not isinstance(path, RunCheckpoint) and os.fspath(path).endswith(GRAPH):
        from roberta_small.eval.graph import GraphModel

        model = GraphModel(RunCheckpoint(Path(path), None, None), given)
    else:
        run = path if isinstance(path, RunCheckpoint) else find_run(path, MODELS)
        if run.checkpoint.name == TFIDF:
            from roberta_small.eval.tfidf import TfidfModel

            model = TfidfModel(run, given)
        else:
            model = Model(run, given)
            if text:
                model.load_tokenizer_in_advance()
    model.load()
    return model
