"""What users get wrong: each gives one clear line, a non-zero exit, and loses nothing.

One case for each kind of mistake, through the commands; the rooms' own tests have the variants.
"""

import gzip
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import sentencepiece
import torch

from roberta_small.analysis.__main__ import main as analysis
from roberta_small.preprocess.__main__ import main as preprocess
from tests.support import preloaded
from tests.support.data_folders import write_data, write_dictionary, write_split
from tests.support.training import FAST, INPUT, OURS, SIZES, STEPS

ROOT = Path(__file__).parents[1]
TEXT = ["un livre captivant", "un roman ennuyeux", "une lecture agréable", "une histoire décevante"] * 12


class Executes:
    """Unpickled without care, this creates a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture
def folder(tmp_path):
    """Good input of every kind, for each case to spoil one thing of."""
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.input0").write_text("".join(f"{line}\n" for line in TEXT), encoding="utf-8")
        (tmp_path / f"{split}.label").write_text("1\n0\n" * (len(TEXT) // 2))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "train.input0"),
        model_prefix=str(tmp_path / "spm"),
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spm.model"))
    pieces = [model.id_to_piece(i) for i in range(3, model.get_piece_size())]
    (tmp_path / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in pieces), encoding="utf-8")
    write_data(tmp_path / "data")
    run = tmp_path / "runs/fairseq/random/seed1"
    (run / "tensorboard" / "valid").mkdir(parents=True)
    return tmp_path


PREPARE = shlex.split("-m preprocess prepare --tokenizer spm.model --dict dict.txt --out bin")
BINARIZE = [*PREPARE, "train.input0", "--valid", "valid.input0", "--test", "test.input0"]
TRAIN = ["-m", "fairseq_cli.train", "data", "--user-dir", str(ROOT / "fairseq_plugin")]
TRAIN += [*OURS, *INPUT, *STEPS, *SIZES, *FAST, "--save-dir", "save"]
RESTORE = [*TRAIN, "--restore-file", "other/model.pt"]
MAINS = {"preprocess": preprocess, "roberta_small.analysis": analysis}
TABLES = shlex.split("-m roberta_small.analysis tables runs")


@dataclass(frozen=True)
class Case:
    spoil: Callable[[Path], object]
    command: list[str]
    said: str
    """What the line says: the file, the place or the remedy."""


def not_utf8(folder):
    lines = (folder / "valid.input0").read_bytes().splitlines(keepends=True)
    (folder / "valid.input0").write_bytes(b"".join([*lines[:4], "agréable\n".encode("latin-1"), *lines[5:]]))


def cut_gzip(folder):
    whole = gzip.compress((folder / "train.input0").read_bytes() * 50)
    (folder / "news.gz").write_bytes(whole[: len(whole) // 2])


def evil_checkpoint(folder):
    torch.save({"model": {}, "cfg": Executes(folder / "executed")}, folder / "evil.pt")


def other_sizes(folder):
    (folder / "other").mkdir()
    torch.save({"model": {"encoder.x": torch.ones(1)}, "cfg": None}, folder / "other" / "model.pt")


def other_dictionary(folder):
    other_sizes(folder)
    write_dictionary(folder / "other" / "dict.txt", [f"other{i}" for i in range(40)])


def edit(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


CASES = {
    "missing file": Case(lambda f: (f / "test.input0").unlink(), BINARIZE, "test.input0"),
    "undecodable text": Case(not_utf8, BINARIZE, "valid.input0, line 5"),
    "unknown class": Case(edit("test.label", lambda b: b"neutre" + b[1:]), BINARIZE, "neutre"),
    "not a SentencePiece model": Case(edit("spm.model", lambda b: b"x" * 100), BINARIZE, "spm.model"),
    "wrong dictionary": Case(
        lambda f: write_dictionary(f / "dict.txt", [f"other{i}" for i in range(40)]), BINARIZE, "dict.txt"
    ),
    "truncated archive": Case(cut_gzip, [*PREPARE, "--corpus", "news.gz"], "news.gz"),
    "truncated data": Case(
        edit("data/input0/train.bin", lambda b: b[:-5]), [*TRAIN, "--max-update", "1"], "train.bin"
    ),
    "missing split": Case(lambda f: (f / "data/input0/valid.idx").unlink(), TRAIN, "valid.idx: "),
    "label count of binarized data": Case(
        lambda f: write_split(f / "data/label", "valid", [[4]] * 3), TRAIN, r"\b16\b.*input0.*\b3\b.*label"
    ),
    "missing checkpoint": Case(
        lambda f: None, [*TRAIN, "--restore-file", "none.pt"], "--restore-file none.pt: "
    ),
    "checkpoint that runs code": Case(evil_checkpoint, [*TRAIN, "--restore-file", "evil.pt"], "evil.pt: "),
    "checkpoint of another model": Case(other_sizes, RESTORE, "model.pt "),
    "checkpoint of another dictionary": Case(other_dictionary, RESTORE, "dict.txt"),
    "precision that fairseq has for GPUs": Case(lambda f: None, [*TRAIN, "--fp16"], "--fp16 on a CPU"),
    "no logs": Case(lambda f: None, TABLES, "runs"),
}


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def execute(folder, command, capfd):
    """The exit code and standard error of a command; that of fairseq has a process of its own."""
    _, module, *words = command
    if module in MAINS:
        capfd.readouterr()
        return MAINS[module](words), capfd.readouterr().err
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [preloaded.python(), *command]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", CASES)
def test_one_line_and_nothing_lost(folder, name, monkeypatch, capfd):
    case = CASES[name]
    case.spoil(folder)
    before = contents(folder)
    monkeypatch.chdir(folder)
    code, said = execute(folder, case.command, capfd)
    assert code not in (0, -11)
    assert "Traceback" not in said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, said
    assert re.search(case.said, errors[0]) or re.search(case.said, said.splitlines()[-1])
    after = contents(folder)
    assert {path: after.get(path) for path in before} == before
    assert not (folder / "executed").exists()
    assert not (folder / "bin").exists()
