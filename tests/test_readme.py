"""Every command of the README that needs no download is run as written, in order, in an empty folder.

The blocks are marked in the README: `<!-- run: NAME -->` above a fenced block.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import fake_slurm
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- run: (\w+) -->\n```\n(.*?)```", README, flags=re.DOTALL)
CLUSTER = re.findall(r"<!-- dry run: slurm -->\n```\n(.*?)```", README, flags=re.DOTALL)
# What the README shows is a minute a run; here a few updates do.
SHORTER = {
    "--recipe sample-pretrain": "--recipe {short}/pretrain.txt",
    "--recipe sample ": "--recipe {short}/sample.txt ",
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The clone's rooms by link in an empty folder, with this interpreter first on the path."""
    folder = tmp_path_factory.mktemp("clone")
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name not in ("data", "runs", "demo", "pretrained"):
            (folder / path.name).symlink_to(path)
    short = folder / "short"
    short.mkdir()
    for name, recipe, limits in (
        (
            "pretrain",
            "sample-pretrain",
            {"--max-update": "4", "--total-num-update": "4", "--warmup-updates": "1"},
        ),
        ("sample", "sample", {"--max-epoch": "2", "--max-update": "110", "--total-num-update": "110"}),
    ):
        text = (ROOT / "recipes" / f"{recipe}.txt").read_text(encoding="utf-8")
        for flag, value in limits.items():
            text = re.sub(rf"^{flag} \S+", f"{flag} {value}", text, flags=re.MULTILINE)
        (short / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


def run(block, clone, path=""):
    for long, short in SHORTER.items():
        block = block.replace(long, short.format(short=clone / "short"))
    environment = os.environ | {
        "PATH": f"{path}{Path(sys.executable).parent}:{os.environ['PATH']}",
        "FAKE_SLURM": str(clone / "short"),
        "PYTHON": sys.executable,
    }
    for command in block.strip().splitlines():
        done = subprocess.run(command, shell=True, cwd=clone, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
def test_the_documented_commands_run(clone):
    assert [name for name, _ in BLOCKS] == ["data", "train", "fairseq", "analysis", "eval", "causal", "hf"]
    for _, block in BLOCKS:
        run(block, clone)
    assert (clone / "demo" / "pretrained" / "model.pt").is_file()
    assert (clone / "demo" / "report" / "table1.tex").is_file()
    assert (clone / "demo" / "report" / "accuracy_per_epoch.png").is_file()
    audit = (clone / "demo" / "audit.json").read_text(encoding="utf-8")
    assert "train" in audit
    fake_slurm.install(clone / "short")
    (block,) = CLUSTER
    run(block.replace("\n", " --dry-run\n"), clone, path=f"{clone / 'short' / 'bin'}:")


def test_the_other_commands_are_understood():
    """Commands that need the network: their flags exist."""
    unrun = re.findall(r"^python -m preprocess (download|split) (.*)$", README, flags=re.MULTILINE)
    assert len(unrun) == 3
    for name, rest in unrun:
        usage = subprocess.run(
            [sys.executable, "-m", "preprocess", name, "--help"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for flag in re.findall(r"--[\w-]+", rest):
            assert flag in usage, f"{name} {flag}"


def test_the_makefile_has_what_the_readme_names():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, flags=re.MULTILINE))
    assert {"sweep", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
