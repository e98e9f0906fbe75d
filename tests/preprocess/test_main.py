import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

COMMANDS = ("prepare", "download")


def run(*arguments):
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_help_lists_the_commands():
    shown = run("-m", "roberta_small.preprocess", "--help")
    assert shown.returncode == 0
    assert all(f"    {command} " in f"{shown.stdout} ".replace("\n", " ") for command in COMMANDS)


@pytest.mark.parametrize("arguments", [[], ["prepar"]])
def test_no_or_wrong_command_is_refused(arguments):
    assert run("-m", "roberta_small.preprocess", *arguments).returncode == 2


def test_missing_file_is_a_clear_error(tmp_path):
    failed = run("-m", "roberta_small.preprocess", "prepare", "absent.csv", "--out", str(tmp_path / "out"))
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: absent.csv: ")


def test_starts_without_torch():
    script = (
        "import sys, preprocess.__main__; print({'torch', 'fairseq', 'transformers'} & sys.modules.keys())"
    )
    assert run("-c", script).stdout == "set()\n"
