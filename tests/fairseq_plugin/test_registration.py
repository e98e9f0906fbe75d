"""fairseq's programs know what the plugin registers."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_help_of_fairseq_lists_what_the_plugin_registers():
    """fairseq imports the plugin before it prints the help."""
    words = ["-m", "fairseq_cli.train", "--user-dir", "fairseq_plugin", "--help"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert {"fused_adam", "shared_adam", "time_budget"} <= set(re.findall(r"\w+", done.stdout))
