"""`--data FILE`: prepares a data folder from a file of labelled text, once.

The folder is `data/STEM-KEY` below the working directory. KEY depends on the content of the files and on all
options that decide the result, so that the same command finds the folder again and another one writes its
own. `preprocess.dataset` does the work; methods that train on text read the folder's `text/`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from roberta_small.common.cli import OneOrMore, SettingsParser
from roberta_small.common.data_folder import REPORT, finished
from roberta_small.common.errors import UserError
from roberta_small.common.files import exclusive, sha256, shown_path
from roberta_small.experiments.inputs.checkpoints import flag_of, require_convertible, tokenizer_source
from roberta_small.experiments.inputs.files import symbols
from roberta_small.preprocess.options import (
    TRAIN,
    add_columns,
    add_dialect,
    add_soft_labels,
    add_splits,
    add_tokenizer,
)

if TYPE_CHECKING:  # functions import what they use of preprocess, so that --help stays fast
    from roberta_small.preprocess.dataset import Options
    from roberta_small.preprocess.tokenization.choice import Located

FOLDER = Path("data")
"""Of the prepared folders, below the working directory."""
KEY_DIGITS = 8
LONGEST_STEM = 60
OPTIONS = (
    *("text_column", "pair_column", "label_column", "label_separator", "task"),
    *("split_column", "merge_labels"),
    *("encoding", "delimiter", "no_header", "header_row", "sheet", "valid", "test", "data_seed"),
    *("soft_labels", "tokenizer", "dict"),
)
"""The attributes of the options that `add_options` adds; None if they are not given."""
DICTIONARY = "dict.txt"
FILE = "a file of labelled text (such as .csv, .jsonl or .parquet)"
KINDS = f"--data is {FILE} or a data folder"
DATA_HELP = f"{FILE}, which is prepared once in {FOLDER}/; datasets:NAME; or a data folder"


def add_data(parser: SettingsParser, note: str = "") -> None:
    """Add the option --data; several data sets are NAME=PATH each (`experiments.train`)."""
    parser.add_setting(
        "data", None, f"{DATA_HELP}; several data sets: NAME=PATH NAME=PATH ...{note}",
        nargs="+", action=OneOrMore,
    )  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `roberta-small prepare` that decide how a file is prepared."""
    group = parser.add_argument_group("preparation of a file that is given as --data")
    add_columns(group)
    add_dialect(group)
    add_splits(group, "--data-seed")
    add_soft_labels(group)
    add_tokenizer(group, f"that of the checkpoint, or else {TRAIN}")


def is_source(data: str) -> bool:
    """Whether --data is a file or data set of labelled text, not a data folder.

    A path that does not exist is taken for a file if a reader is registered for its suffix.
    """
    path = Path(data)
    if path.is_file() or _is_dataset(data):
        return True
    return bool(path.suffix) and not path.exists() and _has_reader(data)


@dataclass(frozen=True)
class Source:
    """What --data names: a data folder, or a file or data set that is prepared."""

    given: str
    request: Options | None = None
    """How it is prepared; None for a data folder."""
    tokenizer: str | None = None
    """The value of --tokenizer; None for that of the checkpoints, or else a new one."""
    dictionary: str | None = None
    """The value of --dict."""

    @property
    def is_file(self) -> bool:
        """Whether it has to be prepared."""
        return self.request is not None


def source(options: argparse.Namespace) -> Source:
    """The source in the options; raises `UserError` for a file or an option that cannot be used with it."""
    given = options.data
    if not is_source(given):
        what = "is a data folder" if Path(given).exists() else "does not exist"
        reject_options(options, f"--data {given} {what}")
        return Source(given)
    from roberta_small.preprocess.dataset import companions, options_of
    from roberta_small.preprocess.dataset import is_source as is_part
    from roberta_small.preprocess.soft_labels import check_file

    file = given
    if not _is_dataset(given):
        if not Path(given).is_file():
            raise UserError(f"{given}: no such file; {KINDS}")
        if not (_has_reader(given) or "label" in companions(given)):
            raise UserError(f"{given}: no labels in files with this suffix, nor beside it; {KINDS}")
        file = shown_path(Path(given))
    request = options_of(options, (file,), options.data_seed)
    parts = {"valid": request.valid, "test": request.test}
    for name, part in parts.items():
        if not is_part(part) or _is_dataset(part):
            continue
        if not Path(part).is_file():
            raise UserError(f"--{name} {part}: no such file; use a file, a number of examples or a fraction")
        parts[name] = shown_path(Path(part))
    request = replace(request, valid=parts["valid"], test=parts["test"])
    if request.soft_labels is not None:
        check_file(request.soft_labels)
        request = replace(request, soft_labels=shown_path(Path(request.soft_labels)))
    return Source(given, request, options.tokenizer, options.dict)


def data_folder(source: Source, checkpoints: Mapping[str, Path] | None = None) -> Path:
    """The data folder of a source; a file is prepared, unless the same command has done it.

    Without --tokenizer, the text gets the tokenizer of the `checkpoints` of the initializations. Raises
    `UserError` as `preprocess.dataset.prepare` does; then nothing is written.
    """
    if source.request is None:
        return Path(source.given)
    from roberta_small.preprocess.dataset import prepare, summary
    from roberta_small.preprocess.readers.records import COMPRESSED

    for init, path in (checkpoints or {}).items():
        if path.is_file() and _has_reader(str(path)):
            raise UserError(f"{flag_of(init)} {path}: a file of labelled text, not a checkpoint")
        require_convertible(path, flag_of(init))
    tokenizer, dictionary = _tokenizer(source.tokenizer, source.dictionary, checkpoints or {})
    request = replace(source.request, tokenizer=tokenizer, dictionary=dictionary)
    # The folder has the name of the file or data set, and a digest of options and contents.
    file, wanted = Path(source.given), request.request()
    stem = Path(file.stem).stem if file.suffix in COMPRESSED else file.stem
    stem = re.sub(r"[^\w.-]+", "-", stem)[:LONGEST_STEM].strip(".-") or "text"
    key = hashlib.sha256(json.dumps(wanted, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
    folder = FOLDER / f"{stem}-{key[:KEY_DIGITS]}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    # One at a time, so that a second process with the same command finds the folder.
    with exclusive(FOLDER, f"waiting for another process that writes to {FOLDER}"):
        report = finished(folder, REPORT, wanted)
        if report is not None:
            print("\n".join([*report.get("description", []), *summary(report, folder)[:-1]]))
            print(f"{source.given}: prepared earlier, in {folder}\n", flush=True)
            return folder
        if folder.exists():
            raise UserError(
                f"{folder}: has changed since it was prepared from {source.given}; move it away, and the "
                "same command prepares it again"
            )
        report = prepare(request, str(folder), workers=os.cpu_count() or 1)
    print("\n".join(summary(report, folder)) + "\n", flush=True)
    return folder


def reject_options(options: argparse.Namespace, reason: str) -> None:
    """Raise `UserError` with the reason if an option of `add_options` is given."""
    given = [f"--{name.replace('_', '-')}" for name in OPTIONS if getattr(options, name) is not None]
    if given:
        raise UserError(
            f"{', '.join(given)}: only for a file of labelled text, but {reason}; "
            "remove the option, or pass the file as --data"
        )


def text_folder(data: Path) -> Path:
    """The line files of a data folder; raises `UserError` if it has none."""
    from roberta_small.preprocess.dataset import TEXT

    if not data.is_dir():
        raise UserError(f"{data}: no such file or folder; {KINDS}")
    if not (data / TEXT).is_dir():
        raise UserError(f"{data}: contains no {TEXT}/; pass the folder of the line files as --text instead")
    return data / TEXT


def _is_dataset(data: str) -> bool:
    if ":" not in data:  # the reader's module imports pandas
        return False
    from roberta_small.preprocess.readers.records import is_dataset

    return is_dataset(data)


def _has_reader(path: str) -> bool:
    """Whether a reader is registered for the suffix; the default reader reads no labels."""
    from roberta_small.preprocess.readers import reader_name
    from roberta_small.preprocess.readers.records import DEFAULT

    return reader_name(path) != DEFAULT


def _tokenizer(
    name: str | None, dictionary: str | None, checkpoints: Mapping[str, Path]
) -> tuple[str, str | None]:
    """The values of --tokenizer and --dict: those given, else those of the checkpoints, else a new tokenizer.

    Raises `UserError` for checkpoints with different tokenizers, and for one whose tokenizer is unknown: the
    ids of another tokenizer would stand for other tokens.
    """
    from roberta_small.preprocess.tokenization.choice import locate
    from roberta_small.preprocess.tokenization.symbols import CHARACTERS, WORDS

    if name is None and not checkpoints:
        return TRAIN, dictionary
    # A SentencePiece model that is given without --dict gets the dict.txt beside the checkpoints.
    beside = dictionary is None and name is not None and (Path(name).is_file() or name in (WORDS, CHARACTERS))
    if name is not None and not beside:
        return name, dictionary
    sources = {init: tokenizer_source(path, flag_of(init)) for init, path in checkpoints.items()}
    if name is not None:
        files = {init: Path(source) / DICTIONARY for init, source in sources.items()}
        files = {init: path for init, path in files.items() if path.is_file()}
        if not files:
            return name, None
        _require_equal({init: symbols(path) for init, path in files.items()}, "dictionaries", checkpoints)
        found = shown_path(next(iter(files.values())))
        print(f"dictionary: {found} (choose with --dict)", flush=True)
        return name, found
    contents = {}
    for init, source in sources.items():
        try:
            contents[init] = _content(locate(source, dictionary))
        except UserError as error:
            raise UserError(
                f"{shown_path(checkpoints[init])}: its tokenizer is not known, and --tokenizer is missing "
                f"({error})"
            ) from None
    _require_equal(contents, "tokenizers", checkpoints)
    first = next(iter(sources.values()))
    print(f"tokenizer: of {first} (choose with --tokenizer)", flush=True)
    return first, dictionary


def _require_equal(contents: Mapping[str, object], what: str, checkpoints: Mapping[str, Path]) -> None:
    first, *others = contents
    for other in others:
        if contents[other] != contents[first]:
            raise UserError(
                f"--inits: {first} ({checkpoints[first]}) and {other} ({checkpoints[other]}) have different "
                f"{what}, so they cannot read the same data; train them with one command each"
            )


def _content(tokenizer: Located) -> object:
    """What decides the ids of a tokenizer; the counts in a dictionary do not."""
    if tokenizer.symbols and tokenizer.dictionary is not None:
        return tokenizer.symbols, symbols(tokenizer.dictionary)
    if tokenizer.model is None or tokenizer.dictionary is None:
        return [sha256(path) for path in tokenizer.files] or tokenizer.transformers
    return sha256(tokenizer.model), symbols(tokenizer.dictionary)
