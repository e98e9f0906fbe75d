"""What a long test run found, as a committed file that the documentation quotes.

`make test-faults`, `make test-slurm` and `make test-checkpoints` set RS_EVIDENCE to the file. It contains the
figures that the tests recorded in the fixture `figures`, the number of tests, the machine, and a digest of
the tests' code. A test in `tests/test_evidence.py` warns when that code has changed since.
"""

import ast
import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

from roberta_small.common.files import atomic_write
from roberta_small.experiments import provenance

ROOT = Path(__file__).parents[2]
SOURCES = {
    "faults": sorted((ROOT / "tests/faults").glob("*.py")),
    "slurm": [
        ROOT / "tests/experiments/test_slurm.py",
        *(ROOT / "tests/faults" / name for name in ("test_slurm_training.py", "tiny.py", "outcome.py")),
        ROOT / "tests/support/real_slurm.py",
    ],
    "checkpoints": sorted((ROOT / "tests/checkpoints").glob("*.py")),
}
"""Marker of the tests -> their code."""
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def digest(marker):
    """SHA-256 of the code of the tests; a renamed file or package does not change it.

    Import statements, comment lines, docstrings, white space and the package's name do not count. It is
    computed from the text, because the syntax tree of a file depends on the version of Python. A missing file
    counts as empty.
    """
    files = [code_of(path.read_text(encoding="utf-8")) for path in SOURCES[marker] if path.is_file()]
    return hashlib.sha256("\0".join(sorted(files)).encode()).hexdigest()


def code_of(text):
    """The text without what does not count."""
    ignored = ignored_lines(text)
    lines = [line for number, line in enumerate(text.splitlines(), start=1) if number not in ignored]
    code = "".join("".join(line.split()) for line in lines if not line.lstrip().startswith("#"))
    return code.replace("roberta_small.", "")


def ignored_lines(text):
    """The numbers of the lines that imports and docstrings occupy."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node = node.body[0]
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        found.update(range(node.lineno, node.end_lineno + 1))
    return found


def write(path, marker, passed, seconds, figures):
    """Write the file; `figures` maps names to numbers or to further dictionaries."""
    machine = provenance.static(provenance.machine("cpu"), [])
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "git_commit": machine["git_commit"],
        "git_changed": machine["git_changed"],
        "hardware": machine["hardware"],
        "tests_passed": passed,
        "minutes": round(seconds / 60),
        "code": digest(marker),
        "figures": figures,
    }
    atomic_write(Path(path), json.dumps(content, indent=2, ensure_ascii=False) + "\n")
