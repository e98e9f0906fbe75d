"""fairseq's own tests of its command lines pass with the plugin imported wherever they pass without it.

The tests are part of fairseq's source distribution, which is downloaded once per session; where there is no
package index, this file is skipped.
"""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import fairseq
import pytest

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "tests/support/fairseq_tests_utils.py"
FILES = ("test_binaries.py", "test_checkpoint_utils.py", "test_train.py")
# Fixed random numbers for each test, and the name `numpy.compat.long`, which fairseq uses and NumPy 2 lacks.
CONFTEST = """
import random
import types
import numpy
import pytest
import torch

numpy.compat = types.SimpleNamespace(long=int)

@pytest.fixture(autouse=True)
def seeds():
    random.seed(1)
    numpy.random.seed(1)
    torch.manual_seed(1)
"""
# Not selected: what stock fairseq fails with today's PyTorch, or passes only with some random numbers.
SELECTION = (
    "(TestLanguageModeling or TestMaskedLanguageModel or TestOptimizers or TestActivationCheckpointing "
    "or TestLoadCheckpoint or TestCheckpointUtils or test_transformer or test_max_positions "
    "or test_update_freq) "
    "and not (legacy or pretrained_masked or transformer_xl or pointer or layerdrop or latent_depth)"
)


@pytest.fixture(scope="session")
def fairseqs_tests(tmp_path_factory):
    """A folder with fairseq's tests, its examples, the stand-in for `tests/utils.py` and fixed seeds."""
    folder = tmp_path_factory.mktemp("fairseq")
    version = importlib.metadata.version("fairseq-fixed")
    command = [sys.executable, "-m", "pip", "download", f"fairseq-fixed=={version}", "--dest", str(folder)]
    command += ["--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--retries", "1"]
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_HOME"}
    try:
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"no source of fairseq-fixed {version}: {(error.stderr or 'no answer')[-200:]}")
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder / "source")
    source = next((folder / "source").iterdir()) / "tests"
    tests = folder / "tests"
    tests.mkdir()
    for name in FILES:
        shutil.copy(source / name, tests)
    (tests / "__init__.py").touch()
    shutil.copy(STAND_IN, tests / "utils.py")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "examples").symlink_to(Path(fairseq.__file__).parent / "examples")
    return folder


def start(folder, report, *options):
    """pytest on fairseq's tests in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", "-k", SELECTION]
    variables = {"PYTHONPATH": f"{folder}:{ROOT}", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    environment = os.environ | variables | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, f"--junitxml={report}", *options], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def passed(report):
    """The tests without any failure, error or skip; subtests are listed under the name of their test."""
    ran, other = set(), set()
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        ran.add(name)
        if any(case.find(outcome) is not None for outcome in ("failure", "error", "skipped")):
            other.add(name)
    return ran - other


@pytest.mark.fairseq
def test_fairseqs_tests_pass_with_the_plugin(fairseqs_tests):
    """At least 25 must pass without it."""
    reports = {name: fairseqs_tests / f"{name}.xml" for name in ("stock", "plugin")}
    processes = {
        "stock": start(fairseqs_tests, reports["stock"]),
        "plugin": start(fairseqs_tests, reports["plugin"], "-p", "fairseq_plugin"),
    }
    outputs = {name: process.communicate()[0] for name, process in processes.items()}
    for name, process in processes.items():
        assert process.returncode in (0, 1), outputs[name][-2000:]
    stock, plugin = passed(reports["stock"]), passed(reports["plugin"])
    assert len(stock) >= 25, outputs["stock"][-2000:]
    assert stock - plugin == set(), outputs["plugin"][-4000:]
