"""Write constraints.txt: the newest versions that the ranges in pyproject.toml allow, for the tested torch.

`make update-constraints` calls this. pip resolves the requirements without installing anything.

    .venv/bin/python installation/constraints.py
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "constraints.txt"
EXTRAS = "test,hf,explain,data,serve"
BUILD_TOOLS = ("cython", "setuptools", "wheel", "uv")
NOT_PINNED = re.compile(r"torch|triton|nvidia-.*|cuda-.*|fairseq-roberta-small")
"""torch is pinned by installation/install.sh, its build for a machine decides the rest."""


def tested_torch() -> str:
    """The requirement for torch in installation/install.sh."""
    return re.search(r"^tested_torch=(\S+)", (ROOT / "installation/install.sh").read_text(), re.MULTILINE)[1]


def resolve(torch: str) -> dict[str, Any]:
    """pip's report of what it would install; raises `CalledProcessError` where it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--dry-run"]
    command += ["--ignore-installed", "--report", "-", torch, *BUILD_TOOLS, f"{ROOT}[{EXTRAS}]"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def pinned(report: dict[str, Any]) -> list[str]:
    """`NAME==VERSION` of every package of a report, in alphabetical order."""
    found = [(one["metadata"]["name"], one["metadata"]["version"]) for one in report["install"]]
    return sorted(
        (f"{name}=={version}" for name, version in found if not NOT_PINNED.fullmatch(name)), key=str.lower
    )


def updated(old: str, lines: list[str]) -> str:
    """The text of the file: its comments, fairseq's version as it was, and the new lines."""
    comments = [line for line in old.splitlines() if line.startswith("#")]
    kept = [line for line in old.splitlines() if line.startswith("fairseq-fixed==")]
    return "\n".join([*comments, *sorted([*lines, *kept], key=str.lower)]) + "\n"


def main() -> None:
    """Write the file and print what changed."""
    old = FILE.read_text(encoding="utf-8")
    new = updated(old, pinned(resolve(tested_torch())))
    FILE.write_text(new, encoding="utf-8")
    before, after = set(old.splitlines()), set(new.splitlines())
    for sign, lines in (("-", before - after), ("+", after - before)):
        for line in sorted(lines):
            print(sign, line)


if __name__ == "__main__":
    main()
