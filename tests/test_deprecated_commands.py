"""Old commands print one deprecation line and run the new command."""

import subprocess
from pathlib import Path

import preloaded
import pytest

from hf import translate

ROOT = Path(__file__).parents[1]
COMMANDS = [
    ("hf convert", "python -m export transformers"),
    ("hf convert --to-fairseq", "python -m export fairseq"),
    ("hf export", "python -m export onnx"),
    ("hf finetune", "python -m experiments train --method transformers"),
    ("hf lora classify", "python -m experiments train --method lora"),
    ("hf lora causal", "python -m experiments lora-causal"),
    ("hf lora sample", "python -m experiments lora-sample"),
    ("hf lora table", "python -m experiments lora-table"),
    ("baseline", "python -m experiments train --method tfidf"),
    ("sweep", "python -m experiments"),
    ("fairseq_plugin.parameters", "python -m fairseq_plugin parameters"),
    ("fairseq_plugin.warm_start", "python -m fairseq_plugin ppmi-svd"),
    ("fairseq_plugin.half_weights", "python -m export fp16"),
]


def run(words):
    line = [preloaded.python(), "-m", *words.split()]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("old", "new"), COMMANDS)
def test_an_old_command_prints_one_deprecation_line_and_runs_the_new_one(old, new):
    done = run(f"{old} --help")
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"deprecated: python -m {old.split()[0]} ")
    assert lines[0].endswith(f" {new}")
    assert done.stdout == run(f"{new.removeprefix('python -m ')} --help").stdout


def test_options_are_passed_on():
    assert translate(["convert", "folder", "--out", "model.pt", "--to-fairseq"]) == (
        "export fairseq",
        ["folder", "--out", "model.pt"],
    )
    new = ("experiments lora-table", ["runs", "--format", "csv"])
    assert translate(["lora", "table", "runs", "--format", "csv"]) == new


@pytest.mark.parametrize("words", ["hf", "hf lora", "hf lora unknown", "hf unknown"])
def test_an_unknown_old_command_is_a_usage_error(words):
    done = run(words)
    assert done.returncode == 2
    assert "usage: python -m hf" in done.stderr
    assert "deprecated: " not in done.stderr
