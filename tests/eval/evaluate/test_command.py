"""`evaluate` against the accuracy of the trainer and against scikit-learn on the written predictions."""

import json
import re
import shutil

import numpy as np
import pytest
from sklearn import metrics as sk

from roberta_small.analysis.predictions import read_predictions
from roberta_small.analysis.read.runs import LoggedRun
from roberta_small.common import predictions
from roberta_small.common.data_folder import keys_digest, keys_of
from roberta_small.eval.__main__ import main
from tests.support.tiny_runs import write_manifest


def evaluated(tmp_path, *arguments):
    output = tmp_path / "evaluation.json"
    code = main(["evaluate", "--draws", "50", "--out", str(output), "--checkpoint", *map(str, arguments)])
    assert code == 0
    return json.loads(output.read_text("utf-8"))


def arrays(path):
    found = predictions.read(path)
    classes = list(found[0].probabilities)
    labels = np.array([classes.index(p.true_class) for p in found])
    return labels, np.array([list(p.probabilities.values()) for p in found])


def drop_checksums(data):
    """Drop the recorded checksums, so that a test may change the files of the data folder."""
    report = json.loads((data / "preprocess.json").read_text("utf-8"))
    (data / "preprocess.json").write_text(json.dumps(report | {"files": {}}))


def test_metrics_of_a_sweep_equal_scikit_learn(sweep, tmp_path, capsys, trained):
    report = evaluated(tmp_path, sweep, "--write-predictions")
    (group,) = report["groups"]
    assert group["group"] == "fairseq/random"
    assert [c["name"] for c in group["checkpoints"]] == ["fairseq/random/seed1", "fairseq/random/seed2"]
    probabilities = []
    for seed, scores in zip((1, 2), group["checkpoints"], strict=True):
        labels, p = arrays(sweep / f"fairseq/random/seed{seed}/predictions-test.jsonl")
        probabilities.append(p)
        metrics = {name: metric["value"] for name, metric in scores["metrics"].items()}
        assert metrics["accuracy"] == pytest.approx(100 * sk.accuracy_score(labels, p.argmax(1)))
        assert metrics["auroc"] == pytest.approx(sk.roc_auc_score(labels, p[:, 1]))
        assert metrics["brier"] == pytest.approx(sk.brier_score_loss(labels, p, scale_by_half=False))
        assert scores["confusion"] == sk.confusion_matrix(labels, p.argmax(1)).tolist()
    assert [["neg", "pos"][k] for k in labels] == (trained.root / "test.label").read_text().split()
    ensemble = np.mean(probabilities, axis=0)
    assert group["ensemble"]["metrics"]["auroc"]["value"] == pytest.approx(
        sk.roc_auc_score(labels, ensemble[:, 1])
    )
    values = [c["metrics"]["brier"]["value"] for c in group["checkpoints"]]
    assert group["mean"]["brier"] == pytest.approx({"mean": np.mean(values), "std": np.std(values, ddof=1)})
    shown = capsys.readouterr().out
    assert re.search(r"^test: 31\b", shown)
    most = max(set(labels), key=list(labels).count)
    fraction = 100 * list(labels).count(most) / 31
    assert report["majority"] == {"class": ["neg", "pos"][most], "accuracy": pytest.approx(fraction)}
    assert f"{['neg', 'pos'][most]}, {fraction:.2f} %" in shown
    assert "fairseq/random mean ± std (2)" in shown
    assert "fairseq/random ensemble" in shown
    run = LoggedRun(sweep / "fairseq/random/seed1", "fairseq", "random", 1, status="finished")
    assert len(read_predictions([run])) == 31


def test_accuracy_and_mcc_equal_the_trainers(trained, tmp_path):
    from fairseq.logging import metrics

    trained.trainer.task.load_dataset("valid")
    with metrics.aggregate(new_root=True) as meters:
        for sample in trained.trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False):
            trained.trainer.valid_step(sample)
    report = evaluated(tmp_path, trained.run, "--split", "valid")
    ours = report["groups"][0]["checkpoints"][0]["metrics"]
    assert ours["accuracy"]["value"] == pytest.approx(meters.get_smoothed_value("accuracy"))
    assert ours["mcc"]["value"] == pytest.approx(meters.get_smoothed_value("mcc"))


def audit(path, lines, size=31, texts=None):
    split = {"lines": size, "texts": texts}
    content = {"splits": {"test": split}, "duplicates": {"exact": {"test": {"train": lines}}}}
    path.write_text(json.dumps(content))
    return path


def test_duplicates_of_train_are_excluded(trained, copied_run, tmp_path, capsys):
    report = evaluated(
        tmp_path, copied_run, "--audit", audit(tmp_path / "audit.json", [0, 4, 30]), "--write-predictions"
    )
    assert (report["examples"], report["dedup"]["left_out"]) == (28, 3)
    labels, p = arrays(copied_run / "predictions-test.jsonl")
    keep = np.setdiff1d(np.arange(31), [0, 4, 30])
    accuracy = report["groups"][0]["checkpoints"][0]["metrics"]["accuracy"]["value"]
    assert accuracy == pytest.approx(100 * sk.accuracy_score(labels[keep], p[keep].argmax(1)))
    assert re.findall(r"\b\d+\b", capsys.readouterr().out.splitlines()[0]) == ["28", "3"]


def error_of(capsys, *arguments):
    """The last line on standard error of a command that fails."""
    code = main([str(a) for a in arguments])
    error = capsys.readouterr().err.splitlines()
    assert code == 1
    return error[-1]


def test_a_failure_keeps_the_predictions_written_before(sweep, tmp_path, capsys):
    shutil.copytree(sweep, tmp_path / "runs")
    first, second = (tmp_path / f"runs/fairseq/random/seed{seed}" for seed in (1, 2))
    (second / "checkpoint_best.pt").write_bytes(b"not a checkpoint")
    for run in (first, second):
        (run / "predictions-test.jsonl").unlink(missing_ok=True)
    message = error_of(capsys, "evaluate", "--checkpoint", tmp_path / "runs", "--write-predictions")
    assert str(second) in message
    assert len(predictions.read(first / "predictions-test.jsonl")) == 31


def test_error_names_option_or_file(trained, tmp_path, capsys):
    evaluate = ["evaluate", "--checkpoint", trained.run]
    other = audit(tmp_path / "other.json", [], size=30)
    assert re.search(r"--audit.* 30 .* 31\b", error_of(capsys, *evaluate, "--audit", other))
    everything = audit(tmp_path / "all.json", list(range(31)))
    assert re.search("--audit.* test .* train", error_of(capsys, *evaluate, "--audit", everything))
    assert re.search("dev.* test, train, valid", error_of(capsys, *evaluate, "--split", "dev"))
    assert f"{tmp_path / 'absent'}: " in error_of(capsys, *evaluate, "--data", tmp_path / "absent")
    shutil.copy(trained.run / "checkpoint_best.pt", trained.run / "checkpoint_last.pt")
    both = [trained.run / "checkpoint_last.pt", trained.run]
    message = error_of(capsys, "evaluate", "--checkpoint", *both, "--write-predictions")
    assert f"{trained.run}: 2 checkpoints" in message
    assert "--write-predictions" in message


def test_classes_of_other_data_are_matched_by_name(trained, tmp_path, capsys):
    data = tmp_path / "data"
    shutil.copytree(trained.data, data)
    drop_checksums(data)
    (data / "label/dict.txt").write_text("pos 15\nneg 15\nmadeupword0000 0\nmadeupword0001 0\n")
    (tmp_path / "swapped").mkdir()
    original = evaluated(tmp_path, trained.run)["groups"][0]["checkpoints"][0]["confusion"]
    swapped = evaluated(tmp_path / "swapped", trained.run, "--data", data)["groups"][0]["checkpoints"][0]
    assert np.array(swapped["confusion"])[::-1].tolist() == original  # only the labels are exchanged
    (data / "label/dict.txt").write_text("pos 15\nnone 15\n")
    message = error_of(capsys, "evaluate", "--checkpoint", trained.run, "--data", data)
    assert re.search(r"label/dict\.txt: .*'none' .* 2 of test .*neg, pos", message)


def test_runs_are_grouped_by_initialization(sweep, trained, tmp_path):
    runs = tmp_path / "runs"
    for init, seed in (("random", 1), ("pretrained", 1)):
        shutil.copytree(sweep / f"fairseq/random/seed{seed}", runs / f"fairseq/{init}/seed{seed}")
        write_manifest(runs / f"fairseq/{init}/seed{seed}", trained.data, seed, init=init)
    report = evaluated(tmp_path, runs)
    assert [(g["group"], g["ensemble"]) for g in report["groups"]] == [
        ("fairseq/pretrained", None),
        ("fairseq/random", None),
    ]


def test_runs_with_different_examples_are_an_error(trained, pairs, tmp_path, capsys):
    data = shutil.copytree(pairs.data, tmp_path / "data")
    drop_checksums(data)
    (data / "label/dict.txt").write_text("pos 20\nneg 20\n")
    write_manifest(shutil.copytree(pairs.run, tmp_path / "runs/fairseq/random/seed2"), data, seed=2)
    shutil.copytree(trained.run, tmp_path / "runs/fairseq/random/seed1")
    message = error_of(capsys, "evaluate", "--checkpoint", tmp_path / "runs")
    assert (
        "fairseq/random/seed1 and fairseq/random/seed2" in message
        or "seed2 and fairseq/random/seed1" in message
    )
    assert "--data" in message


def test_predictions_of_other_texts_are_not_scored_together(sweep, trained, tmp_path, capsys):
    """The labels are the same, as those of two splits of sorted data."""
    runs = shutil.copytree(sweep, tmp_path / "runs")
    for seed in (1, 2):
        found = [predictions.Prediction(i, "neg", {"neg": 0.3, "pos": 0.7}) for i in range(3)]
        keys = keys_of([[f"text {seed} {i}" for i in range(3)]])
        predictions.write(runs / f"fairseq/random/seed{seed}/predictions-test.jsonl", found, keys)
    message = error_of(capsys, "evaluate", "--checkpoint", runs, "--from-predictions")
    assert all(fact in message for fact in ("seed1", "seed2", "--data", "--write-predictions"))
    evaluate = ["evaluate", "--checkpoint", str(runs)]
    assert main([*evaluate, "--data", str(trained.data), "--write-predictions"]) == 0
    assert main([*evaluate, "--from-predictions"]) == 0
    written = predictions.read(runs / "fairseq/random/seed2/predictions-test.jsonl")
    assert [one.key for one in written] == keys_of([trained.texts])
    other = audit(tmp_path / "audit.json", [0], texts=keys_digest(keys))
    assert "--audit" in error_of(capsys, *evaluate, "--from-predictions", "--audit", other)


def test_prediction_files_give_the_same_scores_without_checkpoints(sweep, tmp_path, capsys):
    with_checkpoints = evaluated(tmp_path, sweep, "--write-predictions")
    copied = tmp_path / "copied"
    shutil.copytree(sweep, copied, ignore=shutil.ignore_patterns("*.pt"))
    again = evaluated(tmp_path, copied, "--from-predictions")
    assert again["groups"] == with_checkpoints["groups"]
    assert {path.rsplit("/", 1)[1] for path in again["sha256"]} == {"predictions-test.jsonl"}

    words = ["evaluate", "--from-predictions", "--checkpoint", str(copied)]
    assert main([*words, "--data", "data"]) == 1
    assert re.search("--data: .*--from-predictions", capsys.readouterr().err)
    for option in (["--device", "cpu"], ["--max-tokens", "100"]):
        assert main([*words, *option]) == 1
        assert option[0] in capsys.readouterr().err
    assert main([*words, "--split", "valid"]) == 1
    assert re.search(rf"{copied}: .*predictions-valid\.jsonl", capsys.readouterr().err)
    path = copied / "fairseq/random/seed2/predictions-test.jsonl"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:3] + lines[4:]), "utf-8")
    assert main(words) == 1
    assert f"{path}: example 3: " in capsys.readouterr().err
