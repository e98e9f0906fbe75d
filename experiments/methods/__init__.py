"""Methods: the trainers of runs, chosen with `./train.sh --method NAME`.

A method is one object with the attributes of `Method`. It is listed in `REGISTERED`, added with `register`,
or given as `--method package.module:OBJECT` if it is outside the project. docs/extending/method.md has an
example.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Protocol

from roberta_small.common.cli import SettingsParser, nearest
from roberta_small.common.errors import UserError


class Method(Protocol):
    """The interface of a method.

    Importing its module must not import torch or fairseq, so that `--help` stays fast.
    """

    name: str
    """The value of `--method`."""
    summary: str
    """One line for `--help`."""

    def add_arguments(self, parser: SettingsParser) -> None:
        """Add the method's options; may set its description and epilog.

        Methods that train on binarized data use `experiments.settings.add_sweep`.
        """

    def train(self, options: argparse.Namespace) -> int:
        """Train the runs and return the exit code; words after `--` are in `options.passthrough`.

        Writes each run to the folder of `common.run.Run.below(out, arm, init, seed)`, with a manifest
        (`common.manifest`) and event files. Raises `UserError` before anything is written.
        """


REGISTERED: dict[str, Method | tuple[str, str]] = {
    "fairseq": ("fairseq's trainer (default)", "roberta_small.experiments.methods.fairseq:METHOD"),
    "transformers": (
        "the Transformers Trainer, on the same data and recipes",
        "roberta_small.experiments.methods.transformers.method:METHOD",
    ),
    "lora": (
        "low-rank adapters, with the Transformers Trainer",
        "roberta_small.experiments.methods.lora.classify:METHOD",
    ),
    "tfidf": (
        "TF-IDF of word n-grams and logistic regression, on text",
        "roberta_small.experiments.methods.tfidf.run:METHOD",
    ),
}
"""Name -> the method, or its summary and `module:OBJECT`, which is imported when it is used."""
DEFAULT = "fairseq"


def register(method: Method) -> None:
    """Make a method available under its name."""
    REGISTERED[method.name] = method


def find(name: str) -> Method:
    """The method with this name, or the object at `package.module:OBJECT`.

    Raises `UserError` if there is none.
    """
    entry = REGISTERED.get(name)
    if entry is None and ":" not in name:
        raise UserError(
            f"--method {name!r}: no such method{nearest(name, REGISTERED)}; "
            f"choose from {', '.join(REGISTERED)}, or write package.module:OBJECT"
        )
    if entry is not None and not isinstance(entry, tuple):
        return entry
    place = entry[1] if entry else name
    module, _, attribute = place.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        # Python's message names the missing module, which may be a dependency of the method.
        raise UserError(f"--method {name}: {error}; install the package or correct the name") from None
    except AttributeError:
        raise UserError(
            f"--method {name}: module {module} has no object {attribute!r}; correct the name after the colon"
        ) from None


def summaries() -> str:
    """The name and summary of each method, one a line."""
    texts = {
        name: entry[0] if isinstance(entry, tuple) else entry.summary for name, entry in REGISTERED.items()
    }
    return "\n".join(f"  {name:<14}{text}" for name, text in texts.items())
