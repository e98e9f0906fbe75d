"""Flags and variables of train.sh --launcher slurm."""

import pytest

from common.errors import UserError
from experiments.launchers.slurm.settings import Slurm
from experiments.settings import train_settings


@pytest.mark.parametrize(
    ("words", "environ", "said"),
    [
        (["--partition", "gpu"], {}, "--partition gpu is for --launcher slurm"),
        (["--gpus", "1"], {"GPUS": "0"}, "--gpus 1 is for --launcher slurm"),
        (["--no-wait"], {}, "--no-wait is for --launcher slurm"),
        (["--launcher", "ssh"], {}, "--launcher 'ssh': choose from local, slurm"),
        (["--launcher", "slurm", "--jobs", "2"], {}, "--throttle"),
        (["--launcher", "slurm", "--gpus", "2"], {}, "--gpus 2: "),
        (["--launcher", "slurm", "--gpus", "1", "--device", "cpu"], {}, "contradicts --device cpu"),
        (["--launcher", "slurm", "--cpus", "0"], {}, "--cpus '0'"),
        (["--launcher", "slurm", "--throttle", "x"], {}, "--throttle 'x'"),
        (["--launcher", "slurm", "--slurm", "'--account"], {}, "close the quotes"),
        (["--launcher", "slurm", "--slurm", "account=x"], {}, "not an option of sbatch"),
        (["--launcher", "slurm", "--slurm", "--array=1-5"], {}, "--array is set by the sweep"),
        (["--launcher", "slurm", "--slurm", "--qos=low --arr=1-5"], {}, "--arr is set by the sweep"),
        (["--launcher", "slurm", "--slurm", "-a1-5"], {}, "-a1-5 is set by the sweep"),
        (["--launcher", "slurm", "--slurm", "--", "--lr", "1"], {}, "--slurm: expected one argument"),
    ],
)
def test_a_mistake_is_named(words, environ, said):
    with pytest.raises(UserError) as caught:
        train_settings(["--data", "bin", "--inits", "random", *words], environ)
    assert said in str(caught.value)


def test_settings_of_slurm_are_flags_or_variables():
    environ = {
        "DATA": "bin",
        "INITS": "random",
        "LAUNCHER": "slurm",
        "TIME": "60",
        "SLURM": "-A x",
        "CPUS": "2",
    }
    found = train_settings(["--cpus", "4", "--slurm", "--qos=low", "--no-wait"], environ).slurm
    assert found == Slurm(time="60", cpus=4, extra=("--qos=low",), wait=False)
    assert train_settings([], {"DATA": "bin", "INITS": "random"}).slurm is None


def test_a_variable_that_is_there_for_something_else_does_not_matter():
    environ = {"DATA": "bin", "INITS": "random", "TIME": "%E real", "GPUS": "x"}
    assert train_settings([], environ).slurm is None
