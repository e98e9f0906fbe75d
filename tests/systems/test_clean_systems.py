"""The parts of `make test-systems` that need neither root nor a mirror."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.systems import clean_systems

SCRIPT = Path(clean_systems.__file__)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with a configuration of pip that names a local index, a certificate and an address."""
    for name in ("index/simple", "wheels"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "ca.crt").touch()
    config = tmp_path / "pip.conf"
    config.write_text(
        f"[global]\ncert = {tmp_path}/ca.crt\nindex-url = https://example.org/root/pypi\n"
        f"extra-index-url = file://{tmp_path}/index/simple file://{tmp_path}/missing\n"
    )
    for name in [name for name in clean_systems.os.environ if clean_systems.PASSED.fullmatch(name)]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(clean_systems, "PIP_FILES", (str(config), str(tmp_path / "none.conf")))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UNRELATED", str(tmp_path))
    return tmp_path


def test_what_pip_uses_on_this_machine_is_passed_on(machine):
    assert clean_systems.machine_files() == [str(machine / "ca.crt"), str(machine / "pip.conf")]
    assert clean_systems.machine_folders() == [str(machine / "index"), str(machine / "wheels")]
    words = clean_systems.System("debian-12", machine, "commit")._words(["true"])
    assert f"PIP_FIND_LINKS={machine}/wheels" in words
    assert not [word for word in words if word.startswith("UNRELATED")]


def test_the_packages_are_those_of_the_readme():
    assert {"python3-venv", "python3-dev", "g++", "make"} <= set(clean_systems.readme_packages())


def test_the_mirror(monkeypatch):
    monkeypatch.setenv("DEBIAN_MIRROR", "http://mirror/debian")
    assert clean_systems.DEBIAN.find_mirror() == "http://mirror/debian"
    for text in (
        "Types: deb\nURIs: http://a/debian\nSuites: trixie\n",
        "deb http://b/security trixie main\ndeb [signed-by=/k] http://a/debian trixie main\n",
    ):
        assert clean_systems.DEBIAN.mirror_in(text) == "http://a/debian"
        assert clean_systems.UBUNTU.mirror_in(text) is None
    assert clean_systems.DEBIAN.mirror_in("URIs: http://a/debian-security\n") is None


def run_steps(system, results):
    """Run the commands `results` names, which exit with these codes."""
    done = []
    system._debootstrap = system._clone = lambda: 0
    system._configure = system._note_versions = lambda: None
    system._in_system = lambda words: done.append(words[-1]) or results[words[-1]]
    system.log.parent.mkdir(exist_ok=True)
    system.log.touch()
    passed = system.run(list(results))
    return passed, done


def test_the_summary_keeps_the_other_systems(tmp_path, monkeypatch):
    monkeypatch.setattr(clean_systems, "ROOT", tmp_path)
    monkeypatch.setattr(clean_systems, "SUMMARY", tmp_path / "results/summary.json")
    for name, commit in (("debian-12", "a"), ("ubuntu-24.04", "a"), ("debian-12", "b")):
        clean_systems.summarize(clean_systems.System(name, tmp_path, commit))
    summary = json.loads((tmp_path / "results/summary.json").read_text())
    assert {name: entry["commit"] for name, entry in summary.items()} == {
        "debian-12": "b",
        "ubuntu-24.04": "a",
    }


def test_a_call_continues_where_the_last_one_ended(tmp_path, capsys):
    def system(commit="a"):
        return clean_systems.System("debian-12", tmp_path / "roots", commit)

    assert run_steps(system(), {"one": 0, "two": 3, "three": 0}) == (False, ["one", "two"])
    record = json.loads((tmp_path / "roots/debian-12.json").read_text())
    assert {name: step["exit_code"] for name, step in record["steps"].items()} == {
        "debootstrap": 0, "clone": 0, "one": 0, "two": 3,
    }  # fmt: skip
    assert run_steps(system(), {"one": 0, "two": 0, "three": 0}) == (True, ["two", "three"])
    assert run_steps(system(), {"one": 0, "two": 0, "three": 0}) == (True, [])
    assert run_steps(system("b"), {"one": 0}) == (True, ["one"])
    assert "exit code 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "outcome"),
    [
        ("== 2400 passed, 12 skipped in 800.1s (0:13:20) ==", "2400 passed, 12 skipped"),
        ("1 failed, 3 passed in 2.00s", "1 failed, 3 passed"),
        ("make: nothing", None),
    ],
)
def test_the_last_line_of_pytest_is_recorded(tmp_path, lines, outcome):
    log = tmp_path / "log"
    log.write_text(f"9 passed in 1s\n{lines}\n")
    assert clean_systems._outcome(log, len("9 passed in 1s\n")) == outcome


def test_the_plan_is_printed_without_root(tmp_path):
    command = [sys.executable, SCRIPT, "--roots", tmp_path, "--systems", "debian-13", "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 2 + len(clean_systems.COMMANDS)
    assert list(tmp_path.iterdir()) == []
