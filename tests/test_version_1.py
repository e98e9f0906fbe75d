"""Files that version 1.0.0 wrote are read to the end, with the same results (tests/fixtures/README.md)."""

import json
import os
import re
import tarfile
from pathlib import Path

import pytest

from roberta_small.__main__ import main

pytestmark = pytest.mark.usefixtures("fast_processes")
FIXTURE = Path(__file__).parent / "fixtures" / "v1.0.0.tar.xz"
TABLES = ("seeds", "expected", "accuracy", "best-settings")
"""Commands of 1.0.0 whose tables are now `tables --table NAME`."""
WORDING = ("notes", "caption", "title")
"""Keys of a table in JSON that may be worded differently."""
PROBABILITIES = 1e-5
STATE = re.compile(r"finished \(skipped\)|resume after epoch \d+, update \d+|\bnew\b")


@pytest.fixture(scope="module")
def entries():
    with tarfile.open(FIXTURE) as archive:
        commands = json.load(archive.extractfile("v1.0.0/expected/commands.json"))
    return {entry["output"]: entry for entry in commands}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("version1")
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(folder)
    (folder / "v1.0.0/out").mkdir()
    return folder / "v1.0.0"


@pytest.fixture
def old(unpacked, monkeypatch, tmp_path):
    """The fixture as working directory."""
    monkeypatch.chdir(unpacked)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("RS_CACHE", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("RS_") and name != "RS_CACHE"]:
        monkeypatch.delenv(name)
    return unpacked


def today(command):
    """The words of a command of 1.0.0 after `roberta-small`."""
    program, *words = command
    if program in ("./train.sh", "./pretrain.sh"):
        return [program[2:-3], *words]
    _, package, name, *rest = words[:1] + words[1:]
    if package == "export":
        return ["export", name, *rest]
    if name in TABLES:
        return ["tables", *rest, "--table", name]
    if name == "lora-table":
        return ["tables", *rest, "--table", "cost"]
    if name == "suite":
        return ["tables", *rest]
    if name == "dataset":
        return ["prepare", *rest]
    if package == "analysis" and name == "export":
        kind = rest[rest.index("--format") + 1]
        others = rest[: rest.index("--format")] + rest[rest.index("--format") + 2 : rest.index("--out")]
        form = ["--table", "scalars", "--format", "csv"] if kind == "scalars" else ["--format", kind]
        return ["tables", *others, *form]
    return [name, *(word for word in rest if word != "--wide")]  # JSON always has all columns


def expected(old, name):
    return (old / "expected" / name).read_text(encoding="utf-8")


def without_wording(content):
    """Without texts, and with intervals of accuracies that end at 0 and 100, as version 2 cuts them."""
    if isinstance(content, dict):
        if content.get("metric") == "accuracy":
            ends = [key for key in ("high", "t_high", "t_low") if content.get(key) is not None]
            content = content | {
                key: min(max(content[key], 0.0 if "t_" in key else -100.0), 100.0) for key in ends
            }
        return {key: without_wording(value) for key, value in content.items() if key not in WORDING}
    if isinstance(content, list):
        return [without_wording(value) for value in content]
    return content


def run(command, capfd):
    capfd.readouterr()
    code = main(today(command))
    captured = capfd.readouterr()
    assert not code, captured.err
    return captured.out


ANALYSIS = (
    *("runs.json", "tables.json", "tables-table2.csv", "compare.json", "archive-compare.json"),
    *("best-settings.json", "seeds.json", "expected.json", "accuracy.json"),
)


@pytest.mark.parametrize("name", ANALYSIS)
def test_tables_are_the_same(old, entries, capfd, name):
    out = run(entries[name]["command"], capfd)
    if name.endswith(".csv"):
        assert out == expected(old, name)
    else:
        assert without_wording(json.loads(out)) == without_wording(json.loads(expected(old, name)))


def test_the_table_of_costs_has_the_same_values(old, entries, capfd):
    found = json.loads(run(entries["lora-table.json"]["command"], capfd))["cost"]["rows"]
    wanted = json.loads(expected(old, "lora-table.json"))["lora"]["rows"]
    assert len(found) == len(wanted)
    assert all(old.items() <= new.items() for old, new in zip(wanted, found, strict=True))


def test_the_tables_of_several_data_sets_have_the_same_values(old, entries, capfd):
    name = "suite.json"
    found, wanted = json.loads(run(entries[name]["command"], capfd)), json.loads(expected(old, name))
    for table in ("suite", "aggregates"):
        rows = zip(found[table]["rows"], wanted[table]["rows"], strict=True)
        assert all(row.items() <= before.items() for row, before in rows)


def test_printed_tables_have_the_same_rows(old, entries, capfd):
    def rows(text):
        return [line for line in text.splitlines() if line.startswith("|")]

    name = "tables.md"
    assert rows(run(entries[name]["command"], capfd)) == rows(expected(old, name))


@pytest.mark.parametrize(
    ("name", "written"), [("scalars.stdout", "scalars.csv"), ("model-index.stdout", "model-index.yaml")]
)
def test_exports_of_numbers_are_the_same(old, entries, capfd, name, written):
    assert run(entries[name]["command"], capfd) == expected(old, written)


@pytest.mark.parametrize("kind", ["fairseq", "hf", "lora", "causal", "ngrams", "fp16", "ensemble", "onnx"])
def test_predictions_are_the_same(old, entries, capfd, kind):
    name = f"predict-{kind}.jsonl"
    found = [json.loads(line) for line in run(entries[name]["command"], capfd).splitlines()]
    wanted = [json.loads(line) for line in expected(old, name).splitlines()]
    assert len(found) == len(wanted) == 5
    for one, other in zip(found, wanted, strict=True):
        assert one["label"] == other["label"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=PROBABILITIES)


@pytest.mark.parametrize("name", ["evaluate.md", "evaluate-from-predictions.md"])
def test_evaluations_are_the_same(old, entries, capfd, name):
    entry = entries[name]
    run(entry["command"], capfd)
    ((path, kept),) = entry["writes"].items()
    found, wanted = flat(json.loads((old / path).read_text())), flat(json.loads(expected(old, kept)))
    assert {place: found.get(place) for place in wanted} == pytest.approx(wanted, abs=PROBABILITIES)
    assert {place.split(".")[1] for place in found.keys() - wanted.keys()} == {"majority"}  # new since


def flat(content, place=""):
    """The numbers of a JSON document by their place."""
    if isinstance(content, dict):
        items = content.items()
    elif isinstance(content, list):
        items = enumerate(content)
    else:
        return {place: content} if isinstance(content, int | float) else {}
    return {key: value for name, part in items for key, value in flat(part, f"{place}.{name}").items()}


def test_a_language_model_generates_the_same(old, entries, capfd):
    assert run(entries["generate.txt"]["command"], capfd) == expected(old, "generate.txt")


def test_a_converted_folder_is_converted_back(old, entries, capfd):
    run(entries["export-fairseq.txt"]["command"], capfd)
    assert (old / "out/back/model.pt").is_file()


@pytest.mark.parametrize(
    "kind", ["pretrain-mlm", "fairseq", "grid", "causal", "hf", "lora", "bow", "ngrams", "suite", "stopped"]
)
def test_the_same_command_finds_its_runs(old, entries, capfd, kind):
    name = f"dry-run-{kind}.txt"
    found = STATE.findall(run(entries[name]["command"], capfd))
    assert found == (["finished (skipped)"] if kind == "bow" else STATE.findall(expected(old, name)))


def test_a_file_of_labelled_text_has_the_same_folder(old, entries, capfd):
    folder = old / "data/reviews-4abf0af5"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    run(entries["dataset.txt"]["command"], capfd)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.long
def test_an_interrupted_run_resumes(old, entries, capfd):
    """Last, because it changes the runs."""
    entry = entries["resumed-table2.csv"]
    for command in entry["before"]:
        run(command, capfd)
    found, wanted = run(entry["command"], capfd).splitlines(), expected(old, entry["output"]).splitlines()
    assert len(found) == len(wanted)
    assert found[:9] == wanted[:9]
    content = json.loads((old / "runs/stopped/random/seed1/manifest.json").read_text())
    assert content["status"] == "finished"
