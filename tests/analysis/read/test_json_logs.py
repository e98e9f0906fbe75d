"""Corrupt lines in fairseq's JSON logs."""

import json
import re

import pytest

from roberta_small.analysis.read.long_table import load_runs, values_of
from tests.support.analysis.log_trees import write_json_log

GOOD = '{"epoch": 3, "valid_accuracy": "77", "valid_num_updates": "75"}'


@pytest.fixture
def path(tmp_path):
    write_json_log(tmp_path / "bert" / "1" / "train.log")
    return tmp_path / "bert" / "1" / "train.log"


def accuracies(path):
    return values_of(load_runs(path.parent), "valid", "accuracy")["value"].tolist()


def append(path, *lines):
    with open(path, "a", encoding="utf-8") as log:
        log.write("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    "line",
    [
        GOOD.replace('"77"', "[77]"),
        GOOD.replace('"77"', "1" + "0" * 400),
        GOOD.replace('"75"', "null"),
        GOOD.replace('"75"', "true"),
        GOOD.replace('"75"', "75.5"),
        GOOD.replace('"75"', "Infinity"),
        GOOD.replace('"75"', str(2**63)),
        pytest.param(GOOD.replace('"77"', "[" * 100_000), id="deep"),
        GOOD.replace("accuracy", "\\ud800"),
        GOOD.replace('{"epoch"', '{"epo#h"'),
    ],
)
def test_a_corrupt_line_is_skipped_with_a_warning(path, caplog, line):
    append(path, line, GOOD)
    assert accuracies(path) == [49.5, 49.5, 77.0]
    assert re.search(rf"{re.escape(str(path))}.* line 18 \(1 in all\).* 9 valid records", caplog.text)


def test_lines_without_statistics_are_not_corrupt(path, caplog):
    append(path, "{'num_updates': 3}", 'stats["num_updates"] = x', '{"num_updates"}')
    assert accuracies(path) == [49.5, 49.5]
    assert "corrupt" not in caplog.text


@pytest.mark.parametrize(
    ("written", "step"),
    [("75", 75), (75, 75), (75.0, 75), ("1.23457e+06", 1_234_570), (str(2**53 + 1), 2**53 + 1)],
)
def test_steps_as_they_are_written(path, written, step):
    append(path, GOOD.replace('"75"', json.dumps(written)))
    assert values_of(load_runs(path.parent), "valid", "accuracy")["step"].tolist()[-1] == step
