"""Finding runs: manifests, paths, symbolic links and errors."""

import json
import re

import pytest

from roberta_small.analysis.read.long_table import load_runs
from roberta_small.analysis.read.runs import describe, find_runs, select_finished
from roberta_small.common.errors import UserError, enumerate_some
from tests.support.analysis.log_trees import write_export, write_json_log
from tests.support.analysis.run_trees import write_events, write_manifest, write_run


def test_runs_are_found_in_order(runs):
    found = find_runs(runs)
    assert [run.name for run in found] == [
        f"fairseq/{init}/seed{seed}" for init in ("pretrained", "random") for seed in (1, 2, 3)
    ]
    assert describe(found) == ["6 runs: 3 fairseq/pretrained, 3 fairseq/random"]
    assert found[0].recipe == "reference"
    assert found[0].seconds == 135.0


def test_seeds_are_ordered_as_numbers(tmp_path):
    for seed in (10, 9):
        write_run(tmp_path, "random", seed, [50.0], [50.0])
    assert [run.seed for run in find_runs(tmp_path)] == [9, 10]


def test_one_run_folder_may_be_given(runs):
    (run,) = find_runs(runs / "fairseq" / "random" / "seed2")
    assert run.name == "fairseq/random/seed2"


def test_the_manifest_wins_over_the_path(tmp_path):
    write_run(tmp_path, "random", 1, [50.0], [50.0])
    write_manifest(tmp_path / "fairseq" / "random" / "seed1", "hf", "pretrained", 7)
    (run,) = find_runs(tmp_path)
    assert run.name == "hf/pretrained/seed7"


def test_runs_without_manifest_are_named_by_their_path(runs, caplog, monkeypatch):
    for seed in (1, 2):
        (runs / "fairseq" / "random" / f"seed{seed}" / "manifest.json").unlink()
    monkeypatch.chdir(runs / "fairseq" / "random")
    found = find_runs(".")
    assert [run.name for run in found] == [f"fairseq/random/seed{seed}" for seed in (1, 2, 3)]
    assert [run.finished for run in found] == [False, False, True]
    (message,) = caplog.messages
    assert message.startswith("2 runs without manifest.json")


def test_warning_for_unfinished_runs(runs, caplog):
    write_run(runs, "random", 4, [50.0], [50.0], status="interrupted")
    found = find_runs(runs)
    assert len(select_finished(found)) == 6
    assert "fairseq/random/seed4 (interrupted)" in caplog.text
    caplog.clear()
    assert len(select_finished(found, include_unfinished=True)) == 7
    assert "fairseq/random/seed4 (interrupted)" in caplog.text


def test_seeds_with_different_precisions_are_listed(tmp_path):
    for init in ("random", "pretrained"):
        for seed in (1, 2, 3):
            precision = "fp32" if (init, seed) == ("random", 2) else "bf16"
            write_run(tmp_path, init, seed, [50.0], [50.0], precision=precision)
    _, line = describe(find_runs(tmp_path))
    assert re.search(r"fairseq/random: .*\b1, 3\b.*\bbf16\b.*\b2\b.*\bfp32\b", line)
    assert "--precision" in line
    assert len(describe(find_runs(tmp_path / "fairseq/pretrained"))) == 1


def test_no_finished_run_is_an_error_with_the_option(tmp_path):
    write_run(tmp_path, "random", 1, [50.0], [50.0], status="running")
    with pytest.raises(UserError, match=r"seed1 \(running\).*--include-unfinished"):
        select_finished(find_runs(tmp_path))


def test_folder_without_event_files(tmp_path):
    with pytest.raises(UserError, match=f"{re.escape(str(tmp_path))}: .*logs"):
        find_runs(tmp_path)


def test_malformed_manifest(runs):
    path = runs / "fairseq" / "random" / "seed2" / "manifest.json"
    path.write_text('{"schema": 1,\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"seed2/manifest\.json, line 2: not JSON"):
        find_runs(runs)


def test_two_runs_of_the_same_name(runs):
    write_manifest(runs / "fairseq" / "random" / "seed2", "fairseq", "random", 1)
    with pytest.raises(UserError, match=r"seed1 and .*seed2 .*fairseq/random/seed1") as error:
        find_runs(runs)
    assert "--pattern" not in str(error.value)


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (("lr1/fairseq/bert/1/valid", "lr2/fairseq/bert/1/valid"), ["lr1/bert/seed1", "lr2/bert/seed1"]),
        (("a/hf/bert/valid", "b/hf/bert/valid"), ["a/bert/seed0", "b/bert/seed0"]),
        (("x/a/hf/bert-seed1.log", "y/a/hf/bert-seed1.log"), ["x/bert-seed1/seed0", "y/bert-seed1/seed0"]),
        (("hf/bert/3/runs/Nov21_07-00-00_a", "hf/bert/3/runs/Nov22_07-00-00_a"), None),
        (("hf/bert/runs/Nov21_07-00-00_a", "hf/bert/runs/Nov22_07-00-00_a"), None),
        (("hf/bert/3/tb/valid", "hf/bert/3/tensorboard/valid"), ["tb/bert/seed3", "tensorboard/bert/seed3"]),
    ],
)
def test_a_pattern_that_is_proposed_for_two_runs_of_one_name_works(tmp_path, folders, names):
    for number, folder in enumerate(folders):
        if folder.endswith(".log"):
            write_json_log(tmp_path / folder)
            continue
        tag = "accuracy" if folder.endswith("valid") else "eval/accuracy"
        rows = [(step + number, tag, 50.0 + number) for step in (10, 20)]
        write_events(tmp_path / folder, rows, 1.7e9 + 1000 * number)
    with pytest.raises(UserError) as raised:
        load_runs(tmp_path)
    (pattern,) = re.findall("--pattern '(.*)'", str(raised.value))
    found = find_runs(tmp_path, pattern)
    assert len(found) == len({run.name for run in found}) == 2
    assert names in (None, [run.name for run in found])
    assert load_runs(tmp_path, pattern=pattern)["subset"].eq("valid").any()


def test_the_place_of_runs_named_by_files_is_the_folder_of_the_files(tmp_path):
    write_export(tmp_path / "csv" / "run-bert_2_valid-tag-accuracy.csv", [(1.5, 25, 50.0)])
    write_json_log(tmp_path / "json" / "bert-seed1.log")
    write_run(tmp_path, "random", 1, [50.0], [50.0])
    places = [tmp_path / "csv", tmp_path / "fairseq" / "random" / "seed1", tmp_path / "json"]
    assert [run.place for run in find_runs(tmp_path)] == places


def test_long_enumerations_are_cut():
    assert enumerate_some("abcd") == "a, b, c and 1 more"
    assert enumerate_some("abc") == "a, b, c"


def test_runs_that_got_more_epochs_are_named(runs, caplog):
    find_runs(runs)
    assert not caplog.messages
    path = runs / "fairseq" / "random" / "seed2" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"continued": [["--max-epoch", "2"]]}))
    assert [run.continued for run in find_runs(runs)].count(True) == 1
    (message,) = caplog.messages
    assert message.startswith("1 run ")
    assert "fairseq/random/seed2" in message


def test_runs_with_other_test_labels_are_named(tmp_path, caplog):
    for seed, test in ((1, "a"), (2, "a"), (3, "b")):
        checksums = {"label/dict.txt": "d", "label/valid.bin": "v", "label/test.bin": test}
        data = {"path": "data", "sha256": checksums}
        write_manifest(
            write_run(tmp_path, "random", seed, [50.0], [50.0]), "fairseq", "random", seed, data=data
        )
    find_runs(tmp_path)
    (message,) = caplog.messages
    assert {"fairseq/random/seed2", "fairseq/random/seed3"} <= set(re.split("[,:] ", message))
    assert "label/test.bin" in message


TESTS = [51.0, 61.0]


@pytest.fixture
def elsewhere(tmp_path):
    """A finished run in another place, as on another disk."""
    return write_run(tmp_path / "disk", "random", 1, [50.0, 60.0], TESTS)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def logged_tests(root):
    table = load_runs(root)
    return table.loc[table["subset"] == "test", "value"].tolist()


@pytest.mark.parametrize("depth", range(4))
def test_a_link_to_a_run_or_to_a_folder_around_it_is_followed(root, elsewhere, depth):
    target = [elsewhere, *elsewhere.parents][depth]
    (root / target.name).symlink_to(target)
    (run,) = find_runs(root)
    assert run.name == "fairseq/random/seed1"
    assert run.folder == root / target.name / elsewhere.relative_to(target)
    assert logged_tests(root) == TESTS


def test_links_to_folders_within_a_run_are_followed(root, elsewhere):
    run = root / "seed1"
    run.mkdir()
    (elsewhere / "manifest.json").rename(run / "manifest.json")
    (run / "tensorboard").symlink_to(elsewhere / "tensorboard")
    assert logged_tests(root) == TESTS


def test_a_folder_counts_once_and_under_its_own_name(root):
    run = write_run(root, "random", 1, [50.0, 60.0], TESTS)
    (root / "a-link").symlink_to(run)
    (root / "fairseq" / "best").symlink_to("random")
    (run_found,) = find_runs(root)
    assert run_found.folder == run
    assert logged_tests(root) == TESTS


def test_two_links_to_one_run_are_one_run(root, elsewhere):
    for name in ("b", "a"):
        (root / name).symlink_to(elsewhere)
    assert [run.folder for run in find_runs(root)] == [root / "a"]


def test_circles_end(root, elsewhere):
    run = write_run(root, "random", 2, [50.0, 60.0], TESTS)
    (run / "up").symlink_to(root)
    (run / "self").symlink_to(".")
    (elsewhere / "back").symlink_to(root)
    (root / "disk").symlink_to(elsewhere)
    (root / "nowhere").symlink_to("absent")
    (root / "knot").symlink_to("knot")
    assert [run.seed for run in find_runs(root)] == [1, 2]


def test_the_root_itself_may_be_a_link(root, elsewhere):
    (root / "link").symlink_to(elsewhere.parent)
    assert [run.folder for run in find_runs(root / "link")] == [root / "link" / "seed1"]
