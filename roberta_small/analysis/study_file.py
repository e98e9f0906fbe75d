"""The study file: a `Query` in TOML, with the keys about groups and how they are presented.

    groups = ["fairseq/pretrained", "fairseq/random"]    only these, in this order
    exclude = ["hf/random"]
    order = ["fairseq/random"]                           first, the others after them
    baseline = "fairseq/random"                          significance marks compare with it
    pairs = [["fairseq/pretrained", "fairseq/random"]]   the comparisons, one family for corrected p-values
    at = ["5", "best"]                                   where they are made: after epochs, best checkpoint
    digits = 1                                           decimals of all metrics
    bold = true                                          the best means in bold
    wide = false                                         all columns of wide tables
    width = "one-column"                                 of figures

    [labels]
    "fairseq,lr=1e-4/random" = "Random, lr 1e-4"
    [captions]
    seeds = "Test accuracy on CLS-books"
    [latex-labels]
    seeds = "tab:main"

Options of the same names override the file. A label may also be that of a method. FOLDER:METHOD/INIT is a
group of another folder, which only `compare` reads.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from typing import Any

from roberta_small.analysis.features import TABLES
from roberta_small.analysis.query import WIDTHS, Query, frozen
from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError
from roberta_small.common.files import escaped

MOST_DIGITS = 10
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]")
LATEX_LABEL = re.compile(r"[\w:./+-]+", re.ASCII)
# Kinds of values: a check, and the error for other values.
GROUPS = (lambda value: _is_list(value, str), 'not a list of groups; write {key} = ["METHOD/INIT", ...]')
TEXTS = (
    lambda value: isinstance(value, dict) and _is_list([*value.values()], str),
    'not a table of texts; write [{key}] and below it "NAME" = "TEXT"',
)
SWITCH = (lambda value: isinstance(value, bool), "{value!r} is not true or false")
TEXT = (lambda value: isinstance(value, str), "{value!r} is not a text; put it in quotes")
PAIRS = (
    lambda value: _is_list(value, list) and all(len(pair) == 2 and _is_list(pair, str) for pair in value),
    'not a list of pairs; write pairs = [["A/INIT", "B/INIT"], ...]',
)
DIGITS = (
    lambda value: type(value) is int and 0 <= value <= MOST_DIGITS,
    f"{{value!r}} is not an integer from 0 to {MOST_DIGITS}",
)
FILE_KEYS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "groups": GROUPS, "exclude": GROUPS, "order": GROUPS, "baseline": TEXT, "pairs": PAIRS,
    "at": (lambda value: _is_list(value, str | int), 'not a list of epochs; write at = [5, "best"]'),
    "digits": DIGITS, "bold": SWITCH, "wide": SWITCH, "width": TEXT, "labels": TEXTS, "captions": TEXTS,
    "latex-labels": TEXTS,
}  # fmt: skip
"""The keys of a study file, which are fields of `Query`, and the kinds of their values."""


def read_study(path: str | os.PathLike[str]) -> Query:
    """Read a study file.

    Raises `UserError` with the file and the place for a file that is missing or no TOML, an unknown key, a
    value of another type and a caption of an unknown table.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would block
        raise UserError(f"{path}: not a regular file; give a study file")
    try:
        with open(path, encoding="utf-8-sig") as stream:
            content = tomllib.loads(stream.read())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; write one as docs/how-to/analysis.md shows") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error}); save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not TOML: {error}; names with commas or slashes need quotes") from None
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key not in FILE_KEYS:
            raise UserError(
                f"{path}: unknown key '{key}'{nearest(key, FILE_KEYS)}; known: {', '.join(FILE_KEYS)}"
            )
        _check(f"{path}, {key}", key, value)
        values[key.replace("-", "_")] = tuple(map(str, value)) if key == "at" else frozen(value)
    return Query(file=escaped(str(path)), **values)


def _check(where: str, key: str, value: Any) -> None:
    """Raise `UserError` for a value of a study file that has another type, or that is unknown."""
    is_valid, text = FILE_KEYS[key]
    if not is_valid(value):
        raise UserError(f"{where}: {text.format(key=key, value=value)}")
    if key == "width" and value not in WIDTHS:
        raise UserError(
            f"{where}: '{value}' is not a width{nearest(value, WIDTHS)}; known: {', '.join(WIDTHS)}"
        )
    for name, text in value.items() if isinstance(value, dict) else ():
        if key != "labels" and name not in TABLES:
            raise UserError(
                f"{where}: no table '{name}'{nearest(name, TABLES)}; tables are {', '.join(TABLES)}"
            )
        if key == "latex-labels" and not LATEX_LABEL.fullmatch(text):
            raise UserError(f"{where}: '{text}' is not a LaTeX label; use letters, digits and : . / + _ -")
        # matplotlib omits labels that begin with an underscore.
        if key == "labels" and (not text.strip() or text.startswith("_") or UNPRINTABLE.search(text)):
            raise UserError(
                f"{where}: the label of '{name}' is empty, begins with an underscore or has a line break "
                "or control character; write a text on one line"
            )


def _is_list(value: Any, kind: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, kind) for one in value)
