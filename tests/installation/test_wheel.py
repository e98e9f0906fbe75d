"""The wheel: its contents, and that it works where the clone is not importable."""

import json
import random
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PACKAGES = ("analysis", "common", "eval", "experiments", "export", "fairseq_plugin", "preprocess")
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
COPIED = "export/transformers/tokenization_pieces.py"
"""A module that the project copies into folders of other programs."""
IMPORT_ALL = f"""
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in {PACKAGES!r}:
            raise ImportError(f"{{name}} is imported by the name of its folder")

sys.meta_path.insert(0, Refuse())
import roberta_small
names = [m.name for m in pkgutil.walk_packages(roberta_small.__path__, "roberta_small.")]
names = [n for n in names if not n.endswith(("__main__", "tokenization_pieces"))]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def sources(*folders):
    """Files of the clone that git knows."""
    done = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of a copy, so that the build leaves nothing in the clone."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"
    for name in sources("roberta_small", "installation"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        (copy / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run([sys.executable, "-c", BUILD, str(folder)], cwd=copy, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """An environment with the wheel and the dependencies of this one, but without the clone."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "env", symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env")}))
    wheel.extractall(packages)
    # `sys.path` without the clone; the .pth files in these folders, one of which names it, have no effect.
    found = dict.fromkeys(path for path in sys.path if Path(path).name in ("site-packages", "dist-packages"))
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in found))
    return folder


def run(environment, *words):
    python = environment / "env/bin/python"
    variables = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [python, "-P", *words], cwd=environment, env=variables, capture_output=True, text=True
    )


def test_the_wheel_contains_the_files_of_the_clone_unchanged_below_one_name(wheel):
    expected = {name for name in sources("roberta_small") if not name.endswith(".sh")}
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected
    for name in expected:
        assert wheel.read(name) == (ROOT / name).read_bytes(), name


def test_every_package_of_the_clone_is_installed_or_excluded_on_purpose():
    inside = {path.parent.name for path in (ROOT / "roberta_small").glob("*/__init__.py")}
    assert inside == set(PACKAGES)
    links = {path.name for path in ROOT.iterdir() if path.is_symlink()}
    assert links == {"analysis", "eval", "fairseq_plugin", "preprocess"}
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} - links == {
        "benchmarks",
        "roberta_small",
        "tests",
    }


@pytest.mark.long
def test_the_last_step_of_the_workflow_passes(environment):
    scripts = {"roberta-small": "roberta_small.__main__:main", "fairseq-train": "fairseq_cli.train:cli_main"}
    for script, target in scripts.items():
        module, _, function = target.partition(":")
        path = environment / "env/bin" / script
        start = f"import sys; from {module} import {function}; sys.exit({function}())"
        path.write_text(f"#!/bin/sh\nexec {environment}/env/bin/python -P -c '{start}' \"$@\"\n")
        path.chmod(0o755)
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    step = jobs["wheel"]["steps"][-1]["run"]
    # fairseq looks for a relative folder beside itself, which is another environment here.
    packages = sysconfig.get_path("purelib", vars={"base": str(environment / "env")})
    step = step.replace("--user-dir ", f"--user-dir {packages}/")
    done = subprocess.run(
        ["/bin/bash", "-e", "-c", step], env={"PATH": f"{environment}/env/bin:/usr/bin:/bin"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "--seeds" in done.stdout


@pytest.mark.long  # imports torch, fairseq and Transformers
def test_every_module_can_be_imported_without_the_clone(environment):
    done = run(environment, "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr[-3000:]
    modules = [name for name in sources(*PACKAGES) if name.endswith(".py") and name != COPIED]
    assert int(done.stdout) >= len([name for name in modules if not name.endswith("__main__.py")])


@pytest.mark.long  # three processes that import torch and fairseq
def test_training_prediction_and_tables_with_the_installed_command(environment):
    rng = random.Random(0)
    rows = [(" ".join(rng.choices(["un", "livre", "long", "style"], k=9)), index) for index in range(60)]
    lines = [f"{text} {index} {('bon', 'nul')[index % 2]},{index % 2}\n" for text, index in rows]
    (environment / "reviews.csv").write_text("text,label\n" + "".join(lines))
    sizes = "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2"
    words = "train --data reviews.csv --out runs --recipe sample --seeds 1 --inits random --device cpu --"
    words = f"{words} {sizes} --max-epoch 1"
    done = run(environment, "-m", "roberta_small", *words.split())
    assert done.returncode == 0, done.stdout + done.stderr
    folder = environment / "runs/fairseq/random/seed1"
    command = json.loads((folder / "manifest.json").read_text())["command"]
    assert command[command.index("--user-dir") + 1].endswith("roberta_small/fairseq_plugin")
    done = run(
        environment, "-m", "roberta_small.eval", "predict", "--checkpoint", str(folder), "un livre bon"
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["probabilities"]) == {"0", "1"}
    done = run(environment, "-m", "roberta_small.analysis", "tables", "runs")
    assert done.returncode == 0, done.stderr
    assert "fairseq" in done.stdout
