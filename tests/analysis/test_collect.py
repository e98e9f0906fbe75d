"""Copies of runs contain no local paths."""

import tarfile

import pandas as pd
import pytest
from torch.utils.tensorboard import SummaryWriter

from roberta_small.analysis import load_runs
from roberta_small.analysis.__main__ import main
from roberta_small.common.archive import write
from tests.support.analysis.printed_tables import failed
from tests.support.analysis.run_trees import write_run

SECRET = "/home/somebody/fairseq-train"


@pytest.fixture
def runs(tmp_path):
    for seed in (1, 2):
        write_run(tmp_path / "runs", "random", seed, [50.0, 60.0 + seed], [49.0, 58.0])
        run = tmp_path / "runs/fairseq/random" / f"seed{seed}"
        with SummaryWriter(run / "tensorboard/valid") as writer:
            writer.add_text("args", SECRET)
            writer.add_scalar("loss", 0.5, 225)
        (run / "predictions-test.jsonl").write_text("{}\n")
        (run / "checkpoint_best.pt").write_bytes(b"large")
        (run / "train.log").write_text(SECRET)
    return tmp_path / "runs"


def test_the_copy_has_the_same_scalars_and_no_texts(runs, tmp_path):
    target = tmp_path / "results"
    assert main(["collect", str(runs), "--out", str(target)]) == 0
    pd.testing.assert_frame_equal(load_runs(target), load_runs(runs))
    files = [path for path in target.rglob("*") if path.is_file()]
    assert {path.name.split(".")[0] for path in files} == {"manifest", "predictions-test", "events"}
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert SECRET.encode() in b"".join(path.read_bytes() for path in runs.rglob("events*"))


def test_nothing_is_overwritten(runs, tmp_path, capsys):
    target = tmp_path / "results"
    (target / "fairseq/random/seed2").mkdir(parents=True)
    err = failed(capsys, "collect", runs, "--out", target)
    assert str(target / "fairseq/random/seed2") in err
    assert "--out" in err
    assert not (target / "fairseq/random/seed1").exists()


def test_a_run_without_manifest_is_an_error(runs, tmp_path, capsys):
    for path in runs.rglob("manifest.json"):
        path.unlink()
    err = failed(capsys, "collect", runs, "--out", tmp_path / "results")
    assert "manifest.json" in err
    assert str(runs / "fairseq/random/seed1") in err


def test_corrupt_records_are_skipped_with_a_warning(runs, tmp_path, caplog):
    path = next((runs / "fairseq/random/seed1/tensorboard/test").iterdir())
    path.write_bytes(path.read_bytes()[:-3])
    assert main(["collect", str(runs), "--out", str(tmp_path / "results")]) == 0
    assert str(path) in caplog.text
    assert len(load_runs(tmp_path / "results")) == len(load_runs(runs))


def test_an_archive_is_read_as_the_folder(runs, tmp_path, capsys):
    archive = tmp_path / "study.tar.xz"
    assert main(["collect", str(runs), "--out", str(archive)]) == 0
    assert main(["collect", str(archive), "--out", str(tmp_path / "again.tar.xz")]) == 0
    assert archive.read_bytes() == (tmp_path / "again.tar.xz").read_bytes()
    pd.testing.assert_frame_equal(load_runs(archive), load_runs(runs))

    def printed(path, *words):
        capsys.readouterr()
        assert main([words[0], str(path), *words[1:]]) == 0
        return capsys.readouterr().out

    assert printed(archive, "tables") == printed(runs, "tables")
    listed = printed(archive, "runs", "--format", "csv").replace(str(archive), str(runs))
    assert listed == printed(runs, "runs", "--format", "csv")


def test_an_archive_is_not_overwritten(runs, tmp_path, capsys):
    archive = tmp_path / "study.tar.xz"
    archive.write_bytes(b"old")
    assert str(archive) in failed(capsys, "collect", runs, "--out", archive)
    assert archive.read_bytes() == b"old"


def test_an_error_about_a_run_names_the_archive(runs, tmp_path, capsys):
    archive = tmp_path / "study.tar.xz"
    assert main(["collect", str(runs), "--out", str(archive)]) == 0
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "copy")
    (tmp_path / "copy/fairseq/random/seed1/manifest.json").write_text("{")
    write(tmp_path / "copy", tmp_path / "bad.tar.xz")
    capsys.readouterr()
    err = failed(capsys, "tables", tmp_path / "bad.tar.xz")
    assert f"{tmp_path}/bad.tar.xz/fairseq/random/seed1/manifest.json" in err


def test_a_single_run_is_packed_too(runs, tmp_path):
    run = min(path.parent for path in runs.rglob("manifest.json"))
    archive = tmp_path / "run.tar.xz"
    assert main(["collect", str(run), "--out", str(archive)]) == 0
    pd.testing.assert_frame_equal(load_runs(archive), load_runs(run))
