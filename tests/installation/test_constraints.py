"""constraints.txt is written from pip's report."""

import importlib.util
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("constraints", ROOT / "installation/constraints.py")
constraints = importlib.util.module_from_spec(spec)
spec.loader.exec_module(constraints)


def report(**versions):
    return {"install": [{"metadata": {"name": n, "version": v}} for n, v in versions.items()]}


def test_versions_are_sorted_and_torch_and_this_project_are_left_out():
    others = {"torch": "2.13.0", "nvidia-nccl-cu12": "2", "fairseq-roberta-small": "1"}
    lines = constraints.pinned(report(zlib="1", Alpha="2", **others))
    assert lines == ["Alpha==2", "zlib==1"]


def test_comments_and_fairseq_are_kept():
    old = "# Why\nAlpha==1\nfairseq-fixed==0.12\ngone==3\n"
    new = "# Why\nAlpha==2\nfairseq-fixed==0.12\nzlib==1\n"
    assert constraints.updated(old, ["Alpha==2", "zlib==1"]) == new


def test_the_tested_torch_is_a_requirement_with_one_version():
    (specifier,) = Requirement(constraints.tested_torch()).specifier
    assert specifier.operator == "=="


def test_every_line_of_the_file_is_a_pinned_version():
    lines = [line for line in constraints.FILE.read_text().splitlines() if not line.startswith("#")]
    assert all([one.operator for one in Requirement(line).specifier] == ["=="] for line in lines)
    assert lines == sorted(lines, key=str.lower)


def test_pre_commit_has_the_version_of_ruff_that_the_tests_have():
    (pinned,) = [line for line in constraints.FILE.read_text().splitlines() if line.startswith("ruff==")]
    assert f"rev: v{pinned.removeprefix('ruff==')}\n" in (ROOT / ".pre-commit-config.yaml").read_text()


def test_the_citation_has_the_version_of_the_package():
    citation = (ROOT / "CITATION.cff").read_text()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in citation
