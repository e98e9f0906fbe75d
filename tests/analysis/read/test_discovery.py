"""Symbolic links below the run folders."""

import pytest

from roberta_small.analysis.read.long_table import load_runs
from roberta_small.analysis.read.runs import find_runs
from tests.support.analysis.run_trees import write_run

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
