import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def run(*arguments):
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_missing_file_is_a_clear_error(tmp_path):
    failed = run("-m", "roberta_small.preprocess", "prepare", "absent.csv", "--out", str(tmp_path / "out"))
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: absent.csv: ")


def test_starts_without_torch():
    modules = "{'torch', 'fairseq', 'transformers'} & sys.modules.keys()"
    assert run("-c", f"import sys, preprocess.__main__; print({modules})").stdout == "set()\n"
