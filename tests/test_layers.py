"""A package imports only from the packages in the rows above it (ARCHITECTURE.md, "Layers")."""

import ast
import functools
import graphlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "common": set(),
    "preprocess": {"common"},
    "fairseq_plugin": {"common", "preprocess"},
    "eval": {"common", "preprocess", "fairseq_plugin"},
    "analysis": {"common"},
    "export": {"common", "preprocess", "fairseq_plugin", "eval", "analysis"},
    "experiments": {"common", "preprocess", "fairseq_plugin", "eval", "analysis", "export"},
    "benchmarks": {"common", "preprocess", "fairseq_plugin", "eval", "analysis", "export", "experiments"},
}
"""What each package may import of the others."""
ONLY = {"common": {"numpy", "pandas", "scipy"}}
"""The only libraries that a package may import, apart from the standard library."""
NEVER = {"analysis": {"torch", "fairseq", "transformers"}, "preprocess": {"torch", "fairseq"}}
"""Libraries that a package must not import anywhere, not even inside a function."""

EXTRAS = {
    "analysis.features.suite": {"analysis.features.__init__", "analysis.__main__"},
    "analysis.read.text_logs": {"analysis.read.long_table"},
    "eval.serve": {"eval.__main__"},
    "experiments.methods.lora.causal": set(),
    "experiments.methods.lora.causal_run": set(),
    "experiments.methods.lora.sample": set(),
    "experiments.methods.teacher": set(),
    "fairseq_plugin.tasks.distillation": {"fairseq_plugin.registration"},
}
"""What the core must not import when it is loaded (CONTRIBUTING.md) -> the modules that list it."""


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> set[str]:
    """Packages of this project and top-level names of other modules that a file imports anywhere."""
    names = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "roberta_small":
            names |= {f"roberta_small.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}, line {node.lineno}: a relative import"
            names.add(node.module)
    return {name.removeprefix("roberta_small.").partition(".")[0] for name in names}


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_from_the_layers_above_it_in_the_table(package):
    wrong = {}
    for path in sorted(
        (ROOT / package if package == "benchmarks" else ROOT / "roberta_small" / package).rglob("*.py")
    ):
        names = imported(path)
        bad = (names & set(ALLOWED)) - ALLOWED[package] - {package} | names & NEVER.get(package, set())
        if package in ONLY:
            bad |= names - ONLY[package] - ALLOWED[package] - {package} - sys.stdlib_module_names
        if bad:
            wrong[str(path.relative_to(ROOT))] = sorted(bad)
    assert not wrong


def test_every_package_has_a_place_in_the_layers():
    packages = {path.parent.name for path in (ROOT / "roberta_small").glob("*/__init__.py")}
    assert packages == set(ALLOWED) - {"benchmarks"}


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_core_imports_no_extra_when_it_is_loaded(extra):
    importers = set()
    for path in (ROOT / "roberta_small").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT / "roberta_small").with_suffix("").parts)
        if any(name.removesuffix(".__init__").startswith(other) for other in EXTRAS):
            continue
        for node in parsed(path).body:  # not those inside functions
            if not isinstance(node, ast.ImportFrom):
                continue
            full = {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
            if any(f"{one}.".startswith(f"roberta_small.{extra}.") for one in full):
                importers.add(name)
    assert importers <= EXTRAS[extra]


def modules_imported(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules of the project that a file imports anywhere, except for type checkers."""
    typing = [node for node in parsed(path).body if isinstance(node, ast.If)]
    skipped = {id(one) for node in typing for one in ast.walk(node)}
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and id(node) not in skipped:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules else str(node.module) for name in names} & modules.keys()
    return found


def test_no_modules_import_each_other():
    modules = {}
    for path in (ROOT / "roberta_small").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        modules[name.removesuffix(".__init__")] = path
    graph = {name: modules_imported(path, modules) - {name} for name, path in modules.items()}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError with the modules
