"""The tasks of GLUE (Wang et al. 2019), from the authors' archives to JSON lines.

    CoLA, SST-2                              sentence, label
    MRPC, QQP, STS-B, MNLI, QNLI, RTE, WNLI  sentence1, sentence2, label

Each folder has train.jsonl, valid.jsonl (GLUE's dev) and test.jsonl. The labels of test are hidden: its rows
have an `index` instead, which `roberta-small predict --format glue` writes beside the prediction. MNLI also
has valid_mismatched.jsonl and test_mismatched.jsonl. Labels are those of a submission: words for MNLI, QNLI
and RTE, 0 or 1 for other classes, a number from 0 to 5 for STS-B.

MRPC is not in an archive: GLUE names the pairs of its training file that are dev. Rows of train and valid
with too few fields or without a sentence or label are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from roberta_small.common.errors import UserError
from roberta_small.preprocess.download.archives import unpack, write_json_lines

MRPC_DEV, MRPC_TRAIN, MRPC_TEST = "mrpc_dev_ids.tsv", "msr_paraphrase_train.txt", "msr_paraphrase_test.txt"
MRPC_IDS = ("#1 ID", "#2 ID")
SPLITS = {"train": "train", "dev": "valid", "test": "test"}
"""Name of a file in an archive -> split."""
BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")


@dataclass(frozen=True)
class Task:
    """A task and the form of its tables, which have tabs between columns and no quoting."""

    name: str
    """The folder in the archive, and ours."""
    archive: str
    """Empty for MRPC."""
    texts: tuple[str, ...]
    """The column of the sentence, or those of both sentences."""
    label: str
    labels: tuple[str, ...] = BINARY
    """Empty for numbers."""
    splits: Mapping[str, str] | None = None
    """File name -> split, if not `SPLITS`."""
    header: tuple[str, ...] | None = None
    """The columns of train and valid, if these files have no heading."""

    def members(self) -> dict[str, str]:
        """Member of the archive -> split."""
        splits = self.splits or SPLITS
        return {f"{self.name}/{file}.tsv": split for file, split in splits.items()}


PAIR = ("sentence1", "sentence2")
MATCHED = {
    "train": "train",
    "dev_matched": "valid",
    "dev_mismatched": "valid_mismatched",
    "test_matched": "test",
    "test_mismatched": "test_mismatched",
}
COLA = ("source", "label", "mark", "sentence")
MRPC = Task("MRPC", "", ("#1 String", "#2 String"), "Quality")
TASKS = (
    Task("CoLA", "CoLA.zip", ("sentence",), "label", header=COLA),
    Task("SST-2", "SST-2.zip", ("sentence",), "label"),
    Task("STS-B", "STS-B.zip", PAIR, "score", labels=()),
    Task("QQP", "QQP-clean.zip", ("question1", "question2"), "is_duplicate"),
    Task("MNLI", "MNLI.zip", PAIR, "gold_label", ("entailment", "neutral", "contradiction"), MATCHED),
    Task("QNLI", "QNLIv2.zip", ("question", "sentence"), "label", ENTAILMENT),
    Task("RTE", "RTE.zip", PAIR, "label", ENTAILMENT),
    Task("WNLI", "WNLI.zip", PAIR, "label"),
)
"""The tasks in archives."""
Row = dict[str, Any]


def unpack_glue(destdir: Path) -> None:
    """Write `TASK/SPLIT.jsonl` below `destdir`, from the files in it.

    Raises `UserError` as `archives.unpack`, and with the line for a missing column, an unknown label and a
    malformed row of a test set.
    """
    for task in TASKS:
        archive = destdir / task.archive

        def write(
            stream: IO[bytes], name: str, split: str, task: Task = task, archive: Path = archive
        ) -> None:
            place = f"{archive}: {name}"
            rows = examples(stream, place, task, hidden=split.startswith("test"))
            write_json_lines(destdir / task.name / f"{split}.jsonl", rows, place)

        unpack(archive, task.members(), write)
    _write_mrpc(destdir)


def _write_mrpc(destdir: Path) -> None:
    with (destdir / MRPC_DEV).open("rb") as stream:
        dev = {tuple(cells[:2]) for _, cells in _lines(stream, str(destdir / MRPC_DEV))}
    chosen: dict[str, tuple[str, Callable[[Row], bool]]] = {
        "train": (MRPC_TRAIN, lambda row: _ids(row) not in dev),
        "valid": (MRPC_TRAIN, lambda row: _ids(row) in dev),
        "test": (MRPC_TEST, lambda row: True),
    }
    for split, (name, keep) in chosen.items():
        path = destdir / name
        with path.open("rb") as stream:
            rows = examples(stream, str(path), MRPC, hidden=split == "test", keep=keep)
            write_json_lines(destdir / MRPC.name / f"{split}.jsonl", rows, str(path))


def _ids(row: Row) -> tuple[str, ...]:
    return tuple(row.get(name, "") for name in MRPC_IDS)


def examples(
    stream: IO[bytes],
    place: str,
    task: Task,
    *,
    hidden: bool,
    keep: Callable[[Row], bool] = lambda row: True,
) -> Iterator[Row | None]:
    """The examples of a table, None for a row that is left out; `place` is its name in messages.

    `hidden`: the rows have no label and get an index. `keep` chooses among the rows. Errors as for
    `unpack_glue`.
    """
    names = ("sentence",) if len(task.texts) == 1 else PAIR
    columns = task.header if not hidden else None
    for number, cells in _lines(stream, place):
        if columns is None:
            columns = tuple(cells)
            needed = [*task.texts, *([] if hidden else [task.label])]
            if missing := [name for name in needed if name not in columns]:
                raise UserError(
                    f"{place}, line {number}: no column {', '.join(missing)}; this is another file"
                )
            continue
        row = dict(zip(columns, cells, strict=False))
        texts = [row.get(column, "").strip() for column in task.texts]
        if hidden:
            if any(column not in row for column in task.texts):
                raise UserError(f"{place}, line {number}: {len(cells)} fields; fetch the archive again")
            yield {"index": number - 2, **dict(zip(names, texts, strict=True))}
        elif len(cells) < len(columns) or not all(texts) or not (label := row[task.label].strip()):
            yield None
        elif keep(row):
            yield {**dict(zip(names, texts, strict=True)), "label": _label(label, task, place, number)}


def _label(text: str, task: Task, place: str, number: int) -> str | float:
    if not task.labels:
        try:
            return float(text)
        except ValueError:
            raise UserError(f"{place}, line {number}: label {text!r} is not a number") from None
    if text not in task.labels:
        raise UserError(
            f"{place}, line {number}: label {text!r}, not one of {', '.join(task.labels)}; "
            "this is another file"
        )
    return text


def _lines(stream: IO[bytes], place: str) -> Iterator[tuple[int, Sequence[str]]]:
    """The number and the cells of each line."""
    for number, line in enumerate(stream, start=1):
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n").split("\t")
        except UnicodeDecodeError:
            raise UserError(f"{place}, line {number}: not UTF-8; fetch the archive again") from None
