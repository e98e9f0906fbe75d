import json

import pytest

from benchmarks import report
from benchmarks.__main__ import main, parse_args
from benchmarks.comparisons import COMPARISONS
from roberta_small.common.errors import UserError


def row(name, median, ratio, *, ours=False, **more):
    return {
        "contender": name, "ours": ours, "median": median, "q1": 0.9 * median, "q3": 1.2 * median, "times": 9,
        "wall": 20.0, "peak_bytes": 512 * 2**20, "ratio": ratio, "note": "", "rounds": [{}, {}],
    } | more  # fmt: skip


@pytest.fixture
def document():
    rows = [
        row("stock", 0.6, 1.0, tokens_per_second=1500.0),
        row("ours", 0.15, 4.0, ours=True, tokens_per_second=6000.0),
        row("other", 0.3, 2.0, tokens_per_second=3000.0),
        {"contender": "absent", "ours": False, "problem": "not installed", "note": ""},
    ]
    quantities = [{"quantity": "memory, copy", "value": 12.34, "unit": "GB/s"}]
    hardware = {"cpu": "CPU X", "cores": 2, "memory_bytes": 8 * 2**30, "capabilities": ["avx2"], "gpu": None}
    return {
        "machine": {"hardware": hardware, "packages": {"python": "3.11.7", "torch": "2.13.0"}},
        "device": "CPU",
        "settings": {"rounds": 2},
        "benchmarks": [
            {"name": "finetune", "title": "Fine-tuning", "about": "the same", "contenders": rows},
            {"name": "floor", "title": "Limits", "quantities": quantities},
        ],
    }


def test_the_table_has_a_row_for_each_contender(document):
    lines = [line for line in report.markdown(document).splitlines() if "|" in line][:6]
    assert lines[2] == "| finetune | stock | 600 ms | 540 ms to 720 ms | 1.00 | 512 MiB | 1,500 tokens/s |"
    assert lines[3].startswith("| finetune | **ours** | 150 ms | 135 ms to 180 ms | 4.00 |")
    assert lines[5].endswith("|  |  |  |  | not installed |")
    assert {line.count("|") for line in lines} == {len(report.COLUMNS) + 1}


def test_the_conclusion_names_the_first_and_the_best_of_the_others(document):
    comparison = document["benchmarks"][0]
    assert (
        report.conclusion(comparison) == "ours is 4.00 times as fast as stock and 2.00 times as fast as other"
    )
    comparison["contenders"] = comparison["contenders"][:1]
    assert report.conclusion(comparison) == ""


def test_everything_is_written(document, tmp_path):
    text = report.write(document, tmp_path)
    assert json.loads((tmp_path / "benchmarks.json").read_text(encoding="utf-8")) == document
    assert (tmp_path / "benchmarks.md").read_text(encoding="utf-8") == text
    assert "| memory, copy | 12.34 | GB/s |" in text
    assert "Device: CPU. CPU X (avx2), 2 cores, 8 GiB; Python 3.11.7, torch 2.13.0." in text
    assert (tmp_path / "benchmarks.png").read_bytes().startswith(b"\x89PNG")


def test_bars_are_the_medians(document):
    drawn = report.draw(document["benchmarks"][:1])
    (panel,) = drawn.axes
    bars = [patch.get_width() for patch in panel.patches]
    assert bars == [0.6, 0.15, 0.3]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["stock", "ours", "other"]
    colors = [patch.get_facecolor() for patch in panel.patches]
    assert colors[0] == colors[2] != colors[1]


def test_without_times_there_is_no_figure(document, tmp_path):
    document["benchmarks"] = document["benchmarks"][1:]
    report.write(document, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["benchmarks.json", "benchmarks.md"]


def test_capabilities_are_the_first_cpus(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model name\t: X\nflags\t\t: sse avx2 amx_bf16 amx_tile\n\nflags\t: avx512f\n")
    assert report.capabilities(cpuinfo) == ["avx2", "amx_tile", "amx_bf16"]
    assert report.capabilities(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["finetone"], ["finetone", "floor", "finetune"]),
        (["--rounds", "0"], ["--rounds", "0"]),
        (["--updates", "2"], ["--updates", "3"]),
        (["classify", "--encoder", "absent"], ["absent", "config.json"]),
        (["floor", "--encoder", "absent"], ["--encoder", "floor", "finetune"]),
        (["--size", "huge"], ["--size", "huge", "base"]),
        (["--batch-size", "0"], ["--batch-size", "0"]),
    ],
)
def test_errors_of_the_command_line_name_flag_and_value(arguments, facts):
    with pytest.raises(UserError) as error:
        parse_args(arguments)
    assert all(fact in str(error.value) for fact in facts)


def test_missing_data_is_an_error_before_anything_runs(tmp_path, capsys):
    assert main(["floor", "--data", str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_contender_of_ours_that_fails_shows_in_the_exit_code(monkeypatch, tmp_path, capsys, document):
    monkeypatch.setattr(COMPARISONS["finetune"], "run", lambda settings: document["benchmarks"][0])
    monkeypatch.setattr("benchmarks.__main__.make_sample", lambda folder: None)
    words = ["finetune", "--out", str(tmp_path), "--device", "cpu"]
    assert main(words) == 0
    assert "**ours**" in capsys.readouterr().out
    written = json.loads((tmp_path / "benchmarks.json").read_text(encoding="utf-8"))
    assert written["machine"]["git_commit"]
    assert written["settings"]["sizes"]["layers"] == 4
    rows = document["benchmarks"][0]["contenders"]
    rows[1] = {"contender": "ours", "ours": True, "problem": "crashed", "note": ""}
    assert main(words) == 1
