"""Every file that the package reads at run time is installed with it."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_files_other_than_modules_are_package_data():
    setup = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    keywords = [node for node in ast.walk(setup) if isinstance(node, ast.keyword)]
    (declared,) = [ast.literal_eval(node.value) for node in keywords if node.arg == "package_data"]
    installed = {
        path
        for package, patterns in declared.items()
        for pattern in patterns
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    files = {path for path in (ROOT / "analysis").rglob("*") if path.is_file()}
    needed = {path for path in files if path.suffix not in (".py", ".pyc")}
    assert needed
    assert needed <= installed
