"""`fairseq-validate` with the task `sentence_classification` and without `--criterion`."""

import json
import re
import shlex

import pytest

from tests.support.data_folders import write_data
from tests.support.training import CLASSIFIER, fairseq_command, fairseq_train

RECORD = re.compile(r"\| INFO \| (valid|test) \| (\{.*\})$", flags=re.MULTILINE)
TRAIN = shlex.split(
    "--max-epoch 1 --no-epoch-checkpoints --valid-subset valid,test --log-format json "
    "--classification-head-name sentiment"
)
VALIDATE = shlex.split(
    "--task sentence_classification --valid-subset valid,test --batch-size 5 --cpu --log-format json"
)
METRICS = ("loss", "accuracy", "macro_f1", "mcc")


def records(output):
    """Subset -> metrics as fairseq prints them; the training log has the subset in the names."""
    found = {}
    for subset, text in RECORD.findall(output):
        record = {key.removeprefix(f"{subset}_"): value for key, value in json.loads(text).items()}
        found[subset] = {name: record[name] for name in METRICS}
    return found


@pytest.mark.slow
def test_the_metrics_equal_those_of_the_training_log(tmp_path):
    data, run = write_data(tmp_path / "data", sizes={"train": 16, "valid": 21, "test": 13}), tmp_path / "run"
    trained = fairseq_train(data, *CLASSIFIER, *TRAIN, "--save-dir", run)
    assert trained.returncode == 0, trained.stderr
    done = fairseq_command("validate", data, *VALIDATE, "--path", run / "checkpoint_last.pt")
    assert done.returncode == 0, done.stderr
    found = records(done.stdout)
    assert found.keys() == {"valid", "test"}
    assert found == records(trained.stdout)
