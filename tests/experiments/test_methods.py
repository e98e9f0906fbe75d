"""The registry of methods, and a toy method from outside the package."""

import importlib
import sys

import pytest

from roberta_small.analysis import best_checkpoints, load_runs
from roberta_small.common.errors import UserError
from roberta_small.common.files import ROOT
from roberta_small.common.run import Run
from roberta_small.experiments import methods
from roberta_small.experiments.__main__ import main


@pytest.fixture
def registered(monkeypatch, tmp_path):
    """The method of docs/extending.md."""
    page = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    (tmp_path / "majority.py").write_text(page.partition("```python\n# majority.py\n")[2].partition("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(methods, "REGISTERED", dict(methods.REGISTERED))
    methods.register(importlib.import_module("majority").METHOD)
    yield
    del sys.modules["majority"]


def test_a_method_that_a_module_of_the_user_registers_is_found(registered, monkeypatch, tmp_path, capsys):
    del methods.REGISTERED["majority"]
    module = tmp_path / "registering.py"
    module.write_text(
        "import majority\nfrom roberta_small.experiments import methods\nmethods.register(majority.METHOD)\n"
    )
    monkeypatch.setenv("RS_PLUGINS", str(module))
    with pytest.raises(SystemExit) as stop:
        main(["train", "--method", "majority", "--help"])
    del sys.modules["registering"]
    assert stop.value.code == 0
    assert "--labels" in capsys.readouterr().out


def test_a_toy_method_trains_a_run_that_analysis_reads(registered, tmp_path, capsys):
    (tmp_path / "labels").write_text("good\ngood\nbad\ngood\n")
    words = ["--labels", str(tmp_path / "labels"), "--out", str(tmp_path / "runs")]
    assert main(["train", "--method", "majority", *words]) == 0
    best = best_checkpoints(load_runs(tmp_path / "runs"))
    assert best[["arm", "init", "seed"]].to_numpy().tolist() == [["majority", "none", 0]]
    assert best["test"].item() == 75
    assert Run.at(tmp_path / "runs/majority/none/seed0").read_manifest()["status"] == "finished"
    capsys.readouterr()
    assert main(["train", "--method", "majority", *words]) == 0
    assert "finished (skipped)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "facts"),
    [("fairsec", ["fairsec", "fairseq"]), ("json:NONE", ["json", "NONE"]), ("no.such:A", ["no.such"])],
)
def test_an_unknown_method_raises(name, facts):
    with pytest.raises(UserError) as caught:
        methods.find(name)
    assert all(fact in str(caught.value) for fact in facts)
