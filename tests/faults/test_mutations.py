"""Corrupt files of every kind are read correctly or refused with an error message that names the file.

FAULTS_FILES is their number, FAULTS_SEED the first seed. The outcomes:

    same         the relevant content is unchanged (the corruption is in padding or a comment)
    refused      by the file's own reader, with a message that names the file
    by-checksum  read, and refused because its digest is recorded
    said         the valid records of an event file are kept, and a warning states the corrupt place
    unseen       a difference that the format cannot reveal (see `read_corrupt_files.unseen`)

Event files have more of this in tests/analysis/read/test_fuzz_logs.py.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.faults import originals

ROOT = Path(__file__).parents[2]
FILES = int(os.environ.get("FAULTS_FILES", "10000"))
SEED = int(os.environ.get("FAULTS_SEED", "0"))
GOOD_OUTCOMES = {"same", "refused", "by-checksum", "said", "unseen"}
pytestmark = [pytest.mark.faults, pytest.mark.slow]


def read_all(folder, first, last):
    """(seed, kind, corruption, outcome, detail) of each file; a crash or a hang is an outcome."""
    while first < last:
        words = ["-m", "tests.faults.read_corrupt_files", folder / "good", folder / "work", first, last]
        command = [sys.executable, *map(str, words)]
        variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with open(folder / "errors", "ab") as errors:
            child = subprocess.Popen(
                command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        begun = None
        for line in child.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "BEGIN":
                begun = rest.split()
            elif word == "END":
                outcome, _, detail = rest.partition(" ")
                yield (*begun, outcome, detail)
                first, begun = int(begun[0]) + 1, None
        child.wait()
        if begun is not None:
            yield (*begun, f"ended with {child.returncode}", "")
            first = int(begun[0]) + 1
        elif child.returncode != 0:
            pytest.fail((folder / "errors").read_text()[-2000:])


def test_corrupt_files_are_read_correctly_or_refused(tmp_path, monkeypatch, figures):
    (tmp_path / "good").mkdir()
    monkeypatch.chdir(tmp_path / "good")
    originals.write(tmp_path / "good")
    found, worse = Counter(), []
    for seed, kind, corruption, outcome, detail in read_all(tmp_path, SEED, SEED + FILES):
        found[kind, outcome] += 1
        if outcome not in GOOD_OUTCOMES:
            worse.append(f"seed {seed}, {corruption} of {kind}: {outcome} {detail}")
    outcomes = Counter()
    for (_, outcome), count in found.items():
        outcomes[outcome] += count
    unseen = {kind: count for (kind, outcome), count in found.items() if outcome == "unseen"}
    figures["corrupt files"] = {"total": found.total(), **outcomes, "unseen by kind": unseen}
    assert found.total() == FILES
    assert not worse, "\n".join(worse[:50])
