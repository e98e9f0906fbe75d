"""Where a model comes from: its checkpoint, its run and the data folder of the training.

A path is a checkpoint file, a run folder, or a folder that contains runs. Neither torch nor fairseq is
imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from roberta_small.common import archive
from roberta_small.common.data_folder import REPORT, WRITE_AGAIN, keys_of, read_report
from roberta_small.common.errors import UserError, count
from roberta_small.common.files import ROOT, read_object, sha256
from roberta_small.common.manifest import Manifest
from roberta_small.common.metrics import number
from roberta_small.common.run import BEST_CHECKPOINT, TFIDF, Run, find_checkpoint, rank

GRAPH = ".onnx"
"""Suffix of ONNX files."""
MODELS = (BEST_CHECKPOINT, TFIDF)
"""The file of a run folder that classifies text."""
DICTIONARY = "input0/dict.txt"
"""The dictionary of the text in a data folder of a classifier."""

OptionalPath = str | os.PathLike[str] | None
"""A path given by the user, or None for the recorded one."""


@dataclass(frozen=True)
class RunCheckpoint:
    """A checkpoint and its run."""

    checkpoint: Path
    run: Run | None
    """None for a folder without manifest."""
    manifest: Manifest | None
    named_by_path: bool = False
    """Whether the folder is used as the name, because two output folders contain runs of the same name."""

    @classmethod
    def from_file(cls, checkpoint: Path) -> RunCheckpoint:
        """A checkpoint file, with the run in its folder."""
        found = Run.at(checkpoint.parent)
        return cls(checkpoint, found, None if found is None else found.read_manifest())

    @classmethod
    def from_folder(cls, folder: Path) -> RunCheckpoint:
        """The model of a run folder; if it has none, the path of its (missing) best checkpoint."""
        tfidf = folder / TFIDF if (folder / TFIDF).is_file() else None
        return cls.from_file(find_checkpoint(folder) or tfidf or folder / BEST_CHECKPOINT)

    @property
    def folder(self) -> Path:
        """The run folder, which also contains the prediction files."""
        return self.checkpoint.parent

    @property
    def data(self) -> dict[str, Any]:
        """What the manifest records about the data; empty without a manifest."""
        return (self.manifest or {}).get("data", {})

    @property
    def group(self) -> str:
        """`arm/init`, or the folder: runs of a group differ only in their seed. Empty without a manifest."""
        if self.run is None:
            return ""
        return str(self.folder.parent) if self.named_by_path else self.run.group

    @property
    def name(self) -> str:
        """`arm/init/seedN`, with the file name unless it is the best checkpoint; the path if no manifest."""
        if self.run is None:
            return str(self.checkpoint)
        file = "" if self.checkpoint.name in MODELS else f"/{self.checkpoint.name}"
        return f"{self.group}/seed{self.run.seed}{file}"


def find_run(path: str | os.PathLike[str], files: Sequence[str] = (BEST_CHECKPOINT,)) -> RunCheckpoint:
    """The single model of a path; `files` and errors as for `find_runs`, and if there are several."""
    found = find_runs([path], files)
    if len(found) > 1:
        raise UserError(f"{path}: contains {len(found)} runs; choose one, for example {found[0].folder}")
    return found[0]


def find_best(path: str | os.PathLike[str]) -> RunCheckpoint:
    """The model of a path; of several runs the best one; `UserError` if they cannot be compared."""
    found = find_runs([path], MODELS)
    if len(found) == 1:
        return found[0]
    choose = f"choose one, for example {found[0].folder}, or predict with their ensemble: --ensemble"
    if any(one.run is None for one in found):
        raise UserError(f"{path}: contains {len(found)} runs; {choose}")
    try:
        groups = rank(one.run for one in found if one.run is not None)
    except UserError as error:
        raise UserError(
            f"{path}: contains {len(found)} runs, of which none is the best ({error}); {choose}"
        ) from None
    best = next(one for one in found if one.run == groups[0].runs[0])
    score = number(groups[0].valid, groups[0].metric)
    print(
        f"model: {best.folder}, of {count(len(groups), 'group')} of runs the best one on the validation set "
        f"({groups[0].metric} {score})",
        file=sys.stderr,
    )
    return best


def find_runs(
    paths: Iterable[str | os.PathLike[str]], files: Sequence[str] = (BEST_CHECKPOINT,)
) -> list[RunCheckpoint]:
    """The checkpoints of the paths.

    For a folder, these are the checkpoints of all finished runs in it; without runs, its own checkpoint
    (`common.run.find_checkpoint`). Unfinished runs are omitted, with a message on standard error. A folder
    counts as a run if it contains one of `files`: if they are prediction files, the model need not exist.

    Raises `UserError` for a path without such a file and for a checkpoint given twice.
    """
    found = [one for path in paths for one in _find(archive.opened(path), files)]
    check_distinct((one.checkpoint, str(one.checkpoint.resolve())) for one in found)
    if len({one.name for one in found}) < len(found):
        return [replace(one, named_by_path=True) for one in found]
    return found


def check_distinct(models: Iterable[tuple[Path, str]]) -> None:
    """Raise `UserError` if a model would count twice; given are files and what identifies their models."""
    seen: dict[str, Path] = {}
    for path, identity in models:
        if (first := seen.setdefault(identity, path)) is not path:
            raise UserError(
                f"{path}: the same model as {first}, which would count twice; specify one of them"
            )


def _find(path: Path, names: Sequence[str]) -> list[RunCheckpoint]:
    if not path.exists():
        raise UserError(f"{path}: no such checkpoint or folder of runs")
    if path.suffix == GRAPH:
        raise UserError(
            f"{path}: an ONNX file, which only predict and serve read; pass the folder of the run"
        )
    if path.is_file():
        return [RunCheckpoint.from_file(path)]
    if any((path / name).is_file() for name in names):
        return [RunCheckpoint.from_folder(path)]

    def order(file: Path) -> tuple[str, int, str]:  # seed10 after seed9
        name = file.parent.name
        digits = name.removeprefix("seed")
        return str(file.parent.parent), int(digits) if digits.isdigit() else -1, name

    below = sorted((file for name in names for file in path.rglob(name)), key=order)
    if not below:
        checkpoints = BEST_CHECKPOINT in names
        if checkpoints and (weights := find_checkpoint(path)) is not None:
            return [RunCheckpoint.from_file(weights)]
        what = "a checkpoint, a run" if checkpoints else "a run"
        raise UserError(f"{path}: contains no {names[0]}; specify {what} or a folder of runs")
    candidates = [RunCheckpoint.from_folder(file.parent) for file in below]
    finished = [one for one in candidates if one.manifest is None or one.manifest["status"] == "finished"]
    if unfinished := [one for one in candidates if one not in finished]:
        if not finished:
            raise UserError(f"{path}: contains no finished run; finish one, or specify a checkpoint file")
        print(f"omitted, not finished: {', '.join(one.name for one in unfinished)}", file=sys.stderr)
    return finished


def _of_report(folder: Path) -> Path:
    """The data folder of a folder, which may be its text/."""
    text = not (folder / REPORT).is_file() and (folder.parent / REPORT).is_file()
    return folder.parent if text else folder


@dataclass(frozen=True)
class DataFolder:
    """A binarized data folder, which may no longer exist."""

    path: Path
    report: dict[str, Any] = field(default_factory=dict)
    """Content of `preprocess.json`; empty for data of fairseq-preprocess."""
    changed: bool = False
    """Whether its files are not those that a run records."""

    @classmethod
    def given(cls, path: str | os.PathLike[str]) -> DataFolder:
        """The folder that the user names; raises `UserError` if it does not exist."""
        path = Path(path)
        if not path.is_dir():
            raise UserError(f"{path}: no such folder; pass a data folder with --data")
        return cls(path, read_report(path))

    @classmethod
    def recorded(cls, path: str | None, run: RunCheckpoint) -> DataFolder:
        """The folder that a run or its checkpoint records; the working directory if they record none.

        A relative path counts from the working directory, the clone, or a folder above the run, whichever has
        the files that the run records. Of those that may be large, training data and texts, the first are not
        compared, and the second by the lengths in their index.
        """
        known = {
            name: digest
            for name, digest in run.data.get("sha256", {}).items()
            if "train" not in name and (name.startswith("label") or not name.endswith(".bin"))
        }
        usual = resolve_recorded(path or ".")
        above = (ROOT, *run.folder.absolute().parents) if known else ()
        for place in dict.fromkeys([usual, *(folder / (path or ".") for folder in above)]):
            files = [(place / name, digest) for name, digest in known.items()]
            if place.is_dir() and all(file.is_file() and sha256(file) == digest for file, digest in files):
                found = _of_report(place)
                return cls(found, read_report(found))
        usual = _of_report(usual)
        return cls(usual, read_report(usual) if usual.is_dir() else {}, changed=usual.is_dir())

    @property
    def exists(self) -> bool:
        """Whether the folder exists, with the files that the run records."""
        return self.path.is_dir() and not self.changed

    def require_examples(self, name: str) -> None:
        """Raise `UserError` unless the folder has the data of the run `name`."""
        if not self.exists:
            problem = "not the data" if self.changed else "no such folder: data"
            raise UserError(f"{self.path}: {problem} of {name}; pass the data with --data")

    @property
    def dictionary(self) -> Path:
        """The dictionary of the text of a classifier."""
        return self.path / DICTIONARY

    @property
    def pairs(self) -> bool:
        """Whether an example is two sentences."""
        return (self.path / "input1").is_dir()

    def option(self, name: str) -> Any:
        """An option that the report records; None if unknown."""
        return self.report.get("options", {}).get(name)

    def digest(self, path: str) -> str | None:
        """The recorded SHA-256 of a file in this folder, or of a file that it was made of."""
        return self.report.get("sha256", {}).get(path) or self.report.get("files", {}).get(path)

    @property
    def splits(self) -> list[str]:
        """The recorded names of the splits."""
        return list(self.option("splits") or self.report.get("splits", {}))

    def texts(self, split: str) -> list[dict[Path, str | None]]:
        """The text files of a split with their recorded SHA-256, one dictionary per sentence of an example.

        They are in this folder, or where they were when it was written. Empty if they are not recorded.
        """
        from roberta_small.preprocess.dataset import TEXT

        lines = self.path / f"{split}.input0"
        if not self.report and lines.is_file():  # a folder of line files
            return [{lines: None}]
        files = self.report.get("files", {})
        names = [name for i in (0, 1) if (name := f"{TEXT}/{split}.input{i}") in files]
        if names:
            return [{self.path / name: files[name]} for name in names]
        recorded = ((self.option("splits") or {}).get(split) or {}).get("texts") or {}
        return [{resolve_recorded(path): self.digest(path) for path in paths} for paths in recorded.values()]

    def columns(self, split: str, otherwise: str = "") -> list[list[str]]:
        """The texts of a split, a list for each sentence of an example.

        Raises `UserError`, which proposes what to do `otherwise`, if they are not recorded, missing or not
        those that the data were made of.
        """
        from roberta_small.preprocess.readers.lines import read_text_lines

        columns = self.texts(split)
        files = {path: digest for column in columns for path, digest in column.items()}
        changed = [p for p, digest in files.items() if not p.is_file() or (digest and digest != sha256(p))]
        if changed or not columns:
            problem = f"{changed[0]}: missing or changed since" if changed else "not recorded when"
            raise UserError(
                f"text of {split}: {problem} {self.path} was written; restore it{otherwise}, or pass a data "
                "folder that has the text with --data"
            )
        return [list(chain.from_iterable(read_text_lines(str(p)) for p in column)) for column in columns]

    def keys(self, split: str) -> list[str] | None:
        """The keys of the examples of a split (`common.predictions`); None without its unchanged text."""
        with suppress(UserError):
            if all(digest for column in self.texts(split) for digest in column.values()):
                return keys_of(self.columns(split))
        return None

    def places(self, split: str, count: int) -> list[str]:
        """The line in the user's own file of each example of a split, or in the text if that is unknown."""
        from roberta_small.preprocess.dataset import SPLIT_REPORT

        path = self.path / SPLIT_REPORT
        found = read_object(path, WRITE_AGAIN)["examples"].get(split, []) if path.is_file() else []
        found = [f"{source}, line {line}" for source, line in found]
        return found if len(found) == count else [f"line {number}" for number in range(1, count + 1)]


def resolve_recorded(recorded: str) -> Path:
    """A recorded path, relative to the working directory, or to the clone if it exists only there."""
    path = Path(recorded)
    return path if path.exists() or not (ROOT / path).exists() else ROOT / path
