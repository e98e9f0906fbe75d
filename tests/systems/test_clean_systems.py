"""The parts of `make test-systems` that need neither root nor a mirror."""

import json
import subprocess
import sys
from pathlib import Path

from tests.systems import clean_systems

SCRIPT = Path(clean_systems.__file__)


def run_steps(system, results):
    """Run the commands `results` names, which exit with these codes."""
    done = []
    system._debootstrap = system._clone = lambda: 0
    system._configure = system._note_versions = lambda: None
    system._call = lambda words: done.append(words[-1]) or results[words[-1]]
    system.log.parent.mkdir(exist_ok=True)
    system.log.touch()
    passed = system.run(list(results))
    return passed, done


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


def test_the_plan_is_printed_without_root(tmp_path):
    command = [sys.executable, SCRIPT, "--roots", tmp_path, "--systems", "debian-13", "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 2 + len(clean_systems.COMMANDS)
    assert list(tmp_path.iterdir()) == []
