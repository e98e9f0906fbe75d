"""The weight of the project (CONTRIBUTING.md, "Budgets"): what exceeds a budget needs a removal first."""

import re
import subprocess
from pathlib import Path

import pytest

from roberta_small.__main__ import COMMANDS
from tests.support import command_lines

ROOT = Path(__file__).parents[1]
BUDGETS = {
    "lines of Python outside tests": 45_700,
    "lines of Python in tests": 36_950,
    "commands": 20,
    "option rows of the reference": 210,
    "pages of docs": 20,
    "words of Markdown": 42_000,
    "megabytes": 60,
}


@pytest.fixture(scope="module")
def tracked():
    """The tracked files, without links; skipped where git or the repository is missing."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git repository")
    files = [ROOT / name for name in done.stdout.split("\0") if name]
    return [path for path in files if path.is_file() and not path.is_symlink()]


def lines(paths):
    return sum(path.read_bytes().count(b"\n") for path in paths)


def test_no_budget_is_exceeded(tracked):
    python = [path for path in tracked if path.suffix == ".py"]
    tests = [path for path in python if path.is_relative_to(ROOT / "tests")]
    pages = [path for path in tracked if path.suffix == ".md"]
    reference = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8")
    found = {
        "lines of Python outside tests": lines(python) - lines(tests),
        "lines of Python in tests": lines(tests),
        "commands": len(COMMANDS) - 1 + len(command_lines.choices_of(["export"])),
        "option rows of the reference": len(re.findall(r"^\| `", reference, re.MULTILINE)),
        "pages of docs": sum(path.is_relative_to(ROOT / "docs") for path in pages),
        "words of Markdown": sum(len(path.read_text(encoding="utf-8").split()) for path in pages),
        "megabytes": sum(path.stat().st_size for path in tracked) / 1e6,
    }
    assert found.keys() == BUDGETS.keys()
    assert not {name: value for name, value in found.items() if value > BUDGETS[name]}
