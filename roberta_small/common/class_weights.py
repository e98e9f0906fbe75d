"""Class weights of the training loss: `--class-weights balanced`, a file, or the weights themselves.

A file has one class a line, the name and the weight separated by a tab or by the last comma:

    very bad<TAB>2.5
    good<TAB>0.7

The weights themselves are a JSON object, {"very bad": 2.5, "good": 0.7}. A run is recorded with them, so that
it resumes with the same numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from roberta_small.common.cli import nearest
from roberta_small.common.data_folder import ID_BYTES, WRITE_AGAIN, read_header
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.files import read_lines

FLAG = "--class-weights"
NONE, BALANCED = "none", "balanced"
Weights = dict[str, float]
"""Class name -> weight, in the order of the label dictionary."""

FIRST_LABEL = 4
"""Id of the first class: fairseq's dictionaries begin with four special symbols."""
LONGEST = 100_000
"""Maximum bytes of the weights on a command line; Linux allows 128 KiB for one argument."""
ESCAPED = frozenset("\"'\\$")
"""Characters with a meaning for JSON, or for the parser of fairseq's configuration."""
SHOWN = 20
"""Maximum number of classes whose weights are listed in a message."""


def resolve(value: str, data: Path, classes: Sequence[str], splits: Sequence[str] = ("train",)) -> Weights:
    """The weight of each class for a value of the flag; empty for "none".

    `classes` are the names in the order of the label dictionary; `splits` are the training splits of the data
    folder, which "balanced" counts. Raises `UserError` for a class that is unknown, missing or given twice,
    a weight that is not a positive number, and a class without training examples under "balanced".
    """
    if value == NONE:
        return {}
    if value == BALANCED:
        return balanced(data, classes, splits)
    if value.lstrip().startswith("{"):
        where = f"{FLAG} {value[:40]}{'...' if len(value) > 40 else ''}"
        try:
            given = json.loads(value, object_pairs_hook=list)
        except (ValueError, RecursionError):
            raise UserError(f'{where}: not a JSON object; write {{"class": weight, ...}}') from None
        pairs: list[tuple[str, object, str]] = [(name, weight, where) for name, weight in given]
    else:
        where, pairs = value, _from_file(Path(value))
    found: Weights = {}
    for name, text, place in pairs:
        if name not in classes:
            raise UserError(
                f"{place}: {name!r} is not a class of the data{nearest(name, classes)}; the classes are "
                f"{enumerate_some(classes, SHOWN)}"
            )
        if name in found:
            raise UserError(f"{place}: class {name!r} is given twice; keep one of its weights")
        try:
            weight = math.nan if isinstance(text, bool) else float(text)  # type: ignore[arg-type]  # other types raise TypeError
        except (TypeError, ValueError):
            weight = math.nan
        if not 0 < weight < math.inf:
            raise UserError(f"{place}: weight {text!r} of class {name!r}: give a finite number above 0")
        found[name] = weight
    if missing := [name for name in classes if name not in found]:
        raise UserError(f"{where}: no weight of {enumerate_some(missing, SHOWN)}; give one for every class")
    return {name: found[name] for name in classes}


def balanced(data: Path, classes: Sequence[str], splits: Sequence[str] = ("train",)) -> Weights:
    """n / (K n_k) for each class: n examples, n_k of class k, K classes.

    King and Zeng 2001, section 4.2, for any number of classes; as scikit-learn's `class_weight="balanced"`.
    Raises `UserError` for a class without examples.
    """
    counts_K = np.sum([label_counts(data, split, len(classes)) for split in splits], axis=0)
    if empty := [name for name, number in zip(classes, counts_K, strict=True) if not number]:
        raise UserError(
            f"{FLAG} {BALANCED}: no example of {enumerate_some(empty)} in {', '.join(splits)} of {data}; add "
            "examples, or give the weights in a file"
        )
    weights_K = counts_K.sum() / (len(classes) * counts_K)
    return dict(zip(classes, weights_K.tolist(), strict=True))


def label_counts(data: Path, split: str, classes: int) -> np.ndarray:
    """int64 (K,): number of examples of each class in a split of a data folder.

    Raises `UserError` if the labels are missing or corrupt, or in another format than `mmap`.
    """
    prefix = data / "label" / split
    index, binary = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
    for path in (index, binary):
        if not path.is_file():
            raise UserError(f"{path}: no such file; {FLAG} {BALANCED} counts the labels in it")
    if (header := read_header(index)) is not None:
        ids = np.fromfile(binary, f"<u{ID_BYTES[header.code]}").astype(np.int64)
        labels_N = ids[::2] - FIRST_LABEL  # each label is followed by </s>
        if len(ids) == 2 * header.sentences and ((labels_N >= 0) & (labels_N < classes)).all():
            return np.bincount(labels_N, minlength=classes)
    raise UserError(
        f"{binary}: not the labels of {classes} classes as `roberta-small prepare` writes them; {WRITE_AGAIN}"
    )


def as_value(weights: Mapping[str, float]) -> str:
    """The weights as a value of the flag, at full precision; "none" for no weights.

    Raises `UserError` if it is too long for a command line.
    """
    if not weights:
        return NONE
    # JSON strings without backslashes before quotes, which fairseq's configuration would remove.
    names = ["".join(f"\\u{ord(c):04x}" if c in ESCAPED or c < " " else c for c in name) for name in weights]
    pairs = zip(names, weights.values(), strict=True)
    text = "{" + ", ".join(f'"{name}": {weight!r}' for name, weight in pairs) + "}"
    if len(text.encode()) > LONGEST:
        raise UserError(
            f"{FLAG}: the weights of {len(weights):,} classes are longer than a command line allows; use "
            "fewer classes or shorter names"
        )
    return text


def describe(weights: Mapping[str, float]) -> str:
    """For logs and plans: every weight, or the smallest and the largest ones of many classes."""
    if len(weights) <= SHOWN:
        return ", ".join(f"{name} {weight:.4g}" for name, weight in weights.items())
    ordered = sorted(weights.items(), key=lambda item: item[1])
    ends = [f"{name} {weight:.4g}" for name, weight in (*ordered[:3], *ordered[-3:])]
    return f"{len(weights)} classes, from {', '.join(ends[:3])} to {', '.join(ends[3:])}"


def _from_file(path: Path) -> list[tuple[str, object, str]]:
    """(class, weight, place) of each line of a file."""
    if not path.is_file():
        raise UserError(
            f"{FLAG} {path}: no such file{nearest(str(path), (BALANCED, NONE))}; give {BALANCED}, {NONE}, or "
            "a file with one class and its weight a line"
        )
    pairs: list[tuple[str, object, str]] = []
    for number, line in enumerate(read_lines(path), start=1):
        where, line = f"{path}, line {number}", line.removeprefix("\ufeff")
        if not line.strip():
            continue
        name, separator, weight = line.rpartition("\t" if "\t" in line else ",")
        if not separator:
            raise UserError(
                f"{where}: {line!r} has neither tab nor comma; write a class, a tab and its weight"
            )
        name = name.strip()
        if len(name) > 1 and name[0] == name[-1] == '"':  # CSV puts quotes around a name with a comma
            name = name[1:-1].replace('""', '"')
        pairs.append((name, weight.strip(), where))
    return pairs
