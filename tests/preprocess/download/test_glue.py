"""GLUE: files of the same form as the official ones, to JSON lines, to data folders, to a submission."""

import io
import json
import re
import zipfile
from pathlib import Path

import pytest

from roberta_small.common.label_kinds import KINDS, REGRESSION, SINGLE_LABEL, kind_of_report
from roberta_small.common.predictions import Prediction, ValuePrediction
from roberta_small.eval.predict.output import TextPrediction, write_glue
from roberta_small.preprocess.__main__ import main
from roberta_small.preprocess.download.archives import GLUE, MRPC_DEV, MRPC_TEST, MRPC_TRAIN
from tests.support.archives import write_zip
from tests.support.labelled_files import prepare

COUNT = 30
MNLI = (
    "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse "
    "sentence2_parse sentence1 sentence2"
)
STSB = "index genre filename year old_index source1 source2 sentence1 sentence2"
HEADERS = {
    "CoLA": ("", "index sentence"),
    "SST-2": ("sentence label", "index sentence"),
    "STS-B": (f"{STSB} score", STSB),
    "QQP": ("id qid1 qid2 question1 question2 is_duplicate", "id question1 question2"),
    "MNLI": (f"{MNLI} label1 gold_label", MNLI),
    "QNLI": ("index question sentence label", "index question sentence"),
    "RTE": ("index sentence1 sentence2 label", "index sentence1 sentence2"),
    "WNLI": ("index sentence1 sentence2 label", "index sentence1 sentence2"),
}
"""The columns of train and dev, and those of test."""
LABELS = {"QNLI": "entailment not_entailment", "RTE": "entailment not_entailment"}
LABELS |= {"MNLI": "entailment neutral contradiction"}
LABELS |= {"STS-B": " ".join(f"{i / 7:.3f}" for i in range(COUNT))}


def label_of(task, i):
    names = LABELS.get(task, "0 1").split()
    return names[i % len(names)]


def table(task, split):
    """A table with an unbalanced quote in each text, as official ones have."""
    train, test = (header.split() for header in HEADERS[task])
    if task == "CoLA" and split != "test":
        rows = [("bc04", label_of(task, i), "", f'{split} " {i}') for i in range(COUNT)]
        return "".join("\t".join(row) + "\n" for row in rows).encode()
    columns = test if split.startswith("test") else train
    lines = ["\t".join(columns)]
    for i in range(COUNT):
        cells = [f'{split} "{name} {i}' for name in columns]
        if not split.startswith("test"):
            cells[-1] = label_of(task, i)
        lines.append("\t".join(cells))
    return "\n".join(lines).encode() + b"\n"


def mrpc(count):
    lines = ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
    lines += [f"{i % 2}\t{i}\t{i + 100}\tfirst {i}\tsecond {i}" for i in range(count)]
    return "\n".join(lines).encode() + b"\n"


@pytest.fixture
def local(tmp_path, monkeypatch, expect):
    """A folder with all files, whose digests are then the expected ones."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "local"
    folder.mkdir()
    for task in GLUE:
        members = {member: table(task.folder, split) for member, split in task.members.items()}
        if task.folder == "QQP":
            members["QQP/train.tsv"] += b"9\t1\t2\tone question\n"  # as some rows of the official file
        write_zip(folder / task.archive, members)
    (folder / MRPC_TRAIN).write_bytes(mrpc(COUNT))
    (folder / MRPC_TEST).write_bytes(mrpc(9))
    (folder / MRPC_DEV).write_text("".join(f"{i}\t{i + 100}\n" for i in range(0, COUNT, 3)))
    expect("glue", folder)
    return folder


def rows(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def test_every_task(local, capsys):
    assert main(["download", "glue", "--out", "glue", "--from", str(local)]) == 0
    for task in GLUE:
        single = len(task.texts) == 1
        for split in task.members.values():
            found = rows(f"glue/{task.folder}/{split}.jsonl")
            assert len(found) == COUNT, (task.folder, split)
            texts = {"sentence"} if single else {"sentence1", "sentence2"}
            assert all('"' in row[name] for row in found for name in texts)
            if split.startswith("test"):
                assert [row["index"] for row in found] == list(range(COUNT))
                assert set(found[0]) == texts | {"index"}
            else:
                labels = [row["label"] for row in found]
                wanted = [label_of(task.folder, i) for i in range(COUNT)]
                assert labels == ([float(label) for label in wanted] if task.folder == "STS-B" else wanted)
    assert "left out" in next(line for line in capsys.readouterr().out.splitlines() if "QQP/train" in line)
    train, valid, test = (rows(f"glue/MRPC/{split}.jsonl") for split in ("train", "valid", "test"))
    assert [row["sentence1"] for row in valid] == [f"first {i}" for i in range(0, COUNT, 3)]
    assert len(train) + len(valid) == COUNT
    assert valid[1] == {"sentence1": "first 3", "sentence2": "second 3", "label": "1"}
    assert test[8] == {"index": 8, "sentence1": "first 8", "sentence2": "second 8"}


@pytest.mark.parametrize(("task", "kind"), [("STS-B", REGRESSION), ("RTE", SINGLE_LABEL)])
def test_a_task_is_prepared_without_further_options(local, task, kind):
    assert main(["download", "glue", "--out", "glue", "--from", str(local)]) == 0
    prepare(f"glue/{task}/train.jsonl", "--valid", f"glue/{task}/valid.jsonl", "--test", "none")
    assert kind_of_report(json.loads(Path("data/preprocess.json").read_text())) is KINDS[kind]
    assert (Path("data") / "input1").is_dir()


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("RTE", (b"\tnot_entailment\n", b"\tmaybe\n"), r"RTE\.zip: RTE/\w+\.tsv, line 3: label 'maybe'"),
        ("WNLI", (b"sentence2\tlabel", b"sentence2\tgold"), r"WNLI/\w+\.tsv, line 1: no column label"),
        ("STS-B", (b"\t0.143\n", b"\tmany\n"), r"STS-B/\w+\.tsv, line 3: label 'many'"),
    ],
)
def test_another_content_is_one_error(local, expect, capsys, task, change, message):
    (archive,) = [one.archive for one in GLUE if one.folder == task]
    with zipfile.ZipFile(local / archive) as old:
        members = {name: old.read(name).replace(*change) for name in old.namelist()}
    write_zip(local / archive, members)
    expect("glue", local)
    assert main(["download", "glue", "--out", "glue", "--from", str(local)]) == 1
    error = capsys.readouterr().err
    assert re.search(message, error)


def test_a_submission_has_the_index_of_the_file_and_the_prediction(capsys):
    stream = io.StringIO()
    with write_glue(stream) as write:
        write(TextPrediction(0, "a", Prediction(0, None, {"0": 0.3, "1": 0.7}), cells={"index": 17}))
        write(TextPrediction(1, "b", Prediction(1, None, {"entailment": 0.9, "not_entailment": 0.1})))
        for number, value in ((2, 3.14159), (3, 5.2), (4, -0.0001)):
            write(TextPrediction(number, "c", ValuePrediction(number, None, value)))
    found = "index\tprediction\n17\t1\n1\tentailment\n2\t3.142\n3\t5.000\n4\t0.000\n"
    assert stream.getvalue() == found
    assert "2 numbers outside 0 to 5" in capsys.readouterr().err
