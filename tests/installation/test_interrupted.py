"""What an interrupted pip leaves is removed, and nothing else."""

import subprocess
import sysconfig
import venv
from pathlib import Path

from installation.interrupted import leftovers

SCRIPT = Path(__file__).parents[2] / "installation" / "interrupted.py"


def test_a_complete_environment_has_no_leftovers():
    assert leftovers(Path(sysconfig.get_path("purelib"))) == []


def test_metadata_without_installer_and_renamed_folders_are_removed(tmp_path):
    venv.create(tmp_path, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path)}))
    for name in ("whole-1.0.dist-info", "half-1.0.dist-info", "half", "~orch"):
        (packages / name).mkdir()
        (packages / name / "METADATA").touch()
    (packages / "whole-1.0.dist-info" / "INSTALLER").write_text("pip\n")
    python = tmp_path / "bin/python"
    done = subprocess.run([python, SCRIPT], capture_output=True, text=True, check=True)
    assert sorted(path.name for path in packages.iterdir()) == ["half", "whole-1.0.dist-info"]
    assert "half-1.0.dist-info" in done.stdout
