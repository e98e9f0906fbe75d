"""A run that diverges stops with an error; other runs continue, and its checkpoints and curves are kept."""

import pytest

from roberta_small.analysis import load_runs
from roberta_small.common import manifest
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from tests.faults import tiny

pytestmark = [pytest.mark.faults, pytest.mark.slow]


def test_a_loss_that_explodes_ends_its_run_alone(tmp_path):
    tiny.prepare(tmp_path)
    left_out = ("--lr-scheduler", "--total-num-update")
    kept = [line for line in tiny.SWEEP.recipe.splitlines() if not line.startswith(left_out)]
    # From the second epoch on the learning rate is multiplied by --lr-shrink.
    schedule = ["--lr-scheduler fixed", "--force-anneal 2", "--lr-shrink 1"]
    (tmp_path / "tiny.txt").write_text("\n".join([*kept, *schedule]))
    folder = tmp_path / "sweep"
    folder.mkdir()
    code, said = tiny.run(folder, "--seeds", "1", "--grid", "lr-shrink=1e30,1", "--", "--max-epoch", "3")
    assert code == 1
    exploded = folder / "runs/fairseq,lr-shrink=1e30/random/seed1"
    assert manifest.read(exploded)["status"] == "failed"
    assert manifest.read(folder / "runs/fairseq/random/seed1")["status"] == "finished"
    lines = [line.strip() for line in said.splitlines() if line.strip().startswith("error: ")]
    assert len(lines) == 1
    assert "update 1" in lines[0]
    assert "--lr" in lines[0]
    assert not any(line.startswith("Traceback") for line in said.splitlines())
    state = load_checkpoint(exploded / "checkpoint_last.pt")
    assert state["optimizer_history"][-1]["num_updates"] == 10
    assert all(weight.isfinite().all() for weight in state["model"].values())
    table = load_runs(folder / "runs", include_unfinished=True)
    curve = table[(table["arm"] == "fairseq,lr-shrink=1e30") & (table["metric"] == "loss")]
    assert set(curve[curve["subset"] == "valid"]["step"]) == {10}
    assert {4, 8} <= set(curve[curve["subset"] == "train_inner"]["step"])
