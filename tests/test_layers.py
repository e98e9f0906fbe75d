"""A package imports only from the packages in the rows above it (ARCHITECTURE.md, "Layers")."""

import ast
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
NEVER = {
    "analysis": {"torch", "fairseq", "transformers"},
    "preprocess": {"torch", "fairseq"},
}
"""Libraries that a package must not import anywhere, not even inside a function."""


def imported(path: Path) -> set[str]:
    """Packages of this project and top-level names of other modules that a file imports anywhere."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
