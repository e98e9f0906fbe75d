"""Hostile names and files: nothing of them is ever executed.

Shown elsewhere: archives with members that lead out of their folder (tests/preprocess/test_download.py),
digests of downloads (test_fetch.py beside it), names in the HTML report (tests/analysis/test_report.py),
pickles in each part of a checkpoint (tests/fairseq_plugin/test_checkpoints.py).
"""

import os
import pickle
import struct

import originals
import pytest
import readers
import tiny
import torch

from analysis.__main__ import main as analysis
from common import manifest
from common.errors import UserError
from preprocess.__main__ import main as preprocess
from sweep import inputs

pytestmark = [pytest.mark.torture, pytest.mark.slow]
NAMES = [
    "a b",
    'it\'s "quoted"',
    "two\nlines",
    "élève 書",
    "x; touch HACKED",
    "$(touch HACKED)",
    "`touch HACKED`",
    "a|touch HACKED&",
    "-rf",
    "%A_%s{}*?[",
]


class Executes:
    """Unpickled without care, this makes a folder."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_of_folders_are_only_names(tmp_path, name):
    odd, out = tmp_path / name, tmp_path / name / f"out {name}"
    odd.mkdir()
    tiny.prepare(odd)
    words = [
        "--data",
        str(odd / "data"),
        "--recipe",
        str(odd / "tiny.txt"),
        "--out",
        str(out),
        "--seeds",
        "1",
    ]
    code, said = tiny.run(odd, *words, trainer=tiny.FAKE)
    assert code == 0, said
    run = out / "fairseq/random/seed1"
    assert manifest.read(run)["status"] == "finished"
    assert manifest.read(run)["data"]["path"] in (str(odd / "data"), "data")
    code, said = tiny.run(odd, *words, trainer=tiny.FAKE)
    assert (code, said.count("finished: skipped")) == (0, 1)
    for subset in ("valid", "test"):  # the trainer that stands for fairseq writes empty ones
        originals.events(run / "tensorboard" / subset / "events.out.tfevents.9.x")
    assert analysis(["tables", str(out), "--output-dir", str(odd / "tables")]) == 0
    assert not list(tmp_path.rglob("HACKED*"))


def test_labels_are_only_labels(tmp_path, monkeypatch):
    labels = ["x;touch", "$(touch", "`id`", "l'été\"", "<b>", "-rf"]
    monkeypatch.chdir(tmp_path)
    originals.sentencepiece_model(tmp_path)
    pieces = (tmp_path / "spm.vocab").read_text(encoding="utf-8").splitlines()[3:]
    (tmp_path / "dict.txt").write_text("".join(f"{line.split()[0]} 1\n" for line in pieces), encoding="utf-8")
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.input0").write_text("".join(f"{line}\n" for line in originals.TEXT))
        (tmp_path / f"{split}.label").write_text("".join(f"{label}\n" for label in labels * 8))
    words = ["binarize", "--sentencepiece-model", "spm.model", "--srcdict", "dict.txt", "--destdir", "data"]
    assert preprocess([*words, "--trainpref", "train", "--validpref", "valid", "--testpref", "test"]) == 0
    assert inputs.count_classes(tmp_path / "data/label/dict.txt") == len(labels)
    found = readers.load_dictionary(tmp_path / "data/label/dict.txt").symbols
    assert set(labels) <= set(found)


PICKLES = {
    "pickle": lambda evil: pickle.dumps(evil),
    "safetensors": lambda evil: struct.pack("<Q", len(pickle.dumps(evil))) + pickle.dumps(evil),
    "index": lambda evil: b"MMIDIDX\0\0" + pickle.dumps(evil),
}


@pytest.mark.parametrize("way", [*PICKLES, "torch"])
def test_no_code_runs_from_any_kind_of_file(tmp_path, monkeypatch, way):
    monkeypatch.chdir(tmp_path)
    originals.write(tmp_path)
    mark = tmp_path / "executed"
    for kind, name in originals.KINDS.items():
        path = tmp_path / name
        good = path.read_bytes()
        if way == "torch":
            torch.save({"model": Executes(mark)}, path)
        else:
            path.write_bytes(PICKLES[way](Executes(mark)))
        if kind in ("dictionary", "labels"):  # read by two readers, whose refusals are what it says
            readers.READERS[kind](path.relative_to(tmp_path))
        else:
            with pytest.raises(UserError):
                readers.READERS[kind](path.relative_to(tmp_path))
        assert not mark.exists(), kind
        path.write_bytes(good)
    pickle.loads(pickle.dumps(Executes(mark)))
    assert mark.exists()  # the files do run code for who lets them: the test is of something
