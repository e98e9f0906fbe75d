"""docs/paper: tables and figures of the committed runs become a paper of two pages."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "docs" / "paper"


@pytest.mark.skipif(shutil.which("latexmk") is None, reason="needs latexmk")
def test_the_paper_compiles_on_two_pages(tmp_path):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [str(PAPER / "make.sh"), str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    log = (tmp_path / "paper.log").read_text(encoding="latin-1")
    assert re.search(r"Output written on paper\.pdf \(2 pages", log)
    assert "undefined references" not in log
    assert "Overfull" not in log
    tables = "".join((tmp_path / name).read_text() for name in ("seeds.tex", "comparison.tex"))
    labels = set(re.findall(r"\\label\{(.*?)\}", tables + (PAPER / "paper.tex").read_text()))
    assert set(re.findall(r"\\ref\{(.*?)\}", (PAPER / "paper.tex").read_text())) == labels
