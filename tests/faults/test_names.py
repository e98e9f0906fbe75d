"""Hostile names and files: nothing of them is ever executed.

Shown elsewhere: archives with members that lead out of their folder and digests of downloads
(tests/preprocess/download/), names in the HTML report (tests/analysis/report/test_page.py),
pickles in each part of a checkpoint (tests/fairseq_plugin/checkpoints/test_loading.py).
"""

import json
import pickle
import struct

import pytest
import torch

from roberta_small.analysis.__main__ import main as analysis
from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.eval.__main__ import main as evaluate
from roberta_small.experiments.inputs import files as inputs
from roberta_small.preprocess.__main__ import main as preprocess
from tests.faults import file_readers, originals, tiny
from tests.support.archives import Executes

pytestmark = [pytest.mark.faults, pytest.mark.slow]
NAMES = [
    "a b", 'it\'s "quoted"', "two\nlines", "élève 書", "x; touch HACKED", "$(touch HACKED)", "`touch HACKED`",
    "a|touch HACKED&", "-rf", "%A_%s{}*?[",
]  # fmt: skip


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
    assert (code, said.count("finished (skipped)")) == (0, 1)
    for subset in ("valid", "test"):  # the trainer that stands for fairseq writes empty ones
        originals.events(run / "tensorboard" / subset / "events.out.tfevents.9.x")
    assert analysis(["tables", str(out), "--out", str(odd / "tables")]) == 0
    assert not list(tmp_path.rglob("HACKED*"))


def test_labels_names_and_texts_are_only_that_wherever_they_are_shown(tmp_path, monkeypatch, capfd):
    """From raw text to training, predictions, tables and pages, all of them the real ones."""
    labels = ["x;touch", "$(touch", "`id`", "l'été\"", "<b>", "-rf"]
    odd = tmp_path / "; touch HACKED $(touch HACKED) <script>alert(1)<!--\n'\" %A_{}*"
    odd.mkdir()
    originals.sentencepiece_model(odd)
    pieces = (odd / "spm.vocab").read_text(encoding="utf-8").splitlines()[3:]
    (odd / "dict.txt").write_text("".join(f"{line.split()[0]} 1\n" for line in pieces), encoding="utf-8")
    for split in ("train", "valid", "test"):
        lines = [f"{line} <script>alert(1)</script> $(touch HACKED)\n" for line in originals.TEXT]
        (odd / f"{split}.input0").write_text("".join(lines))
        (odd / f"{split}.label").write_text("".join(f"{label}\n" for label in labels * 8))
    words = ["--tokenizer", str(odd / "spm.model"), "--dict", str(odd / "dict.txt")]
    for split in ("valid", "test"):
        words += [f"--{split}", str(odd / f"{split}.input0")]
    assert preprocess(["prepare", str(odd / "train.input0"), *words, "--out", str(odd / "data")]) == 0
    assert len(inputs.class_names(odd / "data/label/dict.txt")) == len(labels)
    assert set(labels) <= set(file_readers.load_dictionary(odd / "data/label/dict.txt").symbols)

    (odd / "tiny.txt").write_text(tiny.SWEEP.recipe)
    folders = {"--data": odd / "data", "--recipe": odd / "tiny.txt", "--out": odd / "runs"}
    code, said = tiny.run(odd, *(str(word) for pair in folders.items() for word in pair), "--seeds", "1")
    assert code == 0, said
    monkeypatch.chdir(odd)  # to which the manifest's paths are relative
    runs = ["--checkpoint", str(odd / "runs")]
    written = ["--out", str(odd / "scores.json"), "--errors", str(odd / "errors.html")]
    assert evaluate(["evaluate", *runs, "--write-predictions", *written]) == 0
    capfd.readouterr()
    assert evaluate(["predict", *runs, "un livre $(touch HACKED) </script>"]) == 0
    assert json.loads(capfd.readouterr().out)["label"] in labels
    assert analysis(["report", str(odd / "runs"), "--out", str(odd / "report.html")]) == 0
    for page in ("errors.html", "report.html"):
        assert "<script>alert" not in (odd / page).read_text(encoding="utf-8")
    assert not list(tmp_path.rglob("HACKED*"))


PICKLES = {
    "pickle": lambda evil: pickle.dumps(evil),
    "safetensors": lambda evil: struct.pack("<Q", len(pickle.dumps(evil))) + pickle.dumps(evil),
    "index": lambda evil: b"MMIDIDX\0\0" + pickle.dumps(evil),
}


@pytest.mark.parametrize("way", [*PICKLES, "torch"])
def test_no_code_runs_from_any_kind_of_file(tmp_path, monkeypatch, figures, way):
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
            file_readers.READERS[kind](path.relative_to(tmp_path))
        else:
            with pytest.raises(UserError):
                file_readers.READERS[kind](path.relative_to(tmp_path))
        assert not mark.exists(), kind
        path.write_bytes(good)
    figures["malicious files"] = figures.get("malicious files", 0) + len(originals.KINDS)
    pickle.loads(pickle.dumps(Executes(mark)))
    assert mark.exists()  # the files do run code for who lets them: the test is of something
