"""Some corrupted files. For more:
`FUZZ_FILES=100000 python -m pytest tests/analysis/read/test_fuzz_logs.py`.
"""

import os
import random

from roberta_small.analysis.read.tfrecord import read_records
from tests.support.analysis.mutations import check_many, frame
from tests.support.analysis.text_mutations import check_text_file

FILES = int(os.environ.get("FUZZ_FILES", "1000"))
TEXT_FILES = int(os.environ.get("FUZZ_FILES", "300"))


def test_damaged_files_keep_their_good_records_and_say_where_they_break(tmp_path):
    kept, corrupted = check_many(tmp_path, FILES)
    assert kept > FILES
    assert corrupted > FILES / 2


def test_damaged_lines_of_text_logs_cost_no_other_line(tmp_path):
    reported = sum(check_text_file(tmp_path, seed) for seed in range(TEXT_FILES))
    assert reported > TEXT_FILES / 2


def test_long_stretches_of_zeros_and_noise_take_no_long_time(tmp_path):
    """A megabyte of each between valid records; a search byte by byte would take minutes."""
    record = frame(b"\t" + bytes(8) + b"\x10\x07")  # an event with a step and nothing else
    noise = random.Random(0).randbytes(1 << 20)
    content = record + bytes(1 << 20) + record + noise + record + frame(bytes(1 << 20))[:-2] + record
    records = read_records(content)
    assert len(records.begins) == 4
    assert records.truncated is None
