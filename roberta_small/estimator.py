"""`TextClassifier` and `TextRegressor`: fine-tuning and prediction as scikit-learn estimators.

`train` and `tables` are the commands as functions.

Training runs `roberta-small train` in a process of its own: the runs are ordinary run folders, which all
commands and `roberta_small.analysis` read. Shapes: N texts, K classes.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
import weakref
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TextIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from roberta_small.common import manifest
from roberta_small.common.class_weights import FLAG
from roberta_small.common.cli import EXTENSIONS, PREFIX
from roberta_small.common.data_folder import INPUTS
from roberta_small.common.errors import UserError
from roberta_small.common.files import CACHE, atomic_folder, atomic_write, read_object
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION, SINGLE_LABEL, LabelKind
from roberta_small.common.run import BEST_CHECKPOINT, TENSORBOARD, THRESHOLDS
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.experiments.settings import HYPERPARAMETERS, OWN_DATA
from roberta_small.preprocess.options import TRAIN
from roberta_small.preprocess.readers.tables import cell_text
from roberta_small.preprocess.tokenization.symbols import CHARACTERS, WORDS

Text = str | tuple[str, str]
EXAMPLES, VALID = "train.jsonl", "valid.jsonl"
RUNS = "runs"
RECORD = "classifier.json"
"""In a folder of `TextClassifier.save`: parameters and classes."""
VERSION = 1
ERROR = "error: "
NAMES = (TRAIN, WORDS, CHARACTERS, *recipes.known())
"""Values of tokenizer and recipe that are no paths."""
COLUMNS = "feature_names_in_"
FEATURES = (COLUMNS, "n_features_in_")
ARM = METHOD = "fairseq"
FROZEN = "frozen"
"""The other method."""
TRAINED = ("inits", "arm", "seeds", "no-baselines", "recipe", *(set(HYPERPARAMETERS) - {"max-length"}))
"""Options of `roberta-small train` that the method frozen does not have."""
ONE, LISTS, INDICATOR = "one", "lists", "indicator"
"""How the labels of a classifier are given: one per text, lists, or a matrix of 0 and 1."""


class TextModel(BaseEstimator):
    """What `TextClassifier` and `TextRegressor` have in common; not for use of its own.

    Parameters:
        pretrained: the initial weights: a name on the Hugging Face hub, a folder of Transformers, or a
            checkpoint of fairseq. None: random weights.
        method: `fairseq`: all weights are trained; `frozen`: the encoder `pretrained` reads each text once,
            and a linear classifier of its vectors is fitted. Of the hyperparameters, `max_length` applies.
        seeds: one network is trained with each; the mean of their probabilities or values is predicted.
        recipe: hyperparameters: a name in `recipes/` or a file.
        lr, epochs, batch_size, max_length, layers: hyperparameters; None for those of the recipe.
        flags: further flags of `fairseq-train`, such as `("--dropout", "0.2")`.
        valid: number or fraction of the examples that `fit` holds out; they select the epoch.
        tokenizer: as for `roberta-small prepare`; None for that of `pretrained`, or a new one.
        folder: folder of the data and runs, which stays. None: a temporary one, removed with the object.
        device: `auto`, `cpu` or `cuda`.
        class_weight: weights of the classes in the training loss: "balanced", or a weight for each label.
        progress: whether `fit` shows what the training prints; None: on a terminal and in a notebook.

    Attributes of a fitted model:
        runs_: the folder of the runs.
        log_: what `roberta-small train` printed: the plan, and what was noticed about the data.
        n_features_in_: 1, or 2 for pairs; feature_names_in_: the names of the columns, if X was a DataFrame.

    Several threads may predict with one object. Pickles and `save` contain the weights.
    """

    runs_: Path
    log_: str
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    def __init__(
        self,
        pretrained: str | os.PathLike[str] | None = None,
        *,
        method: str = METHOD,
        seeds: Sequence[int] = (1,),
        recipe: str = OWN_DATA,
        lr: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        layers: int | None = None,
        flags: Sequence[str] = (),
        valid: int | float = 0.1,
        tokenizer: str | os.PathLike[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
        device: str = "auto",
        class_weight: Mapping[Any, float] | str | None = None,
        progress: bool | None = None,
    ) -> None:
        self.pretrained = pretrained
        self.method = method
        self.seeds = seeds
        self.recipe = recipe
        self.lr = lr
        self.epochs = epochs
        self.batch_size = batch_size
        self.max_length = max_length
        self.layers = layers
        self.flags = flags
        self.valid = valid
        self.tokenizer = tokenizer
        self.folder = folder
        self.device = device
        self.class_weight = class_weight
        self.progress = progress

    def _fit(
        self, kind: LabelKind, X: Any, cells: Sequence[Any], X_valid: Any, valid_cells: Sequence[Any] | None
    ) -> None:
        """Train on texts X and their labels as `label` of JSON lines; see `TextClassifier.fit`."""
        if not isinstance(self.seeds, Iterable) or not list(self.seeds):
            raise ValueError(f"seeds: {self.seeds!r} is not a sequence of seeds, such as (1, 2, 3)")
        if (X_valid is None) != (valid_cells is None):
            raise ValueError("X_valid and y_valid: pass both or neither")
        self._check_columns(X, new=True)
        rows = _rows(X, cells)
        self.n_features_in_ = 1 + ("pair" in rows[0])
        held_out: list[dict[str, Any]] | None = None
        if X_valid is not None and valid_cells is not None:
            self._check_columns(X_valid)
            held_out = _rows(X_valid, valid_cells, "X_valid", "y_valid")
            if len({"pair" in row for row in (*rows, *held_out)}) > 1:
                raise ValueError("X and X_valid: single texts in one, pairs in the other")
        folder = self._temporary() if self.folder is None else Path(self.folder).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        for name, some in ((EXAMPLES, rows), (VALID, held_out)):
            if some is not None:
                lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in some)
                atomic_write(folder / name, "".join(lines))
        words = self._words(kind, paired="pair" in rows[0], held_out=held_out is not None)
        seen = sys.stderr.isatty() or "ipykernel" in sys.modules
        shown = seen if self.progress is None else self.progress
        # All settings but these two are options, not variables, and paths are relative to this folder.
        unset = {name for name in os.environ if name.startswith(PREFIX)} - {CACHE, EXTENSIONS}
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        if cache := environment.get(CACHE):
            environment[CACHE] = os.path.abspath(cache)
        code, printed = _run(words, folder, sys.stderr if shown else None, environment)
        self.log_ = "\n".join(printed)
        if code:
            raise UserError(_cause(printed, folder / RUNS))
        for line in printed:
            if line.startswith(("warning: ", "left out, ")):
                warnings.warn(line.removeprefix("warning: "), UserWarning, stacklevel=3)
        names = [f"{FROZEN}/pretrained/seed0"]
        if self.method != FROZEN:
            init = "random" if self.pretrained is None else "pretrained"
            names = [f"{ARM}/{init}/seed{seed}" for seed in self.seeds]
        self._complete(folder / RUNS, names)

    def _outputs(self, X: Any) -> NDArray[np.float64]:
        """The outputs for texts X, (N, K) in the order of the model's classes, or values (N, 1)."""
        check_is_fitted(self, "runs_")
        self._check_columns(X)
        texts = check_texts(X)
        with self._lock:
            model = self._model()
            if not texts:
                return np.zeros((0, model.labels.size))
            if model.pairs != (not isinstance(texts[0], str)):
                wanted = "pairs of texts" if model.pairs else "single texts"
                raise ValueError(f"X: this model was fitted on {wanted}")
            return model.classify(texts).probabilities

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted model to a new folder: its runs without the state of the optimizer."""
        check_is_fitted(self, "runs_")
        target = Path(folder)
        if target.exists():
            raise UserError(f"{target}: exists; choose another folder")
        with atomic_folder(target) as new:
            self._write(new)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """The model that `save` wrote; no code of the folder is executed."""
        source = Path(folder)
        if not (source / RECORD).is_file():
            raise UserError(
                f"{source}: contains no {RECORD}; specify a folder that {cls.__name__}.save wrote"
            )
        found = cls()
        found._restore(source.absolute())
        found._model()  # so that the folder is not needed later
        return found

    @classmethod
    def from_pretrained(cls, name: str | os.PathLike[str], *, device: str = "auto") -> Self:
        """The model of a run folder, a checkpoint, or a folder or hub name of Transformers.

        The `classes_` of a classifier are the names of its classes. Raises `UserError` for a model of another
        kind of labels.
        """
        from roberta_small.eval import SentenceClassifier
        from roberta_small.experiments.inputs import checkpoints

        path = checkpoints.written(os.fspath(name))
        if not path.is_file():
            path = checkpoints.resolve(path, "from_pretrained").path
        model = SentenceClassifier.from_run(path.absolute(), device=device)
        run = model.model.run
        if model.labels.kind.has_classes != issubclass(cls, ClassifierMixin):
            other = "TextClassifier" if model.labels.kind.has_classes else "TextRegressor"
            raise UserError(
                f"{path}: a model of another kind of labels; open it with {other}.from_pretrained"
            )
        found = cls(device=device)
        found.log_ = ""
        names, form = sorted(model.labels.classes), ONE if model.labels.kind.exclusive else LISTS
        found._recall({"classes": names, "names": names, "labels": form})
        found._complete(run.folder if run.manifest else run.checkpoint, [""])
        found.n_features_in_ = 1 + model.pairs
        found._loaded = model
        return found

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder for Transformers' `from_pretrained`; of several seeds, the best one on valid."""
        check_is_fitted(self, "runs_")
        from roberta_small.export.transformers.to_transformers import convert

        convert(self._best_run(), Path(folder))

    def history(self) -> pd.DataFrame:
        """All logged values of its runs: the long table of `roberta_small.analysis.load_runs`."""
        check_is_fitted(self, "runs_")
        from roberta_small.analysis import find_runs, load_runs

        folders = {folder.resolve() for folder in self._run_folders()}
        names = [run.name for run in find_runs(self.runs_) if run.folder.resolve() in folders]
        table = load_runs(self.runs_)
        return table[(table["arm"] + "/" + table["init"] + "/seed" + table["seed"].astype(str)).isin(names)]

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in super().__getstate__().items() if name not in PRIVATE}
        if hasattr(self, "runs_"):
            with tempfile.TemporaryDirectory() as folder:
                self._write(Path(folder))
                stream = io.BytesIO()
                with zipfile.ZipFile(stream, "w", strict_timestamps=False) as archive:
                    for path in sorted(Path(folder).rglob("*")):
                        archive.write(path, path.relative_to(folder))
                state["_archive"] = stream.getvalue()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        archive = state.pop("_archive", None)
        super().__setstate__(state)
        if archive is not None:
            folder = self._temporary()
            with zipfile.ZipFile(io.BytesIO(archive)) as content:
                content.extractall(folder)
            self._restore(folder)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.non_deterministic = True  # rounding differs between processors
        return tags

    def _check_columns(self, X: Any, *, new: bool = False) -> None:
        """Compare the names of a DataFrame's columns with those of `fit`, or record them, as scikit-learn."""
        if isinstance(X, pd.DataFrame) and (new or X.shape[1] > 1 or hasattr(self, COLUMNS)):
            validate_data(self, X, reset=new, skip_check_array=True)
        elif new and hasattr(self, COLUMNS):
            del self.feature_names_in_

    def _words(self, kind: LabelKind, *, paired: bool, held_out: bool) -> list[str]:
        """The words of `roberta-small train`, below the folder."""
        options: dict[str, Any] = {
            "data": EXAMPLES,
            "text-column": "text",
            "pair-column": "pair" if paired else None,
            "label-column": "label",
            "task": kind.task,
            "valid": VALID if held_out else self.valid,
            "test": "none",
            "out": RUNS,
            "inits": "random" if self.pretrained is None else "pretrained",
            "arm": ARM,
            "device": self.device,
            "seeds": list(self.seeds),
            "no-baselines": True,
        }
        for name in ("pretrained", "tokenizer", "recipe"):
            value = getattr(self, name)  # a path becomes absolute, because the command runs in another folder
            if isinstance(value, os.PathLike) or (
                value is not None and value not in NAMES and (value.startswith(".") or os.path.exists(value))
            ):
                value = os.path.abspath(value)
            options[name] = value
        options |= {name: getattr(self, name.replace("-", "_")) for name in HYPERPARAMETERS}
        flags = list(self.flags)
        if self.method not in (METHOD, FROZEN):
            raise UserError(f"method={self.method!r}: choose {METHOD!r} or {FROZEN!r}")
        if self.method == FROZEN:
            if self.pretrained is None:
                raise UserError("method='frozen': needs a pretrained encoder; name it with pretrained=")
            names = [name.replace("-", "_") for name in HYPERPARAMETERS if name != "max-length"]
            if given := [name for name in (*names, "flags", "class_weight") if getattr(self, name)]:
                raise UserError(
                    f"method='frozen': {given[0]}= has no effect, because nothing is trained; omit it"
                )
            options = {name: value for name, value in options.items() if name not in TRAINED}
            return _command_line({"method": FROZEN, **options}, [])
        if (weights := self._weights()) is not None:
            kind.require_exclusive("class_weight")
            flags += [FLAG, weights if isinstance(weights, str) else json.dumps(weights, ensure_ascii=False)]
        return _command_line(options, flags)

    def _weights(self) -> dict[str, float] | str | None:
        if not isinstance(self.class_weight, Mapping):
            return self.class_weight
        return {_name(label): float(weight) for label, weight in self.class_weight.items()}

    def _temporary(self) -> Path:
        folder = tempfile.mkdtemp(prefix="roberta-small-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)

    def _recorded(self) -> dict[str, Any]:
        """What `save` records of the labels."""
        return {}

    def _recall(self, record: Mapping[str, Any]) -> None:
        """Restore what `_recorded` returned; numbers have no classes."""

    def _complete(self, runs: Path, folders: Sequence[str]) -> None:
        """`folders` are those of the runs, below `runs`; "" is `runs` itself."""
        self.runs_, self._folders = runs, list(folders)
        self._loaded: Any = None
        self._lock = threading.Lock()

    def _run_folders(self) -> list[Path]:
        """The folders of the runs; raises `UserError` if there is none but a checkpoint."""
        if self.runs_.is_file():
            raise UserError(
                f"{self.runs_}: a checkpoint without a run, which cannot be copied; keep the file"
            )
        return [self.runs_ / folder for folder in self._folders]

    def _model(self) -> Any:
        if self._loaded is None:
            from roberta_small.eval import Ensemble, SentenceClassifier

            folders = self._run_folders()
            members = [SentenceClassifier.from_run(folder, device=self.device) for folder in folders]
            self._loaded = members[0] if len(members) == 1 else Ensemble(members)
        return self._loaded

    def _best_run(self) -> Path:
        folders = self._run_folders()
        if len(folders) == 1:
            return folders[0]
        from roberta_small.analysis import best_checkpoints

        best = best_checkpoints(self.history(), self._model().labels.kind.metric, subset="valid")
        seed = int(best.loc[best["valid"].idxmax(), "seed"])
        return next(folder for folder in folders if folder.name == f"seed{seed}")

    def _write(self, target: Path) -> None:
        """Write what prediction needs into a folder."""
        from roberta_small.fairseq_plugin.checkpoints.loading import save_weights

        for name, folder in zip(self._folders, self._run_folders(), strict=True):
            copy = target / RUNS / name
            copy.mkdir(parents=True)
            save_weights(folder / BEST_CHECKPOINT, copy / BEST_CHECKPOINT)
            shutil.copytree(folder / INPUTS, copy / INPUTS)
            shutil.copytree(folder / TENSORBOARD, copy / TENSORBOARD)
            for kept in (manifest.NAME, THRESHOLDS):
                if (folder / kept).is_file():
                    shutil.copyfile(folder / kept, copy / kept)
        lists: dict[str, Any] = {"seeds": [int(seed) for seed in self.seeds], "flags": list(self.flags)}
        lists["class_weight"] = self._weights()
        record = {
            "version": VERSION,
            "parameters": self.get_params(deep=False) | lists,
            **self._recorded(),
            "folders": self._folders,
            "log": self.log_,
            "features": {n: np.asarray(v).tolist() for n, v in vars(self).items() if n in FEATURES},
        }
        atomic_write(target / RECORD, json.dumps(record, indent=2, ensure_ascii=False, default=str) + "\n")

    def _restore(self, source: Path) -> None:
        record = read_object(source / RECORD, "copy the folder again")
        if record.get("version") != VERSION:
            raise UserError(f"{source / RECORD}: of another version of this project; fit the model again")
        if ("classes" in record) != isinstance(self, ClassifierMixin):
            other = "TextClassifier" if "classes" in record else "TextRegressor"
            raise UserError(f"{source / RECORD}: of a {other}; open it with {other}.load")
        self._recall(record)
        known = self.get_params(deep=False)
        self.set_params(**{name: value for name, value in record["parameters"].items() if name in known})
        self.log_ = record["log"]
        for name, value in record.get("features", {}).items():
            setattr(self, name, np.array(value, dtype=object) if isinstance(value, list) else value)
        self._complete(source / RUNS, record["folders"])


class TextClassifier(ClassifierMixin, TextModel):
    """A classifier of texts or of pairs of texts, which fine-tunes a RoBERTa with fairseq.

    A text has one class, or with multi-label data any number of classes. Parameters and attributes are those
    of `TextModel`, and of a fitted classifier also

        classes_: the sorted labels (K,).

    Example:
        >>> classifier = TextClassifier(pretrained="intfloat/multilingual-e5-small", lr=5e-5, epochs=4)
        >>> classifier.fit(texts, labels).predict(["Un livre captivant."])  # doctest: +SKIP
    """

    classes_: NDArray[Any]

    def fit(self, X: Any, y: Any, *, X_valid: Any = None, y_valid: Any = None, **others: Any) -> Self:
        """Train on texts X and labels y; returns the classifier.

        X: N texts, or N pairs of texts: a list, a Series, an array, or a DataFrame with one or two columns.
        y: N labels, which are strings, integers or truth values. Multi-label data: N lists, tuples or sets of
        labels, or an indicator matrix (N, K) of 0 and 1, whose classes are 0 to K - 1, or the columns of a
        DataFrame. X_valid and y_valid: examples that select the epoch, instead of the fraction `valid`.

        Raises `ValueError` for malformed texts or labels, and `UserError` if the training fails.
        """
        _refuse(others)
        form = _form(y)
        cells, _, classes = _cells(y, "y", form)
        names = list(map(_name, classes.tolist()))
        if len(names) < 2:
            raise ValueError(f"y: {len(names)} class; a classifier needs at least two classes")
        if len(set(names)) < len(names) or "" in names:
            raise ValueError(
                f"y: labels that are empty or differ only in spaces: {sorted(map(repr, names))[:8]}"
            )
        valid_cells: list[Any] | None = None
        if y_valid is not None:
            if _form(y_valid, form) != form:
                raise ValueError("y and y_valid: one label per text in one, several in the other")
            valid_cells, every, found = _cells(y_valid, "y_valid", form)
            if form == INDICATOR and len(found) != len(classes):
                raise ValueError(f"y_valid: {len(found)} columns, but y has {len(classes)}")
            if unknown := [label for label in every if _name(label) not in names]:
                raise ValueError(f"y_valid: {unknown[0]!r} is no label of y")
        kind = KINDS[SINGLE_LABEL if form == ONE else MULTI_LABEL]
        self._fit(kind, X, cells, X_valid, valid_cells)
        self.classes_, self._names, self._form = classes, names, form
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probabilities (N, K), columns in the order of `classes_`; X as for `fit`.

        The probability of a class without training examples is 0.
        """
        outputs_NK = self._outputs(X)
        known = {name: k for k, name in enumerate(self._model().classes)}
        found_NK = np.zeros((len(outputs_NK), len(self.classes_)))
        for k, name in enumerate(self._names):
            if name in known:
                found_NK[:, k] = outputs_NK[:, known[name]]
        return found_NK

    def predict(self, X: Any) -> Any:
        """The most probable class of each text (N,).

        Multi-label: the classes whose probability is at least their threshold, which was chosen on the
        validation set: N lists, or an indicator matrix (N, K), int64, if `fit` got one.
        """
        p_NK = self.predict_proba(X)
        if self._form == ONE:
            return self.classes_[p_NK.argmax(axis=1)]
        labels = self._model().labels
        of_class = dict(zip(labels.classes, labels.thresholds, strict=True))
        # A class without training examples is never predicted.
        predicted_NK = p_NK >= np.array([of_class.get(name, np.inf) for name in self._names])
        if self._form == INDICATOR:
            return predicted_NK.astype(np.int64)
        return [self.classes_[row_K].tolist() for row_K in predicted_NK]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on texts X with labels y; with multi-label data subset accuracy."""
        if self._form != LISTS:
            return float(super().score(X, y, sample_weight))
        found = [set(a) == set(b) for a, b in zip(self.predict(X), y, strict=True)]
        return float(np.average(found, weights=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _recorded(self) -> dict[str, Any]:
        form = {} if self._form == ONE else {"labels": self._form}
        return {"classes": self.classes_.tolist(), "names": self._names, **form}

    def _recall(self, record: Mapping[str, Any]) -> None:
        self.classes_, self._names = np.array(record["classes"]), list(record["names"])
        self._form = record.get("labels", ONE)


class TextRegressor(RegressorMixin, TextModel):
    """Predicts a number for texts or pairs of texts, by fine-tuning a RoBERTa with fairseq.

    The loss is the mean squared error of the labels, which are standardized for training. Parameters and
    attributes are those of `TextModel`.

    Example:
        >>> regressor = TextRegressor(pretrained="intfloat/multilingual-e5-small", lr=5e-5)
        >>> regressor.fit(pairs, similarities).predict([("Il pleut.", "La pluie tombe.")])  # doctest: +SKIP
    """

    def fit(self, X: Any, y: Any, *, X_valid: Any = None, y_valid: Any = None, **others: Any) -> Self:
        """Train on texts X and numbers y; returns the regressor.

        X, X_valid and errors as for `TextClassifier.fit`. y: N finite numbers.
        """
        _refuse(others)
        valid_cells = None if y_valid is None else _check_numbers(y_valid, "y_valid")
        self._fit(KINDS[REGRESSION], X, _check_numbers(y), X_valid, valid_cells)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The predicted number of each text (N,), float64."""
        return self._outputs(X)[:, 0]


PRIVATE = ("_loaded", "_lock", "_names", "_folders", "_form", "runs_")
"""Attributes that a pickle does not contain, because they follow from its archive."""


def train(
    data: str | os.PathLike[str], *, out: str | os.PathLike[str] = RUNS, **options: Any
) -> dict[str, pd.DataFrame]:
    """`roberta-small train` as a function; returns `tables` of the runs.

    `options` are those of the command, with underscores: `seeds=(1, 2)`, `inits=("random",)`, `epochs=3`,
    `method="tfidf"`, `dry_run=True`; `flags` are further flags of `fairseq-train`. Prints what the
    command prints. Raises `UserError` if it fails.
    """
    flags = options.pop("flags", ())
    words = _command_line({"data": os.fspath(data), "out": os.fspath(out), **options}, flags)
    code, lines = _run(words, Path.cwd(), sys.stdout)
    if code:
        raise UserError(_cause(lines, Path(out)))
    return {} if options.get("dry_run") else tables(out)


def tables(runs: str | os.PathLike[str], metric: str | None = None) -> dict[str, pd.DataFrame]:
    """The tables of runs as frames: `best` has one row per run, `epochs` mean and standard deviation.

    `metric` None: accuracy, or that of the runs' kind of labels (`common.label_kinds`). Columns and
    conventions are those of `roberta_small.analysis.best_checkpoints` and `per_epoch`.
    """
    from roberta_small.analysis import best_checkpoints, find_runs, load_runs, per_epoch

    if metric is None:
        kinds = {run.label_kind for run in find_runs(runs)}
        metric = KINDS[kinds.pop() if len(kinds) == 1 else SINGLE_LABEL].metric
    table = load_runs(runs)
    return {"best": best_checkpoints(table, metric), "epochs": per_epoch(table, metric)}


def check_texts(X: Any, name: str = "X") -> list[Text]:
    """The texts of a list, Series, array or DataFrame; `ValueError` with the position of what is no text."""
    if isinstance(X, str | bytes) or getattr(X, "ndim", 1) == 0:
        raise ValueError(f"{name}: one string; pass a list of texts")
    if isinstance(X, Mapping | set | frozenset):
        remedy = "sorted(X)"
        if isinstance(X, Mapping):
            single = all(isinstance(value, str) for value in X.values())
            remedy = "list(X.values())" if single else "pandas.DataFrame(X)"
        raise ValueError(f"{name}: a {type(X).__name__} instead of a list of texts; pass {remedy}")
    if isinstance(X, pd.DataFrame):
        X = X.to_numpy(dtype=object)
    rows = X.tolist() if isinstance(X, np.ndarray | pd.Series) else list(X)
    if rows and all(isinstance(row, list | tuple) and len(row) == 1 for row in rows):
        rows = [row[0] for row in rows]
    paired = bool(rows) and isinstance(rows[0], list | tuple)
    texts: list[Text] = []
    for number, row in enumerate(rows):
        cells = list(row) if paired and isinstance(row, list | tuple) else [row]
        if len(cells) != 1 + paired or not all(isinstance(cell, str) for cell in cells):
            wanted = "a pair of strings, as the first one" if paired else "a string"
            raise ValueError(f"{name}: text {number} is not {wanted}: {row!r:.80}")
        clean = [cell_text(cell) or "" for cell in cells]  # as in a file of examples
        texts.append((clean[0], clean[1]) if paired else clean[0])
    return texts


def _check_labels(y: Any, name: str) -> NDArray[Any]:
    """The labels as an array; raises `ValueError` for labels that are missing or of several types."""
    values = np.asarray(y, dtype=object)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values.ravel()
    if values.ndim != 1:
        raise ValueError(f"{name}: has the shape {values.shape}; one label for each text is needed")
    labels = [value.item() if isinstance(value, np.generic) else value for value in values]
    for number, label in enumerate(labels):
        if label is None or label is pd.NA or label != label:
            raise ValueError(f"{name}: label {number} is missing")
        if isinstance(label, float) and not label.is_integer():
            raise ValueError(
                f"{name}: label {number} is a number with a fraction, {label}; map it to a class"
            )
    kinds = {type(label) for label in labels}
    if len(kinds) > 1 or not kinds <= {str, int, bool, float}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"{name}: labels are strings, integers or truth values, of one type, not {names}")
    return np.array(labels)


def _form(y: Any, other: str | None = None) -> str:
    """How the labels are given: one per text, lists, or a matrix, also as lists."""
    if hasattr(y, "toarray") or getattr(y, "ndim", 1) == 2:
        return INDICATOR if y.shape[1] > 1 else ONE
    if getattr(y, "ndim", 1) > 2:
        return ONE  # which `_check_labels` refuses
    rows = list(y)
    if not any(isinstance(row, list | tuple | set | frozenset | np.ndarray) for row in rows):
        return ONE
    if other == LISTS or not all(isinstance(row, list | tuple | np.ndarray) for row in rows):
        return LISTS
    cells = [cell for row in rows for cell in row]
    binary = all(isinstance(cell, int | float | np.generic) and cell in (0, 1) for cell in cells)
    return INDICATOR if binary and len({len(row) for row in rows}) == 1 < len(rows[0]) else LISTS


def _cells(y: Any, name: str, form: str) -> tuple[list[Any], list[Any], NDArray[Any]]:
    """The labels of each text as in a file, all labels, and the classes; `ValueError` for malformed ones."""
    if form == ONE:
        labels = _check_labels(y, name)
        return list(map(_name, labels.tolist())), labels.tolist(), np.unique(labels)
    rows = []
    if form == INDICATOR:
        y = y.toarray() if hasattr(y, "toarray") else y
        frame = y if isinstance(y, pd.DataFrame) else pd.DataFrame(list(y))
        if missing := np.argwhere(frame.isna().to_numpy()).tolist():
            row, column = missing[0]
            raise ValueError(f"{name}: label {row} is missing in column {frame.columns[column]}; fill it")
        if not np.isin(matrix_NK := frame.to_numpy(), (0, 1)).all():
            raise ValueError(f"{name}: an indicator matrix has only 0 and 1")
        classes = np.array(frame.columns)
        rows = [classes[row_K.astype(bool)].tolist() for row_K in matrix_NK]
    else:
        for number, row in enumerate(y):
            if not isinstance(row, list | tuple | set | frozenset | np.ndarray):
                raise ValueError(f"{name}: label {number} is no list of labels: {row!r:.80}")
            rows.append(list(row))
            if len(names := list(map(_name, row))) > len(set(names)) and all(map(str.isdecimal, names)):
                raise ValueError(f"{name}: label {number} repeats a number, and is not 0 and 1: {row!r:.80}")
    every = [label for row in rows for label in row]
    if form == LISTS:
        classes = np.unique(_check_labels(every, name)) if every else np.array([])
    return [sorted(set(map(_name, row))) for row in rows], every, classes


def _check_numbers(y: Any, name: str = "y") -> list[float]:
    """The labels of a regression; raises `ValueError` for one that is no finite number."""
    try:
        values = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: not an array of numbers") from None
    values = values.ravel() if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1:
        raise ValueError(f"{name}: has the shape {values.shape}; one number for each text is needed")
    if wrong := np.flatnonzero(~np.isfinite(values)).tolist():
        raise ValueError(f"{name}: label {wrong[0]} is {values[wrong[0]]}, not a finite number")
    return values.tolist()


def _name(label: Any) -> str:
    """How a label is written in a file of examples."""
    return " ".join((cell_text(str(label)) or "").split())


def _rows(X: Any, cells: Sequence[Any], one: str = "X", other: str = "y") -> list[dict[str, Any]]:
    """The examples as objects of JSON lines; the columns of pairs have usual names."""
    texts = check_texts(X, one)
    if len(texts) != len(cells):
        raise ValueError(f"{one} has {len(texts)} texts, but {other} has {len(cells)} labels")
    rows = [{"text": text} if isinstance(text, str) else {"text": text[0], "pair": text[1]} for text in texts]
    return [{**row, "label": cell} for row, cell in zip(rows, cells, strict=True)]


def _refuse(others: Mapping[str, Any]) -> None:
    """Raise `TypeError` for other parameters of `fit` than its own."""
    for name in others:
        weights = "class_weight= of TextClassifier weights classes; repeat a text to weight it"
        raise TypeError(f"fit: has no parameter {name}; {weights}")


def _command_line(options: Mapping[str, Any], flags: Sequence[str]) -> list[str]:
    """The words of `roberta-small train` from names and values in Python, and flags of the trainer."""
    words: list[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if isinstance(value, str | os.PathLike) or not isinstance(value, Iterable):
            words += [] if value is True else [str(value)]
        else:
            words += map(str, value)
    return [*words, *(("--", *flags) if flags else ())]


def _run(
    words: Sequence[str], folder: Path, show: TextIO | None, environment: Mapping[str, str] | None = None
) -> tuple[int, list[str]]:
    """Run `roberta-small train` in a folder; its exit code and the lines that it printed."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "roberta_small", "train", *words],
        cwd=folder,
        env={**(os.environ if environment is None else environment), "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    assert process.stdout is not None
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if show is not None:
                encoding = getattr(show, "encoding", None) or "utf-8"
                print(lines[-1].encode(encoding, "backslashreplace").decode(encoding), file=show, flush=True)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()
    return process.returncode, lines


def _cause(lines: Sequence[str], runs: Path) -> str:
    """Why a command failed: its error, or else what it printed of the first failed run, or at the end."""
    for line in lines:
        if line.startswith(ERROR):
            return line.removeprefix(ERROR)
    failed = [number for number, line in enumerate(lines) if re.match(r"\S+ failed: ", line)]
    first = failed[0] if failed else max(0, len(lines) - 15)
    return " ".join([*lines[first : first + 20], f"(the runs are in {runs})"])
