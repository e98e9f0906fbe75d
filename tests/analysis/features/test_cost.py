"""The table and figure of scores and costs."""

import pytest

from roberta_small.analysis.__main__ import main
from tests.support.analysis.printed_tables import printed, rows_of
from tests.support.analysis.run_trees import write_run


@pytest.fixture
def measured(tmp_path):
    """Full fine-tuning of two seeds, LoRA of one, and a method that records nothing."""
    full = {"trainable_parameters": 2_000_000, "parameters": 2_000_000, "peak_memory_bytes": 3 << 20}
    full |= {"cpu_seconds": 250.5}
    write_run(tmp_path / "runs", "random", 1, [60.0], [61.0], arm="hf", seconds=100, **full)
    write_run(tmp_path / "runs", "random", 2, [60.0], [63.0], arm="hf", seconds=300, **full)
    write_run(
        tmp_path / "runs", "random", 1, [60.0], [60.0], arm="lora", seconds=50,
        trainable_parameters=20_000, parameters=2_000_000,
    )  # fmt: skip
    write_run(tmp_path / "runs", "tfidf", 0, [70.0], [71.0], arm="bow")
    return tmp_path / "runs"


def test_costs_are_means_over_seeds(measured, capsys):
    rows = rows_of(printed(capsys, "tables", measured, "--table", "cost"))
    shown = {row[0]: row[2:] for row in rows[1:]}
    assert shown["hf"] == ["2", "62.00 ± 1.41", "2,000,000", "100.00", "200", "250", "3"]
    assert shown["lora"] == ["1", "60.00", "20,000", "1.00", "50", "–", "–"]
    assert shown["bow"] == ["1", "71.00", "–", "–", "–", "–", "–"]


def test_the_figure_needs_measured_runs(measured, tmp_path):
    words = ["figures", str(measured), "--figure", "cost", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["accuracy_and_parameters.png"]
    assert main([*words[:-1], str(tmp_path / "none"), "--groups", "bow/tfidf"]) == 0
    assert not (tmp_path / "none").exists()
