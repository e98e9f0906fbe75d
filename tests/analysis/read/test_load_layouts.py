"""Finding, naming and reading logs of other trainers, CSV exports and JSON logs."""

import io
import logging
import math
import re

import numpy as np
import pandas as pd
import pytest
from torch.utils.tensorboard import SummaryWriter

from roberta_small.analysis.__main__ import main
from roberta_small.analysis.read.long_table import load_runs, values_of
from roberta_small.analysis.read.runs import find_runs
from roberta_small.analysis.scoring import best_checkpoints
from roberta_small.common.errors import UserError
from tests.support.analysis.log_trees import (
    fairseq_json_lines,
    write_export,
    write_fairseq,
    write_json_log,
    write_transformers,
)
from tests.support.analysis.printed_tables import failed
from tests.support.analysis.run_trees import write_events, write_run


def series(table, subset, metric):
    rows = values_of(table, subset, metric)
    return list(zip(rows["step"], rows["value"], strict=True))


def test_a_tree_of_stock_fairseq(tmp_path):
    for seed in (1, 2):
        write_fairseq(tmp_path / "exp" / "tb" / "bert" / str(seed), valid=(50.0 + seed, 60.0))
    runs = find_runs(tmp_path)
    assert [run.name for run in runs] == ["exp/bert/seed1", "exp/bert/seed2"]
    assert [run.named_by for run in runs] == ["path", "path"]
    table = load_runs(tmp_path)
    assert sorted(table["subset"].unique()) == ["test", "train", "train_inner", "valid"]
    assert series(table[table["seed"] == 2], "valid", "accuracy") == [(25, 52.0), (50, 60.0)]
    assert values_of(table, "train_inner", "loss")["epoch"].tolist() == [1, 1, 2, 2, 2] * 2


def test_accuracies_are_percent_for_all_runs_if_one_is_above_1(tmp_path):
    write_transformers(tmp_path / "hf" / "bert" / "seed1", valid=(0.5, 1.0), test=math.nan)
    write_transformers(tmp_path / "hf" / "bert" / "seed2", valid=(1.0, 1.5))
    values = values_of(load_runs(tmp_path), "valid", "accuracy")
    assert values["value"].tolist() == [0.5, 1.0, 1.0, 1.5]
    values = values_of(load_runs(tmp_path, accuracies="fraction"), "valid", "accuracy")
    assert values["value"].tolist() == [50.0, 100.0, 100.0, 150.0]


def test_fractions_are_converted_to_percent_and_percentages_unchanged(tmp_path, caplog):
    """Those of Transformers apart from those of fairseq; runs with a manifest log percent."""
    write_transformers(tmp_path / "hf" / "bert" / "seed1", valid=(0.5, 1.0), test=math.nan)
    write_transformers(tmp_path / "hf" / "bert" / "seed3", valid=(0.0, 0.0), test=0.0)
    write_fairseq(tmp_path / "fairseq" / "bert" / "seed1", valid=(0.5, 50.0))
    write_run(tmp_path, "random", 1, [0.5], [0.75])
    with caplog.at_level(logging.INFO):
        table = load_runs(tmp_path, include_unfinished=True)
    values = values_of(table, "valid", "accuracy")
    by_run = {(arm, init): rows["value"].tolist() for (arm, init), rows in values.groupby(["arm", "init"])}
    assert by_run == {
        ("fairseq", "bert"): [0.5, 50.0],
        ("fairseq", "random"): [0.5],
        ("hf", "bert"): [50.0, 100.0, 0.0, 0.0],
    }
    assert values_of(table, "valid", "loss")["value"].max() < 1
    assert [m for m in caplog.messages if "fraction" in m and "accuracy" in m and "hf/bert/seed1" in m]


def test_a_pattern_names_the_runs(tmp_path):
    write_fairseq(tmp_path / "hf" / "7" / "bert" / "logs")
    for pattern in ("{arm}/{seed}/{init}/logs/{subset}", "{seed}/{init}"):
        assert [run.name for run in find_runs(tmp_path, pattern)] == ["hf/bert/seed7"]
        table = load_runs(tmp_path, pattern=pattern)
        assert sorted(table["subset"].unique()) == ["test", "train", "train_inner", "valid"]


@pytest.mark.parametrize("pattern", [None, "{init}/{seed}", "{init}/{seed}/{subset}"])
def test_validation_is_valid_with_and_without_a_pattern(tmp_path, pattern):
    write_fairseq(tmp_path / "hf" / "bert" / "1")
    (tmp_path / "hf" / "bert" / "1" / "valid").rename(tmp_path / "hf" / "bert" / "1" / "validation")
    assert series(load_runs(tmp_path, pattern=pattern), "valid", "accuracy") == [(25, 50), (50, 60)]


@pytest.mark.parametrize("pattern", [None, "{init}/{seed}/{subset}"])
def test_validation_is_valid_in_exports_too(tmp_path, pattern):
    write_export(tmp_path / "run-bert_2_validation-tag-accuracy.csv", [(1.5, 25, 50.0)])
    assert series(load_runs(tmp_path, pattern=pattern), "valid", "accuracy") == [(25, 50)]


def test_dev_keeps_its_name_if_there_is_valid(tmp_path):
    write_fairseq(tmp_path / "bert" / "1")
    write_fairseq(tmp_path / "x", valid=(1.0, 2.0))
    (tmp_path / "x" / "valid").rename(tmp_path / "bert" / "1" / "dev")
    table = load_runs(tmp_path / "bert", pattern="{init}/{seed}/{subset}")
    assert series(table, "valid", "accuracy") == [(25, 50), (50, 60)]
    assert series(table, "dev", "accuracy") == [(25, 1), (50, 2)]


def test_a_pattern_that_matches_no_log(tmp_path):
    write_fairseq(tmp_path / "bert" / "1")
    with pytest.raises(UserError, match=r"'\{init\}-\{seed\}': .*test"):
        find_runs(tmp_path, "{init}-{seed}")


def test_warning_for_logs_that_do_not_match_the_pattern(tmp_path, caplog):
    write_fairseq(tmp_path / "bert" / "1")
    write_fairseq(tmp_path / "old" / "bert")
    assert len(find_runs(tmp_path, "{init}/{seed}/{subset}")) == 1
    place = str(tmp_path / "old" / "bert" / "test")
    assert [m for m in caplog.messages if re.search(r"\b4\b", m) and place in m]


def test_a_manifest_takes_precedence_over_a_pattern(tmp_path):
    write_run(tmp_path, "random", 1, [50.0], [50.0])
    write_fairseq(tmp_path / "stock" / "bert" / "1")
    runs = find_runs(tmp_path, "{init}/{seed}/{subset}")
    assert [(run.name, run.named_by) for run in runs] == [
        ("fairseq/random/seed1", "manifest.json"),
        ("stock/bert/seed1", "pattern"),
    ]


def test_two_paths_that_name_the_same_run(tmp_path):
    for folder in ("a", "b"):
        write_fairseq(tmp_path / folder / "fairseq" / "bert" / "1")
    with pytest.raises(UserError, match=r"a/fairseq/bert/1 and .*b/fairseq/bert/1 .*fairseq/bert/seed1"):
        find_runs(tmp_path)


@pytest.mark.parametrize("prefix", [True, False])
def test_json_logs(tmp_path, prefix):
    write_json_log(tmp_path / "logs" / "bert" / "1" / "train.log", prefix)
    table = load_runs(tmp_path)
    expected = set()
    for subset, stats in fairseq_json_lines():
        stats = {key.removeprefix(f"{subset}_"): float(value) for key, value in stats.items()}
        step = stats.pop("num_updates")
        expected |= {(subset, key, step, stats[key]) for key in stats.keys() - {"epoch", "update"}}
    assert set(table[["subset", "metric", "step", "value"]].itertuples(index=False, name=None)) == expected
    assert table[["init", "seed"]].drop_duplicates().values.tolist() == [["bert", 1]]
    assert series(table, "test", "accuracy") == [(25, 50.25), (50, 50.25)]


def test_json_logs_of_several_runs_in_one_folder(tmp_path):
    for seed in (1, 2):
        write_json_log(tmp_path / "hf" / f"bert-seed{seed}.log")
    assert [run.name for run in find_runs(tmp_path)] == ["hf/bert/seed1", "hf/bert/seed2"]


def test_json_logs_of_runs_with_event_files_are_not_read(tmp_path, caplog):
    write_fairseq(tmp_path / "tb" / "bert" / "1")
    write_json_log(tmp_path / "logs" / "bert" / "1" / "train.log")
    with caplog.at_level(logging.INFO):
        (run,) = find_runs(tmp_path)
    assert {log.kind for log in run.logs} == {"events"}
    assert [m for m in caplog.messages if re.search(r"\b1\b.*JSON", m)]


def test_exports(tmp_path):
    rows = [(1_700_000_000.5, 25, 50.0), (1_700_000_100.5, 50, math.nan)]
    for subset in ("valid", "test", "train_inner"):
        write_export(tmp_path / f"run-hf_bert_seed3_{subset}-tag-accuracy.csv", rows)
    write_export(tmp_path / "run-hf_bert_seed4-tag-eval_accuracy.csv", rows)
    assert [run.name for run in find_runs(tmp_path)] == ["hf/bert/seed3", "hf/bert/seed4"]
    table = load_runs(tmp_path)
    assert sorted(table["subset"].unique()) == ["test", "train_inner", "valid"]
    values = values_of(table, "valid", "accuracy")
    assert values["seed"].tolist() == [3, 3, 4, 4]
    assert values["step"].tolist() == [25, 50] * 2
    assert str(values["value"].tolist()) == "[50.0, nan, 50.0, nan]"


def test_an_export_with_other_columns(tmp_path):
    path = tmp_path / "run-bert_1_valid-tag-accuracy.csv"
    path.write_text("step,value\n1,2\n")
    with pytest.raises(UserError, match=r"accuracy\.csv, line 1: .*Wall time,Step,Value"):
        load_runs(tmp_path)


def test_commands_take_a_tree_without_manifests(tmp_path, capsys):
    for seed in (1, 2):
        write_fairseq(tmp_path / "bert" / str(seed) / "x")
    assert main(["tables", str(tmp_path), "--pattern", "{init}/{seed}/x/{subset}"]) == 0
    output, messages = capsys.readouterr()
    assert "59.00 ± 0.00 (2)" in output
    assert re.search(r"\b2 runs: 2\b", messages)
    for seed in (1, 2):
        facts = (str(tmp_path / "bert" / str(seed)), "init bert", f"seed {seed}", "test", "valid")
        assert [line for line in messages.splitlines() if all(fact in line for fact in facts)]
    assert "--pattern '{init}/{seed}'" in failed(capsys, "runs", tmp_path, "--pattern", "{init}/{seed}")


def test_lightning_evaluates_after_the_last_step(tmp_path, caplog):
    """`fit` validates at steps 9, 19, 29 of 30; `validate` and `test` write a new file each, at step 30."""
    folder = tmp_path / "small" / "seed1"
    fit = [(step, "train_loss", 0.7) for step in (4, 9, 14, 19, 24, 29)]
    fit += [(step, "val_acc", step / 100) for step in (9, 19, 29)]
    for number, rows in enumerate([sorted(fit), [(30, "val_acc", 0.9)], [(30, "test_acc", 0.8)]]):
        write_events(folder, [*rows, (30, "epoch", 3.0)], 1.7e9 + 100 * number, f".{number}")
    table = load_runs(tmp_path)
    assert [step for step, _ in series(table, "valid", "acc")] == [9, 19, 29]
    assert values_of(table, "test", "acc")["epoch"].tolist() == [3]
    words = ["tables", str(tmp_path), "--metric", "acc"]
    assert main(words) == 0
    (advice,) = re.findall("see (--choose-on [a-z]+)", caplog.text)
    assert main([*words, *advice.split()]) == 0
    assert best_checkpoints(table, "acc", subset=advice.split()[1])["test"].tolist() == [np.float32(0.8)]


def test_keras_counts_epochs_from_zero_and_evaluates_by_iterations_too(tmp_path):
    folder = tmp_path / "small" / "seed1"
    write_events(folder / "train", [(epoch, "epoch_accuracy", 0.5) for epoch in range(3)])
    rows = [(epoch, "epoch_accuracy", epoch / 4) for epoch in range(3)]
    iterations = [(32 * step, "evaluation_accuracy_vs_iterations", 0.5) for step in (1, 2, 3, 3)]
    write_events(folder / "validation", rows + iterations)
    values = values_of(load_runs(tmp_path), "valid", "epoch_accuracy")
    assert values[["epoch", "value"]].values.tolist() == [[1, 0.0], [2, 0.25], [3, 0.5]]


def test_an_evaluation_before_the_training_is_epoch_0(tmp_path):
    rows = [(0, "eval/accuracy", 10.0), (0, "train/epoch", 0.0), (5, "train/loss", 0.7)]
    write_events(tmp_path / "bert" / "1", [*rows, (10, "eval/accuracy", 60.0)])
    assert values_of(load_runs(tmp_path), "valid", "accuracy")["epoch"].tolist() == [0, 1]


def test_the_folders_of_add_scalars_are_subsets(tmp_path):
    with SummaryWriter(str(tmp_path / "net" / "seed1")) as writer:
        for step in (10, 20):
            writer.add_scalars("accuracy", {"train": 90.0, "val": 50.0 + step}, step)
    assert series(load_runs(tmp_path), "valid", "accuracy") == [(10, 60.0), (20, 70.0)]


def test_the_advice_for_tags_without_a_split_works(tmp_path, capsys):
    """An accuracy after each epoch, a loss after each update."""
    rows = [(step, "loss", 0.7) for step in range(1, 21)] + [(10, "accuracy", 60.0), (20, "accuracy", 75.0)]
    write_events(tmp_path / "net" / "1", rows)
    words = ["tables", str(tmp_path), "--format", "csv", "--table", "table2"]
    assert main(words) == 1
    (advice,) = re.findall(r"--choose-on \S+ --split \S+", capsys.readouterr().err)
    assert main([*words, *advice.split()]) == 0
    rows = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert rows[["epoch", "mean"]].values.tolist() == [[1, 60.0], [2, 75.0]]
