"""installation/install.sh with programs that only record how they are called, and interrupted.py."""

import os
import re
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from installation.interrupted import leftovers

ROOT = Path(__file__).parents[2]
TOOLS = ("cat", "cp", "date", "dirname", "mkdir", "readlink", "rm", "tail", "env", "ln")
PYTHON = """\
#!/bin/sh
case "$*" in
"-c import sys"*) [ "${{0##*/}}" != python3 ] || exit {unsuitable} ;;
"-c import platform"*) echo 3.12.1 ;;
"-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
*) echo "$*" >>calls; case "$*" in *"$(cat failing)"*) echo "no such package"; exit 1 ;; esac ;;
esac
"""
UV = """\
#!/bin/sh
echo "uv $*" >>calls
mkdir -p .venv/bin && cp "$(dirname "$0")/template" .venv/bin/python
"""
INSTALLED_UV = """\
#!/bin/sh
echo "uv $*" >>calls
case "$*" in *"$(cat failing-uv)"*) echo "no such package"; exit 1 ;; esac
"""


class Project:
    def __init__(self, folder):
        self.folder, self.bin = folder / "project", folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        shutil.copytree(ROOT / "installation", self.folder / "installation")
        self.fail_at("(nothing)")

    def program(self, name, text, unsuitable=0):
        path = self.bin / name
        path.write_text(text.format(unsuitable=unsuitable) if text is PYTHON else text)
        path.chmod(0o755)

    def fail_at(self, words):
        (self.folder / "failing").write_text(words)

    def install_uv(self, fails_at="(nothing)"):
        """Put what `pip install uv` would have put into .venv."""
        (self.folder / "failing-uv").write_text(fails_at)
        path = self.folder / ".venv/bin/uv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(INSTALLED_UV)
        path.chmod(0o755)

    def install(self, **variables):
        environment = {"PATH": str(self.bin), **variables}
        command = [self.folder / "installation/install.sh"]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    @property
    def calls(self):
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [line for line in lines if "interrupted.py" not in line and "pip --version" not in line]


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def test_each_step_is_named_with_its_time_and_without_the_output_of_pip(project):
    project.program("python3", PYTHON)
    done = project.install()
    assert (done.returncode, done.stderr) == (0, "")
    steps = re.findall(r"^\[(\d)/5\] .*?(?:(\d+) s|\(Python 3\.12\.1\))$", done.stdout, re.MULTILINE)
    assert [number for number, _ in steps] == list("12345")
    calls = project.calls
    assert "torch==2.13.0" in calls[0]
    assert calls[1].endswith(" uv")
    assert "--no-build-isolation --editable .[" in calls[3]
    assert calls[4] == "-m roberta_small.common.install_fairseq --constraint constraints.txt"
    assert all("--constraint constraints.txt" in call for call in calls[:5])
    log = (project.folder / ".venv/install.log").read_text()
    assert log.count("\n$ ") == 4


def test_a_step_that_fails_shows_the_log_and_the_next_call_continues(project):
    project.program("python3", PYTHON)
    project.fail_at("cython")
    done = project.install()
    assert done.returncode == 1
    assert "no such package" in done.stderr
    assert ".venv/install.log" in done.stderr
    assert not [call for call in project.calls if "--editable" in call]
    project.fail_at("(nothing)")
    done = project.install()
    assert done.returncode == 0, done.stderr
    assert "exists" in done.stdout
    assert [call for call in project.calls if "--editable" in call]


@pytest.mark.parametrize("fails_at", ["(nothing)", "--editable"])
def test_uv_installs_the_packages_and_pip_where_uv_fails(project, fails_at):
    project.program("python3", PYTHON)
    assert project.install().returncode == 0
    project.install_uv(fails_at)
    assert project.calls
    done = project.install()
    assert (done.returncode, done.stderr) == (0, "")
    calls = project.calls
    assert [call for call in calls if call.startswith("uv pip install") and "--editable" in call]
    with_pip = [call for call in calls if call.startswith("-m pip") and "--editable" in call]
    assert len(with_pip) == (fails_at == "--editable")
    assert "torch==2.13.0" in calls[0]
    assert calls[0].startswith("-m pip")


def test_another_build_of_torch(project):
    project.program("python3", PYTHON)
    assert project.install(TORCH="https://example.org/cpu").returncode == 0
    assert "--extra-index-url https://example.org/cpu torch==2.13.0" in project.calls[0]
    assert project.install(TORCH="torch==2.12.0").returncode == 0
    assert project.calls[0].endswith(" torch==2.12.0")


def test_another_python_than_python3_is_used_if_python3_is_not_supported(project):
    project.program("python3", PYTHON, unsuitable=1)
    project.program("python3.13", PYTHON)
    assert project.install().returncode == 0
    assert len(project.calls) == 6


def test_uv_provides_a_python_where_there_is_none(project):
    project.program("python3", PYTHON, unsuitable=1)
    project.program("template", PYTHON)
    project.program("uv", UV)
    assert project.install().returncode == 0
    calls = project.calls
    assert calls[0].startswith("uv venv --quiet --seed --python 3.")
    assert len(calls) == 7


@pytest.mark.parametrize("variables", [{}, {"PYTHON": "python3"}, {"PYTHON": "missing"}])
def test_without_a_supported_python_the_message_names_what_to_install(project, variables):
    project.program("python3", PYTHON, unsuitable=1)
    if variables:
        project.program("uv", UV)  # PYTHON has been set: nothing else is used
    done = project.install(**variables)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    for word in ("3.11", "3.14", "apt install python3-venv", "uv", *variables.values()):
        assert word in done.stderr
    assert not os.path.exists(project.folder / ".venv")


def test_a_complete_environment_has_no_leftovers():
    assert leftovers(Path(sysconfig.get_path("purelib"))) == []


def test_metadata_without_installer_and_renamed_folders_are_removed(tmp_path):
    venv.create(tmp_path, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path)}))
    for name in ("whole-1.0.dist-info", "half-1.0.dist-info", "half", "~orch"):
        (packages / name).mkdir()
        (packages / name / "METADATA").touch()
    (packages / "whole-1.0.dist-info" / "INSTALLER").write_text("pip\n")
    command = [tmp_path / "bin/python", ROOT / "installation/interrupted.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert sorted(path.name for path in packages.iterdir()) == ["half", "whole-1.0.dist-info"]
    assert "half-1.0.dist-info" in done.stdout


def test_the_supported_versions_are_those_of_the_script():
    settings = (ROOT / "pyproject.toml").read_text()
    lowest, above = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', settings).groups()
    script = (ROOT / "installation/install.sh").read_text()
    assert f"(3, {lowest}) <= sys.version_info < (3, {above})" in script
    names = re.findall(r"python3\.(\d+)", script.partition("for name in")[2].partition(";")[0])
    assert sorted(map(int, names)) == list(range(int(lowest), int(above)))
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    for minor in names:
        assert f'"3.{minor}"' in workflow
        assert f"Python :: 3.{minor}" in settings
