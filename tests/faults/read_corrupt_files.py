"""Read many corrupt files: python read_corrupt_files.py GOOD WORK FIRST LAST, the seeds FIRST to LAST - 1.

Prints `BEGIN <seed> <kind> <corruption>` before each file and `END <outcome> <detail>` after it, so that the
caller can identify the file at which the process ended.
"""

import os
import random
import resource
import shutil
import signal
import sys
from pathlib import Path

from roberta_small.common.errors import UserError, message_of
from tests.faults import file_readers
from tests.faults.corruption import corrupt
from tests.faults.originals import KINDS

MEMORY = 1 << 30
"""Bytes that reading may allocate in addition to the memory of the process at its start."""
SECONDS = 20
"""Reading that takes longer is a hang; the signal ends the process."""


def main(good, work, first, last):
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(good, work)
    os.chdir(work)
    contents = {kind: Path(path).read_bytes() for kind, path in KINDS.items()}
    right = {kind: read(kind) for kind in KINDS}
    assert all(outcome == "read" for outcome, _ in right.values()), right
    limit_memory()
    for seed in range(first, last):
        generator = random.Random(seed)
        kind = generator.choice(list(KINDS))
        others = [content for other, content in contents.items() if other != kind]
        corruption, content = corrupt(contents[kind], generator, others)
        print("BEGIN", seed, kind, corruption, flush=True)
        Path(KINDS[kind]).write_bytes(content)
        signal.alarm(SECONDS)
        outcome, detail = judge(kind, content == contents[kind], right[kind][1])
        signal.alarm(0)
        Path(KINDS[kind]).write_bytes(contents[kind])
        print("END", outcome, " ".join(str(detail).split())[:300], flush=True)


def limit_memory():
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))


def read(kind):
    """("read", the content), ("refused", the error message) or ("defect", the exception)."""
    try:
        return "read", file_readers.READERS[kind](Path(KINDS[kind]))
    except Exception as error:
        line = message_of(error)
        return ("defect", repr(error)) if line is None else ("refused", line)


def judge(kind, unchanged, right):
    """The outcome and a word about it; `right` is what the good file says."""
    outcome, found = read(kind)
    if outcome == "defect":
        return outcome, found
    if outcome == "refused" and kind != "recipe" and KINDS[kind] not in found:
        # Words of a recipe are refused where they take effect: by the data, or the run that they are not of.
        return "unnamed", found
    if not unchanged and kind in file_readers.RECORDED:
        return by_checksum(kind, outcome, found)
    if outcome == "refused":
        return outcome, found
    return ("same", "") if found == right else unseen(kind, found, right)


def by_checksum(kind, outcome, found):
    """Another content than the recorded one is refused, whether it can be read or not."""
    try:
        file_readers.RECORDED[kind]()
    except UserError as error:
        if KINDS[kind] not in str(error):
            return "unnamed", error
        return ("refused", found) if outcome == "refused" else ("by-checksum", error)
    return "wrong", "its digest is on record, and another file passed"


def unseen(kind, found, right):
    """A difference that the format cannot show, or one that must not be."""
    if kind == "events" and set(found[0]) <= set(right[0]):
        # Every record has its checksum; that whole records are gone from the end only their number would say.
        return ("said" if found[1] else "unseen"), "records are missing"
    if kind == "report":
        # JSON has no checksum: that a line of it is gone, or a word of an option another, cannot be seen.
        return "unseen", "the report itself has no checksum"
    if kind == "predictions":
        # Nor can it be seen that a line is gone, or that a digit is another where the sum is still 1.
        return "unseen", "prediction files have no checksum"
    return "wrong", found


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
