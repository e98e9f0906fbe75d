"""`--data NAME=PATH NAME=PATH ...`: several data sets in one command."""

import re
import shutil
from pathlib import Path

import pytest

from roberta_small.common import manifest
from roberta_small.common.run import data_sets
from roberta_small.experiments import execute
from roberta_small.experiments.__main__ import main
from roberta_small.experiments.inputs import files as inputs
from tests.support import fake_trainer
from tests.support.tiny_runs import write_texts

DATA = ("--data", "books=bin", "films=bin2")


@pytest.fixture
def suite(here, capfd):
    """Run train.sh with the fake trainer and two data folders, bin and bin2."""
    shutil.copytree("bin", "bin2")
    Path("bin2/label/dict.txt").write_text("a 5\nb 5\nc 5\nmadeupword0000 0\n")

    def run(*words):
        common = ("--recipe", "quick.txt", "--device", "cpu", "--seeds", "1")
        code = main(["train", *common, *words], trainer=fake_trainer.COMMAND)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


def test_every_data_set_has_the_runs_of_a_command_of_its_own(suite, starts):
    code, out, err = suite(*DATA, "--inits", "random")
    assert (code, err) == (0, "")
    assert list(data_sets("runs")) == ["books", "films"]
    for name, data, classes in (("books", "bin", "2"), ("films", "bin2", "3")):
        run = Path(f"runs/{name}/fairseq/random/seed1")
        content = manifest.read(run)
        assert (content["status"], content["arm"], content["data"]["path"]) == ("finished", "fairseq", data)
        argv = starts(run)[0]["argv"]
        assert argv[argv.index("--num-classes") + 1] == classes
    assert out.count("finished (skipped)") == 0
    code, out, _ = suite(*DATA, "--inits", "random", "--dry-run")
    assert code == 0
    assert out.count("finished (skipped)") == 2


def test_a_variable_names_several_data_sets(suite, monkeypatch):
    def folders(*words):
        code, out, _ = suite(*words, "--inits", "random", "--dry-run")
        assert code == 0
        return re.findall(r"--save-dir (\S+)/fairseq/random/seed1", out)

    monkeypatch.setenv("RS_DATA", "books=bin films=bin2")
    assert folders() == ["runs/books", "runs/films"]
    shutil.copytree("bin", "my data")
    monkeypatch.setenv("RS_DATA", "my data")
    assert folders() == ["runs"]
    monkeypatch.setenv("RS_DATA", "books=my data")
    assert folders() == ["runs/books"]
    monkeypatch.delenv("RS_DATA")
    assert "--data" in suite("--data", "", "--inits", "random")[2]
    for name in ("lr=1 wd=2", "lr=1"):  # paths
        shutil.copytree("bin", name)
        assert folders("--data", name) == ["runs"]
    assert "a/lr=2" in suite("--data", "a/lr=2", "--inits", "random")[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["books=bin", "bin2"], "bin2"),
        (["bin", "bin2"], "NAME=PATH"),
        (["books=bin", "books=bin2"], "books"),
        (["books=bin", "films=./bin"], "books and films"),
        (["books=bin", ".films=bin2"], ".films"),
        (["books=bin", "b c=bin2"], "b c"),
        (["books=bin", "=bin2"], "''"),
        (["books=bin", "films="], "films="),
        (["books=bin", "films=missing"], "films: missing"),
        (["books=bin", "films=bin2", "--valid", "valid.csv"], "--valid valid.csv"),
        (["books=bin", "films=bin2", "--soft-labels", "soft.csv"], "--soft-labels soft.csv"),
        (["books=bin", "films=bin2", "--text-column", "body"], "--text-column"),
    ],
)
def test_all_data_sets_are_checked_before_the_first_run(suite, words, message):
    code, out, err = suite("--data", *words, "--inits", "random")
    assert code == 1
    assert err.count("\n") == 1
    assert message in err
    assert not Path("runs").exists()
    assert "==" not in out


def test_a_broken_file_in_the_last_data_set_is_found_before_the_first_run(suite):
    Path("bin2/label/dict.txt").write_text("only 3\n")
    code, _, err = suite(*DATA, "--inits", "random")
    assert code == 1
    assert "data set films: bin2/label/dict.txt" in err
    assert not Path("runs").exists()


def test_the_initializations_are_the_same_for_all(suite, monkeypatch):
    monkeypatch.setattr(inputs, "shipped", lambda: Path("model.pt"))
    monkeypatch.setattr(
        "roberta_small.experiments.settings.shipped_for",
        lambda data: Path("model.pt") if data.name == "bin" else None,
    )
    code, _, err = suite(*DATA)
    assert code == 1
    assert "random, pretrained for books" in err
    assert suite(*DATA, "--inits", "random", "--dry-run")[0] == 0


def test_a_failed_data_set_does_not_hide(suite, status):
    code, out, _ = suite(*DATA, "--inits", "random", "--", "--fail-data", "bin")
    assert code == 1
    assert status("runs/books/fairseq/random/seed1") == "failed"
    assert status("runs/films/fairseq/random/seed1") == "finished"
    summary = out[out.index("\ndata set") + 1 :]
    assert [line.split()[-1] for line in summary.splitlines()[1:3]] == ["FAILED", "finished"]


def test_a_limited_launcher_begins_with_the_run_of_its_task(suite, status, monkeypatch):
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")  # of two runs, one for each data set
    assert suite(*DATA, "--inits", "random", "--max-runs", "1")[0] == 0
    assert status("runs/films/fairseq/random/seed1") == "finished"
    assert not Path("runs/books").exists()
    assert suite(*DATA, "--inits", "random", "--max-runs", "1")[0] == 0
    assert status("runs/books/fairseq/random/seed1") == "finished"


def test_tfidf_trains_on_several_folders_of_text(here, capfd):
    for name in ("a", "b"):
        Path(name).mkdir()
        write_texts(Path(name), {"train": 8, "valid": 8, "test": 8})
    words = ["train", "--method", "tfidf", "--text", "a=a", "b=b"]
    assert main([*words, "--dry-run"]) == 0
    assert capfd.readouterr().out.count("train --method tfidf") == 2
    assert not Path("runs").exists()
    assert main(words) == 0
    assert manifest.read("runs/b/tfidf/tfidf/seed0")["data"]["path"] == "b"
    assert main([*words, "--data", "c=bin"]) == 1


def test_an_interruption_stops_the_suite(suite, monkeypatch):
    trained, run = [], execute.Launcher.run

    def interrupted(self, planned):
        trained.append(planned[0].run.folder)
        if len(trained) == 2:
            raise KeyboardInterrupt
        run(self, planned)

    monkeypatch.setattr(execute.Launcher, "run", interrupted)
    shutil.copytree("bin", "bin3")
    assert suite("--data", "a=bin", "b=bin2", "c=bin3", "--inits", "random")[0] == 130
    assert [str(folder) for folder in trained] == [f"runs/{name}/fairseq/random/seed1" for name in "ab"]
