"""A deferred package is executed at the first access, and is then the package itself."""

import gc
import subprocess
import sys
import types

import pytest

from roberta_small.common.startup import defer, functions_of, import_of_fairseq


@pytest.fixture
def package(tmp_path, monkeypatch):
    """`slow_package`, not imported; its submodule `part` needs a name of the package."""
    folder = tmp_path / "slow_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("import sys\nNAME = 'value'\nsys.executed = True\n")
    (folder / "part.py").write_text("from slow_package import NAME\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "executed", False, raising=False)
    yield "slow_package"
    for name in [name for name in sys.modules if name.startswith("slow_package")]:
        del sys.modules[name]


def test_it_is_executed_at_the_first_access(package):
    defer(package)
    import slow_package

    assert not sys.executed
    assert slow_package.NAME == "value"
    assert sys.executed
    with pytest.raises(AttributeError):
        slow_package.MISSING  # noqa: B018
    assert sys.modules[package] is slow_package


def test_importing_a_submodule_executes_the_package_first(package):
    defer(package)
    from slow_package.part import NAME

    assert NAME == "value"


def test_an_error_of_the_package_is_reported_each_time(package, tmp_path):
    (tmp_path / package / "__init__.py").write_text("raise RuntimeError('broken')")
    defer(package)
    import slow_package

    with pytest.raises(RuntimeError, match="broken"):
        slow_package.NAME  # noqa: B018
    with pytest.raises(RuntimeError, match="broken"):
        import slow_package


def test_a_package_that_is_imported_or_missing_is_left_alone(package):
    import slow_package

    defer(package)
    assert sys.modules[package] is slow_package
    defer("no_such_package")
    assert "no_such_package" not in sys.modules


def test_functions_of_a_package_import_it_when_they_are_called(package, tmp_path):
    (tmp_path / package / "__init__.py").write_text("import sys\nsys.executed = True\n")
    (tmp_path / package / "part.py").write_text("def double(x, *, plus=0): return 2 * x + plus\n")
    with functions_of(package, f"{package}.part"):
        from slow_package import part
        from slow_package.part import double
    assert package not in sys.modules
    assert not sys.executed
    assert part.double(2) == double(2) == 4
    assert sys.executed
    assert double(2, plus=1) == 5
    with pytest.raises(AttributeError):
        part.missing()


def test_functions_of_an_imported_or_broken_package(package):
    import slow_package

    with functions_of(package):
        assert sys.modules[package] is slow_package
    with functions_of("no_such_package"):
        from no_such_package import function
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        function()


def test_fairseq_is_imported_without_packages_that_it_rarely_uses():
    code = """
import gc, importlib, sys
below = "eval.network", "eval.language_model", "experiments.methods.fairseq_train"
for name in ("fairseq_plugin", *(f"roberta_small.{module}" for module in below)):
    importlib.import_module(name)
    assert "fairseq" in sys.modules
    large = {"sklearn", "scipy", "pandas.core", "tensorboardX"} & sys.modules.keys()
    assert not large, (name, large)
assert gc.get_freeze_count() == 0 and sys.excepthook is sys.__excepthook__  # a program of the user
import torch
from roberta_small.fairseq_plugin.training.optimizer import FusedAdam
model = torch.nn.Linear(2, 2)
optimizer = FusedAdam(model.parameters())
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
optimizer.load_state_dict(optimizer.state_dict())
optimizer.zero_grad()
assert "torch._dynamo" not in sys.modules
from fairseq.criterions import sentence_prediction
from fairseq.tasks import audio_classification
assert sentence_prediction.f1_score([0, 1, 1], [0, 1, 0]) == 2 / 3
assert sentence_prediction.pearsonr([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]).statistic > 0.999
assert len(audio_classification.sklearn_metrics.roc_curve([0, 1], [0.1, 0.9])) == 3
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "analysis tables --help",
        "eval predict --help",
        "eval serve --help",
        "preprocess prepare --help",
        "experiments train --help",
        "experiments train --method tfidf --help",
        "experiments pretrain --help",
        "export onnx --help",
        "benchmarks --help",
        "experiments parameters --help",
    ],
)
def test_help_does_not_import_large_packages(words):
    code = f"""
import runpy, sys
program, *rest = {words.split()!r}
if program != "benchmarks":
    program = "roberta_small." + program
sys.argv = ["-m", *rest]  # as `python -m` does until it has imported the package
try:
    runpy.run_module(program, run_name="__main__", alter_sys=True)
except SystemExit as end:
    assert not end.code
large = {{"torch", "fairseq", "transformers", "scipy", "matplotlib", "pandas.core", "sklearn"}}
assert not large & sys.modules.keys(), large & sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")


@pytest.mark.parametrize("program", ["roberta-small", "analyse.py"])
def test_what_fairseqs_import_creates_is_not_searched_for_garbage_by_commands(program, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    monkeypatch.setattr(sys, "argv", [f"/usr/bin/{program}"])
    try:
        with import_of_fairseq():
            assert not gc.isenabled()
            kept = [[]]
        assert gc.isenabled()
        assert any(one is kept for one in gc.get_objects()) == (program == "analyse.py")
    finally:
        gc.unfreeze()
